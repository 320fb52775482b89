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
    """A sum around another one; what it does not change is answered by that one.

    Args:
        protocol: the sum under it.
    """

    EXPLANATION: ClassVar[str] = ""
    """What it adds, for ``explain``."""

    protocol: SumProtocol

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort, ascending."""
        return self.protocol.clients

    @property
    def digest(self) -> bytes:
        """What the messages of the sum under it are bound to."""
        return self.protocol.digest

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.protocol.survivors_needed

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The helpers of the sum under it."""
        return self.protocol.helpers

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """The keys of the sum under it."""
        return self.protocol.public_keys

    def identity_of(self, party: PartyId) -> bytes:
        """The key that a party of the sum under it signs with."""
        return self.protocol.identity_of(party)

    @property
    def guarantee(self) -> Guarantee:
        """What the sum under it promises."""
        return self.protocol.guarantee

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """The costs of the sum under it."""
        return self.protocol.costs

    def explain(self) -> str:
        """What the sum under it guarantees and costs, and what this one adds."""
        return f"{self.protocol.explain()}\n  {self.EXPLANATION}"

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Return a helper's session of the sum under it."""
        return self.protocol.helper(party, secrets=secrets, entropy=entropy)

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Return the session in which the sum under it is certified to have failed, where it can be."""
        return self.protocol.failure(secrets=secrets)

    def check_failure(self, proof: bytes) -> None:
        """Refuse what does not prove that the sum under it failed."""
        self.protocol.check_failure(proof)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return what the coalition opens of an upload, as the sum under it says; noise stays in it."""
        return self.protocol.reconstruct_upload(knowledge, target)
