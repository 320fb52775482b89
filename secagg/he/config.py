"""The public parameters of an encrypted sum, checked when they are made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from secagg.config import MAX_PARTY, SumConfig
from secagg.errors import ConfigurationError
from secagg.he.carrier import EncryptedCarrier
from secagg.he.choice import Candidate
from secagg.he.contexts import load_public
from secagg.he.parameters import EncryptionParameters
from secagg.sessions import PartyId


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSumParameters(SumConfig):
    """Under which key and parameters, and who decrypts.

    Args:
        parameters: scheme, ring and moduli, see ``choose_parameters``.
        public_context: the key holder's public TenSEAL context, of a key pair made for this session.
        key_holder: the key holder's number, none of the clients'.
        min_survivors: fewest clients of a sum that the key holder decrypts; at least 2.
    """

    parameters: EncryptionParameters
    public_context: bytes = field(repr=False)
    key_holder: PartyId
    min_survivors: int

    def __post_init__(self) -> None:
        # Before the digest, which needs numbers that fit their bytes.
        if not 1 <= self.key_holder <= MAX_PARTY or self.key_holder in self.clients:
            raise ConfigurationError(
                f"the key holder needs a number of 1 to {MAX_PARTY} that is no client's, not {self.key_holder}"
            )
        if not 2 <= self.min_survivors <= len(self.clients):
            raise ConfigurationError(
                f"min_survivors must be 2 to the cohort's {len(self.clients)}, not {self.min_survivors}: "
                "the sum of one client is its vector"
            )
        SumConfig.__post_init__(self)
        _ = self.carrier
        load_public(self.parameters, self.public_context)

    @property
    def name(self) -> str:
        """The mode's name."""
        return self.parameters.scheme

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    @property
    def carrier(self) -> EncryptedCarrier:
        """How this session's vectors travel."""
        return EncryptedCarrier(layout=self.layout, parameters=self.parameters, n_clients=len(self.clients))

    def explain(self) -> str:
        """The choice for people: parameters, limbs, margin, failure probability, bytes, what the key holder sees."""
        return Candidate(parameters=self.parameters, plan=self.carrier.plan).explain()

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            self.parameters.canonical(),
            hashlib.sha256(self.public_context).digest(),
            self.key_holder.to_bytes(4, "big"),
            self.min_survivors.to_bytes(4, "big"),
        )
