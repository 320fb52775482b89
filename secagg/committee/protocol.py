"""Committee sums as a `SumProtocol`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Self

from secagg.committee.client import CommitteeClient
from secagg.committee.explain import explain
from secagg.committee.helper import CommitteeHelper
from secagg.committee.parameters import CommitteeParameters
from secagg.committee.server import CommitteeServer
from secagg.committee.snapshots import (
    restore_client,
    restore_helper,
    restore_server,
    snapshot_client,
    snapshot_helper,
    snapshot_server,
)
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.layout import Layout
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeSum(CommitteeParameters):
    """Each client sends one message and may vanish; helpers take the masks off the sum.

    A vector is masked with one seed for each helper (a sum of one-time pads over the ring, each from a seed that is
    sealed to its helper), so the server learns the total alone unless it colludes with *all* helpers, or with all
    clients but one of a total (``min_survivors - 1`` of them); helpers see seeds and survivors but no vector. The shape
    is that of the server-aided and "decryptor" protocols in the literature (Flamingo, Ma et al., IEEE S&P 2023; Willow,
    Bell-Clark et al., 2024) with symmetric masks and honest helpers for each sum.

    Args:
        helper_secrets: the helpers' key pairs, where one process simulates everybody; neither public nor in the digest.
    """

    helper_secrets: Mapping[PartyId, KeyPair] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def generate(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        n_helpers: int = 2,
        min_survivors: int | None = None,
        entropy: Entropy = os_entropy,
    ) -> Self:
        """A sum with fresh helpers, all in this process: for simulations. Two thirds of the clients must survive."""
        free = (number for number in count(1) if number not in set(clients))
        secrets = {number: KeyPair.generate(entropy) for number in islice(free, n_helpers)}
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            helper_keys=tuple((party, pair.public) for party, pair in secrets.items()),
            min_survivors=2 * len(clients) // 3 + 1 if min_survivors is None else min_survivors,
            helper_secrets=secrets,
        )

    def without_secrets(self) -> Self:
        """What clients and server get."""
        return replace(self, helper_secrets={})

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
        return CommitteeClient(self, party, contribution, entropy=entropy, identity=identity)

    def server(self, *, entropy: Entropy = os_entropy, identity: IdentityKey | None = None) -> ServerSession:
        """The server's session; it draws no entropy."""
        return CommitteeServer(self, identity=identity)

    def helper(self, party: PartyId, keys: KeyPair) -> ClientSession:
        """One helper's session."""
        return CommitteeHelper(self, party, keys)

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """Every helper's session, from the secrets of a simulation.

        Raises:
            ConfigurationError: this is the public half only.
        """
        missing = [party for party, _ in self.helper_keys if party not in self.helper_secrets]
        if missing:
            raise ConfigurationError(
                f"the secret keys of helpers {missing} are not here; each helper makes its session with helper() from "
                "its own key"
            )
        return {party: self.helper(party, self.helper_secrets[party]) for party, _ in self.helper_keys}

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """A client's session as bytes, sealed under 32 bytes that only its owner knows."""
        client = own_session(session, CommitteeClient, "client of a committee sum")
        return snapshot_client(client, key, entropy=entropy)

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

    def snapshot_helper(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """A helper's session as bytes, sealed under 32 bytes that only it knows; it holds no key."""
        helper = own_session(session, CommitteeHelper, "helper of a committee sum")
        return snapshot_helper(helper, key, entropy=entropy)

    def restore_helper(self, party: PartyId, keys: KeyPair, snapshot: bytes, key: bytes) -> ClientSession:
        """The helper's session that a snapshot holds; one that has answered answers no other request."""
        return restore_helper(self, party, keys, snapshot, key)

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        return snapshot_server(own_session(session, CommitteeServer, "server of a committee sum"))

    def restore_server(self, snapshot: bytes, *, identity: IdentityKey | None = None) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_server(self, snapshot, identity=identity)
