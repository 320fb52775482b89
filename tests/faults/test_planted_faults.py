"""Hand-written faults that no mutation tool makes, each with what notices it.

A fault is planted from outside, through what anybody may bring along: a source of entropy, a mode with faulty sessions,
a network, a store, a ledger, noise or a learner. Where it can, it leaves totals exact, so that nobody notices it by the
result. What notices it is an attack of the audit, or a check of ``support.fault_checks``; without the fault each of
these is silent. A fault that nothing notices is expected to fail, with the reason.

The whole file takes about 40 CPU s; the short form (``-m "not slow"``) plants one fault of each kind and takes about 5.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from support.fault_checks import (
    AGAIN,
    AGAIN_BFV,
    AGAIN_COMMITTEE,
    CLIENTS,
    EXACT,
    EXACT_PLAIN,
    FORGETS,
    NOISE,
    POOLED,
    RECEIPT,
    REFUSED,
    SPENT,
    STORED,
    VECTORS,
    Check,
    attack,
    by_server,
    made,
    on_the_way,
)
from support.faulty_sums import (
    Client,
    Drawing,
    Keeping,
    Restoring,
    Saying,
    Sessions,
    Unasked,
    by_bytes,
    by_words,
    faulty,
    in_message,
    leaving_out,
    masking,
    telling,
)
from support.memory_store import MemoryStore
from support.parties import signed

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic_secagg.modes import MODES
from analytic_secagg.session_config import SessionConfig
from secagg import (
    ClientSession,
    Guarantee,
    InOneProcess,
    InsecureSeededEntropy,
    IntVector,
    MaskedSum,
    PartyId,
    PartySecrets,
    PlainSum,
    ReceiptedSum,
    SumProtocol,
    SumResult,
    os_entropy,
    run_in_memory,
)
from secagg.committee import SealingKey
from secagg.committee.messages import CommitteeInput, mask_seed
from secagg.config import SERVER
from secagg.dp import DistributedNoise, Ledger, PrivacyGuarantee, Release
from secagg.encoder import EncodedSum
from secagg.encryption import Encrypted, choose_parameters, generate_contexts, sign_context
from secagg.encryption.cipher import pack
from secagg.encryption.key_holder import KeyHolder
from secagg.encryption.seal import load_public
from secagg.entropy import Entropy
from secagg.masked.messages import Roster, SealedShares, UnmaskRequest, UnmaskShares
from secagg.primitives.boxes import BoxKey
from secagg.primitives.shamir import SHARE_BYTES
from secagg.ring import RingVector
from secagg.sessions import ClientInput
from secagg.sums import Upload
from secagg.wire import MessageType, Reader, payload_of

# Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault.

    Args:
        wrong: what is wrong, in one sentence.
        plant: returns it, new for each check.
        noticed_by: what notices, each by itself; for a fault that is missed, what one would expect to.
        missed: why nothing notices it.
    """

    wrong: str
    plant: Callable[[], Any]
    noticed_by: tuple[Check, ...]
    missed: str = ""


FAULTS: dict[str, Fault] = {}


def fault(name: str, wrong: str, plant: Callable[[], Any], *noticed_by: Check, missed: str = "") -> None:
    """List a fault."""
    assert name not in FAULTS
    FAULTS[name] = Fault(wrong=wrong, plant=plant, noticed_by=noticed_by, missed=missed)


def in_mode(
    mode: str, name: str, wrong: str, plant: Callable[[], Sessions], *noticed_by: str | Check, missed: str = ""
) -> None:
    """List a fault of a mode's sessions; attacks that notice it are named."""
    checks = (one if isinstance(one, Check) else attack(one, mode) for one in noticed_by)
    fault(name, wrong, lambda: faulty(mode, plant()), *checks, missed=missed)


masked, committee, bfv = (partial(in_mode, mode) for mode in ("masked", "committee", "bfv"))

# Generators


