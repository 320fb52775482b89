"""Masked sums as a `SumProtocol`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from secagg.entropy import Entropy, os_entropy
from secagg.errors import InvalidVectorError
from secagg.layout import Layout
from secagg.masked.assumptions import Assumptions
from secagg.masked.client import MaskedClient
from secagg.masked.explain import explain
from secagg.masked.parameters import MaskedParameters
from secagg.masked.server import MaskedServer
from secagg.masked.snapshots import restore_client, restore_server, snapshot_client, snapshot_server
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSum(MaskedParameters):
    """A sum of doubly masked vectors: Bonawitz et al., CCS 2017, Fig. 4, on the graph of Bell et al., CCS 2020.

    Keys, shares, masked vector, (with identities: agreement on the survivors,) unmasking. The server learns the sum
    over at least ``survivors_needed`` clients and nothing else, unless it colludes with more clients than assumed.
    """

    @classmethod
    def planned(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        assumptions: Assumptions,
        context: bytes = b"",
        graph_seed: bytes = b"",
        identities: tuple[bytes, ...] = (),
    ) -> Self:
        """The sum on the sparsest graph that meets the assumptions; the complete graph where none does."""
        found = cls.sparsest_plan(len(clients), assumptions)
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            threshold=found.threshold,
            degree=None if found.is_complete else found.degree,
            graph_seed=b"" if found.is_complete else graph_seed,
            assumptions=assumptions,
            identities=identities,
        )

    def explain(self) -> str:
        """What these parameters guarantee and cost, in words and numbers."""
        return explain(self)

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        entropy: Entropy = os_entropy,
        identity: IdentityKey | None = None,
    ) -> ClientSession:
        """A client's session; with a roster of identities it needs the client's own signing key."""
        if contribution is None:
            raise InvalidVectorError("a client needs its vector, or a call that makes it; none was given")
        return MaskedClient(self, party, contribution, entropy=entropy, identity=identity)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret and draws no entropy."""
        return MaskedServer(self)

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """None."""
        return {}

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """A client's session as bytes, sealed under 32 bytes that only its owner knows."""
        return snapshot_client(own_session(session, MaskedClient, "session of a masked sum"), key, entropy=entropy)

    def restore_client(
        self,
        party: PartyId,
        contribution: Contribution,
        snapshot: bytes,
        key: bytes,
        *,
        entropy: Entropy = os_entropy,
        identity: IdentityKey | None = None,
    ) -> ClientSession:
        """The client's session that a snapshot holds; its vector must be the same as before."""
        return restore_client(self, party, contribution, snapshot, key, entropy=entropy, identity=identity)

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        return snapshot_server(own_session(session, MaskedServer, "server of a masked sum"))

    def restore_server(self, snapshot: bytes) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_server(self, snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedIdentities:
    """A masked sum whose clients find their signing keys here: for simulations and tests, where one process is all."""

    protocol: MaskedSum
    keys: Mapping[PartyId, IdentityKey]

    @property
    def name(self) -> str:
        """The mode's name."""
        return self.protocol.name

    @property
    def layout(self) -> Layout:
        """The public shape of the vectors."""
        return self.protocol.layout

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort."""
        return self.protocol.clients

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.protocol.survivors_needed

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client's session with its own signing key."""
        return self.protocol.client(party, contribution, entropy=entropy, identity=self.keys[party])

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session."""
        return self.protocol.server(entropy=entropy)

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """What the protocol itself needs beside clients and server."""
        return self.protocol.helpers(entropy=entropy)
