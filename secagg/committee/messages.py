"""What the parties of a committee sum say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from secagg.primitives.agreement import PUBLIC_KEY_BYTES, KeyPair
from secagg.primitives.identity import IdentityKey, is_signed
from secagg.primitives.sealing import OVERHEAD_BYTES
from secagg.sessions import PartyId
from secagg.wire import Reader, write_entries, write_parties

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum

SEED_BYTES = 32
SEALED_SEED_BYTES = SEED_BYTES + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSeed:
    """One client's seed for one helper: a fresh public key, the seed sealed with it, and the client's signature."""

    ephemeral: bytes
    sealed: bytes
    signature: bytes

    def to_bytes(self) -> bytes:
        """An entry of an upload or of a request."""
        return self.ephemeral + self.sealed + self.signature

    @classmethod
    def from_bytes(cls, entry: bytes) -> Self:
        """Read ``to_bytes``; the length was checked by the reader."""
        sealed_end = PUBLIC_KEY_BYTES + SEALED_SEED_BYTES
        return cls(
            ephemeral=entry[:PUBLIC_KEY_BYTES],
            sealed=entry[PUBLIC_KEY_BYTES:sealed_end],
            signature=entry[sealed_end:],
        )


def entry_bytes(config: CommitteeSum) -> int:
    """The length of a ``SealedSeed``."""
    return PUBLIC_KEY_BYTES + SEALED_SEED_BYTES + config.signature_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeInput:
    """Client to server, its only message: a sealed seed for each helper, then the masked vector."""

    seeds: dict[PartyId, SealedSeed]
    vector: bytes = field(repr=False)

    def to_payload(self) -> bytes:
        """The payload."""
        return write_entries({helper: seed.to_bytes() for helper, seed in self.seeds.items()}) + self.vector

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Take the payload apart."""
        seeds = {h: SealedSeed.from_bytes(entry) for h, entry in reader.entries(entry_bytes(config)).items()}
        message = cls(seeds=seeds, vector=reader.take(config.layout.wire_bytes))
        reader.end()
        return message


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRequest:
    """Server to helper: the survivors, each with its sealed seed."""

    seeds: dict[PartyId, SealedSeed]

    def to_payload(self) -> bytes:
        """The payload."""
        return write_entries({party: seed.to_bytes() for party, seed in self.seeds.items()})

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Take the payload apart."""
        seeds = {p: SealedSeed.from_bytes(entry) for p, entry in reader.entries(entry_bytes(config)).items()}
        reader.end()
        return cls(seeds=seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskSum:
    """Helper to server: the sum of its masks over the survivors it names again."""

    survivors: tuple[PartyId, ...]
    vector: bytes = field(repr=False)

    def to_payload(self) -> bytes:
        """The payload."""
        return write_parties(self.survivors) + self.vector

    @classmethod
    def read(cls, reader: Reader, config: CommitteeSum) -> Self:
        """Take the payload apart."""
        message = cls(survivors=tuple(reader.entries(0)), vector=reader.take(config.layout.wire_bytes))
        reader.end()
        return message


def seed_key(own: KeyPair, other: bytes, digest: bytes, client: PartyId, helper: PartyId) -> bytes:
    """The key that a client's seed for a helper is sealed with; from the client's fresh pair or the helper's own."""
    return own.agree(other, "committee seed", digest, _number(client), _number(helper))


def seed_binding(digest: bytes, client: PartyId, helper: PartyId) -> bytes:
    """The associated data of a sealed seed."""
    return digest + _number(client) + _number(helper)


def sign_seed(identity: IdentityKey, binding: bytes, ephemeral: bytes, sealed: bytes) -> bytes:
    """A client's word that this is its seed for the helper and the sum of ``binding``."""
    return identity.sign("committee seed", binding, ephemeral, sealed)


def seed_is_signed(config: CommitteeSum, seed: SealedSeed, client: PartyId, helper: PartyId) -> bool:
    """Whether ``client`` vouches for this seed."""
    statement = (seed_binding(config.digest, client, helper), seed.ephemeral, seed.sealed)
    return is_signed(config.identity(client), seed.signature, "committee seed", *statement)


def _number(party: PartyId) -> bytes:
    return party.to_bytes(4, "big")