def generator(name: str, wrong: str, make: Callable[[], Entropy], missed: str = "") -> None:
    fault(name, wrong, lambda: faulty("masked", entropy=make()), attack("drawn_secrets", "masked"), missed=missed)


def from_states(n_states: int) -> Entropy:
    return lambda n: hashlib.shake_256(b"%d" % (int.from_bytes(os.urandom(8), "big") % n_states)).digest(n)


def counting(start: bytes) -> Entropy:
    numbers = count()
    return lambda n: hashlib.shake_256(start + b"%d" % next(numbers)).digest(n)


# fmt: off
generator("sixteen_bits", "A generator has 16 bits of state.", lambda: from_states(1 << 16))
generator("copied_process", "A forked process draws what its parent draws.", lambda: counting(os.urandom(32)))
generator("odd_bytes", "All random bytes are odd.", lambda: lambda n: bytes(b | 1 for b in os.urandom(n)))
generator("many_zeros", "One byte in 16 is zero.", lambda: lambda n: bytes(b if b % 16 else 0 for b in os.urandom(n)))
generator("fifty_bits", "A generator has 50 bits of state.", lambda: from_states(1 << 50),
          missed="131 072 draws that all differ rule out about 30 bits of state and no more")
# fmt: on

# Draws of a client: two secret keys, a self-mask, coefficients of shares; in a committee a seed for each set


def drawing(value: Callable[[int, Any, PartyId, bytes], bytes]) -> Callable[[], Sessions]:
    """Make clients that use another value for a draw, given its number, sum, client and honest bytes."""

    def other(protocol: SumProtocol, party: PartyId, entropy: Entropy) -> Entropy:
        numbers = count()
        return lambda n: value(next(numbers), protocol, party, entropy(n))[:n]

    return lambda: Drawing(other)


def hashed(protocol: SumProtocol, *parts: object) -> bytes:
    return hashlib.shake_256(repr((protocol.digest, *parts)).encode()).digest(64)


def is_coefficient(drawn: bytes) -> bool:
    return len(drawn) == SHARE_BYTES + 16


def top_is_zero(number: int, protocol: Any, party: PartyId, drawn: bytes) -> bytes:
    """Make the coefficient of the highest power zero, which is drawn first of each of the two polynomials."""
    return bytes(49) if is_coefficient(drawn) and (number - 3) % (protocol.shares_needed - 1) == 0 else drawn


def one_seed(protocol: SumProtocol, party: PartyId, entropy: Entropy) -> Entropy:
    drawn = entropy(32)
    return lambda n: drawn[:n]


def in_nonces(protocol: SumProtocol, party: PartyId, entropy: Entropy) -> Entropy:
    """Put the masking key into nonces, which have 12 bytes, encrypted for somebody who can compute ``hashed``."""
    drawn, numbers = list[bytes](), count()

    def draw(n: int) -> bytes:
        if n == 12:
            place = next(numbers)
            key = drawn[1][place % 3 * 12 :]
            return bytes(a ^ b for a, b in zip(key.ljust(12), hashed(protocol, party, place)[:12], strict=False))
        drawn.append(entropy(n))
        return drawn[-1]

    return draw


def short_key(setup: SessionConfig, secrets: PartySecrets) -> tuple[bytes, PartySecrets]:
    boxes, identity = BoxKey(os_entropy(4) + bytes(28)), secrets.identity
    assert identity is not None
    said = SealingKey.signed(identity, boxes.public).to_bytes() if setup.identities else boxes.public
    return said, replace(secrets, boxes=boxes)


# fmt: off
masked("keys_for_good", "A client has the same keys in every sum.",
       drawing(lambda at, sums, party, drawn: bytes([party, at]) * 32 if at < 2 else drawn), "drawn_secrets")
masked("all_from_session", "All that a client draws follows from session and client.",
       lambda: Drawing(lambda sums, party, _: InsecureSeededEntropy(party, sums.digest.hex())), "drawn_secrets")
