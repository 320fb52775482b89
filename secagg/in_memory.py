"""A whole sum in one process: the sessions, and a network that can lose, repeat and reorder what they say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError, RemoteProtocolError, SecureSumError
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession, SumResult
from secagg.sums import NO_SECRETS, PartySecrets, SumProtocol
from secagg.wire import carries_vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A message on its way."""

    sender: PartyId
    recipient: PartyId
    message: bytes = field(repr=False)


class Network(Protocol):
    """What happens to messages between sending and arrival."""

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """The messages that arrive, in the order in which they do."""
        ...


class PerfectNetwork:
    """Everything arrives once, in order."""

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """The same messages."""
        return iter(envelopes)


class Parties(Protocol):
    """The sessions of all parties of one sum: a sum whose parties need no secrets, or ``InOneProcess``."""

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort."""
        ...

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Who takes part beside clients and server."""
        ...

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return a client's session."""
        ...

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return a helper's session."""
        ...

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InOneProcess:
    """All parties of one sum in one process: for simulations and tests.

    Args:
        protocol: the sum, which is public.
        secrets: what each party alone knows; parties without secrets may be left out.
    """

    protocol: SumProtocol
    secrets: Mapping[PartyId, PartySecrets] = field(default_factory=dict, repr=False)

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort."""
        return self.protocol.clients

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Who takes part beside clients and server."""
        return self.protocol.helpers

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return a client's session, made with its own secrets."""
        return self.protocol.client(party, client_input, secrets=self.of_party(party), entropy=entropy)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return a helper's session, made with its own secrets."""
        return self.protocol.helper(party, secrets=self.of_party(party), entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session, made with its own secrets."""
        return self.protocol.server(secrets=self.of_party(SERVER), entropy=entropy)

    def of_party(self, party: PartyId) -> PartySecrets:
        """Return what a party alone knows."""
        return self.secrets.get(party, NO_SECRETS)


@dataclass(slots=True, kw_only=True)
class Traffic:
    """What one party sent, received and computed."""

    messages_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    vector_messages: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InMemoryRun:
    """How a sum went.

    Args:
        result: the total and the survivors.
        traffic: each client's and helper's share of the work.
        server_seconds: the server's.
        refused: messages that a session refused, with the reason; a perfect network has none.
    """

    result: SumResult
    traffic: Mapping[PartyId, Traffic]
    server_seconds: float
    refused: tuple[tuple[Envelope, SecureSumError], ...]


def run_in_memory(
    parties: Parties,
    client_inputs: Mapping[PartyId, ClientInput],
    *,
    dropouts: Mapping[PartyId, int] | None = None,
    network: Network | None = None,
    entropy: Entropy = os_entropy,
    record: Callable[[Envelope], None] | None = None,
) -> InMemoryRun:
    """Run one sum from the first message to the result.

    Args:
        parties: the sum and its parties' secrets; a sum by itself where nobody needs secrets.
        client_inputs: a vector, or a call that makes one, for each client that takes part; a client of the
            cohort that is missing never says anything.
        dropouts: how many messages a client still sends before it vanishes.
        network: what happens to messages on their way; nothing by default.
        entropy: every party's source of secrets.
        record: called with each message as it is sent, for audits.

    Raises:
        TooFewSurvivorsError: a round came up short.
        SecureSumError: another reason for which no sum can be released.
    """
    return _Driver(parties, client_inputs, dropouts or {}, network or PerfectNetwork(), entropy, record).run()


class _Driver:
    def __init__(
        self,
        parties: Parties,
        client_inputs: Mapping[PartyId, ClientInput],
        dropouts: Mapping[PartyId, int],
        network: Network,
        entropy: Entropy,
        record: Callable[[Envelope], None] | None,
    ) -> None:
        self._sessions: dict[PartyId, ClientSession] = {
            party: parties.client(party, client_input, entropy=entropy) for party, client_input in client_inputs.items()
        }
        self._sessions |= {party: parties.helper(party, entropy=entropy) for party in parties.helpers}
        self._server: ServerSession = parties.server(entropy=entropy)
        self._dropouts, self._network, self._record = dropouts, network, record
        self._traffic = {party: Traffic() for party in self._sessions}
        self._server_seconds = 0.0
        self._refused: list[tuple[Envelope, SecureSumError]] = []

    def run(self) -> InMemoryRun:
        self._upload(self._starts())
        while self._server.result is None:
            self._upload(self._answers(self._close_round()))
        return InMemoryRun(
            result=self._server.result,
            traffic=self._traffic,
            server_seconds=self._server_seconds,
            refused=tuple(self._refused),
        )

    def _starts(self) -> Iterator[Envelope]:
        for party, session in self._sessions.items():
            if self._alive(party):
                yield from self._seal_message(party, session.start)

    def _answers(self, requests: Mapping[PartyId, bytes]) -> Iterator[Envelope]:
        sent = (Envelope(sender=SERVER, recipient=party, message=message) for party, message in requests.items())
        for envelope in self._network.carry(self._recorded(sent)):
            party = envelope.recipient
            if party in self._sessions and self._alive(party):
                self._traffic[party].bytes_down += len(envelope.message)
                yield from self._seal_message(party, lambda e=envelope: self._receive(e))  # type: ignore[misc]

    def _receive(self, envelope: Envelope) -> bytes | None:
        try:
            return self._sessions[envelope.recipient].receive(envelope.message)
        except (RemoteProtocolError, LocalProtocolError) as error:
            self._refused.append((envelope, error))
            return None

    def _seal_message(self, party: PartyId, speak: Callable[[], bytes | None]) -> Iterator[Envelope]:
        traffic = self._traffic[party]
        started = time.perf_counter()
        message = speak()
        traffic.seconds += time.perf_counter() - started
        if message is None:
            return
        traffic.messages_up += 1
        traffic.bytes_up += len(message)
        traffic.vector_messages += carries_vector(message)
        yield Envelope(sender=party, recipient=SERVER, message=message)

    def _upload(self, envelopes: Iterable[Envelope]) -> None:
        for envelope in self._network.carry(self._recorded(envelopes)):
            if envelope.recipient != SERVER:
                continue
            started = time.perf_counter()
            try:
                self._server.receive(envelope.sender, envelope.message)
            except RemoteProtocolError as error:
                self._refused.append((envelope, error))
            self._server_seconds += time.perf_counter() - started

    def _close_round(self) -> Mapping[PartyId, bytes]:
        started = time.perf_counter()
        requests = self._server.close_round()
        self._server_seconds += time.perf_counter() - started
        return requests

    def _recorded(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        for envelope in envelopes:
            if self._record is not None:
                self._record(envelope)
            yield envelope

    def _alive(self, party: PartyId) -> bool:
        return self._traffic[party].messages_up < self._dropouts.get(party, 1 << 30)
