"""Multi-round sessions: many masked sums of one cohort, the set-up of the next sum piggy-backed on the current one.

The first sum takes its usual messages. From the second sum on a client sends two messages (three with identities): keys
for the next sum travel with this sum's masked vector, shares for the next sum with the answer to the unmask request.

Calls in order, on each side: ``MaskedSeries.client`` or ``server`` once; then for each sum ``begin_sum``, which returns
a session with the usual calls.

Each sum is a separate execution of the protocol with fresh keys, seeds, shares and its own session id. Set-up messages
are independent of every vector, so the proofs of Bonawitz et al. (CCS 2017, Theorems 6.2 to 6.5) apply to each sum:
sending them earlier shows the adversary nothing else. The simulators do not rewind and so compose when executions
overlap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from secagg.config import SERVER
from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    SnapshotError,
    TooFewSurvivorsError,
)
from secagg.layout import Layout
from secagg.masked.assumptions import Assumptions
from secagg.masked.bundles import read_bundle, write_bundle
from secagg.masked.client import MaskedClient
from secagg.masked.explain import explain_series
from secagg.masked.protocol import MaskedSum
from secagg.masked.server import MaskedServer
from secagg.masked.states import ClientState
from secagg.party import Party
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession, SumResult
from secagg.snapshots import CLIENT, binding, read, write
from secagg.sums import NO_SECRETS, PartySecrets
from secagg.wire import MessageType, digest_in, message_type

NOT_YET = Layout.of([("not yet agreed", 1, 0)])
"""Placeholder layout of a sum during its set-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSeries:
    """Public parameters of a multi-round session: a series of masked sums of one cohort.

    Args:
        clients: the cohort, ascending.
        series_id: 16 to 64 bytes, fresh for every series; the session id of each sum is derived from it.
        threshold: see ``MaskedSum``; likewise ``degree``, ``graph_seed``, ``assumptions``, ``identities`` and
            ``server_identity``.

    Raises:
        ConfigurationError: the parameters are unsafe or contradict each other.

    >>> import numpy as np
    >>> from secagg import new_session_id
    >>> series, layout = MaskedSeries(clients=(1, 2, 3), series_id=new_session_id()), Layout.of([("counts", 2, 100)])
    >>> members, server = [series.client(party) for party in series.clients], series.server()
    >>> for number in range(2):
    ...     sessions = {member.party: member.begin_sum(layout, b"", np.array([1, number])) for member in members}
    ...     running = server.begin_sum(layout, b"")
    ...     for party, session in sessions.items():
    ...         if (message := session.start()) is not None:
    ...             running.receive(party, message)
    ...     while requests := running.close_round():
    ...         for party, request in requests.items():
    ...             running.receive(party, sessions[party].receive(request))
    ...     running.result.total.tolist()
    [3, 0]
    [3, 3]
    """

    clients: tuple[PartyId, ...]
    series_id: bytes
    threshold: int | None = None
    degree: int | None = None
    graph_seed: bytes = b""
    assumptions: Assumptions | None = None
    identities: tuple[bytes, ...] = field(default=(), repr=False)
    server_identity: bytes = field(default=b"", repr=False)
    first: MaskedSum = field(init=False, repr=False, compare=False)
    """Parameters of the first sum's set-up."""

    def __post_init__(self) -> None:
        if type(self.series_id) is not bytes:
            raise ConfigurationError(f"a series id is bytes, not {type(self.series_id).__name__}; draw a fresh one")
        if not 16 <= len(self.series_id) <= 64:
            raise ConfigurationError(f"a series id takes 16 to 64 bytes, not {len(self.series_id)}; draw a fresh one")
        object.__setattr__(self, "first", self.sum(0, NOT_YET, b""))

    @property
    def digest(self) -> bytes:
        """Digest in the header of every bundle of this series."""
        return self.first.setup_digest

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest of the series for every type of message."""
        return self.digest

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party; empty without identities, and for unknown parties."""
        return self.first.identity_of(party)

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party; None without identities."""
        return self.first.signer(party, secrets)

    def client(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> SeriesClient:
        """Create a client's side of the series."""
        return SeriesClient(self, party, secrets=secrets, entropy=entropy)

    def member(
        self,
        party: PartyId,
        number: int,
        layout: Layout,
        context: bytes,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> SeriesMember:
        """Create a client's session in sum ``number``, from 0; it can be restored from a snapshot of the sum before."""
        client = SeriesClient(self, party, secrets=secrets, entropy=entropy)
        return SeriesMember(client, number, layout, context, client_input)

    def server(self, *, secrets: PartySecrets = NO_SECRETS) -> SeriesServer:
        """Create the server's side of the series."""
        return SeriesServer(self, secrets=secrets)

    def explain(self, layout: Layout) -> str:
        """Describe in words and numbers what the series guarantees and what a sum of this layout costs."""
        return explain_series(self.sum(0, layout, b""))

    def sum(self, index: int, layout: Layout, context: bytes) -> MaskedSum:
        """Return the parameters of one sum."""
        session_id = hashlib.sha256(length_prefixed(b"sum of a series", self.series_id, index.to_bytes(8, "big")))
        return MaskedSum(
            layout=layout,
            clients=self.clients,
            session_id=session_id.digest(),
            context=context,
            threshold=self.threshold,
            degree=self.degree,
            graph_seed=self.graph_seed,
            assumptions=self.assumptions,
            identities=self.identities,
            server_identity=self.server_identity,
        )


class SeriesClient(Party):
    """A client's side of a series. ``begin_sum`` returns the session of the next sum.

    A client that misses the masked vector or the unmasking of a sum is not set up for the next one, and stays out until
    a new series begins.
    """

    def __init__(
        self,
        series: MaskedSeries,
        party: PartyId,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> None:
        Party.__init__(self, series, party, secrets)
        self._series, self._secrets, self._entropy = series, secrets, entropy
        self._index = -1
        self._current: MaskedClient | None = None
        self._next: MaskedClient | None = None

    @property
    def digest(self) -> bytes:
        """Digest in the header of every bundle of this series."""
        return self._series.digest

    @property
    def next_number(self) -> int:
        """Number of the next sum, from 0."""
        return self._index + 1

    def begin_sum(self, layout: Layout, context: bytes, client_input: ClientInput) -> ClientSession:
        """Return the session of the next sum; the one before must have ended for this client.

        Raises:
            InvalidVectorError: the vector does not fit the layout.
        """
        session = SeriesMember(self, self.next_number, layout, context, client_input)
        session.begin()
        return session

    def begin_next(self, layout: Layout, context: bytes, client_input: ClientInput) -> bool:
        """Begin the next sum; return whether the client sends the first message."""
        index = self.next_number
        config = self._series.sum(index, layout, context)
        if index and self._next is not None and self._next.state is ClientState.SHARES_SENT:
            current, starts = self._next, False
            current.begin_sum(config, client_input)
        else:
            current = MaskedClient(config, self.party, client_input, secrets=self._secrets, entropy=self._entropy)
            starts = index == 0
        self._index, self._current, self._next = index, current, None
        return starts

    def snapshot(self) -> bytes:
        """Return the state of this client as bytes, after its first sum has begun."""
        parts = (client.snapshot_id + client.snapshot() if client else None for client in (self._current, self._next))
        current, upcoming = parts
        return write(SeriesClientState(index=self._index, current=current, upcoming=upcoming))

    def restore(self, snapshot: bytes, number: int, layout: Layout, context: bytes, client_input: ClientInput) -> bool:
        """Restore the state of a snapshot; return whether sum ``number`` had begun.

        Raises:
            SnapshotError: the snapshot is of another sum, layout or context, or its bytes were changed.
        """
        state = read(SeriesClientState(index=0, current=None, upcoming=None), snapshot)
        if state.index not in (number, number - 1):
            raise SnapshotError(
                f"this snapshot is of sum {state.index} of its series; it does not lead to sum {number}"
            )
        current = upcoming = None
        if state.upcoming is not None:
            upcoming = self._restored(self._series.sum(state.index + 1, NOT_YET, b""), None, state.upcoming)
        if state.index == number and state.current is not None:
            current = self._restored(self._series.sum(number, layout, context), client_input, state.current)
        self._index, self._current, self._next = state.index, current, upcoming
        return state.index == number

    def _restored(self, config: MaskedSum, vector: ClientInput | None, snapshot: bytes) -> MaskedClient:
        client = MaskedClient(config, self.party, vector, secrets=self._secrets, entropy=self._entropy)
        if not snapshot.startswith(client.snapshot_id):
            raise SnapshotError(
                "this snapshot is of a sum of another layout or context; restore it with what it was made with"
            )
        client.restore(snapshot.removeprefix(client.snapshot_id))
        return client

    def start(self) -> bytes:
        """Return the first message of the first sum."""
        return self._bundle([_the(self._current).start()])

    def receive(self, message: bytes) -> bytes | None:
        """Answer the messages of this sum and of the next set-up; a failed set-up does not affect this sum."""
        current, answers = _the(self._current), list[bytes]()
        for place, part in enumerate(read_bundle(self._open_message(message), peer=SERVER)):
            of_next = place or (self._next is not None and digest_in(part) == self._next.setup_digest)
            answers += self._set_up(part) if of_next else [current.receive(part)]
        if any(message_type(answer) is MessageType.MASKED_INPUT for answer in answers):
            upcoming = self._series.sum(self._index + 1, NOT_YET, b"")
            self._next = MaskedClient(upcoming, self.party, None, secrets=self._secrets, entropy=self._entropy)
            answers.append(self._next.start())
        return self._bundle(answers) if answers else None

    def _set_up(self, roster: bytes) -> list[bytes]:
        try:
            return [self._next.receive(roster)] if self._next is not None else []
        except (RepeatedMessageError, LocalProtocolError):
            return []
        except RemoteProtocolError:
            self._next = None  # this client is out of the next sum; the current one goes on
            return []

    def _bundle(self, parts: list[bytes]) -> bytes:
        return self._seal_message(MessageType.BUNDLE, write_bundle(parts))


@dataclass(slots=True, kw_only=True, repr=False)
class SeriesClientState:
    """State of a client: the current sum's session and the next set-up's, each after its own snapshot identifier.

    ``SeriesMember.snapshot_id`` identifies the series only.
    """

    index: int
    current: bytes | None
    upcoming: bytes | None


class SeriesMember:
    """A ``ClientSession`` for one sum of a series; its snapshot contains the next sum's set-up."""

    def __init__(
        self, client: SeriesClient, number: int, layout: Layout, context: bytes, client_input: ClientInput
    ) -> None:
        self._client, self._number = client, number
        self._layout, self._context = layout, context
        self._client_input: ClientInput | None = client_input
        """The vector until the sum begins; then its session has it."""
        self._starts = True
        self.party = client.party

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored: that of the series."""
        return binding(CLIENT, self._client.digest, self.party)

    def begin(self) -> None:
        """Begin the sum, unless this session was restored during it."""
        if self._client_input is not None:
            if self._number != self._client.next_number:
                raise LocalProtocolError(
                    f"sum {self._number} of this series follows one that is not here; restore the session of the sum "
                    "before, or begin a new series"
                )
            self._starts = self._client.begin_next(self._layout, self._context, self._client_input)
            self._client_input = None

    def start(self) -> bytes | None:
        """Return the first message of the first sum; None in later sums."""
        self.begin()
        return self._client.start() if self._starts else None

    def receive(self, message: bytes) -> bytes | None:
        """Return the answer to the server's message."""
        self.begin()
        return self._client.receive(message)

    def snapshot(self) -> bytes:
        """Return the state of the client as bytes."""
        self.begin()
        return self._client.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot of this sum, or of the one before; this one then begins.

        Raises:
            SnapshotError: the snapshot is of another sum, or its bytes were changed.
        """
        if self._client_input is None:
            raise LocalProtocolError("this session has begun; restore a fresh one")
        if self._client.restore(snapshot, self._number, self._layout, self._context, self._client_input):
            self._client_input = None


class SeriesServer:
    """The server's side of a series. ``begin_sum`` returns the session of the next sum."""

    def __init__(self, series: MaskedSeries, *, secrets: PartySecrets = NO_SECRETS) -> None:
        series.signer(SERVER, secrets)  # a wrong key is refused before any sum
        self._series, self._secrets, self._index = series, secrets, -1
        self._session: _SeriesServerSession | None = None

    def begin_sum(self, layout: Layout, context: bytes) -> ServerSession:
        """Return the session of the next sum; the one before must have its result.

        Raises:
            LocalProtocolError: the set-up of the next sum failed; begin a new series.
        """
        config = self._series.sum(self._index + 1, layout, context)
        if self._session is None:
            return self._begun(self._index + 1, MaskedServer(config, secrets=self._secrets), is_set_up=False)
        current = self._session.upcoming
        if current is None:
            raise LocalProtocolError("too few clients finished the set-up of this sum; begin a new series")
        current.begin_sum(config)
        return self._begun(self._index + 1, current, is_set_up=True)

    def resume_sum(self, index: int, layout: Layout, context: bytes) -> ServerSession:
        """Return a session of sum ``index``, from 0, that goes on from a snapshot of the same sum (``restore``)."""
        current = MaskedServer(self._series.sum(index, layout, context), secrets=self._secrets)
        return self._begun(index, current, is_set_up=False)

    def _begun(self, index: int, current: MaskedServer, *, is_set_up: bool) -> ServerSession:
        upcoming = MaskedServer(self._series.sum(index + 1, NOT_YET, b""), secrets=self._secrets)
        self._index = index
        self._session = _SeriesServerSession(self._series, self._secrets, current, upcoming, is_set_up=is_set_up)
        return self._session


@dataclass(slots=True, kw_only=True, repr=False)
class SeriesServerState:
    """State of the server in one sum: the snapshots of the current session and of the next set-up."""

    current: bytes
    upcoming: bytes | None


class _SeriesServerSession(Party):
    """A ``ServerSession`` for one sum of a series.

    Args:
        series: public parameters of the series.
        secrets: the server's signing key, with identities.
        current: server of this sum.
        upcoming: server of the next sum; None after its set-up failed, while this sum goes on.
        is_set_up: whether the first round asks for nothing: the set-up came with the sum before.
    """

    def __init__(
        self,
        series: MaskedSeries,
        secrets: PartySecrets,
        current: MaskedServer,
        upcoming: MaskedServer,
        *,
        is_set_up: bool,
    ) -> None:
        Party.__init__(self, series, SERVER, secrets)
        self._current, self._is_set_up = current, is_set_up
        self.upcoming: MaskedServer | None = upcoming

    @property
    def snapshot_id(self) -> bytes:
        return self._current.snapshot_id

    def snapshot(self) -> bytes:
        later = None if self.upcoming is None else self.upcoming.snapshot()
        return write(SeriesServerState(current=self._current.snapshot(), upcoming=later))

    def restore(self, snapshot: bytes) -> None:
        state = read(SeriesServerState(current=b"", upcoming=None), snapshot)
        self._current.restore(state.current)
        if state.upcoming is None:
            self.upcoming = None
        elif self.upcoming is not None:
            self.upcoming.restore(state.upcoming)
        self._is_set_up = False

    @property
    def result(self) -> SumResult | None:
        return self._current.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        return frozenset() if self._is_set_up else self._current.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        first, *of_next = read_bundle(self._open_message(message, sender), peer=sender)
        self._current.receive(sender, first)
        for part in of_next:
            if self.upcoming is not None:
                with suppress(RemoteProtocolError):  # its sender is out of the next sum; this one goes on
                    self.upcoming.receive(sender, part)

    def close_round(self) -> Mapping[PartyId, bytes]:
        self._is_set_up = False
        requests = {party: [message] for party, message in self._current.close_round().items()}
        if any(message_type(parts[0]) is MessageType.UNMASK_REQUEST for parts in requests.values()):
            for party, roster in self._rosters().items():
                requests.setdefault(party, []).append(roster)
        return {
            party: self._seal_message(MessageType.BUNDLE, write_bundle(parts), party)
            for party, parts in requests.items()
        }

    def _rosters(self) -> Mapping[PartyId, bytes]:
        """Return the next sum's rosters, which are sent with this sum's unmask requests."""
        try:
            return {} if self.upcoming is None else self.upcoming.close_round()
        except TooFewSurvivorsError:
            self.upcoming = None
            return {}


def _the(client: MaskedClient | None) -> MaskedClient:
    if client is None:
        raise LocalProtocolError("no sum has begun in this series")
    return client