masked("self_mask_from_session", "A client's self-mask follows from session and client.",
       drawing(lambda at, sums, party, drawn: hashed(sums, party) if at == 2 else drawn), "drawn_secrets")
masked("one_self_mask", "All clients of a sum have the same self-mask.",
       drawing(lambda at, sums, party, drawn: hashed(sums) if at == 2 else drawn), "drawn_secrets", "collusion")
masked("self_mask_of_16_bits", "A client's self-mask is one of 65 536.",
       drawing(lambda at, sums, party, drawn: hashlib.sha256(drawn[:2]).digest() if at == 2 else drawn), "mask_words")
masked("shares_are_the_secret", "Every share of a secret is the secret itself.",
       drawing(lambda at, sums, party, drawn: bytes(49) if is_coefficient(drawn) else drawn), "collusion")
masked("one_share_fewer", "One share fewer than stated opens a secret.", drawing(top_is_zero), "collusion")
committee("one_seed_for_all_sets", "A client draws one seed for all sets of helpers.",
          lambda: Drawing(one_seed), "drawn_secrets", "collusion")
committee("seeds_for_good", "A client has the same seeds in every sum.",
          lambda: Drawing(lambda sums, party, _: InsecureSeededEntropy(party)), "drawn_secrets")
fault("short_helper_keys", "A helper's secret key has 32 bits.",
      lambda: faulty("committee", announce=short_key), attack("drawn_secrets", "committee"))
masked("weak_pairwise_seeds", "Masking keys follow from session and client, beside sound self-masks.",
       drawing(lambda at, sums, party, drawn: hashed(sums, party) if at == 1 else drawn), "drawn_secrets", "collusion",
       missed="nothing compares a client's public keys with what it drew")
masked("nonces_carry_a_key", "Nonces of sealed shares carry the masking key, encrypted for an outsider.",
       lambda: Drawing(in_nonces), "drawn_secrets", "collusion", missed="nonces must look random, and do")
# fmt: on

# Masks


def bare(data: Any, *place: int | None) -> Any:
    data[slice(*place)] = 0
    return data


def bare_segment(name: str) -> Callable[[], Saying]:
    def without(client: Client, mask: RingVector) -> RingVector:
        kept = zip(mask.layout.segments, mask.words, strict=True)
        return RingVector(mask.layout, [words * (segment.name != name) for segment, words in kept])

    return lambda: masking(without)


def where_not_zero(client: Client, mask: RingVector) -> RingVector:
    vector = RingVector.encode(mask.layout, client.vector)
    return RingVector(mask.layout, [mask * (own != 0) for mask, own in zip(mask.words, vector.words, strict=True)])


def one_stream(client: Client, mask: RingVector) -> RingVector:
    longest = max(mask.words, key=len)
    return RingVector(mask.layout, [longest[: len(words)].astype(words.dtype) for words in mask.words])


def remembered(key: Callable[[Client], object], change: Callable[[Any], Any] = lambda words: words) -> Saying:
    """Use the first mask with a key, changed, for all others with that key."""
    first = dict[object, RingVector]()

    def known(client: Client, mask: RingVector) -> RingVector:
        if key(client) not in first:
            first[key(client)] = mask
            return mask
        return RingVector(mask.layout, [change(words) for words in first[key(client)].words])

    return masking(known)


# fmt: off
masked("low_bits_bare", "Masks leave the two low bits of each word bare.",
       partial(by_words, lambda words: words & ~words.dtype.type(3)), "uniformity")
masked("seven_eighths", "The low byte of each word of a mask is below 224.",
       partial(by_words, lambda words: words - words % 256 + words % 256 % 224), "uniformity")
masked("last_entry_bare", "Masks do not cover the last word of a vector.",
       bare_segment("count"), "uniformity", "mask_words")
masked("first_bytes_bare", "Masks begin after the first 128 bytes of a vector.",
       partial(by_bytes, lambda data: bare(data, 128)), "mask_words")
