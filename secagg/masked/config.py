"""The public parameters of a masked sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import SumConfig
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSum(SumConfig):
    """A sum of doubly masked vectors: Bonawitz et al., "Practical Secure Aggregation", CCS 2017, Fig. 4.

    Four rounds (keys, shares, masked vector, unmasking), the semi-honest variant. The server learns the sum over
    at least ``threshold`` clients and nothing else, unless it colludes with ``threshold`` clients or more.

    Args:
        threshold: shares that open a secret, and the fewest clients of any round; more than half of the cohort
            and at most all of it. None means two thirds, rounded down, plus one.
    """

    threshold: int | None = None

    def __post_init__(self) -> None:
        SumConfig.__post_init__(self)
        n = len(self.clients)
        if n < 2:
            raise ConfigurationError("masks need at least 2 clients: the sum of one client is its vector")
        if not n / 2 < self.shares_needed <= n:
            raise ConfigurationError(
                f"the threshold must be more than half of the {n} clients and at most all of them, "
                f"not {self.threshold}: at half or below, a server could open both masks of one client"
            )

    @property
    def shares_needed(self) -> int:
        """The threshold, with its default worked out."""
        return 2 * len(self.clients) // 3 + 1 if self.threshold is None else self.threshold

    @property
    def name(self) -> str:
        """The mode's name."""
        return "masked"

    def neighbours(self, party: PartyId) -> tuple[PartyId, ...]:
        """The clients that ``party`` shares pairwise masks and secret shares with: all others."""
        return tuple(other for other in self.clients if other != party)

    def point(self, party: PartyId) -> int:
        """Where a client's Shamir shares are evaluated: its place in the cohort, from 1."""
        return self.index(party) + 1

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client's session."""
        from secagg.masked.client import MaskedClient

        return MaskedClient(self, party, contribution, entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret and draws no entropy."""
        from secagg.masked.server import MaskedServer

        return MaskedServer(self)

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """None."""
        return {}

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (self.shares_needed.to_bytes(4, "big"),)
