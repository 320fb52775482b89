"""The public parameters of a masked sum, checked when they are made."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from secagg.config import SumConfig, harmless_colluders
from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError
from secagg.masked.assumptions import Assumptions, Plan, complete_plan, plan
from secagg.masked.graph import harary_neighbours
from secagg.primitives.identity import IDENTITY_BYTES
from secagg.sessions import PartyId


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedParameters(SumConfig):
    """Who shares secrets with whom, how many open one, and who signs.

    Args:
        threshold: shares that open a secret. None takes the lowest that ``assumptions`` allow on this graph; on the
            complete graph without ``assumptions`` two thirds of the cohort, rounded down, plus one.
        degree: neighbours of a client in a Harary graph, even; None is the complete graph.
        graph_seed: public seed of the sparse graph, 16 to 64 bytes, fixed by nobody who could gain from it: a server
            that chooses it after it knows whom it controls can surround a client.
        assumptions: what the cohort is promised to be. None promises nothing beyond what the threshold implies.
        identities: Ed25519 public keys, aligned with ``clients``, from a roster that the operator distributes. With
            them keys and survivor sets are signed and the server may be malicious; without, it must be
            semi-honest: it may look, but not lie.
    """

    threshold: int | None = None
    degree: int | None = None
    graph_seed: bytes = b""
    assumptions: Assumptions | None = None
    identities: tuple[bytes, ...] = field(default=(), repr=False)
    setup_digest: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.clients) < 2:
            raise ConfigurationError("masks need at least 2 clients: the sum of one client is its vector")
        SumConfig.__post_init__(self)
        setup = length_prefixed(b"masked set-up", self.session_id, self._clients_bytes(), *self._own_parameters())
        object.__setattr__(self, "setup_digest", hashlib.sha256(setup).digest())

    @classmethod
    def sparsest_plan(cls, n_clients: int, assumptions: Assumptions) -> Plan:
        """The sparsest graph with its lowest threshold for a cohort of this size."""
        return plan(n_clients, assumptions)

    @property
    def name(self) -> str:
        """The mode's name."""
        return "masked"

    @property
    def vector_bytes(self) -> int:
        """Bytes of a client's vector as it travels."""
        return self.layout.wire_bytes

    @property
    def is_authenticated(self) -> bool:
        """Whether identities protect against a server that lies."""
        return bool(self.identities)

    @property
    def holders(self) -> int:
        """How many hold a share of a client's secrets: its neighbours and itself."""
        return len(self.clients) if self.degree is None else self.degree + 1

    @property
    def shares_needed(self) -> int:
        """Shares that open a secret: the threshold, with its default worked out."""
        if self.threshold is not None:
            return self.threshold
        if self.degree is None and self.assumptions is not None:
            return complete_plan(len(self.clients), self.assumptions).threshold
        return 2 * len(self.clients) // 3 + 1

    @property
    def corrupt(self) -> int:
        """Largest number of clients that may collude with the server and open no other client's secrets."""
        n = len(self.clients)
        if self.assumptions is not None:
            return self.assumptions.corrupt(n)
        return 2 * self.shares_needed - n - 1 if self.is_authenticated else self.shares_needed - 1

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        n = len(self.clients)
        fewest = self.shares_needed if self.degree is None else n - self._promised().dropouts(n)
        return max(fewest, self.signatures_needed)

    @property
    def harmless_colluders(self) -> int:
        """Largest number that may collude with the server: they open no secret, and every total holds two others."""
        return min(self.corrupt, harmless_colluders(self.survivors_needed))

    @property
    def signatures_needed(self) -> int:
        """Signatures on one survivor set, so that no two different sets can have as many; 0 without identities."""
        return (len(self.clients) + self.corrupt) // 2 + 1 if self.is_authenticated else 0

    def neighbours(self, party: PartyId) -> tuple[PartyId, ...]:
        """The clients that ``party`` shares pairwise masks and secret shares with, ascending."""
        if self.degree is None:
            return tuple(other for other in self.clients if other != party)
        return harary_neighbours(self.clients, self.degree, self.graph_seed, party)

    def point(self, party: PartyId) -> int:
        """Where a client's Shamir shares are evaluated: its place in the cohort, from 1."""
        return self.index(party) + 1

    def identity(self, party: PartyId) -> bytes:
        """A client's public signing key."""
        return self.identities[self.index(party)]

    def _promised(self) -> Assumptions:
        if self.assumptions is None:
            raise ConfigurationError(
                "a sparse graph is only as good as its assumptions, and none are stated; pass assumptions, or take "
                "MaskedSum.planned"
            )
        return self.assumptions

    def _check(self) -> None:
        self._check_graph()
        self._check_identities()
        self._check_threshold()

    def _check_graph(self) -> None:
        n = len(self.clients)
        if type(self.graph_seed) is not bytes:
            raise ConfigurationError(f"a graph seed is bytes, not {type(self.graph_seed).__name__}; encode it")
        if self.degree is None:
            return
        self._promised()
        if self.degree % 2 or not 2 <= self.degree < n - 1:
            raise ConfigurationError(
                f"the degree of a sparse graph over {n} clients must be even and 2 to {n - 2}, not {self.degree}; "
                "None takes the complete graph"
            )
        if self.threshold is None or not 16 <= len(self.graph_seed) <= 64:
            raise ConfigurationError(
                f"a sparse graph needs its threshold and a public seed of 16 to 64 bytes, not {self.threshold} and "
                f"{len(self.graph_seed)} bytes; MaskedSum.planned finds the threshold"
            )

    def _check_identities(self) -> None:
        if not self.identities:
            if self.assumptions is not None and self.assumptions.malicious_server:
                raise ConfigurationError("against a malicious server every client needs an identity key in the roster")
            return
        if self.assumptions is not None and not self.assumptions.malicious_server:
            raise ConfigurationError(
                "identities are for a server that may lie; state malicious_server=True, so that the threshold is right"
            )
        if len(self.identities) != len(self.clients) or len(set(self.identities)) != len(self.identities):
            raise ConfigurationError(
                f"the roster needs one identity key a client, all different: {len(self.clients)} clients, "
                f"{len(set(self.identities))} different keys"
            )
        if any(len(identity) != IDENTITY_BYTES for identity in self.identities):
            raise ConfigurationError(f"an Ed25519 public key has {IDENTITY_BYTES} bytes")

    def _check_threshold(self) -> None:
        n, needed = len(self.clients), self.shares_needed
        least = 2 if self.degree is not None else n // 2 + 1
        if not least <= needed <= self.holders:
            raise ConfigurationError(
                f"the threshold must be more than half of the {n} clients and at most all of them, not {needed}: "
                "at half or below, a server could open both masks of one client"
                if self.degree is None
                else f"the threshold must be 2 to the {self.holders} holders of a secret, not {needed}"
            )
        if self.assumptions is not None:
            self._check_promise(self.assumptions)

    def _check_promise(self, assumptions: Assumptions) -> None:
        """Refuse a graph and threshold that do not keep what the assumptions ask for."""
        n = len(self.clients)
        safest = complete_plan(n, assumptions) if self.degree is None else assumptions.plan_for(n, self.degree)
        if safest is None or self.shares_needed < safest.threshold:
            needed = "another degree" if safest is None else f"a threshold of at least {safest.threshold}"
            raise ConfigurationError(
                f"degree {self.holders - 1} with threshold {self.shares_needed} does not meet the assumptions "
                f"{assumptions}; take {needed}, or let MaskedSum.planned choose"
            )

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            self.shares_needed.to_bytes(4, "big"),
            (self.degree or 0).to_bytes(4, "big"),
            self.graph_seed,
            self.survivors_needed.to_bytes(4, "big"),
            self.signatures_needed.to_bytes(4, "big"),
            b"".join(self.identities),
        )