masked("begins_again", "The key stream begins again every 512 words.",
       partial(by_words, lambda words: np.resize(words[:512], len(words))), "mask_words")
masked("one_stream", "All segments have the same key stream.", lambda: masking(one_stream), "mask_words")
masked("zeros_stay", "Entries that are zero are not masked.",
       lambda: masking(where_not_zero), "uniformity")
masked("first_mask_again", "A client uses the mask of its first sum in all others.",
       lambda: remembered(lambda client: client.party), "mask_words")
masked("shared_by_two", "Two clients of a sum have the same mask.",
       lambda: remembered(lambda client: (client.protocol.digest, max(client.party, 2))), "mask_words")
committee("twelve_bits", "Words of masks have 12 bits.",
          partial(by_words, lambda words: words & words.dtype.type(0xFFF)), "uniformity", "mask_words")
committee("cross_bare", "The cross-correlation is not masked.", bare_segment("cross"), "uniformity", "mask_words")
masked("masks_cancel", "The masks of two clients cancel: their two messages add up to their rows' statistics.",
       lambda: remembered(lambda client: (client.protocol.digest, max(client.party, 2)), lambda words: 0 - words),
       "mask_words", "collusion", missed="masks are compared for equal words, and not added up in pairs")
# fmt: on

# Masks that a client leaves out, and secrets that it reveals


def lonely(client: Client) -> list[tuple[bytes, int]]:
    """All pairwise masks of one client, at a place that the session draws."""
    alone = client.protocol.clients[client.protocol.session_id[0] % len(client.protocol.clients)]
    return client.pairwise() if client.party == alone else []


def of_set(place: int) -> Callable[[Client], list[tuple[bytes, int]]]:
    """A committee client's mask of one set of helpers."""

    def masks(client: Client) -> list[tuple[bytes, int]]:
        config = client.protocol
        at = place % config.seed_sharing.n_seeds
        return [(mask_seed(config.digest, client.party, at, client.tape[32 * at : 32 * at + 32]), 1)]

    return masks


def unmasking(of_survivors: bool) -> Callable[[], Saying]:
    """Clients that reveal both shares of survivors, or of who is lost."""

    def change(client: Client, payload: bytes) -> bytes:
        said = UnmaskShares.read(Reader(memoryview(payload), peer=0))
        keys, seeds = dict(said.mask_key_shares), dict(said.self_mask_shares)
        for peer in said.self_mask_shares if of_survivors else said.mask_key_shares:
            if peer != client.party:
                keys[peer], seeds[peer] = client.shares_of(peer)
        return UnmaskShares(mask_key_shares=keys, self_mask_shares=seeds).to_payload()

    return lambda: in_message(MessageType.UNMASK_SHARES, change)


def self_mask_said(client: Client, payload: bytes) -> bytes:
    message = SealedShares.read(Reader(memoryview(payload), peer=0))
    return replace(message, commitment=client.self_mask).to_payload()


def seeds_said(client: Client, payload: bytes) -> bytes:
    config = client.protocol
    message = CommitteeInput.read(Reader(memoryview(payload), peer=0), config)
    return replace(message, commitments=client.tape[: 32 * config.seed_sharing.n_seeds]).to_payload()


# fmt: off
masked("no_self_mask", "Clients have no mask of their own.",
       lambda: leaving_out(lambda client: [(client.self_mask, 1)]), "collusion")
masked("no_pairwise_masks", "Clients have no masks with others.", lambda: leaving_out(Client.pairwise), "collusion")
masked("lonely_client", "The graph leaves one client alone.", lambda: leaving_out(lonely), "collusion")
committee("last_set_missing", "Clients have no mask of the last set of helpers.",
          lambda: leaving_out(of_set(-1)), "drawn_secrets", "collusion")
masked("both_shares_of_lost", "Clients reveal both shares of who is lost.", unmasking(False), "collusion")
masked("both_shares_of_survivors", "Clients reveal both shares of survivors.", unmasking(True), "collusion")
masked("self_mask_said", "A commitment is the self-mask that it is to hide.",
       lambda: in_message(MessageType.SEALED_SHARES, self_mask_said), "drawn_secrets")
