"""Sums in the clear: no privacy at all, and so the oracle of every test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import SERVER, SumConfig
from secagg.contribution import check_now, resolve
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError, TooFewSurvivorsError
from secagg.ring import RingVector
from secagg.rounds import Round, ServerRounds
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession, SumResult
from secagg.wire import MessageType, seal_frame


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

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client that sends its vector with its first message; plain sums draw no entropy."""
        return PlainClient(self, party, contribution)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """A server that adds what arrives; plain sums draw no entropy."""
        return PlainServer(self)

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """None."""
        return {}

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (self.min_survivors.to_bytes(4, "big"),)


class PlainClient:
    """Sends one message and expects none."""

    def __init__(self, config: PlainSum, party: PartyId, contribution: Contribution) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        self._config, self._contribution, self._started = config, contribution, False
        self.party = party

    def start(self) -> bytes:
        """The vector in the clear."""
        if self._started:
            raise LocalProtocolError("start() was called already; one session sends one vector")
        vector = RingVector.encode(self._config.layout, resolve(self._config.layout, self._contribution))
        self._started = True
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
