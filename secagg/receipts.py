"""Receipts: signed statements about the uploads, survivors and total of a sum, which can be verified offline.

A client's copy proves that the hash of its upload is among the signed ones. It does not prove that the server added the
upload, since only the server sees the addition. With countersignatures of a quorum no second total of the same sum can
have a receipt; without them two receipts are evidence against the server that signed both (``check_evidence``).

The uploads are the leaves of a Merkle tree (RFC 9162, section 2.1). An inclusion proof takes 32 bytes a level: 448
bytes for 10 000 clients instead of the 320 000 bytes of all hashes.
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
"""Height of the tree over the largest cohort."""
SERVER_LABEL, COUNTERSIGNER_LABEL = "receipt", "countersignature"

Path = tuple[bytes, ...]
"""Merkle path: the sibling hashes from a leaf up to the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Statement about one sum that the server and the countersigners sign.

    Args:
        configuration: configuration digest of the sum (layout, cohort, session, roster, context).
        survivors: clients whose vectors are in the total, ascending.
        uploads: root of the Merkle tree over the hashes of their uploads.
        total: hiding commitment to the total; clients that receive it cannot confirm a guess of the total.
    """

    configuration: bytes
    survivors: tuple[PartyId, ...]
    uploads: bytes
    total: bytes

    @property
    def parts(self) -> tuple[bytes, ...]:
        """The parts that are signed under a label."""
        return self.configuration, write_parties(self.survivors), self.uploads, self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Inclusion:
    """Inclusion proof of a party's upload (SHA-256 of the whole message as sent): its hash and Merkle path."""

    party: PartyId
    upload: bytes
    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """A signed statement about one sum.

    Args:
        statement: the signed statement.
        signature: the server's signature.
        countersignatures: signatures of clients or helpers, by party.
        opening: opening of the commitment to the total; only in copies of parties that may have the total.
        inclusion: in a client's copy the inclusion proof of its upload.

    >>> import numpy as np
    >>> from secagg import IdentityKey, InOneProcess, Layout, PartySecrets, PlainSum, ReceiptedSum, run_in_memory
    >>> keys = {party: IdentityKey.generate() for party in (0, 1, 2)}  # 0 is the server
    >>> protocol = PlainSum(
    ...     layout=Layout.of([("counts", 2, 100)]), clients=(1, 2), session_id=bytes(16),
    ...     identities=(keys[1].public, keys[2].public), server_identity=keys[0].public,
    ... )
    >>> secrets = {party: PartySecrets(identity=key) for party, key in keys.items()}
    >>> parties = InOneProcess(protocol=ReceiptedSum(protocol=protocol), secrets=secrets)
    >>> result = run_in_memory(parties, {1: np.array([3, 4]), 2: np.array([5, 6])}).result
    >>> receipt = Receipt.from_bytes(result.receipt)
    >>> receipt.verify(keys[0].public)
    >>> receipt.verify_total(result.total)
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
        """Verify the signatures offline.

        Args:
            server_identity: the server's Ed25519 public key, from the operator.
            countersigners: Ed25519 public keys of all clients of the cohort, or of all helpers; a ``quorum`` of them
                must have countersigned. None verifies the server's signature only.
            corrupt: number of countersigners that may collude with the server; None if unknown.
            party: a client whose upload must be among the signed ones; 0 for none.

        Raises:
            ReceiptError: a signature is missing or not valid, or the client's upload is not included.
        """
        if not verifies(server_identity, self.signature, statement(SERVER_LABEL, *self.statement.parts)):
            raise ReceiptError("this receipt is not signed by this server, or was changed")
        if countersigners is not None:
            self._check_countersignatures(countersigners, quorum(countersigners, corrupt))
        if party and party not in self.statement.survivors:
            raise ReceiptError(f"the vector of party {party} is not in this total")
        if party and (self.inclusion is None or self.inclusion.party != party):
            raise ReceiptError(f"this copy has no path to the upload of party {party}; take that party's own receipt")
        if party and self.inclusion is not None:
            check_path(self.statement, self.inclusion)

    def _check_countersignatures(self, countersigners: Mapping[PartyId, bytes], needed: int) -> None:
        signed = statement(COUNTERSIGNER_LABEL, *self.statement.parts)
        for party, signature in self.countersignatures.items():
            if not verifies(countersigners.get(party, b""), signature, signed):
                raise ReceiptError(f"the countersignature of party {party} is forged, or it may not countersign")
        if len(self.countersignatures) < needed:
            raise ReceiptError(
                f"this total needs {needed} countersignatures of {len(countersigners)} and has "
                f"{len(self.countersignatures)}: another total of the same sum could have as many"
            )

    def verify_total(self, total: IntVector) -> None:
        """Verify that this is the receipt of a total.

        Args:
            total: int64 of shape (layout.size,).

        Raises:
            ReceiptError: it is the receipt of another total, or this copy has no opening.
        """
        if not self.opening:
            raise ReceiptError("this copy commits to the total without opening it; take the server's")
        if commitment(total, self.opening, self.statement.configuration) != self.statement.total:
            raise ReceiptError("this receipt is for another total")

    def to_bytes(self) -> bytes:
        """Return the receipt as bytes."""
        stated, own, proof = self.statement, self.inclusion, b"\0"
        if own is not None:
            proof = b"\1" + own.party.to_bytes(4, "big") + own.upload + write_path(own.path)
        signed = stated.configuration + stated.uploads + stated.total + self.signature + write_parties(stated.survivors)
        opening = bytes([bool(self.opening)]) + self.opening
        return _MAGIC + signed + write_entries(dict(self.countersignatures)) + opening + proof

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Parse a receipt; inverse of ``to_bytes``.

        Raises:
            ReceiptError: the bytes are no receipt of this version.
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
        """Copy without the opening, for parties that may not have the total."""
        return replace(self, opening=b"")


def quorum(countersigners: Collection[PartyId], corrupt: int | None = None) -> int:
    """Return the number of countersignatures with which no two totals of one sum can both be countersigned.

    Args:
        countersigners: parties that may countersign.
        corrupt: number of them that may sign two totals; two quorums then share at least one more. None takes more than
            two thirds; two such quorums share more than a third.
    """
    if corrupt is None:
        return two_thirds(tuple(countersigners))
    return min(len(countersigners), (len(countersigners) + corrupt) // 2 + 1)


def commitment_opening(identity: IdentityKey, configuration: bytes) -> bytes:
    """Return the opening of the server's commitment to a total, derived from its identity key."""
    return derive_key(identity.secret, "opening of a total", configuration)