committee("seeds_said", "Commitments are the seeds that they are to hide.",
          lambda: in_message(MessageType.COMMITTEE_INPUT, seeds_said), "drawn_secrets")
# fmt: on

# Promises, journals, restored sessions


class Boastful(MaskedSum):
    @property
    def guarantee(self) -> Guarantee:
        own: Guarantee = MaskedSum.guarantee.fget(self)  # type: ignore[attr-defined]
        return replace(
            own,
            client_reconstruction_threshold=own.client_reconstruction_threshold + 1,
            max_colluding_clients=own.max_colluding_clients + 1,
        )


class Bare(PlainSum):
    @property
    def guarantee(self) -> Guarantee:
        own: Guarantee = PlainSum.guarantee.fget(self)  # type: ignore[attr-defined]
        return replace(own, upload=Upload.UNIFORM, client_reconstruction_threshold=len(self.clients) - 1)


class Unbound(MaskedSum):
    def __post_init__(self) -> None:
        object.__setattr__(self, "context", b"")
        MaskedSum.__post_init__(self)


def of_class(mode: str, name: str, wrong: str, kind: type, *attacks: str) -> None:
    """List a fault of a sum's class."""

    def make(setup: SessionConfig) -> SumProtocol:
        honest: Any = MODES[mode].make(setup)
        made: SumProtocol = kind(**{own.name: getattr(honest, own.name) for own in fields(honest) if own.init})
        return made

    called = "masked" if kind is Bare else mode
    fault(name, wrong, lambda: faulty(mode, make=make), *(attack(one, called) for one in attacks))


# fmt: off
of_class("masked", "promises_one_more", "A sum promises to withstand one client more than it does.",
         Boastful, "collusion")
of_class("plain", "bare_and_called_masked", "A mode sends bare vectors and calls them masked.", Bare,
         "label_histogram", "uniformity", "collusion")
of_class("masked", "unbound", "Keys are not bound to the model that a client received.", Unbound, "different_models")
masked("sites_forget", "Sites do not ask their journals.", Unasked, "query_log_differencing")
committee("helpers_forget", "Neither sites nor helpers ask their journals.", Unasked, "query_log_differencing")
masked("client_answers_twice", "A client that is restored unmasks a second total.", Restoring, AGAIN)
committee("helper_answers_twice", "A helper that is restored answers for a second survivor set.",
          Restoring, AGAIN_COMMITTEE, "survivor_sets")
masked("client_keeps_secrets", "A client's stored session keeps its secrets when the sum is over.", Keeping, FORGETS)
bfv("holder_decrypts_twice", "A key holder that is restored decrypts a second sum.", Restoring, AGAIN_BFV)
# fmt: on

# Encryption


class Generous(Sessions):
    """A key holder whose own policy is to decrypt sums of any number of clients."""

    def helper(self, sums: InOneProcess, party: PartyId, entropy: Entropy) -> ClientSession:
        config, own = sums.protocol, sums.of_party(party)
        assert isinstance(config, EncodedSum)
        assert isinstance(config.encoder, Encrypted)
        return KeyHolder(config, party=party, cipher=config.encoder.cipher(config), survivors_needed=1, secrets=own)


class RoundedAlike(Encrypted):
    """Ciphertexts whose rounding follows from the message, as SEAL makes them."""

    def encrypt(self, words: RingVector, config: EncodedSum) -> Iterable[bytes]:
        seal, keys = importlib.import_module("tenseal.sealapi"), load_public(self.parameters, self.public_context).data
        digits, step = self.cipher(config).plan.split(words), self.parameters.slots
        shape = (2, len(self.parameters.primes), self.parameters.degree)
        uploads = []
        for start in range(0, len(digits), step):
            message, cipher = seal.Plaintext(), seal.Ciphertext()
            seal.BatchEncoder(keys.seal_context()).encode(digits[start : start + step].tolist(), message)
            seal.Encryptor(keys.seal_context(), keys.public_key()).encrypt(message, cipher)
            residues = np.fromiter(map(cipher.__getitem__, range(int(np.prod(shape)))), dtype=np.uint64)
            uploads.append(pack(residues.reshape(shape), self.parameters))
        return uploads


