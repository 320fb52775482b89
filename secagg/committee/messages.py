"""Messages of a committee sum.

Payloads of one value have no class. SEED_COMPLAINTS and SURVIVOR_SET are lists of clients (the empty survivor set
certifies a failed sum), MASK_REQUEST is the list of the sets whose mask sums a helper must send, SET_SIGNATURE a
signature, and SUM_HASHES the hashes of the mask sums of a helper's sets in a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from secagg.primitives.boxes import OVERHEAD_BYTES
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import SIGNATURE_BYTES, is_signed, statement
from secagg.sessions import PartyId
from secagg.sums import FINGERPRINT_BYTES
from secagg.wire import Reader, write_entries, write_parties

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum

SEED_BYTES = HASH_BYTES = 32
BOX_LABEL, SEEDS_LABEL, SET_LABEL = "committee box", "committee seeds", "committee set"


def box_bytes(config: CommitteeSum) -> int:
    """Return the length of a helper's box: its seeds and the client's data fingerprint, encrypted."""
    return config.seed_sharing.seeds_per_helper * SEED_BYTES + FINGERPRINT_BYTES + OVERHEAD_BYTES


def commitments_bytes(config: CommitteeSum) -> int:
    """Return the length of the commitments to all seeds."""
    return config.seed_sharing.n_seeds * HASH_BYTES


def entry_bytes(config: CommitteeSum) -> int:
    """Return the length of a ``SeedEntry``."""
    hashes = len(config.helpers) * HASH_BYTES
    return box_bytes(config) + commitments_bytes(config) + hashes + config.signature_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedEntry:
    """A client's encrypted seeds for one helper, with the commitments to all seeds and the hashes of all boxes."""

    box: bytes
    commitments: bytes
    box_hashes: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """Return the entry of a delivery."""
        return self.box + self.commitments + self.box_hashes + self.signature

    @classmethod
    def from_bytes(cls, entry: bytes, config: CommitteeSum) -> Self:
        """Parse an entry; inverse of ``to_bytes``. The reader checked its length."""
        reader = Reader(memoryview(entry), peer=0)
        box, commitments = reader.take(box_bytes(config)), reader.take(commitments_bytes(config))
        hashes = reader.take(len(config.helpers) * HASH_BYTES)
        return cls(box=box, commitments=commitments, box_hashes=hashes, signature=reader.rest())

    def statement(self, digest: bytes, client: PartyId) -> bytes:
        """Return the client's statement about its seeds, signed with identities; its hash identifies the seeds."""
        return statement(SEEDS_LABEL, digest, number(client), self.commitments, self.box_hashes)

    def holds_box_of(self, config: CommitteeSum, helper: PartyId) -> bool:
        """Return whether the box is the one that the client signed for this helper."""
        start = config.helpers.index(helper) * HASH_BYTES
        return self.box_hashes[start : start + HASH_BYTES] == hashlib.sha256(self.box).digest()

    def fits(self, config: CommitteeSum, client: PartyId, helper: PartyId, seeds: bytes) -> bool:
        """Return whether these seeds of this helper match the client's commitments."""
        return all(
            self.commitments[place * HASH_BYTES : (place + 1) * HASH_BYTES]
            == seed_commitment(config.digest, client, place, seed)
            for place, seed in seeds_by_set(config, helper, seeds).items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeInput:
    """Client to server: a box for each helper, commitments, a signature on both, the masked vector."""

    boxes: dict[PartyId, bytes]
    commitments: bytes
    signature: bytes
    vector: bytes | memoryview = field(repr=False)

    def to_payload(self) -> bytes:
        """Return the payload."""
        return b"".join((write_entries(self.boxes), self.commitments, self.signature, self.vector))

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum, *, has_vector: bool = True) -> Self:
        """Parse a payload; ``has_vector`` is False after the vector was added and removed."""
        boxes, commitments = reader.entries(box_bytes(config)), reader.take(commitments_bytes(config))
        signature = reader.take(config.signature_bytes)
        vector = reader.view(config.layout.wire_bytes if has_vector else 0)
        reader.end()
        return cls(boxes=boxes, commitments=commitments, signature=signature, vector=vector)

    def entry(self, helper: PartyId) -> SeedEntry:
        """Return the entry for one helper."""
        hashes = b"".join(hashlib.sha256(self.boxes[party]).digest() for party in sorted(self.boxes))
        return SeedEntry(
            box=self.boxes[helper], commitments=self.commitments, box_hashes=hashes, signature=self.signature
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDelivery:
    """Server to helper: each client's seed entry."""

    entries: dict[PartyId, SeedEntry]

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_entries({party: entry.to_bytes() for party, entry in self.entries.items()})

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Parse a payload."""
        entries = reader.entries(entry_bytes(config))
        reader.end()
        return cls(entries={party: SeedEntry.from_bytes(entry, config) for party, entry in entries.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCertificate:
    """Server to helper: the survivor set with the signatures of a quorum; without identities no signatures."""

    survivors: tuple[PartyId, ...]
    signatures: dict[PartyId, bytes]

    def signers(self, config: CommitteeSum, agreed: bytes) -> list[PartyId]:
        """Return the helpers with a valid signature on the set with this hash; empty without identities."""
        return [
            party
            for party, signature in self.signatures.items()
            if config.is_authenticated and is_signed(config.helper_identity(party), signature, SET_LABEL, agreed)
        ]

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_parties(self.survivors) + write_entries(self.signatures)

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Parse a payload."""
        survivors, signatures = tuple(reader.entries(0)), reader.entries(SIGNATURE_BYTES)
        reader.end()
        return cls(survivors=survivors, signatures=signatures)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskSum:
    """Helper to server: the sums of the survivors' masks, by set."""

    sums: Mapping[int, bytes | memoryview] = field(repr=False)

    def to_payload(self) -> bytes:
        """Return the payload."""
        return b"".join(self.parts({place: [vector] for place, vector in self.sums.items()}))

    @staticmethod
    def parts(sums: Mapping[int, Iterable[bytes | memoryview]]) -> Iterator[bytes | memoryview]:
        """Yield the payload of sums that come in parts, a part at a time."""
        yield number(len(sums))
        for place in sorted(sums):
            yield number(place)
            yield from sums[place]

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Parse a payload."""
        sums = reader.entry_views(config.layout.wire_bytes)
        reader.end()
        return cls(sums=sums)


def number(value: int) -> bytes:
    """Return a number as four big-endian bytes."""
    return value.to_bytes(4, "big")


def box_binding(digest: bytes, client: PartyId, helper: PartyId) -> bytes:
    """Return the associated data of a box."""
    return digest + number(client) + number(helper)


def seeds_by_set(config: CommitteeSum, helper: PartyId, seeds: bytes) -> dict[int, bytes]:
    """Return a helper's seeds of one client, by set."""
    places = config.seed_sharing.sets_of(helper)
    return {place: seeds[at * SEED_BYTES : (at + 1) * SEED_BYTES] for at, place in enumerate(places)}


def fingerprint_in(opened: bytes) -> bytes:
    """Return the data fingerprint in a decrypted box; empty if the client gave none."""
    rows = opened[-FINGERPRINT_BYTES:]
    return rows if any(rows) else b""


def seed_commitment(digest: bytes, client: PartyId, place: int, seed: bytes) -> bytes:
    """Return a commitment to a seed, hiding since a seed is 32 random bytes."""
    return hashlib.sha256(statement("committee commitment", digest, number(client), number(place), seed)).digest()


def mask_seed(digest: bytes, client: PartyId, place: int, seed: bytes) -> bytes:
    """Return the seed of the mask stream, derived for one sum, client and set."""
    return derive_key(seed, "committee mask", digest, number(client), number(place))


def set_hash(digest: bytes, seed_digests: Mapping[PartyId, bytes]) -> bytes:
    """Return the hash that helpers sign: survivors, each with the hash of its statement about its seeds."""
    entries = b"".join(number(party) + seed_digests[party] for party in sorted(seed_digests))
    return hashlib.sha256(statement(SET_LABEL, digest, entries)).digest()


def sum_hash(agreed: bytes, place: int, n_bytes: int, vector: Iterable[bytes | memoryview]) -> bytes:
    """Return the hash of a set's mask sum over the survivors with hash ``agreed``.

    It is of the statement whose last part is the sum: its length, and then its parts.
    """
    hashed = hashlib.sha256(statement("committee sum", agreed, number(place)) + n_bytes.to_bytes(8, "big"))
    for part in vector:
        hashed.update(part)
    return hashed.digest()
