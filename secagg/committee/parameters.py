"""The public parameters of a committee sum, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from secagg.config import MAX_PARTY, SumConfig, check_min_survivors
from secagg.errors import ConfigurationError
from secagg.primitives.agreement import PUBLIC_KEY_BYTES, BadPublicKeyError, check_public_key
from secagg.primitives.identity import IDENTITY_BYTES
from secagg.sessions import PartyId


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeParameters(SumConfig):
    """Who helps, and who signs.

    Args:
        helper_keys: X25519 public key of each helper, by party number; the numbers differ from the clients'. A
            helper may well be a client's organisation, under another number.
        min_survivors: fewest vectors for which a helper takes its masks off; at least 2.
        identities: Ed25519 public keys aligned with ``clients``: helpers then count only clients that signed their
            seeds, so that a lying server cannot fill a cohort with inventions of its own. Without them the server
            must be semi-honest.
        server_identity: the server's Ed25519 public key; it signs the survivor set it hands out. Goes with
            ``identities``.
    """

    helper_keys: tuple[tuple[PartyId, bytes], ...]
    min_survivors: int
    identities: tuple[bytes, ...] = field(default=(), repr=False)
    server_identity: bytes = b""

    def _check(self) -> None:
        parties = [party for party, _ in self.helper_keys]
        are_numbers = all(type(party) is int and 1 <= party <= MAX_PARTY for party in parties)
        if not parties or not are_numbers or parties != sorted(set(parties)) or set(parties) & set(self.clients):
            raise ConfigurationError(
                "a committee needs at least one helper, ascending, with numbers that no client has, "
                f"from 1 to {MAX_PARTY}; these came: {parties[:10]}"
            )
        for party, key in self.helper_keys:
            _check_key(party, key)
        if len({key for _, key in self.helper_keys}) != len(parties):
            raise ConfigurationError("two helpers with one key are one party: give each helper a key of its own")
        check_min_survivors(self.min_survivors, self.clients)
        self._check_identities()

    @property
    def name(self) -> str:
        """The mode's name."""
        return "committee"

    @property
    def is_authenticated(self) -> bool:
        """Whether clients and server sign what they say to the helpers."""
        return bool(self.identities)

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    def helper_key(self, helper: PartyId) -> bytes:
        """A helper's public key.

        Raises:
            ConfigurationError: no helper of this sum.
        """
        keys = dict(self.helper_keys)
        if helper not in keys:
            raise ConfigurationError(f"party {helper} is no helper of this sum; its helpers are {sorted(keys)}")
        return keys[helper]

    def identity(self, party: PartyId) -> bytes:
        """A client's public signing key."""
        return self.identities[self.index(party)]

    def _check_identities(self) -> None:
        if bool(self.identities) != bool(self.server_identity):
            raise ConfigurationError("identities of clients and server go together: give both or neither")
        if not self.identities:
            return
        if len(self.identities) != len(self.clients) or len(set(self.identities)) != len(self.identities):
            raise ConfigurationError(f"the roster needs one identity key for each of {len(self.clients)} clients")
        if any(len(key) != IDENTITY_BYTES for key in (*self.identities, self.server_identity)):
            raise ConfigurationError(f"an Ed25519 public key has {IDENTITY_BYTES} bytes")

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_keys),
            self.min_survivors.to_bytes(4, "big"),
            b"".join(self.identities),
            self.server_identity,
        )


def _check_key(party: PartyId, key: bytes) -> None:
    try:
        if type(key) is not bytes or len(key) != PUBLIC_KEY_BYTES:
            raise BadPublicKeyError
        check_public_key(key)
    except BadPublicKeyError as error:
        raise ConfigurationError(f"the X25519 public key of helper {party} is none, or has small order") from error