def rounded_alike(setup: SessionConfig) -> SumProtocol:
    honest: Any = MODES["bfv"].make(setup)
    values = {own.name: getattr(honest.encoder, own.name) for own in fields(Encrypted)}
    protocol: SumProtocol = replace(honest, encoder=RoundedAlike(**values))
    return protocol


def with_secret_key(setup: SessionConfig, secrets: PartySecrets) -> tuple[bytes, PartySecrets]:
    """A signed announcement of the secret context in place of the public one."""
    parameters, (holder,) = choose_parameters(setup.layout, len(setup.clients), scheme="bfv"), setup.helper_keys
    secret, identity = generate_contexts(parameters).secret_context, secrets.identity
    assert identity is not None
    signature = sign_context(identity, secret, parameters=parameters, session_id=setup.session_id, key_holder=holder)
    return signature + secret, replace(secrets, decryption=secret)


# fmt: off
bfv("holder_decrypts_one", "A key holder decrypts the vector of a single client.", Generous, AGAIN_BFV)
fault("rounding_follows_message", "The rounding of a BFV ciphertext follows from its message.",
      lambda: faulty("bfv", make=rounded_alike), attack("confirmation", "bfv"))
fault("context_with_secret_key", "The public context of a key holder holds its secret key.",
      lambda: lambda: made(faulty("bfv", announce=with_secret_key)) and (), REFUSED)
# fmt: on

# Wrong totals, messages that are changed on the way, and learners


def swapped(result: SumResult) -> SumResult:
    """Put a client that is lost in the place of the last survivor."""
    lost = set(CLIENTS) - set(result.survivors)
    return replace(result, survivors=tuple(sorted({*result.survivors[:-1], *(lost or result.survivors[-1:])})))


class Clipping(Sessions):
    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        return InOneProcess.client(sums, party, np.clip(client_input, -100, 100), entropy=entropy)


def exchanged(parties: InOneProcess, message: bytes) -> bytes:
    """A roster in which two clients have each other's keys."""
    keys = dict(Roster.read(Reader(memoryview(payload_of(message)), peer=SERVER), signature_bytes=64).keys)
    first, second, *_ = keys
    keys[first], keys[second] = keys[second], keys[first]
    return by_server(parties, message, Roster(keys=keys).to_payload())


def other_survivors(parties: InOneProcess, message: bytes) -> bytes:
    return by_server(parties, message, UnmaskRequest(dropouts=(5,)).to_payload())


def one_bit(parties: InOneProcess, message: bytes) -> bytes:
    return message[:-100] + bytes([message[-100] ^ 1]) + message[-99:]


class ClippingLearner(AFL):
    def client_statistics(self, model: Any, rows: ClientRows) -> Any:
        return AFL.client_statistics(self, model, ClientRows(rows.features.clip(-1.5, 1.5), rows.targets))


class SingleLearner(AFL):
    def client_statistics(self, model: Any, rows: ClientRows) -> Any:
        return AFL.client_statistics(self, model, ClientRows(rows.features.astype(np.float32), rows.targets))


class ForgetfulLearner(AFL):
    def client_statistics(self, model: Any, rows: ClientRows) -> Any:
        return AFL.client_statistics(self, model, rows.taken(np.arange(len(rows) - 1)))


# fmt: off
masked("survivors_swapped", "A server names a client that is lost in the place of a survivor.",
       lambda: telling(swapped), EXACT)
