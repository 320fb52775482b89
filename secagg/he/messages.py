"""What the parties of an encrypted sum say: payloads of a fixed size for a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from secagg.he.carrier import EncryptedCarrier
from secagg.layout import Layout
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.wire import MessageType, Reader, write_parties


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedInput:
    """Client to server, its only message: the ciphertexts of its vector."""

    ciphertexts: bytes = field(repr=False)

    TYPE = MessageType.ENCRYPTED_INPUT

    def to_payload(self) -> bytes:
        """The payload."""
        return self.ciphertexts

    @classmethod
    def read(cls, reader: Reader, carrier: EncryptedCarrier) -> Self:
        """Take the payload apart."""
        message = cls(ciphertexts=reader.take(carrier.upload_bytes))
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class DecryptionRequest:
    """Server to key holder: whose vectors are in the sum, and the sum."""

    survivors: tuple[PartyId, ...]
    encrypted_sum: bytes = field(repr=False)

    TYPE = MessageType.DECRYPTION_REQUEST

    def to_payload(self) -> bytes:
        """The payload."""
        return write_parties(self.survivors) + self.encrypted_sum

    @classmethod
    def read(cls, reader: Reader, carrier: EncryptedCarrier) -> Self:
        """Take the payload apart."""
        message = cls(survivors=tuple(reader.entries(0)), encrypted_sum=reader.take(carrier.upload_bytes))
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecryptedSumMessage:
    """Key holder to server: the total modulo 2^(8 wire_bytes)."""

    vector: RingVector = field(repr=False)

    TYPE = MessageType.DECRYPTED_SUM

    def to_payload(self) -> bytes:
        """The payload."""
        return self.vector.to_bytes()

    @classmethod
    def read(cls, reader: Reader, layout: Layout) -> Self:
        """Take the payload apart."""
        vector = RingVector.from_bytes(layout, reader.take(layout.wire_bytes))
        reader.end()
        return cls(vector=vector)
