"""Sums in the clear: no privacy at all, and so the oracle of every test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import SERVER, SumConfig, harmless_colluders
from secagg.contribution import check_now, resolve
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError, TooFewSurvivorsError
from secagg.ring import RingVector
from secagg.rounds import Round, ServerRounds
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession, SumResult
from secagg.snapshots import (
    CLIENT,
    hash_snapshot,
    opened_snapshot,
    own_session,
    read_round,
    seal_snapshot,
    server_snapshot,
    write_round,
)
from secagg.sums import CLIENT_ROLE, NO_SECRETS, SERVER_ROLE, Guarantee, Knowledge, PartySecrets, Upload
from secagg.wire import MessageType, seal_frame, write_parties


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainSum(SumConfig):
    """Each client sends its vector as it is. Whoever reads the upload reads the client's statistics.

    Args:
        min_survivors: fewest vectors for which a total is released.
    """

    min_survivors: int = 1

    def _check(self) -> None:
        if not 1 <= self.min_survivors <= len(self.clients):
            raise ConfigurationError(
                f"min_survivors must be 1 to the cohort's {len(self.clients)}, not {self.min_survivors}"
            )

    @property
    def name(self) -> str:
        """The mode's name."""
        return "plain"

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    @property
    def guarantee(self) -> Guarantee:
        """Nothing but the number of vectors in a total."""
        return Guarantee(
            survivors_needed=self.min_survivors,
            harmless_clients=harmless_colluders(self.min_survivors),
            opening_clients=0,
            upload=Upload.BARE,
            binds_context=False,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """A client's."""
        vector = self.layout.wire_bytes
        return {CLIENT_ROLE: PartyCost.of_payloads([vector], [], vector_bytes=vector)}

    def explain(self) -> str:
        """That nothing is hidden, how many must stay, what it costs."""
        return "\n".join(
            [
                f"{self.name} sum over {len(self.clients)} clients, session {self.session_id.hex()[:16]}...",
                "  NOT PRIVATE: whoever sees a client's message reads its vector (for tests and public data)",
                f"  a total holds at least {self.min_survivors} clients, else none is released",
                f"  a client {self.costs[CLIENT_ROLE]}",
            ]
        )

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return a client that sends its vector with its first message; plain sums draw no entropy."""
        self.signer(CLIENT_ROLE, party, secrets)
        return PlainClient(self, party, contribution)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return a server that adds what arrives; plain sums draw no entropy."""
        self.signer(SERVER_ROLE, SERVER, secrets)
        return PlainServer(self)

    def opened_by(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        """Return the client's vector, which anybody reads who sees it."""
        return knowledge.upload_as_sent(target, self.layout)

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """Return whether a client has spoken, sealed; there is no other state."""
        client = own_session(session, PlainClient, "client of a plain sum")
        return seal_snapshot(CLIENT, self, client.party, bytes([client.has_spoken]), key, entropy=entropy)

    def restore_client(
        self,
        party: PartyId,
        contribution: Contribution,
        snapshot: bytes,
        key: bytes,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return the client that a snapshot holds: one that has spoken never does again."""
        self.signer(CLIENT_ROLE, party, secrets)
        client = PlainClient(self, party, contribution)
        with opened_snapshot(CLIENT, self, party, snapshot, key) as reader:
            client.has_spoken = reader.take(1) != b"\0"
        return client

    def snapshot_server(self, session: ServerSession) -> bytes:
        """Return the round, whether the sum stands, and the sum so far."""
        server = own_session(session, PlainServer, "server of a plain sum")
        survivors = server.result.survivors if server.result else ()
        return hash_snapshot(self, write_round(server._round) + write_parties(survivors) + server._sum.to_bytes())

    def restore_server(self, snapshot: bytes, *, secrets: PartySecrets = NO_SECRETS) -> ServerSession:
        """Return the server that a snapshot holds."""
        server = PlainServer(self)
        with server_snapshot(self, snapshot) as reader:
            server._round, survivors = read_round(reader, lambda _: self.digest), tuple(reader.entries(0))
            server._sum = RingVector.from_bytes(self.layout, reader.take(self.layout.wire_bytes)).copy()
        if survivors:
            server._result = SumResult(total=server._sum.decode(), survivors=survivors)
        return server

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (self.min_survivors.to_bytes(4, "big"),)


class PlainClient:
    """Sends one message and expects none."""

    def __init__(self, config: PlainSum, party: PartyId, contribution: Contribution) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        self._config, self._contribution = config, contribution
        self.party, self.has_spoken = party, False

    def start(self) -> bytes:
        """The vector in the clear."""
        if self.has_spoken:
            raise LocalProtocolError("start() was called already; one session sends one vector")
        vector = RingVector.encode(self._config.layout, resolve(self._config.layout, self._contribution))
        self.has_spoken = True
        return seal_frame(
            MessageType.PLAIN_INPUT,
            vector.to_bytes(),
            digest=self._config.digest,
            sender=self.party,
            recipient=SERVER,
        )

    def receive(self, message: bytes) -> bytes | None:
        """Refuse everything: a plain client is asked nothing."""
        raise RemoteProtocolError("a plain sum has no messages from the server", peer=SERVER)


class PlainServer(ServerRounds):
    """Adds vectors as they arrive."""

    def __init__(self, config: PlainSum) -> None:
        ServerRounds.__init__(self, Round(config.digest, MessageType.PLAIN_INPUT, config.clients))
        self._config = config
        self._sum = RingVector.zeros(config.layout)

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Add one client's vector."""
        with self._taking() as round_:
            frame = round_.open(sender, message)
            self._sum.add(RingVector.from_bytes(self._config.layout, frame.payload))
            round_.accept(sender, message)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """Release the total over those who answered."""
        survivors = self._current().answered
        self._round = None
        if len(survivors) < self._config.min_survivors:
            raise TooFewSurvivorsError(
                stage=MessageType.PLAIN_INPUT.name,
                needed=self._config.min_survivors,
                came=len(survivors),
                cohort=len(self._config.clients),
            )
        self._result = SumResult(total=self._sum.decode(), survivors=tuple(sorted(survivors)))
        return {}
