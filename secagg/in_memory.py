"""A whole sum in one process: all sessions, and a network that can lose, repeat and reorder messages."""

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
    """A message in transit."""

    sender: PartyId
    recipient: PartyId
    message: bytes = field(repr=False)


class Network(Protocol):
    """Interface of a simulated network."""

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """Yield the messages that arrive, in their order of arrival."""
        ...


class Parties(Protocol):
    """Interface of a factory of all sessions of one sum: ``InOneProcess``, or a sum whose parties need no secrets."""

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """Cohort of clients."""
        ...

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Parties other than clients and server that the sum needs."""
        ...

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a client's session."""
        ...

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a helper's session."""
        ...

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InOneProcess:
    """A sum together with the secrets of all its parties, for simulations and tests.

    Args:
        protocol: the sum.
        secrets: secrets by party; parties without secrets may be left out.

    >>> import numpy as np
    >>> from secagg import CommitteeSum, Layout, new_session_id, run_in_memory
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> parties = CommitteeSum.generate(layout=layout, clients=(1, 2, 3), session_id=new_session_id(), n_helpers=2)
    >>> parties.helpers, sorted(parties.secrets)
    ((4, 5), [4, 5])
    >>> run_in_memory(parties, {party: np.array([party, 1]) for party in parties.clients}).result.total
    array([6, 3])
    """

    protocol: SumProtocol
    secrets: Mapping[PartyId, PartySecrets] = field(default_factory=dict, repr=False)

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """Cohort of clients."""
        return self.protocol.clients

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Parties other than clients and server that the sum needs."""
        return self.protocol.helpers

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a client's session from its own secrets."""
        return self.protocol.client(party, client_input, secrets=self.of_party(party), entropy=entropy)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a helper's session from its own secrets."""
        return self.protocol.helper(party, secrets=self.of_party(party), entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session from its own secrets."""
        return self.protocol.server(secrets=self.of_party(SERVER), entropy=entropy)

    def of_party(self, party: PartyId) -> PartySecrets:
        """Return the secrets of a party."""
        return self.secrets.get(party, NO_SECRETS)


@dataclass(slots=True, kw_only=True)
class Traffic:
    """Messages, bytes and computing time of one party.

    Args:
        messages_up: messages sent.
        bytes_up: bytes sent.
        bytes_down: bytes received.
        vector_messages: messages sent that contain a vector.
        seconds: computing time.
    """

    messages_up: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    vector_messages: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InMemoryRun:
    """Result and costs of a sum that was run in one process.

    Args:
        result: the total and the survivors.
        traffic: costs by client and helper.
        server_seconds: computing time of the server.
        refused: messages that a session refused, each with its error; empty on a perfect network.

    >>> import numpy as np
    >>> from secagg import Layout, MaskedSum, new_session_id, run_in_memory
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3, 4), session_id=new_session_id())
    >>> run = run_in_memory(protocol, {party: np.array([party, 1]) for party in protocol.clients})
    >>> run.traffic[1].messages_up, len(run.refused)
    (4, 0)
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
    """Run one sum in this process, from the first message to the result.

    Args:
        parties: ``InOneProcess``, or the protocol itself if no party needs secrets.
        client_inputs: by client its vector, int64 of shape (layout.size,), or a callable that returns it. A client of
            the cohort without an input sends no message.
        dropouts: by client the number of messages that it sends before it drops out.
        network: simulated network; by default every message arrives once, in order.
        entropy: source of all parties' secrets.
        record: called with each message as it is sent, for audits.

    Returns:
        The result and the costs of every party.

    Raises:
        TooFewSurvivorsError: too few parties answered in a round.
        SecureSumError: no total can be released for another reason.

    >>> import numpy as np
    >>> from secagg import Layout, MaskedSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3, 4), session_id=new_session_id())
    >>> vectors = {party: np.array([party, 1]) for party in protocol.clients}
    >>> run_in_memory(protocol, vectors, dropouts={4: 2}).result.total  # client 4 sends no masked vector
    array([6, 3])
    """
    return _Driver(parties, client_inputs, dropouts or {}, network, entropy, record).run()


class _Driver:
    def __init__(
        self,
        parties: Parties,
        client_inputs: Mapping[PartyId, ClientInput],
        dropouts: Mapping[PartyId, int],
        network: Network | None,
        entropy: Entropy,
        record: Callable[[Envelope], None] | None,
    ) -> None:
        self._sessions: dict[PartyId, ClientSession] = {
            party: parties.client(party, client_input, entropy=entropy) for party, client_input in client_inputs.items()
        }
        self._sessions |= {party: parties.helper(party, entropy=entropy) for party in parties.helpers}
        self._server: ServerSession = parties.server(entropy=entropy)
        self._dropouts, self._record = dropouts, record
        self._carry: Callable[[Iterable[Envelope]], Iterator[Envelope]] = iter if network is None else network.carry
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
        for envelope in self._carry(self._recorded(sent)):
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
        for envelope in self._carry(self._recorded(envelopes)):
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