masked("vectors_clipped", "Clients clip their vectors in silence.", Clipping, EXACT)
in_mode("plain", "counted_twice", "A server adds the vector of the first client twice.",
        lambda: telling(lambda result: replace(result, total=result.total + VECTORS[1])), EXACT_PLAIN)
fault("keys_exchanged", "A server tells a client other keys of two others.",
      on_the_way(MessageType.ROSTER, exchanged), REFUSED)
fault("told_otherwise", "A server tells one client other survivors than the rest.",
      on_the_way(MessageType.UNMASK_REQUEST, other_survivors), REFUSED)
fault("bit_on_the_way", "A bit of a masked vector is changed on its way.",
      on_the_way(MessageType.MASKED_INPUT, one_bit), REFUSED)
fault("rows_clipped", "A learner clips rows in silence.", lambda: ClippingLearner, POOLED)
fault("rows_in_single_precision", "A learner puts rows into single precision.", lambda: SingleLearner, POOLED)
fault("last_row_forgotten", "A learner forgets the last row of each client.", lambda: ForgetfulLearner, POOLED)
# fmt: on

# Stores, ledgers, receipts


class Losing(MemoryStore):
    def save(self, record: bytes) -> None:
        return


class Outdated(MemoryStore):
    def save(self, record: bytes) -> None:
        self.record = self.record or record


class Unwritten(Ledger):
    def charge(self, release: Release, *, session_id: bytes) -> PrivacyGuarantee:
        return self.check([release])


class Cheap(Ledger):
    def charge(self, release: Release, *, session_id: bytes) -> PrivacyGuarantee:
        return Ledger.charge(self, replace(release, rho=release.rho / 4), session_id=session_id)


def of_another_sum(result: SumResult) -> SumResult:
    parties = signed(made(MODES["plain"]))
    protocol = ReceiptedSum(protocol=parties.protocol)
    other = run_in_memory(InOneProcess(protocol=protocol, secrets=parties.secrets), VECTORS).result
    return replace(result, receipt=other.receipt)


# fmt: off
fault("store_loses", "A store loses what it is given.", lambda: Losing, STORED)
fault("store_outdated", "A store returns its first record.", lambda: Outdated, STORED)
fault("ledger_writes_nothing", "A ledger writes no release down.", lambda: Unwritten.open, SPENT)
fault("ledger_books_a_quarter", "A ledger books a quarter of what a release costs.", lambda: Cheap.open, SPENT)
fault("receipt_for_another_total", "A server releases another total than its receipt is for.",
      lambda: telling(lambda result: replace(result, total=result.total + 1)), RECEIPT)
fault("receipt_of_another_sum", "A server gives the receipt of another sum.", lambda: telling(of_another_sum), RECEIPT)
# fmt: on

# Noise: what a client sends in place of its vector with its share


def shares(change: Callable[[PartyId, IntVector], IntVector]) -> Callable[[], Any]:
    """Change every client's share, given the client and a fresh share."""

    def spoil(noise: DistributedNoise, number: int) -> Any:
        return lambda party, vector, session: vector + change(party, noise.share.draw())

    return lambda: spoil


SOMEBODY = int(np.random.default_rng(0).integers(2, 6))
"""A client in the rehearsed sums; not the first."""


def silent(party: PartyId) -> Callable[[], Any]:
    return shares(lambda own, share: share * (own != party))


def drawn(draw: Callable[[DistributedNoise, PartyId, bytes], IntVector]) -> Callable[[], Any]:
    """Draw every client's share otherwise, given the noise, the client and the session."""

    def spoil(noise: DistributedNoise, number: int) -> Any:
        return lambda party, vector, session: vector + draw(noise, party, session)

    return lambda: spoil


def sigmas(noise: DistributedNoise) -> Any:
    return np.sqrt(np.array([0.0, *map(float, noise.share.variances)]))[noise.share.levels]


def evenly(noise: DistributedNoise, party: PartyId, session: bytes) -> IntVector:
    """Draw uniform noise of the right variance."""
    reach = np.sqrt(3.0) * sigmas(noise)
    return np.asarray(np.rint(np.random.default_rng().uniform(-reach, reach)), dtype=np.int64)


