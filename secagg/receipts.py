"""Receipts of finished sums: a signed statement about uploads, survivors and total, that verifies offline.

A client's copy proves that the hash of its upload is in the set that was signed. It is not proof that the server added
it: nobody but the server sees the addition. With countersignatures of a quorum a second total of the same sum cannot
have one too; without them two totals are evidence against the server that signed both (``check_evidence``).

Uploads are the leaves of a Merkle tree (RFC 9162, section 2.1), so that a client's proof takes 32 bytes a level: 448 at
10 000 clients, where the list of all hashes would take 320 000 for each of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from secagg.config import two_thirds
from secagg.encoding import length_prefixed
from secagg.errors import MalformedMessageError, ReceiptError
from secagg.layout import IntVector
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, statement, verifies
from secagg.sessions import PartyId
from secagg.wire import Reader, write_entries, write_parties

_MAGIC = b"SAGR\x02"
HASH_BYTES = 32
MAX_LEVELS = 20
"""Of a tree over as many clients as a cohort can have."""
SERVER_LABEL, COUNTERSIGNER_LABEL = "receipt", "countersignature"

Path = tuple[bytes, ...]
"""The hashes beside a leaf's way to the root, from the leaf up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a server, and whoever countersigns, signs of one sum.

    Args:
        configuration: the sum's digest: layout, cohort, session, roster, context.
        survivors: whose vectors are said to be in the total, ascending.
        uploads: the root over the hashes of their uploads.
        total: what commits to the total and does not confirm a guess of it, since clients are told it.
    """

    configuration: bytes
    survivors: tuple[PartyId, ...]
    uploads: bytes
    total: bytes

    @property
    def parts(self) -> tuple[bytes, ...]:
        """What is signed under a label."""
        return self.configuration, write_parties(self.survivors), self.uploads, self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """The place of a party's upload (SHA-256 of the whole message, as sent) in the tree, with the path to its root."""

    party: PartyId
    upload: bytes
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A signed statement, and what goes with it.

    Args:
        statement: what is signed.
        signature: the server's.
        countersignatures: of survivors, or of helpers, by party.
        opening: what opens the commitment to the total; in the copies of those alone who may have the total.
        inclusion: in a client's copy, where its upload stands.
    """

    statement: Statement
    signature: bytes
    countersignatures: Mapping[PartyId, bytes] = field(default_factory=dict)
    opening: bytes = field(default=b"", repr=False)
    inclusion: Inclusion | None = None

    def verify(
        self,
        server_identity: bytes,
        countersigners: Mapping[PartyId, bytes] | None = None,
        *,
        corrupt: int | None = None,
        party: PartyId = 0,
    ) -> None:
        """Check who signed it, offline.

        Args:
            server_identity: the server's Ed25519 public key, from the operator.
            countersigners: the public keys of all clients of the cohort, or of all helpers: a ``quorum`` of them must
                have countersigned. None asks for the server's signature alone.
            corrupt: how many of them may sign whatever the server wants; None where nothing is said of that.
            party: a client whose upload must be among those that were signed; 0 for nobody's.

        Raises:
            ReceiptError: it is not signed so, or that client's upload is not in it.
        """
        if not verifies(server_identity, self.signature, statement(SERVER_LABEL, *self.statement.parts)):
            raise ReceiptError("this receipt is not signed by this server, or was changed")
        if countersigners is not None:
            self._check_countersignatures(countersigners, quorum(countersigners, corrupt))
        if party and party not in self.statement.survivors:
            raise ReceiptError(f"the vector of party {party} is not in this total")
        if party and (self.inclusion is None or self.inclusion.party != party):
            raise ReceiptError(f"this copy does not say where the upload of party {party} is; take that party's own")
        if party and self.inclusion is not None:
            check_path(self.statement, self.inclusion)

    def _check_countersignatures(self, countersigners: Mapping[PartyId, bytes], needed: int) -> None:
        said = statement(COUNTERSIGNER_LABEL, *self.statement.parts)
        for party, signature in self.countersignatures.items():
            if not verifies(countersigners.get(party, b""), signature, said):
                raise ReceiptError(f"the countersignature of party {party} is forged, or it is nobody who may give one")
        if len(self.countersignatures) < needed:
            raise ReceiptError(
                f"this total needs {needed} countersignatures of {len(countersigners)} and has "
                f"{len(self.countersignatures)}: another total of the same sum could have as many"
            )

    def verify_total(self, total: IntVector) -> None:
        """Check that it is the receipt of this total.

        Raises:
            ReceiptError: of another one, or a copy that does not open the commitment.
        """
        if not self.opening:
            raise ReceiptError("this copy commits to the total without opening it; take the server's")
        if commitment(total, self.opening, self.statement.configuration) != self.statement.total:
            raise ReceiptError("this receipt is for another total")

    def to_bytes(self) -> bytes:
        """Return the receipt as bytes."""
        said, own, proof = self.statement, self.inclusion, b"\0"
        if own is not None:
            proof = b"\1" + own.party.to_bytes(4, "big") + own.upload + write_path(own.path)
        signed = said.configuration + said.uploads + said.total + self.signature + write_parties(said.survivors)
        opening = bytes([bool(self.opening)]) + self.opening
        return _MAGIC + signed + write_entries(dict(self.countersignatures)) + opening + proof

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Read ``to_bytes``.

        Raises:
            ReceiptError: no receipt of this version.
        """
        if data[: len(_MAGIC)] != _MAGIC:
            raise ReceiptError("these bytes are no receipt of this version")
        try:
            reader = Reader(memoryview(data)[len(_MAGIC) :], peer=0)
            configuration, uploads, total = (reader.take(HASH_BYTES) for _ in range(3))
            receipt = cls(
                signature=reader.take(SIGNATURE_BYTES),
                statement=Statement(
                    configuration=configuration, uploads=uploads, total=total, survivors=tuple(reader.entries(0))
                ),
                countersignatures=reader.entries(SIGNATURE_BYTES),
                opening=reader.take(HASH_BYTES * _number(reader, 1)),
                inclusion=Inclusion(party=reader.number(), upload=reader.take(HASH_BYTES), path=read_path(reader))
                if _number(reader, 1)
                else None,
            )
            reader.end()
        except MalformedMessageError as error:
            raise ReceiptError("these bytes are no receipt") from error
        return receipt

    @property
    def without_opening(self) -> Receipt:
        """The same for those who may not have the total."""
        return replace(self, opening=b"")


