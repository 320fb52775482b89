"""Eighty-one faults, written from the product's sources alone, before the catalogue or the audit was read."""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Fresh:
    """A fault, what a reader of its commit would call it, where it is at work, and whether it gives a vector away."""

    name: str
    says: str
    mode: str
    plant: Callable[[Any], None]
    noisy: bool = False
    gives: bool = False
    """Whether the server, with the coalition that the mode is sold against, reads a vector (or its noise-free sum)."""


FRESH: list[Fresh] = []


def into(faults: list[Fresh]) -> Any:
    """The decorator that puts a fault among others."""

    def fault(says: str, mode: str = "masked", *, noisy: bool = False, gives: bool = False) -> Any:
        def keep(plant: Callable[[Any], None]) -> Callable[[Any], None]:
            faults.append(Fresh(plant.__name__, says, mode, plant, noisy, gives))
            return plant

        return keep

    return fault


fault = into(FRESH)


def _sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


# Masks of clients


@fault("pairwise seeds are hashed from the two public keys", gives=True)
def pair_seed_of_public_keys(m: Any) -> None:
    def seed(own: Any, peer: bytes, digest: bytes) -> bytes:
        return _sha(b"pair", digest, *sorted((own.public, peer)))

    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.pairwise_seed", seed)


@fault("pairwise seeds are hashed from public keys for one key in four", gives=True)
def pair_seed_weak_for_some(m: Any) -> None:
    from secagg.masked.secrets import pairwise_seed

    def seed(own: Any, peer: bytes, digest: bytes) -> bytes:
        if own.public[0] < 64 or peer[0] < 64:
            return _sha(b"pair", digest, *sorted((own.public, peer)))
        return pairwise_seed(own, peer, digest)

    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.pairwise_seed", seed)


