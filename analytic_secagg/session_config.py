"""Configuration of a session: the public parameters of one sum, from which a mode makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secagg import Assumptions, Layout, PartyId
from secagg.config import two_thirds


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Public parameters of one sum, on which all parties agree and from which a mode makes the sum.

    Args:
        layout: the vectors.
        clients: the cohort, ascending.
        session_id: fresh for every sum; shared by the sums of a series.
        context: digest of everything that clients received before this sum.
        client_keys: each client's Ed25519 public key; none where the server is trusted not to lie.
        helper_keys: the Ed25519 public key of each party that the mode needs beside clients and server.
        corrupt_helpers: how many of them may collude with the server; None for all but one.
        server_key: the server's Ed25519 public key; goes with ``client_keys``.
        corruption: largest fraction of clients that may collude with the server; None where nothing is promised.
        dropout: largest fraction of clients that may vanish; goes with ``corruption``.
        min_survivors: fewest clients in a total of any mode, which may ask for more; None takes the mode's own.
        beacon: the operator's random value for sparse graphs; none asks for complete ones.
        announced: what helpers said before the sum, for everybody: the key holder's signed public context, the keys
            that boxes for a committee's helpers are sealed to.
    """

    layout: Layout
    clients: tuple[PartyId, ...]
    session_id: bytes
    context: bytes = b""
    client_keys: Mapping[PartyId, bytes] = field(default_factory=dict)
    helper_keys: Mapping[PartyId, bytes] = field(default_factory=dict)
    corrupt_helpers: int | None = None
    server_key: bytes = b""
    corruption: float | None = None
    dropout: float | None = None
    min_survivors: int | None = None
    beacon: bytes = b""
    announced: Mapping[PartyId, bytes] = field(default_factory=dict, repr=False)

    @property
    def common(self) -> dict[str, Any]:
        """The fields that all sums have."""
        return {
            "layout": self.layout,
            "clients": self.clients,
            "session_id": self.session_id,
            "context": self.context,
            **self.identities,
        }

    @property
    def identities(self) -> dict[str, Any]:
        """The fields that say who signs: the clients' public keys, in their order, and the server's; or nobody."""
        if not self.client_keys:
            return {}
        clients = tuple(self.client_keys[party] for party in self.clients)
        return {"identities": clients, "server_identity": self.server_key}

    @property
    def assumptions(self) -> Assumptions | None:
        """The threat model of sums with masks of clients; None where nothing is promised."""
        if self.corruption is None or self.dropout is None:
            return None
        return Assumptions(corruption=self.corruption, dropout=self.dropout, malicious_server=bool(self.client_keys))

    @property
    def survivors(self) -> int:
        """Fewest clients in a total, with its default of two thirds worked out."""
        return two_thirds(self.clients) if self.min_survivors is None else self.min_survivors
