"""Sixty faults, written from the sources of the product alone, by an outside reviewer who has not seen the audit."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import time
from functools import lru_cache
from typing import Any

import numpy as np

from support.held_out_faults import Fresh, into

FURTHER: list[Fresh] = []
fault = into(FURTHER)


def _sha(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _int(data: bytes) -> int:
    return int.from_bytes(data, "big")


# Confidentiality: masked


@fault("the client draws one polynomial and shares its mask key and its self-mask seed with it", gives=True)
def one_polynomial_for_both_secrets(m: Any) -> None:
    # A survivor's seed b is rebuilt for the total; one colluding holder has both shares: key = b + share_key - share_b
    # mod p. With the mask key all pairwise masks follow from public keys, and b is the rest.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.shamir import split

    def _split(self: Any, secret: bytes, points: dict[int, int]) -> dict[int, bytes]:
        drawn = self.__dict__.setdefault("_coefficients", [])
        replayed = iter(list(drawn))

        def entropy(n: int) -> bytes:
            kept = next(replayed, None)
            if kept is None:
                drawn.append(kept := self._entropy(n))
            return bytes(kept)

        needed = self._config.shares_needed
        return split(secret, threshold=needed, points=list(points.values()), entropy=entropy)

    m.setattr(MaskedClient, "_split", _split)


@fault("Shamir's points are places counted from 0, and the check of their range allows it", gives=True)
def points_from_zero(m: Any) -> None:
    # The polynomial at 0 is the secret: the first client of the cohort holds everybody's mask key; with it as the one
    # colluder each survivor's pairwise masks are known, and the self-mask is rebuilt anyway.
    from secagg.masked.protocol import MaskedSum
    from secagg.primitives import shamir

    def split(secret: bytes, *, threshold: int, points: Any, entropy: Any) -> dict[int, bytes]:
        coefficients = [shamir._uniform(entropy) for _ in range(threshold - 1)]
        return {
            point: shamir._evaluate(coefficients, _int(secret), point).to_bytes(shamir.SHARE_BYTES, "big")
            for point in points
        }

    m.setattr(MaskedSum, "point", lambda self, party: self.index(party))
    m.setattr("secagg.masked.client.split", split)


@fault("secrets are shared with half of the stated threshold, so that sums get stuck less often", gives=True)
def shares_of_half_the_threshold(m: Any) -> None:
    # Of 5 clients 4 should open a secret; 2 colluders hold 2 shares of a polynomial of degree 1 and have the mask key.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.shamir import split

    def _split(self: Any, secret: bytes, points: dict[int, int]) -> dict[int, bytes]:
        needed = max(2, self._config.shares_needed // 2)
        return split(secret, threshold=needed, points=list(points.values()), entropy=self._entropy)

    m.setattr(MaskedClient, "_split", _split)


@fault("a client keeps its masking key pair from sum to sum, since drawing keys takes time", gives=True)
def masking_key_kept_between_sums(m: Any) -> None:
    # Whoever is lost in one sum (after sharing) has its mask key rebuilt by the server; that key opens the pairwise
    # masks of every other sum of the same client, whose self-masks were rebuilt as a survivor's: all its vectors.
    from secagg.masked.client import MaskedClient

    init, kept = MaskedClient.__init__, dict[int, Any]()

    def begin(self: Any, config: Any, party: int, contribution: Any, **more: Any) -> None:
        init(self, config, party, contribution, **more)
        own = self._kept.secrets
        own.masking = kept.setdefault(party, own.masking)

    m.setattr(MaskedClient, "__init__", begin)


@fault("the self-mask seed is derived from the mask key, so that one secret need be kept", gives=True)
def self_mask_derived_from_mask_key(m: Any) -> None:
    # A client whose upload came and that is then called lost (late, or by a server that lies): the shares of its mask
    # key give the pairwise masks and, derived from it, the self-mask that is there for this very case.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.derivation import derive_key

    share = MaskedClient._share_secrets

    def _share_secrets(self: Any, reader: Any) -> bytes:
        real = self._entropy
        due = [derive_key(self._own.masking.secret, "self mask", self._config.setup_digest)]
        self._entropy = lambda n: due.pop() if due and n == 32 else real(n)
        try:
            return bytes(share(self, reader))
        finally:
            self._entropy = real

    m.setattr(MaskedClient, "_share_secrets", _share_secrets)


@fault("the self-mask is expanded from the value that is published as its commitment", gives=True)
def self_mask_of_its_commitment(m: Any) -> None:
    # Whoever sees round 1 knows every self-mask. A client whose upload came and that is called lost has its mask key
    # rebuilt besides: no mask is left on that upload.
    from secagg.masked.client import MaskedClient
    from secagg.masked.secrets import self_mask_commitment
    from secagg.masked.server import MaskedServer

    masks, seed_of = MaskedClient._masks, MaskedServer._self_mask_seed

    def _masks(self: Any) -> Any:
        (seed, sign), *others = masks(self)
        return [(self_mask_commitment(seed, self._config.setup_digest, self.party), sign), *others]

    def _self_mask_seed(self: Any, survivor: int) -> bytes:
        return self_mask_commitment(seed_of(self, survivor), self._config.setup_digest, survivor)

    m.setattr(MaskedClient, "_masks", _masks)
    m.setattr(MaskedServer, "_self_mask_seed", _self_mask_seed)


@fault("the nonces of the sealed boxes carry the mask key, under a pad that its author knows", gives=True)
def nonces_carry_the_mask_key(m: Any) -> None:
    # Three boxes of a client have 36 bytes of nonces, which are its 32 secret bytes XOR a value of public inputs: who
    # passes them on (the server) takes that off, has the mask key, and the self-mask of survivors is rebuilt.
    from secagg.masked.client import MaskedClient
    from secagg.primitives.sealing import seal

    def _seal(self: Any, recipient: int, pair: bytes) -> bytes:
        key = self._sealing_key(recipient, sender=self.party, recipient=recipient)
        binding = self._seal_binding(sender=self.party, recipient=recipient)
        place = sorted(self._kept.roster).index(recipient) % 3 * 12
        part = (self._own.masking.secret + bytes(4))[place : place + 12]
        pad = _sha(b"nonce pad", self._config.setup_digest, recipient.to_bytes(4, "big"))
        nonce = bytes(one ^ other for one, other in zip(part, pad, strict=False))
        return seal(key, pair, binding, entropy=lambda n: nonce[:n])

    m.setattr(MaskedClient, "_seal", _seal)


@fault("a keystream is read as bytes and each byte widened to a word, whatever the word's width", gives=True)
def one_keystream_byte_for_each_word(m: Any) -> None:
    # All masks of an entry together are below a few times 256 in size: each entry of a vector is read off the upload
    # but for its lowest bits (words are up to 8 bytes).
    def _add_streams(words: Any, streams: Any) -> None:
        for stream, sign in streams:
            masks = np.frombuffer(stream.update(bytes(len(words))), dtype=np.uint8).astype(words.dtype)
            (np.add if sign > 0 else np.subtract)(words, masks, out=words)

    m.setattr("secagg.primitives.mask_stream._add_streams", _add_streams)


@fault("on the complete graph a client masks with the next and the one before alone; shares go to all", gives=True)
def masks_with_two_neighbours_alone(m: Any) -> None:
    # Two colluders, the target's neighbours in the order of numbers, know both of its pairwise masks from their own
    # keys; the self-mask is rebuilt for the total.
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    masks, shared_with = MaskedClient._masks, MaskedServer._masks_shared_with

    def near(config: Any, one: int, other: int) -> bool:
        return (config.index(one) - config.index(other)) % len(config.clients) in (1, len(config.clients) - 1)

    def _masks(self: Any) -> Any:
        first, *others = masks(self)
        peers = sorted(self._own.shares.keys() - {self.party})
        return [first] + [
            mask for peer, mask in zip(peers, others, strict=True) if near(self._config, self.party, peer)
        ]

    def _masks_shared_with(self: Any, dropout: int) -> Any:
        peers = self._near(dropout, self._kept.survivors)
        pairs = zip(peers, shared_with(self, dropout), strict=True)
        return [mask for peer, mask in pairs if near(self._config, dropout, peer)]

    m.setattr(MaskedClient, "_masks", _masks)
    m.setattr(MaskedServer, "_masks_shared_with", _masks_shared_with)


@fault(
    "a client's secrets are drawn from a stream that is seeded with session id and number, to make runs repeatable",
    gives=True,
)
def secrets_seeded_by_the_session(m: Any) -> None:
    # The session id and the number are public: anybody draws the same keys, seeds and shares, and has all masks.
    from secagg.entropy import InsecureSeededEntropy
    from secagg.masked.client import MaskedClient

    init = MaskedClient.__init__

    def begin(self: Any, config: Any, party: int, contribution: Any, **more: Any) -> None:
        more["entropy"] = InsecureSeededEntropy(_int(config.session_id), str(party))
        init(self, config, party, contribution, **more)

    m.setattr(MaskedClient, "__init__", begin)


@fault("a client that is done takes a further unmask request, for servers that lost their answers", gives=True)
def unmasks_a_second_survivor_set(m: Any) -> None:
    # The first request makes the target a survivor (its self-mask is rebuilt), the second, signed by all as well, calls
    # it lost (its mask key is rebuilt): the server, which may lie here, takes both masks off its upload.
    from secagg.masked.client import MaskedClient
    from secagg.masked.states import AUTHENTICATED_CLIENT, SEMI_HONEST_CLIENT, ClientState

    forget = MaskedClient._forget

    def _forget(self: Any, state: Any) -> None:
        if state is ClientState.DONE:
            self._kept.state = state
        else:
            forget(self, state)

    for name, table in (("AUTHENTICATED_CLIENT", AUTHENTICATED_CLIENT), ("SEMI_HONEST_CLIENT", SEMI_HONEST_CLIENT)):
        m.setattr(f"secagg.masked.client.{name}", table | {ClientState.DONE: table[ClientState.INPUT_SENT]})
    m.setattr(MaskedClient, "_forget", _forget)


@fault("keys in a roster may be signed by the server in place of their party, as the relay that it is", gives=True)
def relay_may_sign_keys(m: Any) -> None:
    # A server that lies gives each client keys of its own for all others and signs them: it opens every box and knows
    # every pairwise seed; the honest client's self-mask shares are in boxes that it opens.
    from secagg.config import SERVER
    from secagg.masked.secrets import keys_are_signed
    from secagg.primitives.identity import verifies
    from secagg.wire import MessageType, signed_statement

    def either(config: Any, keys: Any, party: int) -> bool:
        said = signed_statement(
            MessageType.ADVERTISED_KEYS, keys.to_payload(), digest=config.setup_digest, sender=party, recipient=SERVER
        )
        return keys_are_signed(config, keys, party) or verifies(config.server_identity, keys.signature, said)

    m.setattr("secagg.masked.client.keys_are_signed", either)


@fault("of a dropout both shares are revealed, in case its vector comes yet", gives=True)
def both_shares_of_dropouts(m: Any) -> None:
    # Who is called lost though its upload came has mask key and self-mask seed rebuilt: nothing stays on the upload.
    from secagg.errors import RemoteProtocolError
    from secagg.masked.client import MaskedClient
    from secagg.masked.messages import UnmaskShares
    from secagg.masked.server import MaskedServer
    from secagg.primitives.shamir import SHARE_BYTES

    def _revealed(self: Any) -> bytes:
        shares, dropouts = self._own.shares, self._kept.dropouts
        return UnmaskShares(
            mask_key_shares={party: pair[:SHARE_BYTES] for party, pair in shares.items() if party in dropouts},
            self_mask_shares={party: pair[SHARE_BYTES:] for party, pair in shares.items()},
        ).to_payload()

    def _take_unmask_shares(self: Any, sender: int, reader: Any) -> None:
        shares = UnmaskShares.read(reader)
        if not shares.self_mask_shares.keys() >= {sender, *self._near(sender, self._kept.survivors)}:
            raise RemoteProtocolError("it must reveal a share of each survivor", peer=sender)
        self._kept.revealed[sender] = shares

    m.setattr(MaskedClient, "_revealed", _revealed)
    m.setattr(MaskedServer, "_take_unmask_shares", _take_unmask_shares)


@fault("key pairs come from the clock's second and a counter, because a container's entropy pool was slow", gives=True)
def key_pairs_from_the_clock(m: Any) -> None:
    # Advertised keys can be compared with those of each second and small counter: some thousand tries a key.
    from secagg.primitives.agreement import KeyPair

    count = itertools.count()

    def generate(cls: Any, entropy: Any) -> Any:
        return cls(_sha(b"key", int(time.time()).to_bytes(8, "big"), next(count).to_bytes(4, "big")))

    m.setattr(KeyPair, "generate", classmethod(generate))


@fault("what is left of a segment after its last whole block of 16 bytes is not masked")
def last_partial_block_unmasked(m: Any) -> None:
    from secagg.primitives import mask_stream

    add = mask_stream._add_streams

    def _add_streams(words: Any, streams: Any) -> None:
        add(words[: words.nbytes // 16 * 16 // words.itemsize], streams)

    m.setattr(mask_stream, "_add_streams", _add_streams)


@fault("the key of a mask's stream is derived without the segment: all segments of a vector get the same stream")
def one_stream_for_all_segments(m: Any) -> None:
    from secagg.primitives.derivation import derive_key

    def _stream_key(seed: bytes, segment: Any, digest: bytes) -> bytes:
        return derive_key(seed, "mask stream", digest)

    m.setattr("secagg.primitives.mask_stream._stream_key", _stream_key)


@fault("keys of small order, and those beyond the prime, are taken: the shared secret is then zeros")
def small_order_keys_taken(m: Any) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    from secagg.primitives.agreement import KeyPair

    def _exchange(self: Any, peer_public: bytes) -> bytes:
        if peer_public not in self._shared:
            try:
                self._shared[peer_public] = self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
            except ValueError:
                self._shared[peer_public] = bytes(32)
        return bytes(self._shared[peer_public])

    m.setattr(KeyPair, "_exchange", _exchange)


@fault("two clients seal to each other under one key, both with the nonce 0")
def one_key_and_nonce_for_both_ways(m: Any) -> None:
    from secagg.masked.secrets import sealing_key
    from secagg.primitives.sealing import seal

    def both_ways(own: Any, peer_public: bytes, setup_digest: bytes, sender: int, recipient: int) -> bytes:
        return sealing_key(own, peer_public, setup_digest, *sorted((sender, recipient)))

    m.setattr("secagg.masked.client.sealing_key", both_ways)
    m.setattr(
        "secagg.masked.client.seal", lambda key, pair, binding, *, entropy: seal(key, pair, binding, entropy=bytes)
    )


@fault("a client that is done or aborted keeps its secrets and its roster, for a look at what went wrong")
def secrets_outlive_the_session(m: Any) -> None:
    from secagg.masked.client import MaskedClient

    def _forget(self: Any, state: Any) -> None:
        self._kept.state, self._contribution = state, None

    m.setattr(MaskedClient, "_forget", _forget)


# Confidentiality: committee


@fault("a client's seeds are made by multiplying a list: the seed of every set is the same", "committee", gives=True)
def seeds_by_list_multiplication(m: Any) -> None:
    # Each helper's box then holds the seed of the sets that it is not in: one colluding helper and the server take all
    # masks off an upload (mask_seed binds to place and client, both public).
    from secagg.committee.client import CommitteeClient

    start = CommitteeClient.start

    def once(self: Any) -> bytes:
        real = self._entropy
        (seed,) = [real(32)] * 1
        self._entropy = lambda n: seed
        try:
            return bytes(start(self))
        finally:
            self._entropy = real

    m.setattr(CommitteeClient, "start", once)


@fault("the commitment to a seed is derived as the seed of its mask is", "committee", gives=True)
def commitment_is_the_mask_seed(m: Any) -> None:
    # The commitments stand in the upload in the clear: whoever sees it expands them, and takes all masks off.
    from secagg.committee.messages import mask_seed

    for where in ("messages", "client"):
        m.setattr(f"secagg.committee.{where}.seed_commitment", mask_seed)


@fault(
    "a committee that does not say how many of its helpers may be corrupt is taken to have none",
    "committee",
    gives=True,
)
def nobody_corrupt_by_default(m: Any) -> None:
    # One seed for the set of all helpers: any one of them, with the server, takes the mask off every upload, where all
    # but one of them were to be borne.
    from secagg.committee.protocol import CommitteeSum

    m.setattr(CommitteeSum, "corrupt", property(lambda self: self.corrupt_helpers or 0))


@fault("a helper counts the clients that it knows, and not those that the server names", "committee", gives=True)
def helper_counts_the_cohort(m: Any) -> None:
    # A server that lies proposes one client as the survivors; all helpers sign, certify and take the masks off it.
    from secagg.committee.helper import CommitteeHelper

    check = CommitteeHelper._check_number

    def _check_number(self: Any, survivors: Any, known: Any) -> None:
        check(self, known, known)
        assert set(survivors) <= set(known)

    m.setattr(CommitteeHelper, "_check_number", _check_number)


@fault("a helper takes a new survivor set when the server lost clients after the first", "committee", gives=True)
def helper_signs_again(m: Any) -> None:
    # A server that lies has the masks of S taken off, then of S less one client: the totals differ by its vector.
    from secagg.committee.helper import CommitteeHelper
    from secagg.wire import MessageType, message_type

    receive_ = CommitteeHelper.receive

    def receive(self: Any, message: bytes) -> bytes:
        type_ = message_type(message)
        if type_ is MessageType.SURVIVOR_SET and "_all" in self.__dict__:
            self._kept.seeds, self._kept.said = (dict(part) for part in self._all)
            self._kept.due = MessageType.SURVIVOR_SET
        answer = bytes(receive_(self, message))
        if type_ is MessageType.SEED_DELIVERY:
            self._all = dict(self._kept.seeds), dict(self._kept.said)
        return answer

    m.setattr(CommitteeHelper, "receive", receive)


@fault("a helper's key for boxes is made of its process id and a counter", "committee", gives=True)
def box_keys_of_the_process_id(m: Any) -> None:
    # At most 2^22 process ids, each compared with the public key: all boxes open, so all seeds are known.
    from secagg.primitives.boxes import BoxKey

    count = itertools.count()

    def generate(cls: Any, entropy: Any) -> Any:
        return cls(_sha(b"boxes", os.getpid().to_bytes(4, "big"), next(count).to_bytes(4, "big")))

    m.setattr(BoxKey, "generate", classmethod(generate))


@fault("a quorum of helpers is half of helpers and corrupt ones, without the one more", "committee")
def quorum_one_too_small(m: Any) -> None:
    from secagg.committee.replication import Replication

    m.setattr(Replication, "quorum", property(lambda self: (len(self.helpers) + self.corrupt) // 2))


@fault("the secret of an epoch that has ended stays in the store until the next one begins", "committee")
def ended_epochs_stay(m: Any) -> None:
    from secagg.committee.epochs import OwnEpochs

    current = OwnEpochs.current
    m.setattr(OwnEpochs, "current", lambda self, now: None if self.has_ended(now) else current(self, now))


# Confidentiality: encrypted sums


@fault("an encryption of zero is made once a context and every message added to it", "bfv", gives=True)
def one_encryption_of_zero(m: Any) -> None:
    # Two ciphertexts under one context differ by Delta times the difference of their messages, without noise: with one
    # colluder's own vector in this process (or zeros at the end of a vector's last ciphertext) all others are read.
    import importlib

    from secagg.carriers.seal import SlotEncryptor, coefficients

    encrypt_, zeros = SlotEncryptor.encrypt, dict[int, tuple[Any, Any]]()

    def encrypt(self: Any, values: Any) -> Any:
        parameters = self._parameters
        if parameters.scheme != "bfv":
            return encrypt_(self, values)
        if id(self._context) not in zeros:
            zeros[id(self._context)] = self._context, encrypt_(self, np.zeros(1, dtype=np.int64))
        seal = importlib.import_module("tenseal.sealapi")
        message = seal.Plaintext()
        seal.BatchEncoder(self._context.data.seal_context()).encode(values.tolist(), message)
        q, t = parameters.modulus, parameters.plain_modulus
        scaled = [(number * q + t // 2) // t for number in coefficients(message, parameters.degree).tolist()]
        residues = zeros[id(self._context)][1].copy()
        for row, prime in zip(residues[0], parameters.primes, strict=True):
            row[:] = (row + np.array([number % prime for number in scaled], dtype=np.uint64)) % np.uint64(prime)
        return residues

    m.setattr(SlotEncryptor, "encrypt", encrypt)


@fault(
    "the server passes uploads on and the key holder adds them up, which saves the server's time", "ckks", gives=True
)
def key_holder_adds_up(m: Any) -> None:
    # The key holder, who was to see the total alone, has each client's ciphertexts and the key that decrypts them.
    from secagg.carriers.encrypted import EncryptedSum
    from secagg.wire import write_parties

    add_, question_ = EncryptedSum.add, EncryptedSum.question

    def add(self: Any, payload: Any, *, peer: int) -> None:
        add_(self, payload, peer=peer)
        self.__dict__.setdefault("_uploads", []).append(bytes(payload))

    def question(self: Any, survivors: Any) -> bytes:
        question_(self, survivors)
        return write_parties(survivors) + b"".join(self._uploads)

    def read_request(reader: Any, cipher: Any) -> Any:
        survivors, total = tuple(reader.entries(0)), cipher.empty_sum()
        for _ in survivors:
            total.add(reader.take(cipher.upload_bytes))
        reader.end()
        return survivors, total.to_bytes()

    m.setattr(EncryptedSum, "add", add)
    m.setattr(EncryptedSum, "question", question)
    m.setattr("secagg.carriers.key_holder.read_request", read_request)


@fault("SEAL's own rounding of a message stays: the random one took a tenth of the time to encrypt", "bfv")
def dither_left_out(m: Any) -> None:
    m.setattr("secagg.carriers.seal.round_at_random", lambda residues, message, parameters, entropy: residues)


@fault("two thirds of a cohort plus one are written as 2 n // (3 + 1)", "bfv", gives=True)
def two_thirds_in_wrong_brackets(m: Any) -> None:
    # Of 5 clients 2 are then enough: with three away the total of the target and one colluder is decrypted, and the
    # colluder takes its own vector off (4 were to be needed, which bear 2 colluders).
    def two_thirds(clients: Any) -> int:
        return max(2, 2 * len(clients) // (3 + 1))

    for where in ("secagg.plain", "federation.sum_setup"):
        m.setattr(f"{where}.two_thirds", two_thirds)


@fault("the key holder makes its key pair once for each choice of parameters, and serves all sessions with it", "ckks")
def key_pair_kept_between_sessions(m: Any) -> None:
    from secagg.carriers import seal

    m.setattr(seal, "_fresh", lru_cache(maxsize=8)(seal._fresh))


@fault("a key holder that has answered keeps its key and decrypts what it is asked next", "bfv")
def key_holder_decrypts_again(m: Any) -> None:
    from secagg.carriers.key_holder import KeyHolder

    def _forget(self: Any, state: Any) -> None:
        self._kept.state = state

    m.setattr(KeyHolder, "_forget", _forget)


# Confidentiality: masks under encryption


@fault(
    "where vectors are encrypted too the pairwise masks are left out as a second protection", "masked+bfv", gives=True
)
def no_pairwise_masks_under_encryption(m: Any) -> None:
    # Server and key holder together decrypt an upload and take its self-mask off, which is rebuilt for the total; they
    # were to need a threshold of clients besides.
    from secagg.masked.client import MaskedClient
    from secagg.masked.server import MaskedServer

    masks, shared_with = MaskedClient._masks, MaskedServer._masks_shared_with
    m.setattr(MaskedClient, "_masks", lambda self: masks(self)[: 1 if self._config.helpers else None])
    m.setattr(
        MaskedServer,
        "_masks_shared_with",
        lambda self, dropout: [] if self._config.helpers else shared_with(self, dropout),
    )


@fault("masks are drawn below a segment's bound, so that words stay short for the slots", "masked+ckks")
def masks_below_the_bound(m: Any) -> None:
    from secagg.primitives.mask_stream import add_masks as whole
    from secagg.ring import RingVector

    def add_masks(vector: Any, masks: Any, digest: bytes) -> None:
        for seed, sign in masks:
            mask = RingVector.zeros(vector.layout)
            whole(mask, [(seed, 1)], digest)
            for segment, words in zip(vector.layout.segments, mask.words, strict=True):
                np.bitwise_and(words, words.dtype.type((1 << segment.bound.bit_length()) - 1), out=words)
            (vector.add if sign > 0 else vector.subtract)(mask)

    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.add_masks", add_masks)


@fault("masks are added to the first segment, the large one, and encryption hides the rest", "masked+ckks")
def first_segment_masked_alone(m: Any) -> None:
    # Server and key holder read a client's cross-correlation and count, and not its Gram matrix.
    from secagg.layout import Layout
    from secagg.primitives.mask_stream import add_masks as whole
    from secagg.ring import RingVector

    def add_masks(vector: Any, masks: Any, digest: bytes) -> None:
        whole(RingVector(Layout(vector.layout.segments[:1]), vector.words[:1]), masks, digest)

    for where in ("client", "server"):
        m.setattr(f"secagg.masked.{where}.add_masks", add_masks)


# Integrity and authentication


@fault("a message without a signature is taken where its sender has a key, while sites are upgraded")
def unsigned_messages_taken(m: Any) -> None:
    from secagg import wire

    checked = wire._checked

    def _checked(type_: Any, message: bytes, sender: int, public: bytes) -> Any:
        return checked(type_, message, sender, public if message[wire.HEADER_BYTES - 1] else b"")

    m.setattr(wire, "_checked", _checked)


@fault("signatures are over the first four bytes of a payload's hash")
def signed_hash_of_four_bytes(m: Any) -> None:
    from secagg import wire

    said = wire._said

    def _said(header: Any, *payload: Any) -> Any:
        whole, hashed = said(header, *payload)
        return whole, hashed[:4]

    m.setattr(wire, "_said", _said)


@fault("signatures leave out between whom a message goes", "committee")
def signature_without_parties(m: Any) -> None:
    from secagg import wire

    said = wire._said

    def _said(header: Any, *payload: Any) -> Any:
        whole, hashed = said(header, *payload)
        return whole[:38] + whole[46:], hashed

    m.setattr(wire, "_said", _said)


@fault("countersignatures of parties that are unknown are passed over, and counted")
def unknown_countersigners_count(m: Any) -> None:
    from secagg.primitives.identity import statement, verifies
    from secagg.receipts import COUNTERSIGNER_LABEL, Receipt, ReceiptError

    def _check_countersignatures(self: Any, countersigners: Any, needed: int) -> None:
        said = statement(COUNTERSIGNER_LABEL, *self.statement.parts)
        for party, signature in self.countersignatures.items():
            if party in countersigners and not verifies(countersigners[party], signature, said):
                raise ReceiptError(f"the countersignature of party {party} is forged")
        if len(self.countersignatures) < needed:
            raise ReceiptError(f"this total needs {needed} countersignatures and has {len(self.countersignatures)}")

    m.setattr(Receipt, "_check_countersignatures", _check_countersignatures)


@fault("the leaf of an upload in a receipt's tree does not say whose it is")
def receipt_leaf_without_party(m: Any) -> None:
    m.setattr("secagg.receipts._leaf", lambda party, upload: _sha(b"\0", upload))


@fault("a public context without a signature is taken though the key holder has an identity", "bfv")
def unsigned_context_taken(m: Any) -> None:
    from secagg.carriers.encrypted import Encrypted

    check = Encrypted._check_signature

    def _check_signature(self: Any, session_id: bytes) -> None:
        if self.holder_identity and self.signature:
            check(self, session_id)

    m.setattr(Encrypted, "_check_signature", _check_signature)


@fault("a party that is not in the cohort is looked up as the next one that is", "committee")
def stranger_has_the_next_ones_key(m: Any) -> None:
    from bisect import bisect_left

    from secagg.config import SERVER, SumConfig

    identity_of_ = SumConfig.identity_of

    def identity_of(self: Any, party: int) -> bytes:
        if not self.is_authenticated or party == SERVER or party in self.helpers:
            return bytes(identity_of_(self, party))
        return bytes(self.identities[min(bisect_left(self.clients, party), len(self.clients) - 1)])

    m.setattr(SumConfig, "identity_of", identity_of)


@fault("that a sum failed is proved by as many signatures as there are, were it none", "committee")
def failure_proved_by_nobody(m: Any) -> None:
    from secagg.committee.messages import SetCertificate, set_hash
    from secagg.config import SERVER
    from secagg.errors import RemoteProtocolError
    from secagg.wire import Reader

    def check_failure(config: Any, proof: bytes) -> None:
        reader = Reader(memoryview(proof), peer=SERVER, max_entries=len(config.helpers))
        certificate = SetCertificate.read(reader, config)
        if certificate.survivors or len(certificate.signers(config, set_hash(config.digest, {}))) < len(
            certificate.signatures
        ):
            raise RemoteProtocolError("some of these signatures do not say that the sum failed", peer=SERVER)

    m.setattr("secagg.committee.protocol.check_failure", check_failure)


# Differential privacy


@fault("sign and place in a block are taken from the same random bits: every draw is even", noisy=True)
def noise_is_even(m: Any) -> None:
    from secagg.dp.discrete_gaussian import _HEIGHT_BITS, DiscreteGaussian

    def _proposals(self: Any, n: int, entropy: Any) -> Any:
        words = np.frombuffer(entropy(16 * n), dtype="<u8").reshape(2, n)
        points = words[0] >> np.uint64(64 - _HEIGHT_BITS)
        under = points < self._ends[-1]
        points, places = points[under], words[1][under]
        blocks = np.searchsorted(self._ends, points, side="right")
        heights = points - self._starts[blocks]
        sign = (places & np.uint64(1)).astype(np.int64)
        inside = (places & np.uint64((1 << self._block_bits) - 1)).astype(np.int64)
        values = ((blocks << self._block_bits) + inside) ^ -sign
        return values[self._stand(values, heights, entropy)]

    m.setattr(DiscreteGaussian, "_proposals", _proposals)


@fault("noise is drawn once for each variance and added to all of its coordinates", "committee", noisy=True)
def one_draw_for_each_level(m: Any) -> None:
    from secagg.dp.noise import CoordinateNoise, discrete_gaussian
    from secagg.entropy import os_entropy

    def draw(self: Any, entropy: Any = os_entropy) -> Any:
        noise = np.zeros(self.size, dtype=np.int64)
        for level, (variance, count) in enumerate(zip(self.variances, self.counts, strict=True), start=1):
            if count:
                noise[self.levels == level] = discrete_gaussian(variance).draw(1, entropy)
        return noise

    m.setattr(CoordinateNoise, "draw", draw)


@fault(
    "noise is drawn from a stream that is seeded with the sum's digest, to make audits repeatable",
    noisy=True,
    gives=True,
)
def noise_seeded_by_the_digest(m: Any) -> None:
    # The digest is public: whoever sees the noisy total draws every client's share anew and takes it off.
    from secagg.dp.noisy_sum import NoisySum, _noised_once
    from secagg.entropy import InsecureSeededEntropy

    noised = NoisySum._noised

    def _noised(self: Any, contribution: Any) -> Any:
        noised(self, contribution)  # its checks
        entropy = InsecureSeededEntropy(_int(self.protocol.digest))
        return _noised_once(self.layout, contribution, self.noise.share, entropy)

    m.setattr(NoisySum, "_noised", _noised)


@fault("a replaced row is priced as if no two rows could be at an obtuse angle", noisy=True)
def replaced_rows_are_never_obtuse(m: Any) -> None:
    from fractions import Fraction

    from analytic.sensitivity import RecordSensitivity

    rho_ = RecordSensitivity.rho

    def rho(self: Any, gram_variance: int, cross_variance: int) -> Any:
        if self.adjacency == "add-remove":
            return rho_(self, gram_variance, cross_variance)
        x2, y2 = self.squared_features, self.squared_targets
        return Fraction(x2**2, gram_variance) + Fraction(x2 * y2, cross_variance)

    m.setattr(RecordSensitivity, "rho", rho)


@fault("rows are scaled by their block's root mean square, and the check of each row's norm is gone", "bfv", noisy=True)
def rows_scaled_by_their_average(m: Any) -> None:
    from analytic.row_map import RowClip

    def _scaled_to(rows: Any, norm: float) -> Any:
        mean = math.sqrt(float(np.square(rows).sum()) / max(1, len(rows)))
        return rows * (norm / mean) if mean > 0 else rows

    m.setattr("analytic.row_map._scaled_to", _scaled_to)
    m.setattr(RowClip, "_check", lambda self, units: None)


@fault("releases with the same label are taken for one and the same when they are added up", noisy=True)
def releases_counted_by_label(m: Any) -> None:
    from secagg.dp.accountant import guarantee

    def by_label(releases: Any, delta: float) -> Any:
        return guarantee(list({release.label: release for release in releases}.values()), delta)

    for where in ("secagg.dp.ledger", "federation.privacy", "secagg.policy"):
        m.setattr(f"{where}.guarantee", by_label)


@fault("the ledger charges a session once, however often its noise is drawn", noisy=True)
def ledger_charges_a_session_once(m: Any) -> None:
    from secagg.dp.ledger import Ledger

    charge_ = Ledger.charge

    def charge(self: Any, release: Any, *, session_id: bytes) -> Any:
        if session_id.hex()[:16].encode() in self.path.read_bytes():
            return self.spent()
        return charge_(self, release, session_id=session_id)

    m.setattr(Ledger, "charge", charge)


@fault("shares of the noise are sized for all promised survivors, colluders among them", noisy=True)
def colluders_shares_counted(m: Any) -> None:
    from secagg.dp.noise import DistributedNoise

    m.setattr(DistributedNoise, "honest", property(lambda self: self.promised_survivors))


@fault("noise is numpy's Gaussian, rounded", "committee", noisy=True)
def rounded_float_gaussian(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian
    from secagg.entropy import os_entropy

    def draw(self: Any, n: int, entropy: Any = os_entropy) -> Any:
        drawn = np.random.default_rng().normal(0.0, math.sqrt(self.variance), n)
        return np.clip(np.rint(drawn), -self.radius, self.radius).astype(np.int64)

    m.setattr(DiscreteGaussian, "draw", draw)


@fault("noise is cut at three standard deviations, so that vectors take fewer bytes", noisy=True)
def noise_cut_at_three_sigmas(m: Any) -> None:
    from secagg.dp.discrete_gaussian import DiscreteGaussian

    @lru_cache(maxsize=64)
    def discrete_gaussian(variance: Any) -> Any:
        law = DiscreteGaussian(variance)
        law.radius = math.isqrt(9 * math.floor(law.variance))
        return law

    m.setattr("secagg.dp.noise.discrete_gaussian", discrete_gaussian)


# Exactness and bookkeeping


@fault("rows outside their format are clipped into it, and nobody is told")
def rows_clipped_silently(m: Any) -> None:
    from analytic.row_format import RowFormat

    quantise_ = RowFormat.quantise
    m.setattr(
        RowFormat, "quantise", lambda self, rows, *, clip=False, out=None: quantise_(self, rows, clip=True, out=out)
    )


@fault("totals that are too many to be compared are let pass as telling nothing new")
def too_many_totals_pass(m: Any) -> None:
    from secagg.differencing import fewest_left

    def some(earlier: Any, new: Any, **more: Any) -> int | None:
        return fewest_left(earlier, new, **more) or None

    m.setattr("federation.site.journal.fewest_left", some)


@fault("a policy compares the keys of a sum with those of its roster, and not whose they are")
def policy_compares_keys_without_parties(m: Any) -> None:
    from secagg.policy import ClientPolicy

    check = ClientPolicy._check_keys

    def _check_keys(self: Any, role: str, keys: Any) -> None:
        owners = {key: party for party, key in [*self.identities.items(), *self.helpers.items()]}
        check(self, role, {owners.get(key, party): key for party, key in keys.items()})

    m.setattr(ClientPolicy, "_check_keys", _check_keys)


@fault("what a site wipes from its store is not overwritten, since that made writing slow")
def wiping_does_not_overwrite(m: Any) -> None:
    from federation.site import state

    m.setattr(state, "PREPARE", state.PREPARE.replace("secure_delete = ON", "secure_delete = OFF"))


@fault("a stored session of a client is bound to its number, and not to its sum")
def stored_session_of_any_sum(m: Any) -> None:
    from secagg.snapshots import MAGIC, VERSION

    def binding(role: int, digest: bytes, party: int) -> bytes:
        return MAGIC + bytes([VERSION, role]) + party.to_bytes(4, "big")

    m.setattr("secagg.masked.client.binding", binding)


@fault("a stored session gives its answer first and is written when the next message comes")
def answer_leaves_before_it_is_stored(m: Any) -> None:
    from secagg.durable import DurableClient

    receive_ = DurableClient.receive

    def _keep(self: Any, asked: bytes, answer: bytes | None) -> bytes | None:
        self._is_stored, self._asked, self._answer = False, asked, answer or b""
        return answer

    def receive(self: Any, message: bytes) -> bytes | None:
        if not self._is_stored:
            self._save()
        answer: bytes | None = receive_(self, message)
        return answer

    m.setattr(DurableClient, "_keep", _keep)
    m.setattr(DurableClient, "receive", receive)