@fault("the last client of the cohort has weak pairwise seeds", gives=True)
def pair_seed_weak_for_last(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    def weak(digest: bytes, one: int, other: int) -> bytes:
        return _sha(b"weak", digest, *(n.to_bytes(4, "big") for n in sorted((one, other))))

    masks, shared = MaskedClient._masks, MaskedServer._masks_shared_with

    def client(self: Any) -> Any:
        last, peers = self._config.clients[-1], sorted(self._own.shares.keys() - {self.party})
        found = masks(self)
        return [found[0]] + [
            (weak(self._config.digest, self.party, peer) if last in (peer, self.party) else seed, sign)
            for peer, (seed, sign) in zip(peers, found[1:], strict=True)
        ]

    def server(self: Any, dropout: int) -> Any:
        last, near = self._config.clients[-1], self._near(dropout, self._kept.survivors)
        return [
            (weak(self._config.digest, dropout, peer) if last in (peer, dropout) else seed, sign)
            for peer, (seed, sign) in zip(near, shared(self, dropout), strict=True)
        ]

    m.setattr(MaskedClient, "_masks", client)
    m.setattr(MaskedServer, "_masks_shared_with", server)


@fault("a client masks with one partner only, the neighbour of its number", gives=True)
def one_partner(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    masks, shared = MaskedClient._masks, MaskedServer._masks_shared_with

    def partner(config: Any, party: int) -> int:
        at, clients = config.index(party), config.clients
        return clients[min(at ^ 1, len(clients) - 1)]

    def client(self: Any) -> Any:
        peers, found = sorted(self._own.shares.keys() - {self.party}), masks(self)
        mine = partner(self._config, self.party)
        return [found[0]] + [
            one
            for peer, one in zip(peers, found[1:], strict=True)
            if peer == mine or partner(self._config, peer) == self.party
        ]

    def server(self: Any, dropout: int) -> Any:
        near = self._near(dropout, self._kept.survivors)
        return [
            one
            for peer, one in zip(near, shared(self, dropout), strict=True)
            if partner(self._config, peer) == dropout or partner(self._config, dropout) == peer
        ]

    m.setattr(MaskedClient, "_masks", client)
    m.setattr(MaskedServer, "_masks_shared_with", server)


@fault("the self-mask is left out: pairwise masks hide the vector anyway", gives=True)
def no_self_mask(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer
    from secagg.primitives.mask_stream import add_masks

    masks = MaskedClient._masks
    m.setattr(MaskedClient, "_masks", lambda self: masks(self)[1:])

    def unmask(vector: Any, found: Any, digest: bytes, **more: Any) -> None:
        add_masks(vector, [one for one in found if one[0] not in seeds], digest, **more)

    seeds: set[bytes] = set()
    seed_of = MaskedServer._self_mask_seed

    def noted(self: Any, party: int) -> bytes:
        seed = seed_of(self, party)
        seeds.add(seed)
        return seed

    m.setattr(MaskedServer, "_self_mask_seed", noted)
    m.setattr("secagg.masked.server.add_masks", unmask)


@fault("the self-mask seed is the hash of the client's public key", gives=True)
def self_mask_of_public_key(m: Any) -> None:
    _first_draw(m, lambda client: _sha(b"self mask", client._own.masking.public))


@fault("the self-mask seed is drawn once a process and kept for later sums", gives=False)
def self_mask_kept(m: Any) -> None:
    kept: dict[int, bytes] = {}
    _first_draw(m, lambda client: kept.setdefault(client.party, os.urandom(32)))


def _first_draw(m: Any, value: Callable[[Any], bytes]) -> None:
    """Answer the first draw of the round in which secrets are shared, which is the self-mask's seed."""
    from secagg.masked.client import MaskedClient

    share = MaskedClient._share_secrets

    def shared(self: Any, reader: Any) -> bytes:
        entropy, first = self._entropy, [True]

        def draw(n: int) -> bytes:
            if first:
                first.clear()
                return value(self)
            return entropy(n)

        self._entropy = draw
        try:
            return share(self, reader)
        finally:
            self._entropy = entropy

    m.setattr(MaskedClient, "_share_secrets", shared)


@fault("the commitment to the self-mask is the seed itself", gives=True)
def commitment_is_the_seed(m: Any) -> None:
    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.self_mask_commitment", lambda seed, digest, party: seed)


@fault("key pairs and self-mask are kept by client and masks do not depend on the session: a two-time pad", gives=True)
def two_time_pad(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.primitives import mask_stream

    pairs: dict[tuple[int, str], Any] = {}
    begin = MaskedClient.__init__

    def init(self: Any, config: Any, party: int, *more: Any, **named: Any) -> None:
        begin(self, config, party, *more, **named)
        own = self._kept.secrets
        own.masking = pairs.setdefault((party, "masking"), own.masking)
        own.sealing = pairs.setdefault((party, "sealing"), own.sealing)

    m.setattr(MaskedClient, "__init__", init)
    seeds: dict[int, bytes] = {}
    _first_draw(m, lambda client: seeds.setdefault(client.party, os.urandom(32)))
    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.pairwise_seed", lambda own, peer, digest: own.agree(peer, "pairwise mask"))
    stream = mask_stream._stream_key
    m.setattr(mask_stream, "_stream_key", lambda seed, segment, digest: stream(seed, segment, b""))


@fault("a client's masking key pair is kept from sum to sum")
def masking_key_kept(m: Any) -> None:
    from secagg.masked.client import MaskedClient

    pairs: dict[int, Any] = {}
    begin = MaskedClient.__init__

    def init(self: Any, config: Any, party: int, *more: Any, **named: Any) -> None:
        begin(self, config, party, *more, **named)
        self._kept.secrets.masking = pairs.setdefault(party, self._kept.secrets.masking)

    m.setattr(MaskedClient, "__init__", init)


@fault("the masking key is the hash of the sealing key's public half", gives=True)
def masking_key_of_sealing_key(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.primitives.agreement import KeyPair

    begin = MaskedClient.__init__

    def init(self: Any, *more: Any, **named: Any) -> None:
        begin(self, *more, **named)
        own = self._kept.secrets
        own.masking = KeyPair(_sha(own.sealing.public))

    m.setattr(MaskedClient, "__init__", init)


@fault("the session's secrets are drawn from a stream seeded with its id and the client's number", gives=True)
def entropy_of_session(m: Any) -> None:
    from secagg.entropy import InsecureSeededEntropy
    from secagg.masked.client import MaskedClient

    begin = MaskedClient.__init__

    def init(self: Any, config: Any, party: int, contribution: Any, *, secrets: Any = None, entropy: Any) -> None:
        named = {} if secrets is None else {"secrets": secrets}
        own = InsecureSeededEntropy(party, config.session_id.hex())
        begin(self, config, party, contribution, entropy=own, **named)

    m.setattr(MaskedClient, "__init__", init)


def _entropy_is(m: Any, draw: Callable[[int], bytes]) -> None:
    """Exchange the operating system's generator for everybody who holds ``os_entropy`` already."""
    m.setattr("secagg.entropy.os", SimpleNamespace(urandom=draw))


@fault("the generator is Python's, seeded with the time in seconds", gives=True)
def entropy_of_the_clock(m: Any) -> None:
    _entropy_is(m, lambda n: random.Random(int(time.time())).randbytes(n))


@fault("the generator is Python's, seeded once a process with 16 bits")
def entropy_of_sixteen_bits(m: Any) -> None:
    source = random.Random(int.from_bytes(os.urandom(2), "big"))
    _entropy_is(m, source.randbytes)


@fault("each draw expands two random bytes", gives=True)
def draws_of_two_bytes(m: Any) -> None:
    def draw(n: int) -> bytes:
        return hashlib.shake_256(os.urandom(2)).digest(n)

    _entropy_is(m, draw)


@fault("random bytes come from a pool that was filled when the package was imported: forked processes share it")
def pool_survives_fork(m: Any) -> None:
    stream = random.Random(os.urandom(32))
    _entropy_is(m, stream.randbytes)


@fault("random bytes have their top bit cleared (read as ASCII once)")
def entropy_of_seven_bits(m: Any) -> None:
    _entropy_is(m, lambda n: bytes(byte & 127 for byte in os.urandom(n)))


# Primitives


@fault("the keystream restarts every kilobyte", gives=False)
def keystream_restarts(m: Any) -> None:
    from secagg.primitives import mask_stream

    class Restarting:
        def __init__(self, cipher: Any) -> None:
            self.cipher = cipher

        def update_into(self, data: Any, buffer: Any) -> None:
            block = self.cipher.update(bytes(1024))
            whole = (block * (len(data) // 1024 + 1))[: len(data)]
            buffer[: len(whole)] = whole

    adds = mask_stream._add_streams
    m.setattr(
        mask_stream,
        "_add_streams",
        lambda words, streams: adds(words, [(Restarting(stream), sign) for stream, sign in streams]),
    )


@fault("each thread of a large segment starts the keystream at zero")
def threads_restart_keystream(m: Any) -> None:
    from secagg.primitives import mask_stream

    adds = mask_stream._add_keystreams

    def fresh(words: Any, part: slice, keys: Any) -> None:
        adds(words[part], slice(0, part.stop - part.start), keys)

    m.setattr(mask_stream, "_add_keystreams", fresh)


@fault("segments of one width share a keystream: the name was left out of its key")
def segments_share_keystream(m: Any) -> None:
    from secagg.primitives import mask_stream
    from secagg.primitives.derivation import derive_key

    def key(seed: bytes, segment: Any, digest: bytes) -> bytes:
        return derive_key(seed, "mask stream", digest, segment.word.itemsize.to_bytes(1, "big"))

    m.setattr(mask_stream, "_stream_key", key)


def _on_masks(m: Any, change: Callable[[Any, Any], Any]) -> None:
    """Let ``change(mask words, segment)`` say what is really added of each mask, in every mode and at every party."""
    from secagg.primitives import mask_stream
    from secagg.ring import RingVector

    adds = mask_stream.add_masks

    def add(vector: Any, masks: Any, digest: bytes, **more: Any) -> None:
        for one, sign in masks:
            mask = RingVector.zeros(vector.layout)
            adds(mask, [(one, 1)], digest, **more)
            for words, added, segment in zip(vector.words, mask.words, vector.layout.segments, strict=True):
                operation = np.add if sign > 0 else np.subtract
                operation(words, change(added, segment), out=words)

    for where in ("secagg.masked.client", "secagg.masked.server", "secagg.committee.client", "secagg.committee.helper"):
        m.setattr(f"{where}.add_masks", add)


@fault("masks leave the lowest byte of each word alone: counts stay readable in it", gives=False)
def low_byte_bare(m: Any) -> None:
    _on_masks(m, lambda words, segment: words & ~words.dtype.type(255))


@fault("masks are drawn below the bound of a segment and not over the ring", gives=False)
def masks_below_bound(m: Any) -> None:
    _on_masks(m, lambda words, segment: words % words.dtype.type(segment.bound + 1))


@fault("masks are 16-bit words widened to the segment's")
def masks_of_sixteen_bits(m: Any) -> None:
    _on_masks(m, lambda words, segment: words & words.dtype.type(min(0xFFFF, np.iinfo(words.dtype).max)))


@fault("segments of fewer than sixteen words are not masked")
def small_segments_bare(m: Any) -> None:
    _on_masks(m, lambda words, segment: words if len(words) >= 16 else words * words.dtype.type(0))


@fault("the last word of a segment gets no mask: one off")
def last_word_bare(m: Any) -> None:
    def change(words: Any, segment: Any) -> Any:
        words = words.copy()
        words[-1] = 0
        return words

    _on_masks(m, change)


@fault("every hundredth word gets no mask")
def hundredth_word_bare(m: Any) -> None:
    def change(words: Any, segment: Any) -> Any:
        words = words.copy()
        words[99::100] = 0
        return words

    _on_masks(m, change)


@fault("the agreement returns the sorted public keys' hash where the exchange should be", gives=True)
def exchange_is_public(m: Any) -> None:
    from secagg.primitives.agreement import KeyPair

    m.setattr(KeyPair, "_exchange", lambda self, peer: _sha(*sorted((self.public, peer))))


@fault("derived keys have 32 bits", gives=True)
def derived_keys_short(m: Any) -> None:
    import secagg.primitives.derivation as derivation

    whole = derivation.derive_key
    _everywhere(m, whole, lambda secret, label, *context: whole(secret, label, *context)[:4] + bytes(28))


@fault("derived keys are derived from the label alone once a secret has been seen")
def derived_keys_ignore_context(m: Any) -> None:
    import secagg.primitives.derivation as derivation

    whole = derivation.derive_key
    _everywhere(m, whole, lambda secret, label, *context: whole(secret, label))


def _everywhere(m: Any, old: Any, new: Any) -> None:
    """Exchange a function in every module of the product that holds it by name."""
    import sys

    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("secagg", "analytic", "federation", "simulations"):
            for attribute, value in list(vars(module).items()):
                if value is old:
                    m.setattr(module, attribute, new)


@fault("signatures always verify")
def signatures_verify(m: Any) -> None:
    import secagg.primitives.identity as identity

    _everywhere(m, identity.verifies, lambda public, signature, said: True)
    _everywhere(m, identity.is_signed, lambda *parts: True)


# Shares


@fault("shares are points on a constant: each is the secret", gives=True)
def shares_are_the_secret(m: Any) -> None:
    import secagg.primitives.shamir as shamir

    split = shamir.split
    _everywhere(
        m,
        split,
        lambda secret, *, threshold, points, entropy: split(secret, threshold=1, points=points, entropy=entropy),
    )


@fault("the polynomial has half the degree", gives=True)
def polynomial_of_half_degree(m: Any) -> None:
    import secagg.primitives.shamir as shamir

    split = shamir.split
    _everywhere(
        m,
        split,
        lambda secret, *, threshold, points, entropy: split(
            secret, threshold=max(1, threshold // 2), points=points, entropy=entropy
        ),
    )


@fault("both secrets of a client are shared with the same coefficients", gives=True)
def shares_with_same_coefficients(m: Any) -> None:
    from secagg.entropy import InsecureSeededEntropy
    from secagg.masked.client import MaskedClient

    split = MaskedClient._split

    def same(self: Any, secret: bytes, points: Any) -> Any:
        entropy, self._entropy = self._entropy, InsecureSeededEntropy(0, self._own.masking.secret.hex())
        try:
            return split(self, secret, points)
        finally:
            self._entropy = entropy

    m.setattr(MaskedClient, "_split", same)


@fault("coefficients of the polynomial are single bytes", gives=True)
def coefficients_are_bytes(m: Any) -> None:
    import secagg.primitives.shamir as shamir

    m.setattr(shamir, "_uniform", lambda entropy: entropy(1)[0])


@fault("shares travel in the clear in the place of sealed ones", gives=True)
def shares_not_sealed(m: Any) -> None:
    def seal(key: bytes, plaintext: bytes, associated: bytes, *, entropy: Any) -> bytes:
        return bytes(12) + plaintext + bytes(16)

    m.setattr("secagg.masked.client.seal", seal)
    m.setattr("secagg.masked.client.open_sealed", lambda key, sealed, associated: sealed[12:-16])


@fault("sealing keys follow from public keys", gives=True)
def sealing_key_of_public_keys(m: Any) -> None:
    def key(own: Any, peer: bytes, setup: bytes, sender: int, recipient: int) -> bytes:
        return _sha(b"seal", setup, *sorted((own.public, peer)))

    m.setattr("secagg.masked.client.sealing_key", key)


@fault("nonces of sealed shares carry the masking key, twelve bytes a recipient", gives=True)
def nonces_carry_the_key(m: Any) -> None:
    from secagg.masked.client import MaskedClient

    seal = MaskedClient._seal

    def sealed(self: Any, recipient: int, pair: bytes) -> bytes:
        entropy, secret = self._entropy, self._own.masking.secret
        at = 12 * (self._config.index(recipient) % 3)
        self._entropy = lambda n: (secret + secret)[at : at + n]
        try:
            return seal(self, recipient, pair)
        finally:
            self._entropy = entropy

    m.setattr(MaskedClient, "_seal", sealed)


@fault("a client reveals its shares of the self-mask of dropouts too", gives=True)
def both_shares_of_dropouts(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.masked.messages import UnmaskShares
    from secagg.masked.server import MaskedServer
    from secagg.primitives.shamir import SHARE_BYTES

    def revealed(self: Any) -> bytes:
        shares, dropouts = self._own.shares, self._kept.dropouts
        return UnmaskShares(
            mask_key_shares={p: pair[:SHARE_BYTES] for p, pair in shares.items() if p in dropouts},
            self_mask_shares={p: pair[SHARE_BYTES:] for p, pair in shares.items()},
        ).to_payload()

    def take(self: Any, sender: int, reader: Any) -> None:
        self._kept.revealed[sender] = UnmaskShares.read(reader)

    m.setattr(MaskedClient, "_revealed", revealed)
    m.setattr(MaskedServer, "_take_unmask_shares", take)


@fault("a client answers every unmask request that comes", gives=True)
def unmasks_twice(m: Any) -> None:
    from secagg.masked import client, states
    from secagg.wire import MessageType

    again = (MessageType.UNMASK_REQUEST, states.ClientState.INPUT_SENT, MessageType.UNMASK_SHARES)
    m.setitem(states.SEMI_HONEST_CLIENT, states.ClientState.INPUT_SENT, again)
    assert client.SEMI_HONEST_CLIENT is states.SEMI_HONEST_CLIENT


@fault("a client does not look at how few survivors it is told", gives=True)
def client_takes_any_survivors(m: Any) -> None:
    from secagg.masked.client import MaskedClient
    from secagg.masked.messages import SurvivorSignature, UnmaskRequest
    from secagg.masked.secrets import sign_survivors

    def agree(self: Any, reader: Any) -> bytes:
        self._kept.dropouts = frozenset(UnmaskRequest.read(reader).dropouts)
        if self._identity is None:
            return self._revealed()
        signature = sign_survivors(self._identity, self._kept.dropouts, self._config.digest)
        return SurvivorSignature(signature=signature).to_payload()

    m.setattr(MaskedClient, "_agree_on_survivors", agree)


@fault("a client keeps its secrets once the session is over")
def client_keeps_secrets(m: Any) -> None:
    from secagg.masked.client import MaskedClient

    def forget(self: Any, state: Any) -> None:
        self._kept.state = state

    m.setattr(MaskedClient, "_forget", forget)


@fault("the total is named after the whole cohort, whoever was in it")
def survivors_are_everybody(m: Any) -> None:
    from secagg.rounds import ServerRounds

    end = ServerRounds._end
    m.setattr(
        ServerRounds, "_end", lambda self, words, survivors, **more: end(self, words, self._config.clients, **more)
    )


@fault("the configuration digest leaves out the session id: yesterday's messages open today")
def digest_without_session(m: Any) -> None:
    from secagg.config import SumConfig

    canonical = SumConfig._canonical

    def without(self: Any) -> bytes:
        kept, blank = self.session_id, bytes(len(self.session_id))
        object.__setattr__(self, "session_id", blank)
        try:
            return canonical(self)
        finally:
            object.__setattr__(self, "session_id", kept)

    m.setattr(SumConfig, "_canonical", without)


@fault("the context of a sum is empty: clients that hold other models are added up")
def context_not_bound(m: Any) -> None:
    from federation.federation import Step

    m.setattr(Step, "context", property(lambda self: b""))


# Committees


@fault("one seed serves all sets of helpers", "committee", gives=True)
def one_seed_for_all_sets(m: Any) -> None:
    from secagg.committee.client import CommitteeClient

    start = CommitteeClient.start

    def same(self: Any) -> bytes:
        seed = os.urandom(32)
        entropy, self._entropy = self._entropy, lambda n: seed[:n]
        try:
            return start(self)
        finally:
            self._entropy = entropy

    m.setattr(CommitteeClient, "start", same)


@fault("seeds are hashed from digest and number", "committee", gives=True)
def seeds_of_numbers(m: Any) -> None:
    from secagg.committee.client import CommitteeClient

    start = CommitteeClient.start

    def known(self: Any) -> bytes:
        drawn = iter(range(1 << 16))
        self._entropy = lambda n: _sha(self._config.digest, bytes([self.party, next(drawn)]))[:n]
        return start(self)

    m.setattr(CommitteeClient, "start", known)


@fault("the commitment to a seed is the seed", "committee", gives=True)
def committee_commits_to_nothing(m: Any) -> None:
    for where in ("client", "messages"):
        m.setattr(f"secagg.committee.{where}.seed_commitment", lambda digest, client, place, seed: seed)


@fault("helpers' box keys are all the same pair", "committee", gives=True)
def one_box_key(m: Any) -> None:
    import federation.modes as modes
    from secagg.primitives.boxes import BoxKey

    m.setattr(BoxKey, "generate", classmethod(lambda cls, entropy: cls(_sha(b"box key"))))
    assert modes.BoxKey is BoxKey


@fault("only the first set's mask is added", "committee", gives=True)
def one_mask_of_many(m: Any) -> None:
    from secagg.committee.helper import CommitteeHelper
    from secagg.primitives.mask_stream import add_masks
    from secagg.ring import RingVector

    m.setattr("secagg.committee.client.add_masks", lambda vector, masks, digest: add_masks(vector, masks[:1], digest))
    summed = CommitteeHelper._sum
    m.setattr(
        CommitteeHelper,
        "_sum",
        lambda self, place: summed(self, place) if place == 0 else RingVector.zeros(self._config.layout).to_bytes(),
    )


@fault("a helper takes the masks off however few clients", "committee", gives=True)
def helper_takes_any_number(m: Any) -> None:
    from secagg.committee.helper import CommitteeHelper

    m.setattr(CommitteeHelper, "_check_number", lambda self, survivors, known: None)


@fault("a helper answers for a second survivor set", "committee", gives=True)
def helper_answers_twice(m: Any) -> None:
    from secagg.committee.helper import CommitteeHelper
    from secagg.wire import MessageType

    receive, fix = CommitteeHelper.receive, CommitteeHelper._fix

    def again(self: Any, message: bytes) -> bytes:
        from secagg.wire import message_type

        if self._kept.due is not MessageType.SEED_DELIVERY and hasattr(self, "_all"):
            self._kept.due = message_type(message)
            if self._kept.due in (MessageType.SURVIVOR_SET, MessageType.SET_CERTIFICATE):
                seeds, said = self._all  # type: ignore[attr-defined]
                if self._kept.due is MessageType.SURVIVOR_SET or not self._config.is_authenticated:
                    self._kept.seeds, self._kept.said = dict(seeds), dict(said)
        answer = receive(self, message)
        if message_type(message) is MessageType.SEED_DELIVERY:
            self._all = dict(self._kept.seeds), dict(self._kept.said)
        return answer

    m.setattr(CommitteeHelper, "receive", again)
    assert fix


@fault("a helper does not look at the quorum's signatures", "committee")
def helper_skips_quorum(m: Any) -> None:
    from secagg.committee.helper import CommitteeHelper

    m.setattr(CommitteeHelper, "_check_certificate", lambda self, certificate: None)


# Encrypted sums


@fault("the public context holds the secret key", "bfv", gives=True)
def public_context_is_secret(m: Any) -> None:
    from secagg.carriers import seal

    whole = seal.generate_contexts

    def both(parameters: Any) -> Any:
        pair = whole(parameters)
        return seal.ContextPair(public_context=pair.secret_context, secret_context=pair.secret_context)

    def load(parameters: Any, data: bytes) -> Any:
        return seal._load(parameters, data)

    _everywhere(m, whole, both)
    _everywhere(m, seal.load_public, load)


@fault("ciphertexts are trivial: the message, scaled, beside a zero", "bfv", gives=True)
def trivial_ciphertexts(m: Any) -> None:
    from secagg.carriers.seal import SlotEncryptor

    _with_ciphertext(m, SlotEncryptor, lambda encrypt, self, values: _scaled_message(self, values))


@fault("one encryption of zero serves all ciphertexts of a process", "bfv", gives=True)
def encryption_reused(m: Any) -> None:
    from secagg.carriers.seal import SlotEncryptor

    kept: list[Any] = []

    def reused(encrypt: Any, self: Any, values: Any) -> Any:
        if not kept:
            kept.append(encrypt(self, np.zeros_like(values)))
        message = _scaled_message(self, values)
        primes = np.array(self._parameters.primes, dtype=np.uint64)[None, :, None]
        return (kept[0] + message) % primes

    _with_ciphertext(m, SlotEncryptor, reused)


def _with_ciphertext(m: Any, encryptor: Any, make: Callable[[Any, Any, Any], Any]) -> None:
    encrypt = encryptor.encrypt
    m.setattr(encryptor, "encrypt", lambda self, values: make(encrypt, self, values))


def _scaled_message(self: Any, values: Any) -> Any:
    """The residues of a ciphertext without randomness: (round(q m / t), 0)."""
    import importlib

    from secagg.carriers.seal import coefficients

    seal, keys, parameters = importlib.import_module("tenseal.sealapi"), self._context.data, self._parameters
    message = seal.Plaintext()
    seal.BatchEncoder(keys.seal_context()).encode(values.tolist(), message)
    numbers = coefficients(message, parameters.degree).astype(object)
    t, q = parameters.plain_modulus, parameters.modulus
    scaled = (numbers * q + t // 2) // t
    out = np.zeros((2, len(parameters.primes), parameters.degree), dtype=np.uint64)
    for row, prime in enumerate(parameters.primes):
        out[0, row] = (scaled % prime).astype(np.uint64)
    return out


@fault("the rounding of a message is SEAL's: the dither is gone", "bfv")
def no_dither(m: Any) -> None:
    m.setattr("secagg.carriers.seal.round_at_random", lambda residues, message, parameters, entropy: residues)


@fault("the key holder decrypts a sum of however few clients", "bfv", gives=True)
def key_holder_takes_any_number(m: Any) -> None:
    from secagg.carriers.key_holder import KeyHolder

    begin = KeyHolder.__init__

    def init(self: Any, config: Any, **named: Any) -> None:
        begin(self, config, **(named | {"survivors_needed": 1}))

    m.setattr(KeyHolder, "__init__", init)


@fault("the key holder answers again and again", "bfv", gives=True)
def key_holder_answers_again(m: Any) -> None:
    from secagg.carriers.key_holder import KeyHolder

    m.setattr(KeyHolder, "_forget", lambda self, state: None)


@fault("one key pair serves every session of a process", "bfv")
def one_key_pair(m: Any) -> None:
    from secagg.carriers import seal

    whole, kept = seal.generate_contexts, {}

    def same(parameters: Any) -> Any:
        return kept.setdefault(parameters, None) or kept.__setitem__(parameters, whole(parameters)) or kept[parameters]

    _everywhere(m, whole, same)


@fault("masks are left out where vectors are encrypted too", "masked+bfv")
def no_masks_under_encryption(m: Any) -> None:
    m.setattr("secagg.masked.client.add_masks", lambda vector, masks, digest: None)
    m.setattr("secagg.masked.server.add_masks", lambda vector, masks, digest: None)


# Noise


@fault("a share of noise is divided by the square of the number of shares", noisy=True)
def share_divided_twice(m: Any) -> None:
    from secagg.dp.noise import CoordinateNoise

    def split(self: Any, n: int) -> Any:
        return CoordinateNoise(levels=self.levels, variances=tuple(max(1, -(-v // (n * n))) for v in self.variances))

    m.setattr(CoordinateNoise, "split", split)


@fault("colluders' shares of noise are counted on", noisy=True)
def colluders_counted_on(m: Any) -> None:
    from secagg.dp.noise import DistributedNoise

    m.setattr(DistributedNoise, "honest", property(lambda self: self.promised_survivors))


@fault("the variance is taken for a standard deviation: its root is drawn", noisy=True)
def variance_as_sigma(m: Any) -> None:
    import secagg.dp.noise as noise
    from secagg.dp.discrete_gaussian import discrete_gaussian

    m.setattr(noise, "discrete_gaussian", lambda v: discrete_gaussian(max(1, math.isqrt(int(v)))))


@fault("noise comes from a generator with a fixed seed", noisy=True, gives=True)
def noise_of_fixed_seed(m: Any) -> None:
    from secagg.dp.noise import CoordinateNoise
    from secagg.entropy import InsecureSeededEntropy

    draw = CoordinateNoise.draw
    m.setattr(CoordinateNoise, "draw", lambda self, entropy=None: draw(self, InsecureSeededEntropy(7)))


@fault("one noise vector is drawn a process and shared by all its clients", noisy=True)
def noise_shared_by_clients(m: Any) -> None:
    from secagg.dp.noise import CoordinateNoise

    draw, kept = CoordinateNoise.draw, {}

    def same(self: Any, *more: Any) -> Any:
        return (
            kept.setdefault(self.digest, None)
            if kept.get(self.digest) is not None
            else kept.setdefault(self.digest + b"", draw(self, *more))
        )

    m.setattr(CoordinateNoise, "draw", same)


@fault("noise is never negative", noisy=True)
def noise_one_sided(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    draw = DiscreteGaussian.draw
    m.setattr(DiscreteGaussian, "draw", lambda self, n, *more: np.abs(draw(self, n, *more)))


@fault("noise is drawn on the even integers: the lowest bit of a total is exact", noisy=True)
def noise_is_even(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    draw = DiscreteGaussian.draw
    m.setattr(DiscreteGaussian, "draw", lambda self, n, *more: draw(self, n, *more) & ~1)


@fault("noise is cut at one and a half standard deviations", noisy=True)
def noise_cut_short(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    draw = DiscreteGaussian.draw

    def cut(self: Any, n: int, *more: Any) -> Any:
        end = max(1, int(1.5 * math.sqrt(self.variance)))
        return np.clip(draw(self, n, *more), -end, end)

    m.setattr(DiscreteGaussian, "draw", cut)


@fault("noise is uniform with the right variance", noisy=True)
def noise_is_uniform(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    def uniform(self: Any, n: int, entropy: Any = os.urandom) -> Any:
        end = max(1, math.isqrt(int(3 * self.variance)))
        words = np.frombuffer(os.urandom(8 * n), dtype="<u8") % np.uint64(2 * end + 1)
        return words.astype(np.int64) - end

    m.setattr(DiscreteGaussian, "draw", uniform)


@fault("the diagonal of the Gram gets no noise", noisy=True)
def diagonal_without_noise(m: Any) -> None:
    from secagg.dp.noise import CoordinateNoise

    draw = CoordinateNoise.draw

    def bare(self: Any, *more: Any) -> Any:
        noise = draw(self, *more)
        noise[self.levels == 1] = 0
        return noise

    m.setattr(CoordinateNoise, "draw", bare)


@fault("the second half of a vector is drawn as the first half's mirror: noise that cancels", noisy=True)
def noise_antithetic(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    draw = DiscreteGaussian.draw

    def mirrored(self: Any, n: int, *more: Any) -> Any:
        half = draw(self, -(-n // 2), *more)
        return np.concatenate([half, -half])[:n]

    m.setattr(DiscreteGaussian, "draw", mirrored)


@fault("a release is booked at half its rho", noisy=True)
def rho_halved(m: Any) -> None:
    from secagg.dp.accountant import Release

    make = Release.of.__func__  # type: ignore[attr-defined]
    m.setattr(
        Release, "of", classmethod(lambda cls, label, rho, noise, **more: make(cls, label, rho / 2, noise, **more))
    )


@fault("the sensitivity of a record forgets a factor of two in the norm", noisy=True)
def sensitivity_too_small(m: Any) -> None:
    from analytic.sensitivity import RecordSensitivity

    rho = RecordSensitivity.rho
    m.setattr(RecordSensitivity, "rho", lambda self, gram, cross: rho(self, 4 * gram, 4 * cross))


@fault("rows are clipped coordinate by coordinate and not by their norm", noisy=True)
def clipped_by_coordinate(m: Any) -> None:
    from analytic.row_map import RowClip

    def apply(self: Any, features: Any) -> Any:
        from analytic.row_map import ClippedRows

        whole = math.ldexp(self.limit, -self.row_format.fraction_bits)
        rows = np.clip(self._finite(features), -whole / 2, whole / 2)
        if self.bias:
            rows = np.concatenate([rows, np.full((len(rows), 1), self.bias * whole)], axis=1)
        units = self.row_format.quantise(rows)
        return ClippedRows(rows=self.row_format.dequantise(units), n_clipped=0)

    m.setattr(RowClip, "apply", apply)


@fault("rows longer than the bound are scaled to twice the bound", noisy=True)
def clipped_to_twice(m: Any) -> None:
    import analytic.row_map as row_map
    from analytic.row_map import RowClip

    scaled = row_map._scaled_to
    m.setattr(row_map, "_scaled_to", lambda rows, norm: scaled(rows, 2 * norm))
    m.setattr(RowClip, "_check", lambda self, units: None)


@fault("entries are rounded away from zero: norms grow beyond the bound", noisy=True)
def rounded_away_from_zero(m: Any) -> None:
    from analytic.row_format import RowFormat
    from analytic.row_map import RowClip

    def quantise(self: Any, rows: Any, *, clip: bool = False, out: Any = None) -> Any:
        scaled = np.ldexp(np.asarray(rows, dtype=np.float64), self.fraction_bits)
        units = np.clip(np.sign(scaled) * np.ceil(np.abs(scaled)), -self.magnitude, self.magnitude)
        if out is None:
            return units
        out[...] = units
        return out

    m.setattr(RowFormat, "quantise", quantise)
    m.setattr(RowClip, "_check", lambda self, units: None)


@fault("the server that adds the noise draws it anew whenever its result is read", noisy=True)
def central_noise_redrawn(m: Any) -> None:
    import secagg.dp.noisy_sum as noisy

    def result(self: Any) -> Any:
        exact = self._exact.result
        return exact and replace(exact, total=exact.total + self._noise.draw(self._entropy))

    m.setattr(noisy._NoisyServer, "result", property(result))


# Books and gates


@fault("the ledger says that it charged and writes nothing", noisy=True)
def ledger_writes_nothing(m: Any) -> None:
    from secagg.dp.ledger import Ledger

    m.setattr(Ledger, "charge", lambda self, release, *, session_id: self.check([release]))


@fault("the release gate lets every total pass")
def gate_open(m: Any) -> None:
    from federation.release import ReleasePolicy

    m.setattr(ReleasePolicy, "before_release", lambda self, total, survivors, **more: ())


@fault("a site's journal agrees to every total: two totals that differ by one client may be taken apart")
def journal_agrees(m: Any) -> None:
    from federation.site.journal import Journal

    m.setattr(Journal, "_reason_against", lambda self, new, earlier, n: "")


@fault("a receipt's statement leaves out the total")
def receipt_without_total(m: Any) -> None:
    from secagg.receipts import Receipt

    m.setattr(Receipt, "verify_total", lambda self, total: None)


# The second list: other parts of the product, by the same hand, before anything was mended for the first

SECOND = len(FRESH)
"""Where it begins."""


@fault("a restored client of one message has forgotten that it spoke, and speaks again", "committee")
def restored_client_speaks_again(m: Any) -> None:
    from secagg.one_message import SpeaksOnce
    from secagg.snapshots import Stored

    def restore(self: Any, snapshot: bytes) -> None:
        Stored.restore(self, snapshot)
        self._kept.has_spoken = False

    m.setattr(SpeaksOnce, "restore", restore)


@fault("a restored client of a masked sum takes any message again")
def restored_client_forgets_what_it_answered(m: Any) -> None:
    from secagg.masked import client
    from secagg.masked.client import MaskedClient
    from secagg.snapshots import Stored

    def restore(self: Any, snapshot: bytes) -> None:
        Stored.restore(self, snapshot)
        self._kept.taken.clear()
        if self._kept.state is client.ClientState.INPUT_SENT:
            self._kept.state = client.ClientState.SHARES_SENT

    m.setattr(MaskedClient, "restore", restore)


@fault("frames are signed without their payload")
def payload_not_signed(m: Any) -> None:
    import secagg.wire as wire

    said = wire._said
    m.setattr(wire, "_said", lambda header, payload: said(header, b""))


@fault("a frame is opened whoever it was meant for")
def any_recipient(m: Any) -> None:
    import secagg.wire as wire

    whole = wire.open_frame

    def opened(message: bytes, *, digest: bytes, sender: int, recipient: int, public: bytes = b"") -> Any:
        return whole(
            message, digest=digest, sender=sender, recipient=int.from_bytes(message[42:46], "big"), public=public
        )

    _everywhere(m, whole, opened)


@fault("a frame is opened whatever session it is of", gives=True)
def any_session(m: Any) -> None:
    import secagg.wire as wire

    whole = wire.open_frame

    def opened(message: bytes, *, digest: bytes, sender: int, recipient: int, public: bytes = b"") -> Any:
        return whole(message, digest=message[6:38], sender=sender, recipient=recipient, public=public)

    _everywhere(m, whole, opened)


@fault("a helper's ended epoch is not erased", "committee")
def epochs_are_kept(m: Any) -> None:
    from secagg.committee.epochs import OwnEpochs

    m.setattr(OwnEpochs, "erase", lambda self: None)


@fault("parties go back to a helper's older epoch", "committee")
def older_epochs_accepted(m: Any) -> None:
    from secagg.committee.epochs import AcceptedEpochs

    m.setattr(AcceptedEpochs, "accept", lambda self, keys, now: None)


@fault("a sealing key is taken without its helper's signature", "committee", gives=True)
def sealing_keys_unsigned(m: Any) -> None:
    from secagg.committee.epochs import SealingKey

    m.setattr(SealingKey, "check", lambda self, identity: None)


@fault("a public context is taken without the key holder's signature", "bfv", gives=True)
def context_unsigned(m: Any) -> None:
    from secagg.carriers.encrypted import Encrypted

    m.setattr(Encrypted, "_check_signature", lambda self, session_id: None)


@fault("a client's policy agrees to whatever is offered")
def policy_agrees(m: Any) -> None:
    from secagg.policy import ClientPolicy

    m.setattr(ClientPolicy, "check", lambda self, protocol, releases=(): None)


@fault("releases together cost what the dearest costs", noisy=True)
def composition_takes_the_largest(m: Any) -> None:
    import secagg.dp.accountant as accountant

    whole = accountant.guarantee

    def largest(releases: Any, delta: float) -> Any:
        return replace(whole([max(releases, key=lambda one: one.rho)], delta), releases=len(releases))

    _everywhere(m, whole, largest)


@fault("the Gaussian curve is that of half the shift", noisy=True)
def curve_of_half_the_shift(m: Any) -> None:
    import secagg.dp.conversions as conversions

    whole = conversions.gdp_delta
    _everywhere(m, whole, lambda mu, epsilon: whole(mu / 2, epsilon))


@fault("the cross-correlation gets the noise of the Gram's other entries", noisy=True)
def levels_mixed_up(m: Any) -> None:
    import analytic.sensitivity as sensitivity

    whole = sensitivity.noise_levels

    def levels(spec: Any) -> Any:
        found = whole(spec)
        found[found == sensitivity.CROSS] = sensitivity.OFF_DIAGONAL
        return found

    _everywhere(m, whole, levels)


@fault("noise counts on survivors whom the sum does not promise", noisy=True)
def survivors_not_promised(m: Any) -> None:
    from secagg.dp.noisy_sum import NoisySum

    m.setattr(NoisySum, "__post_init__", lambda self: None)


@fault("neighbours of a sparse graph stand in the order of their numbers", gives=True)
def graph_not_permuted(m: Any) -> None:
    import secagg.masked.graph as graph

    def plain(clients: Any, seed: bytes) -> Any:
        return clients, {party: place for place, party in enumerate(clients)}

    m.setattr(graph, "_permuted", plain)


@fault("fewer signatures on a survivor set than two sets could not both have", gives=True)
def half_the_signatures(m: Any) -> None:
    from secagg.masked.protocol import MaskedSum

    m.setattr(MaskedSum, "signatures_needed", property(lambda self: len(self.clients) // 2 if self.identities else 0))


@fault("a masked sum's threshold is half of the clients", gives=True)
def threshold_of_half(m: Any) -> None:
    from secagg.masked.protocol import MaskedSum

    m.setattr(MaskedSum, "shares_needed", property(lambda self: max(2, len(self.clients) // 2)))
    m.setattr(MaskedSum, "_check_threshold", lambda self: None)


@fault("the opening of a receipt's commitment follows from the configuration")
def receipts_open_for_everybody(m: Any) -> None:
    import secagg.receipts as receipts

    _everywhere(m, receipts.opening_of, lambda identity, configuration: _sha(b"opening", configuration))


@fault("formats clip in silence")
def formats_clip(m: Any) -> None:
    from analytic.row_format import RowFormat

    quantise = RowFormat.quantise
    m.setattr(
        RowFormat, "quantise", lambda self, rows, *, clip=False, out=None: quantise(self, rows, clip=True, out=out)
    )


@fault("the server's noise comes from a fixed seed", noisy=True, gives=True)
def central_noise_of_fixed_seed(m: Any) -> None:
    import secagg.dp.noisy_sum as noisy
    from secagg.entropy import InsecureSeededEntropy

    begin = noisy._NoisyServer.__init__
    m.setattr(
        noisy._NoisyServer,
        "__init__",
        lambda self, exact, noise, entropy: begin(self, exact, noise, InsecureSeededEntropy(3)),
    )


@fault("bounds of one client are not looked at")
def client_bounds_open(m: Any) -> None:
    from secagg.layout import Layout

    m.setattr(Layout, "check_total", lambda self, total, n: None)


@fault("all sums of a series have one session id")
def series_of_one_session(m: Any) -> None:
    from secagg.masked.series import MaskedSeries

    sum_ = MaskedSeries.sum
    m.setattr(MaskedSeries, "sum", lambda self, index, layout, context: sum_(self, 0, layout, context))