def commitment(total: IntVector, opening: bytes, configuration: bytes) -> bytes:
    """Return a hiding and binding commitment to a total."""
    return hashlib.sha256(length_prefixed(opening, configuration, total.astype("<i8").tobytes())).digest()


def check_evidence(one: Receipt, other: Receipt, server_identity: bytes) -> None:
    """Verify that two receipts are evidence against a server: it signed two different statements about one sum.

    Args:
        one, other: the receipts.
        server_identity: the server's Ed25519 public key.

    Raises:
        ReceiptError: a receipt is not signed by the server, they are for different sums, or their statements are equal.
    """
    one.verify(server_identity)
    other.verify(server_identity)
    if one.statement.configuration != other.statement.configuration:
        raise ReceiptError("these receipts are for different sums, each of which may have its own total")
    if one.statement == other.statement:
        raise ReceiptError("these receipts agree, so they are no evidence against the server")


def upload_tree(uploads: Mapping[PartyId, bytes]) -> tuple[bytes, dict[PartyId, Path]]:
    """Return the Merkle root over the hashes of all uploads, and each one's path: RFC 9162, 2.1.1 and 2.1.3.1."""
    root, paths = _tree([_leaf(party, uploads[party]) for party in sorted(uploads)])
    return root, dict(zip(sorted(uploads), paths, strict=True))


def check_path(stated: Statement, inclusion: Inclusion) -> None:
    """Verify an inclusion proof against a statement: RFC 9162, section 2.1.3.2.

    Raises:
        ReceiptError: the upload is not among the signed ones.
    """
    leaf, parties = _leaf(inclusion.party, inclusion.upload), stated.survivors
    if inclusion.party not in parties or stated.uploads != _root(
        leaf, parties.index(inclusion.party), len(parties), inclusion.path
    ):
        raise ReceiptError(f"the upload of party {inclusion.party} is not among those that were signed")


def write_path(path: Path) -> bytes:
    """Return the encoding of a path; inverse of ``read_path``."""
    return bytes([len(path)]) + b"".join(path)


def read_path(reader: Reader) -> Path:
    """Parse the next path of a message."""
    return tuple(reader.take(HASH_BYTES) for _ in range(_number(reader, MAX_LEVELS)))


def _tree(leaves: Sequence[bytes]) -> tuple[bytes, list[Path]]:
    if len(leaves) == 1:
        return leaves[0], [()]
    (left, of_left), (right, of_right) = _tree(leaves[: _split(len(leaves))]), _tree(leaves[_split(len(leaves)) :])
    return _node(left, right), [(*path, right) for path in of_left] + [(*path, left) for path in of_right]


def _root(leaf: bytes, place: int, size: int, path: Path) -> bytes:
    """Return the root for a leaf at a place and its path; empty if the path is too long or too short."""
    if size == 1 or not path:
        return leaf if size == 1 and not path else b""
    half, beside = _split(size), path[-1]
    if place < half:
        return _node(_root(leaf, place, half, path[:-1]), beside)
    return _node(beside, _root(leaf, place - half, size - half, path[:-1]))


def _split(size: int) -> int:
    """Return the largest power of two below the size of a tree."""
    return 1 << (size - 1).bit_length() - 1


def _leaf(party: PartyId, upload: bytes) -> bytes:
    return hashlib.sha256(b"\0" + party.to_bytes(4, "big") + upload).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _number(reader: Reader, most: int) -> int:
    """Return the next byte as a number."""
    (number,) = reader.take(1)
    if number > most:
        raise MalformedMessageError(f"a number of at most {most} is due, {number} came")
    return number
