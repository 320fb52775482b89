"""What a client keeps of a finished sum: a small statement, signed by the server, that verifies offline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from secagg.config import SumConfig
from secagg.errors import LocalProtocolError, MalformedMessageError, ReceiptError
from secagg.masked.server import MaskedServer
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, is_signed
from secagg.sessions import PartyId, SumResult
from secagg.wire import Reader, write_parties

_MAGIC = b"SAGR\x01"
_LABEL = "receipt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Which sum this was, whose vectors are in it, and what came out, by hashes.

    Args:
        configuration: the session's configuration digest: layout, cohort, threshold, roster, context.
        survivors: whose vectors are in the total, ascending.
        transcript: hash of every message the server took.
        total: SHA-256 of the total's int64 little-endian bytes.
        signature: the server's.
    """

    configuration: bytes
    survivors: tuple[PartyId, ...]
    transcript: bytes
    total: bytes
    signature: bytes

    @classmethod
    def issue(cls, server: MaskedServer, config: SumConfig, identity: IdentityKey) -> Receipt:
        """The receipt of a finished sum; the same for all its clients.

        Raises:
            LocalProtocolError: the sum is not finished.
        """
        if server.result is None:
            raise LocalProtocolError("there is no receipt before the sum stands")
        statement = (
            config.digest,
            write_parties(server.result.survivors),
            server.transcript,
            total_digest(server.result),
        )
        return cls(
            configuration=statement[0],
            survivors=server.result.survivors,
            transcript=statement[2],
            total=statement[3],
            signature=identity.sign(_LABEL, *statement),
        )

    def verify(self, config: SumConfig, server_identity: bytes, party: PartyId | None = None) -> None:
        """Check it against one's own configuration, offline.

        Args:
            config: the sum as this client knows it.
            server_identity: the server's public key, from the operator.
            party: if given, this client's vector must be in the total.

        Raises:
            ReceiptError: another sum, a client left out, or no signature of this server.
        """
        if self.configuration != config.digest:
            raise ReceiptError("this receipt is for another sum: session, cohort, layout or context differ")
        statement = (self.configuration, write_parties(self.survivors), self.transcript, self.total)
        if not is_signed(server_identity, self.signature, _LABEL, *statement):
            raise ReceiptError("this receipt is not signed by this server, or was changed")
        if party is not None and party not in self.survivors:
            raise ReceiptError(f"the vector of party {party} is not in this total")

    def to_bytes(self) -> bytes:
        """The receipt as bytes."""
        return (
            _MAGIC + self.configuration + self.transcript + self.total + self.signature + write_parties(self.survivors)
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Receipt:
        """Read ``to_bytes``.

        Raises:
            ReceiptError: no receipt of this version.
        """
        try:
            reader = Reader(memoryview(data), peer=0)
            magic = reader.take(len(_MAGIC))
            configuration, transcript, total = reader.take(32), reader.take(32), reader.take(32)
            signature, survivors = reader.take(SIGNATURE_BYTES), tuple(reader.entries(0))
            reader.end()
        except MalformedMessageError as error:
            raise ReceiptError("these bytes are no receipt") from error
        if magic != _MAGIC:
            raise ReceiptError("these bytes are no receipt of this version")
        return cls(
            configuration=configuration,
            survivors=survivors,
            transcript=transcript,
            total=total,
            signature=signature,
        )


def total_digest(result: SumResult) -> bytes:
    """SHA-256 of a total, to compare with a receipt's."""
    return hashlib.sha256(result.total.astype("<i8").tobytes()).digest()
