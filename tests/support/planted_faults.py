"""Faults that somebody might build in, each a few lines, with the attacks of the audit that must notice it.

A fault is what a whole federation would run: it leaves totals exact where it can, so that nobody else would notice.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from typing import Any

import numpy as np
import pytest

from federation import modes
from federation.site import journal
from federation.site.journal import Journal
from secagg import InsecureSeededEntropy
from secagg.carriers import seal as carriers_seal
from secagg.committee import adversary as committee_adversary
from secagg.committee import client as committee_client
from secagg.committee import messages as committee_messages
from secagg.committee import replication
from secagg.committee.client import CommitteeClient
from secagg.committee.helper import CommitteeHelper
from secagg.committee.replication import Replication
from secagg.entropy import Entropy, os_entropy
from secagg.masked import adversary, server
from secagg.masked import client as masked_client
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.primitives import boxes, mask_stream
from secagg.primitives.boxes import BoxKey
from secagg.primitives.derivation import derive_key
from secagg.primitives.sealing import open_sealed, seal
from secagg.primitives.shamir import SHARE_BYTES
from secagg.ring import RingVector
from secagg.wire import MessageType, Reader

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Planted:
    """A fault.

    Args:
        title: what is wrong.
        mode: in which it shows.
        caught_by: the attacks that notice, each by itself.
        plant: builds it in.
        entropy: the generator, where that is the fault.
    """

    title: str
    mode: str
    caught_by: tuple[str, ...]
    plant: Callable[[Patch], None] = lambda patch: None
    entropy: Callable[[], Entropy] = lambda: os_entropy


PLANTED: dict[str, Planted] = {}


def fault(title: str, mode: str, *caught_by: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    """List a fault under the name of the function that plants it."""

    def listed(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        PLANTED[plant.__name__] = Planted(title, mode, caught_by, plant)
        return plant

    return listed


# A committee


@fault("one seed for all sets of helpers", "committee", "drawn_secrets", "collusion")
def one_seed_for_all(patch: Patch) -> None:
    start = CommitteeClient.start

    def shared(self: CommitteeClient) -> bytes:
        drawn = self._entropy(32)
        self._entropy = lambda n_bytes: drawn[:n_bytes]
        return start(self)

    patch.setattr(CommitteeClient, "start", shared)


def _without_mask(patch: Patch, place: int) -> None:
    """Clients add no mask of one set, and helpers take none off."""
    add, whole = committee_client.add_masks, CommitteeHelper._sum

    def without(vector: RingVector, masks: list[Any], digest: bytes) -> None:
        add(vector, [mask for at, mask in enumerate(masks) if at != place % len(masks)], digest)

    def nothing(self: CommitteeHelper, at: int) -> bytes:
        zero = at == place % self._config.replication.n_seeds
        return bytes(self._config.layout.wire_bytes) if zero else whole(self, at)

    patch.setattr(committee_client, "add_masks", without)
    patch.setattr(CommitteeHelper, "_sum", nothing)


@fault("no mask of the last set of helpers", "committee", "drawn_secrets", "collusion")
def last_set_missing(patch: Patch) -> None:
    _without_mask(patch, -1)


@fault("no mask of the first set of helpers", "committee", "drawn_secrets", "collusion")
def first_set_missing(patch: Patch) -> None:
    _without_mask(patch, 0)


@fault("helpers answer before a quorum signed the same survivors", "committee", "survivor_sets")
def no_agreement(patch: Patch) -> None:
    patch.setattr(CommitteeHelper, "_check_certificate", lambda self, certificate: None)


@fault("a quorum that two sets can have", "committee", "survivor_sets")
def small_quorum(patch: Patch) -> None:
    patch.setattr(Replication, "quorum", property(lambda self: len(self.helpers) // 2))


@fault("helpers answer for a second survivor set", "committee", "survivor_sets")
def two_sets(patch: Patch) -> None:
    receive, fix = CommitteeHelper.receive, CommitteeHelper._fix

    def remember(self: CommitteeHelper, survivors: tuple[int, ...]) -> None:
        whole = getattr(self, "_whole", None) or (self._kept.seeds, self._kept.said)
        self._whole = self._kept.seeds, self._kept.said = whole  # type: ignore[attr-defined]
        fix(self, survivors)

    def due_again(self: CommitteeHelper, message: bytes) -> bytes:
        type_ = MessageType(message[5])
        if type_ in (MessageType.SURVIVOR_SET, MessageType.SET_CERTIFICATE) and hasattr(self, "_whole"):
            self._kept.due = type_
        return receive(self, message)

    patch.setattr(CommitteeHelper, "_fix", remember)
    patch.setattr(CommitteeHelper, "receive", due_again)


@fault("helpers take masks off one client's vector", "committee", "survivor_sets")
def nobody_counts(patch: Patch) -> None:
    patch.setattr(CommitteeHelper, "_check_number", lambda self, survivors, known: None)


@fault("a liar's sum of masks counts as well", "committee", "lying_helper")
def any_hash_agrees(patch: Patch) -> None:
    patch.setattr(Replication, "agreed", lambda self, hashes: tuple(sorted(hashes)))


@fault("boxes are sealed with what public keys give", "committee", "collusion")
def boxes_from_public_keys(patch: Patch) -> None:
    def sealed(public: bytes, plaintext: bytes, label: str, *context: bytes) -> bytes:
        return seal(derive_key(public, label), plaintext, b"", entropy=os.urandom).ljust(
            len(plaintext) + boxes.OVERHEAD_BYTES, b"\0"
        )

    def opened(self: BoxKey, box: bytes, label: str, *context: bytes) -> bytes:
        n_bytes = len(box) - boxes.OVERHEAD_BYTES + 28
        return open_sealed(derive_key(self.public, label), box[:n_bytes], b"")

    patch.setattr(committee_client, "seal_box", sealed)
    patch.setattr(BoxKey, "open", opened)


@fault("commitments show the seeds that they are to", "committee", "drawn_secrets")
def seeds_in_commitments(patch: Patch) -> None:
    for module in (committee_client, committee_messages, committee_adversary):
        patch.setattr(module, "seed_commitment", lambda digest, client, place, seed: seed)


# A masked sum


@fault("clients reveal both kinds of shares", "masked", "collusion")
def both_shares(patch: Patch) -> None:
    def both(self: MaskedClient) -> bytes:
        own = self._own.shares
        return UnmaskShares(
            mask_key_shares={party: pair[:SHARE_BYTES] for party, pair in own.items()},
            self_mask_shares={party: pair[SHARE_BYTES:] for party, pair in own.items()},
        ).to_payload()

    def take(self: Any, sender: int, reader: Any) -> None:
        shares, survivors = UnmaskShares.read(reader), self._kept.survivors
        self._kept.revealed[sender] = UnmaskShares(
            mask_key_shares={p: one for p, one in shares.mask_key_shares.items() if p not in survivors},
            self_mask_shares={p: one for p, one in shares.self_mask_shares.items() if p in survivors},
        )

    patch.setattr(MaskedClient, "_revealed", both)
    patch.setattr(server.MaskedServer, "_take_unmask_shares", take)


def _self_masks(patch: Patch, seed_of: Callable[[MaskedClient], bytes]) -> None:
    """Clients have other self-masks, which they share and reveal as they should."""
    split = MaskedClient._split

    def other(self: MaskedClient, secret: bytes, points: Any) -> Any:
        if secret == self._own.self_mask_seed:
            secret = self._own.self_mask_seed = seed_of(self)
        return split(self, secret, points)

    patch.setattr(MaskedClient, "_split", other)


@fault("one self-mask for all clients", "masked", "collusion")
def common_self_mask(patch: Patch) -> None:
    _self_masks(patch, lambda client: hashlib.sha256(client.setup_digest).digest())


@fault("no mask of a client's own", "masked", "collusion")
def no_self_mask(patch: Patch) -> None:
    masks, seed = MaskedClient._masks, server.MaskedServer._self_mask_seed
    patch.setattr(MaskedClient, "_masks", lambda self: masks(self)[1:])
    add = server.add_masks
    known: list[bytes] = []

    def remembered(self: Any, party: int) -> bytes:
        known.append(seed(self, party))
        return known[-1]

    def without(vector: RingVector, masks: list[Any], digest: bytes) -> None:
        add(vector, [mask for mask in masks if mask[0] not in known], digest)

    patch.setattr(server.MaskedServer, "_self_mask_seed", remembered)
    patch.setattr(server, "add_masks", without)


@fault("one share opens a secret", "masked", "collusion")
def threshold_of_one(patch: Patch) -> None:
    split = masked_client.split
    patch.setattr(masked_client, "split", lambda secret, threshold, **rest: split(secret, threshold=1, **rest))


@fault("one share fewer than stated opens a secret", "masked", "collusion")
def threshold_less_one(patch: Patch) -> None:
    split = masked_client.split
    patch.setattr(
        masked_client, "split", lambda secret, threshold, **rest: split(secret, threshold=threshold - 1, **rest)
    )


@fault("shares are sealed with what public keys give", "masked", "collusion")
def seals_from_public_keys(patch: Patch) -> None:
    for module in (masked_client, adversary):
        patch.setattr(
            module,
            "sealing_key",
            lambda own, peer, *rest: derive_key(b"".join(sorted((own.public, peer))), "sealed shares"),
        )


@fault("pairwise masks follow from public keys", "masked", "collusion")
def masks_from_public_keys(patch: Patch) -> None:
    for module in (masked_client, server, adversary):
        patch.setattr(
            module,
            "pairwise_seed",
            lambda own, peer, digest: derive_key(b"".join(sorted((own.public, peer))), "pairwise", digest),
        )


@fault("shares are not sealed at all", "masked", "collusion")
def shares_in_the_clear(patch: Patch) -> None:
    for module in (masked_client, adversary):
        patch.setattr(module, "open_sealed", lambda key, sealed, associated: sealed[28:])
    patch.setattr(masked_client, "seal", lambda key, plaintext, associated, *, entropy: bytes(28) + plaintext)


@fault("commitments show the self-masks that they are to", "masked", "drawn_secrets")
def self_mask_in_commitment(patch: Patch) -> None:
    for module in (masked_client, server, adversary):
        patch.setattr(module, "self_mask_commitment", lambda seed, digest, party: seed)


@fault("the same keys in every sum", "masked", "drawn_secrets")
def keys_for_good(patch: Patch) -> None:
    begin = MaskedClient.__init__

    def same(self: MaskedClient, config: Any, party: int, *rest: Any, entropy: Entropy, **others: Any) -> None:
        keys, drawn = InsecureSeededEntropy(party), count()
        begin(self, config, party, *rest, entropy=lambda n: (entropy if next(drawn) > 1 else keys)(n), **others)

    patch.setattr(MaskedClient, "__init__", same)


@fault("every segment of the vector has the same key stream", "masked", "mask_words")
def one_stream_for_all_segments(patch: Patch) -> None:
    patch.setattr(mask_stream, "_stream_key", lambda seed, segment, digest: derive_key(seed, "mask stream", digest))


def _keystream(patch: Patch, spoil: Callable[[np.ndarray[Any, Any]], None]) -> None:
    """Masks of all seeds, spoiled in the same way."""
    add = mask_stream._add_streams

    def spoiled(words: Any, streams: list[Any]) -> None:
        for stream in streams:
            mask = np.zeros_like(words)
            add(mask, [(stream[0], 1)])
            spoil(mask)
            (np.add if stream[1] > 0 else np.subtract)(words, mask, out=words)

    patch.setattr(mask_stream, "_add_streams", spoiled)


@fault("the key stream begins again every 4 kB", "masked", "mask_words")
def stream_begins_again(patch: Patch) -> None:
    def again(mask: Any) -> None:
        mask[:] = np.resize(mask[:512], len(mask))

    _keystream(patch, again)


@fault("key streams whose words have 12 bits", "committee", "mask_words", "uniformity")
def short_words(patch: Patch) -> None:
    def short(mask: Any) -> None:
        mask &= mask.dtype.type(0xFFF)

    _keystream(patch, short)


@fault("the last quarter of a vector is not masked", "committee", "mask_words")
def bare_end(patch: Patch) -> None:
    def bare(mask: Any) -> None:
        mask[-len(mask) // 4 :] = 0

    _keystream(patch, bare)


# Written when the attacks were done, and first looked at then


@fault("no pairwise masks", "masked", "collusion")
def no_pairwise_masks(patch: Patch) -> None:
    masks, add = MaskedClient._masks, server.add_masks
    patch.setattr(MaskedClient, "_masks", lambda self: masks(self)[:1])
    seed, known = server.MaskedServer._self_mask_seed, list[bytes]()

    def remembered(self: Any, party: int) -> bytes:
        known.append(seed(self, party))
        return known[-1]

    def only(vector: RingVector, masks: list[Any], digest: bytes) -> None:
        add(vector, [mask for mask in masks if mask[0] in known], digest)

    patch.setattr(server.MaskedServer, "_self_mask_seed", remembered)
    patch.setattr(server, "add_masks", only)


@fault("self-masks that follow from session and client", "masked", "drawn_secrets")
def guessed_self_mask(patch: Patch) -> None:
    _self_masks(patch, lambda client: hashlib.sha256(client.setup_digest + bytes([client.party])).digest())


@fault("seeds that follow from session and client", "committee", "drawn_secrets")
def guessed_seeds(patch: Patch) -> None:
    start = CommitteeClient.start

    def guessed(self: CommitteeClient) -> bytes:
        numbers, said = count(), self._config.session_id + bytes([self.party])
        self._entropy = lambda n_bytes: hashlib.shake_256(said + bytes([next(numbers)])).digest(n_bytes)
        return start(self)

    patch.setattr(CommitteeClient, "start", guessed)


@fault("polynomials of shares whose coefficients are known", "masked", "drawn_secrets")
def known_coefficients(patch: Patch) -> None:
    split = masked_client.split

    def known(secret: bytes, threshold: int, points: Any, entropy: Entropy) -> Any:
        return split(secret, threshold=threshold, points=points, entropy=InsecureSeededEntropy(0))

    patch.setattr(masked_client, "split", known)


@fault("one seed that every helper holds", "committee", "collusion")
def one_set_of_all(patch: Patch) -> None:
    patch.setattr(replication, "_sets", lambda helpers, corrupt: (helpers,))
    patch.setattr(replication, "_held_by", lambda helpers, corrupt, helper: (0,))
    patch.setattr(Replication, "n_seeds", property(lambda self: 1))
    patch.setattr(Replication, "seeds_of_one", property(lambda self: 1))


@fault("the cross-correlation is not masked", "committee", "mask_words", "uniformity")
def bare_segment(patch: Patch) -> None:
    keys = mask_stream._stream_key
    add = mask_stream._add_keystreams

    def named(seed: bytes, segment: Any, digest: bytes) -> bytes:
        return b"bare" if segment.name == "cross" else keys(seed, segment, digest)

    def without(words: Any, part: slice, masks: Any) -> None:
        add(words, part, [mask for mask in masks if mask[0] != b"bare"])

    patch.setattr(mask_stream, "_stream_key", named)
    patch.setattr(mask_stream, "_add_keystreams", without)


@fault("clients reveal both kinds of shares of who is lost", "masked", "collusion")
def both_of_dropouts(patch: Patch) -> None:
    honest = MaskedClient._revealed

    def both(self: MaskedClient) -> bytes:
        said = UnmaskShares.read(Reader(memoryview(honest(self)), peer=0))
        lost = {party: self._own.shares[party][SHARE_BYTES:] for party in said.mask_key_shares}
        return UnmaskShares(
            mask_key_shares=said.mask_key_shares, self_mask_shares=said.self_mask_shares | lost
        ).to_payload()

    def take(self: Any, sender: int, reader: Any) -> None:
        shares, survivors = UnmaskShares.read(reader), self._kept.survivors
        own = {party: one for party, one in shares.self_mask_shares.items() if party in survivors}
        self._kept.revealed[sender] = UnmaskShares(mask_key_shares=shares.mask_key_shares, self_mask_shares=own)

    patch.setattr(MaskedClient, "_revealed", both)
    patch.setattr(server.MaskedServer, "_take_unmask_shares", take)


# Journals


@fault("a site's journal forgets", "masked", "journal_differencing")
def forgetful_journal(patch: Patch) -> None:
    patch.setattr(Journal, "_enter", lambda self, protocol, new, written: None)


@fault("sites do not work out what totals combine to", "masked", "journal_differencing")
def journal_without_sums(patch: Patch) -> None:
    patch.setattr(journal, "fewest_left", lambda *_, **others: 99)


@fault("helpers do not know rows again", "committee", "journal_differencing")
def helpers_without_journal(patch: Patch) -> None:
    patch.setattr(Journal, "consent_to_help", lambda self, protocol, survivors, rows=None: None)


# Encryption


@fault("the public context holds the secret key", "bfv", "collusion")
def context_with_the_secret(patch: Patch) -> None:
    generate = modes.generate_contexts

    def open_handed(parameters: Any) -> Any:
        keys = generate(parameters)
        return type(keys)(public_context=keys.secret_context, secret_context=keys.secret_context)

    patch.setattr(modes, "generate_contexts", open_handed)
    for module in ("encrypted", "seal"):
        patch.setattr(import_module(f"secagg.carriers.{module}"), "load_public", carriers_seal._load)


# Generators


def _from_state(n_states: int) -> Entropy:
    def drawn(n_bytes: int) -> bytes:
        return hashlib.shake_256(b"%d" % (int.from_bytes(os.urandom(8), "big") % n_states)).digest(n_bytes)

    return drawn


def _counted() -> Entropy:
    numbers = count()
    return lambda n_bytes: hashlib.shake_256(b"%d" % next(numbers)).digest(n_bytes)


def _of_process() -> Entropy:
    start, numbers = os.urandom(32), count()
    return lambda n_bytes: hashlib.shake_256(start + b"%d" % next(numbers)).digest(n_bytes)


@fault("helpers' keys of 32 bits", "committee", "drawn_secrets")
def short_keys(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BoxKey, "generate", classmethod(lambda cls, entropy: cls(entropy(4) + bytes(28))))


for name, title, make in (
    ("sixteen_bits", "a generator of 16 bits", lambda: _from_state(1 << 16)),
    ("twenty_eight_bits", "a generator of 28 bits", lambda: _from_state(1 << 28)),
    ("seven_bits", "bytes below 128", lambda: lambda n_bytes: bytes(b & 127 for b in os.urandom(n_bytes))),
    ("many_zeros", "one byte in 32 is zero", lambda: lambda n: bytes(b and b % 32 and b for b in os.urandom(n))),
    ("counted", "a generator that begins at nought in every process", _counted),
    ("odd", "bytes that are odd", lambda: lambda n_bytes: bytes(b | 1 for b in os.urandom(n_bytes))),
    ("copied", "a generator whose state a copied process shares", _of_process),
):
    PLANTED[name] = Planted(title, "masked", ("drawn_secrets",), entropy=make)


def by_attack() -> Iterator[tuple[str, str]]:
    """Each fault with each of the attacks that notice it."""
    for name, planted in PLANTED.items():
        for attack in planted.caught_by:
            yield name, attack


def table() -> str:
    """The faults as a reference page lists them."""
    rows = [
        f"| {one.title} | `{one.mode}` | {', '.join(f'`{a}`' for a in one.caught_by)} |" for one in PLANTED.values()
    ]
    return "\n".join(["| fault | mode | noticed by |", "| --- | --- | --- |", *rows])
