"""Messages of a masked sum: payloads of a fixed form, bounded by the configuration.

Two payloads have no class. UNMASK_REQUEST is the list of the dropouts of the whole cohort: all other clients are
survivors, so that no request can ask for both secrets of one client. SURVIVOR_SIGNATURE is a signature.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from secagg.primitives.agreement import PUBLIC_KEY_BYTES
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.sealing import OVERHEAD_BYTES
from secagg.primitives.shamir import SHARE_BYTES
from secagg.sessions import PartyId
from secagg.wire import Reader, write_entries, write_parties

COMMITMENT_BYTES = 32
SEALED_BYTES = 2 * SHARE_BYTES + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertisedKeys:
    """Client to server, round 0: c^PK, to seal shares with, and s^PK, to agree on masks with.

    The signature is the one at the end of this message, which the server passes on with the keys; empty in a session
    without identities.
    """

    sealing_key: bytes
    masking_key: bytes
    signature: bytes = b""

    def to_payload(self) -> bytes:
        """Return the payload."""
        return self.sealing_key + self.masking_key

    @property
    def entry(self) -> bytes:
        """The roster entry of these keys."""
        return self.to_payload() + self.signature

    @classmethod
    def read(cls, reader: Reader, *, signature: bytes) -> Self:
        """Parse a payload; the signature follows it."""
        keys = cls.parse(reader.take(2 * PUBLIC_KEY_BYTES) + signature)
        reader.end()
        return keys

    @classmethod
    def parse(cls, entry: bytes) -> Self:
        """Parse a payload or roster entry of the right length."""
        sealing_key, rest = entry[:PUBLIC_KEY_BYTES], entry[PUBLIC_KEY_BYTES:]
        return cls(sealing_key=sealing_key, masking_key=rest[:PUBLIC_KEY_BYTES], signature=rest[PUBLIC_KEY_BYTES:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Server to client, round 1: the keys of those neighbours that advertised some."""

    keys: dict[PartyId, AdvertisedKeys]

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_entries({party: keys.entry for party, keys in self.keys.items()})

    @classmethod
    def read(cls, reader: Reader, *, signature_bytes: int) -> Self:
        """Parse a payload."""
        entries = reader.entries(2 * PUBLIC_KEY_BYTES + signature_bytes)
        reader.end()
        return cls(keys={party: AdvertisedKeys.parse(entry) for party, entry in entries.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedShares:
    """Client to server, round 1: an encrypted pair of shares for each neighbour, and a self-mask commitment."""

    commitment: bytes
    sealed: dict[PartyId, bytes]

    def to_payload(self) -> bytes:
        """Return the payload."""
        return self.commitment + write_entries(self.sealed)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Parse a payload."""
        message = cls(commitment=reader.take(COMMITMENT_BYTES), sealed=reader.entries(SEALED_BYTES))
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDelivery:
    """Server to client, round 2: the encrypted shares of its neighbours.

    If peers are signed it also lists all clients of the cohort without shares; otherwise ``absent`` is None.
    """

    sealed: dict[PartyId, bytes]
    absent: tuple[PartyId, ...] | None = None

    def to_payload(self) -> bytes:
        """Return the payload."""
        return (b"" if self.absent is None else write_parties(self.absent)) + write_entries(self.sealed)

    @classmethod
    def read(cls, reader: Reader, *, signs_peers: bool = False) -> Self:
        """Parse a payload."""
        absent = tuple(reader.entries(0)) if signs_peers else None
        message = cls(absent=absent, sealed=reader.entries(SEALED_BYTES))
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivorProof:
    """Server to client: enough survivors' signatures on one survivor set.

    If peers are signed, also the signature of each surviving neighbour on its masking peers.
    """

    signatures: dict[PartyId, bytes]
    peers: dict[PartyId, bytes] | None = None

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_entries(self.signatures) + (b"" if self.peers is None else write_entries(self.peers))

    @classmethod
    def read(cls, reader: Reader, *, signs_peers: bool = False) -> Self:
        """Parse a payload."""
        signatures = reader.entries(SIGNATURE_BYTES)
        message = cls(signatures=signatures, peers=reader.entries(SIGNATURE_BYTES) if signs_peers else None)
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmaskShares:
    """Client to server, last: a share of each dropout's mask key and of each survivor's self-mask seed."""

    mask_key_shares: dict[PartyId, bytes] = field(repr=False)
    self_mask_shares: dict[PartyId, bytes] = field(repr=False)

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_entries(self.mask_key_shares) + write_entries(self.self_mask_shares)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Parse a payload."""
        message = cls(mask_key_shares=reader.entries(SHARE_BYTES), self_mask_shares=reader.entries(SHARE_BYTES))
        reader.end()
        return message