def in_pairs() -> Any:
    """Give clients 2k - 1 and 2k of a session the same share with opposite signs."""
    first = dict[object, IntVector]()

    def draw(noise: DistributedNoise, party: PartyId, session: bytes) -> IntVector:
        pair = session, (party + 1) // 2
        if pair in first:
            return -first.pop(pair)
        first[pair] = noise.share.draw()
        return first[pair]

    return drawn(draw)()


def of_few_seeds(noise: DistributedNoise, party: PartyId, session: bytes) -> IntVector:
    return noise.share.draw(InsecureSeededEntropy(int.from_bytes(os_entropy(4), "big")))


# fmt: off
fault("first_client_silent", "The first client adds no noise.", silent(1), NOISE)
fault("a_client_silent", "A client at a random place adds no noise.", silent(SOMEBODY), NOISE)
fault("only_the_first", "The first client alone adds noise.", shares(lambda party, share: share * (party == 1)), NOISE)
fault("noise_of_a_fixed_seed", "Noise comes from a fixed seed.",
      drawn(lambda noise, party, session: noise.share.draw(InsecureSeededEntropy(party))), NOISE)
fault("absolute_noise", "Noise is never negative.", shares(lambda party, share: abs(share)), NOISE)
fault("coarse_noise", "Noise is rounded to multiples of 16.", shares(lambda party, share: share + 8 & ~15), NOISE)
fault("short_tails", "Noise is cut off at half a standard deviation.",
      drawn(lambda noise, *_: np.clip(noise.share.draw(), *np.outer((-1, 1), sigmas(noise) // 2).astype(int))), NOISE)
fault("noise_cancels", "The shares of two clients cancel each other.", in_pairs, NOISE)
fault("uniform_noise", "Noise is uniform and has the right variance.", drawn(evenly), NOISE,
      missed="shares add up to what variance and low bits do not tell from Gaussian noise; its tails are too short")
fault("noise_of_few_seeds", "Noise comes from a generator of 32 bits.", drawn(of_few_seeds), NOISE,
      missed="a handful of sums shows no seed twice")
# fmt: on

# Tests

QUICK = (
    "odd_bytes", "shares_are_the_secret", "low_bits_bare", "last_entry_bare", "no_self_mask", "self_mask_said",
    "client_answers_twice", "client_keeps_secrets", "survivors_swapped", "keys_exchanged", "rows_clipped",
    "store_loses", "ledger_writes_nothing", "receipt_for_another_total", "first_client_silent",
)  # fmt: skip
"""A fault of each kind that runs in the short form; all others are slow."""


def cases() -> Iterator[Any]:
    """List each fault with each check that notices it; a missed one once, with all of them."""
    for name, one in FAULTS.items():
        marks = [] if name in QUICK else [pytest.mark.slow]
        if one.missed:
            missed = pytest.mark.xfail(strict=True, reason=one.missed, raises=AssertionError)
            yield pytest.param(one, one.noticed_by, id=name, marks=[*marks, missed])
        else:
            for check in one.noticed_by:
                yield pytest.param(one, (check,), id=f"{name}: {check.name}", marks=marks)


@pytest.mark.parametrize(("planted", "checks"), list(cases()))
def test_a_planted_fault_is_noticed(planted: Fault, checks: tuple[Check, ...]) -> None:
    assert any(check.notices(planted.plant()) for check in checks), planted.wrong


CHECKS = {check.name: check for one in FAULTS.values() for check in one.noticed_by}
OF_QUICK = {check.name for name in QUICK for check in FAULTS[name].noticed_by}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in OF_QUICK else [pytest.mark.slow]) for name in CHECKS]
)
def test_without_a_fault_nothing_is_noticed(name: str) -> None:
    assert not CHECKS[name].notices(CHECKS[name].honest())
