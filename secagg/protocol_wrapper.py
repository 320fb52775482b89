"""Base class of sums that wrap another one, to add noise or receipts to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.ring import RingVector
from secagg.sessions import ClientSession, FailureSession, PartyId
from secagg.sums import NO_SECRETS, CoalitionView, Guarantee, PartySecrets, SumProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolWrapper:
    """A sum that wraps another one and delegates everything that it does not change.

    Args:
        protocol: the wrapped sum.
    """

    EXPLANATION: ClassVar[str] = ""
    """Line that the wrapper adds to ``explain``."""

    protocol: SumProtocol

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """Cohort of clients, ascending."""
        return self.protocol.clients

    @property
    def digest(self) -> bytes:
        """Configuration digest of the wrapped sum."""
        return self.protocol.digest

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        return self.protocol.survivors_needed

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Helpers of the wrapped sum."""
        return self.protocol.helpers

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys of the wrapped sum."""
        return self.protocol.public_keys

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party of the wrapped sum."""
        return self.protocol.identity_of(party)

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees of the wrapped sum."""
        return self.protocol.guarantee

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Costs of the wrapped sum."""
        return self.protocol.costs

    def explain(self) -> str:
        """Describe the wrapped sum and what this one adds."""
        return f"{self.protocol.explain()}\n  {self.EXPLANATION}"

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Create a helper's session of the wrapped sum."""
        return self.protocol.helper(party, secrets=secrets, entropy=entropy)

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Create the session that certifies a failure of the wrapped sum; None if its mode has none."""
        return self.protocol.failure(secrets=secrets)

    def check_failure(self, proof: bytes) -> None:
        """Verify a proof that the wrapped sum failed."""
        self.protocol.check_failure(proof)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the coalition's reconstruction of an upload of the wrapped sum; noise stays in it."""
        return self.protocol.reconstruct_upload(knowledge, target)