def quorum(countersigners: Collection[PartyId], corrupt: int | None = None) -> int:
    """Return how many must countersign, so that two totals of one sum take too many who sign both.

    Args:
        countersigners: who may.
        corrupt: how many of them may sign both: two quorums share one more. None asks for more than two thirds, of
            which two share more than a third.
    """
    if corrupt is None:
        return two_thirds(tuple(countersigners))
    return min(len(countersigners), (len(countersigners) + corrupt) // 2 + 1)


def commitment_opening(identity: IdentityKey, configuration: bytes) -> bytes:
    """Return what opens a server's commitment to a total; it alone can make it, and makes it anew after a crash."""
    return derive_key(identity.secret, "opening of a total", configuration)


def commitment(total: IntVector, opening: bytes, configuration: bytes) -> bytes:
    """Return what binds to a total and tells nothing of it to whoever does not have its opening."""
    return hashlib.sha256(length_prefixed(opening, configuration, total.astype("<i8").tobytes())).digest()


def check_evidence(one: Receipt, other: Receipt, server_identity: bytes) -> None:
    """Check that two receipts convict a server: it signed two different statements about one sum.

    Raises:
        ReceiptError: one of them is not signed by it, they are for different sums, or they say the same.
    """
    one.verify(server_identity)
    other.verify(server_identity)
    if one.statement.configuration != other.statement.configuration:
        raise ReceiptError("these receipts are for different sums, each of which may have its own total")
    if one.statement == other.statement:
        raise ReceiptError("these receipts say the same; there is nothing against the server in them")


def upload_tree(uploads: Mapping[PartyId, bytes]) -> tuple[bytes, dict[PartyId, Path]]:
    """Return the root over the hashes of all uploads, and each one's path to it: RFC 9162, 2.1.1 and 2.1.3.1."""
    root, paths = _tree([_leaf(party, uploads[party]) for party in sorted(uploads)])
    return root, dict(zip(sorted(uploads), paths, strict=True))


def check_path(said: Statement, inclusion: Inclusion) -> None:
    """Check that an upload is among those of a statement: RFC 9162, section 2.1.3.2.

    Raises:
        ReceiptError: it is not.
    """
    leaf, parties = _leaf(inclusion.party, inclusion.upload), said.survivors
    if inclusion.party not in parties or said.uploads != _root(
        leaf, parties.index(inclusion.party), len(parties), inclusion.path
    ):
        raise ReceiptError(f"the upload of party {inclusion.party} is not among those that were signed")


def write_path(path: Path) -> bytes:
    """Return the bytes that ``read_path`` reads."""
    return bytes([len(path)]) + b"".join(path)


def read_path(reader: Reader) -> Path:
    """Read the next path of a message."""
    return tuple(reader.take(HASH_BYTES) for _ in range(_number(reader, MAX_LEVELS)))


def _tree(leaves: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    if len(leaves) == 1:
        return leaves[0], [()]
    (left, of_left), (right, of_right) = _tree(leaves[: _split(len(leaves))]), _tree(leaves[_split(len(leaves)) :])
    return _node(left, right), [(*path, right) for path in of_left] + [(*path, left) for path in of_right]


def _root(leaf: bytes, place: int, size: int, path: Path) -> bytes:
    """The root that a leaf at a place has with this path; no hash where the path is too long or too short."""
    if size == 1 or not path:
        return leaf if size == 1 and not path else b""
    half, beside = _split(size), path[-1]
    if place < half:
        return _node(_root(leaf, place, half, path[:-1]), beside)
    return _node(beside, _root(leaf, place - half, size - half, path[:-1]))


def _split(size: int) -> int:
    """The largest power of two below a tree's size."""
    return 1 << (size - 1).bit_length() - 1


def _leaf(party: PartyId, upload: bytes) -> bytes:
    return hashlib.sha256(b"\0" + party.to_bytes(4, "big") + upload).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _number(reader: Reader, most: int) -> int:
    """The next byte as a number."""
    (number,) = reader.take(1)
    if number > most:
        raise MalformedMessageError(f"a number of at most {most} is due, {number} came")
    return number
