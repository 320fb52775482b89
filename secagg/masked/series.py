"""Many sums of one cohort: each with secrets of its own, the next one's set-up carried by this one's messages.

The first sum takes its usual messages. From the second on a client sends two (three with identities): keys for the
next sum travel with this sum's masked vector, shares for the next with the answer to this sum's unmask request.

Each sum is an execution of the protocol by itself, with fresh keys, seeds and shares and its own session id; nothing of
one depends on secrets of another. Set-up messages are drawn before and independently of every vector, so that the
proofs of Bonawitz et al. (CCS 2017, Theorems 6.2 to 6.5) apply to each sum separately: sending them earlier only shows
the adversary what it would see anyway. Their simulators run straight through, without rewinding, and so stand side by
side when executions overlap.
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
"""Stands for the layout of a sum that is only being set up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedSeries:
    """The public parameters that all sums of a series share; see ``MaskedSum`` for each.

    Args:
        series_id: 16 to 64 bytes, fresh for every series; each sum's session id follows from it.
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
    """Its first sum before anything of it is agreed on but the parties."""

    def __post_init__(self) -> None:
        if type(self.series_id) is not bytes:
            raise ConfigurationError(f"a series id is bytes, not {type(self.series_id).__name__}; draw a fresh one")
        if not 16 <= len(self.series_id) <= 64:
            raise ConfigurationError(f"a series id takes 16 to 64 bytes, not {len(self.series_id)}; draw a fresh one")
        object.__setattr__(self, "first", self.sum(0, NOT_YET, b""))

    @property
    def digest(self) -> bytes:
        """What the bundles of this series are bound to."""
        return self.first.setup_digest

    def digest_of(self, type_: MessageType | None) -> bytes:
        """The same: of its own a series has bundles alone."""
        return self.digest

    def identity_of(self, party: PartyId) -> bytes:
        """Return the key that a party signs with; empty where nobody does, and for strangers."""
        return self.first.identity_of(party)

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party, as each of its sums does."""
        return self.first.signer(party, secrets)

    def client(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> SeriesClient:
        """Return one client's side of the series."""
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
        """Return one client's session in the sum of a number, from 0; it may be restored from the sum before."""
        client = SeriesClient(self, party, secrets=secrets, entropy=entropy)
        return SeriesMember(client, number, layout, context, client_input)

    def server(self, *, secrets: PartySecrets = NO_SECRETS) -> SeriesServer:
        """Return the server's side of the series."""
        return SeriesServer(self, secrets=secrets)

    def explain(self, layout: Layout) -> str:
        """What the series guarantees and what a sum of this layout costs in it, in words and numbers."""
        return explain_series(self.sum(0, layout, b""))

    def sum(self, index: int, layout: Layout, context: bytes) -> MaskedSum:
        """The parameters of one sum."""
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
    """One client's side of a series. ``begin_sum`` gives the session of the next sum.

    A client that misses a sum's masked vector or its unmasking has no part in the next one's set-up, and stays out
    until a new series begins.
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
        """What the bundles of this series are bound to."""
        return self._series.digest

    @property
    def next_number(self) -> int:
        """Which sum begins next, from 0."""
        return self._index + 1

    def begin_sum(self, layout: Layout, context: bytes, client_input: ClientInput) -> ClientSession:
        """Return the next sum's session; the one before must be over for this client. A refused one does not count.

        Raises:
            InvalidVectorError: the vector does not fit the layout.
        """
        session = SeriesMember(self, self.next_number, layout, context, client_input)
        session.begin()
        return session

    def begin_next(self, layout: Layout, context: bytes, client_input: ClientInput) -> bool:
        """Begin the next sum; whether its client speaks first."""
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
        """Return this client's side of the series as bytes, once its first sum has begun."""
        parts = (client.snapshot_id + client.snapshot() if client else None for client in (self._current, self._next))
        current, upcoming = parts
        return write(SeriesClientState(index=self._index, current=current, upcoming=upcoming))

    def restore(self, snapshot: bytes, number: int, layout: Layout, context: bytes, client_input: ClientInput) -> bool:
        """Go where the snapshot says; whether the sum of a number had begun there.

        Raises:
            SnapshotError: it does not lead to that sum, its sum has another layout or context, or changed bytes.
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
        """The first message of the first sum."""
        return self._bundle([_the(self._current).start()])

    def receive(self, message: bytes) -> bytes | None:
        """Answer what concerns this sum; the next one's set-up, which stands second, may fail without harm to it."""
        current, answers = _the(self._current), list[bytes]()
        for place, part in enumerate(read_bundle(self._open_message(message), peer=SERVER)):
            of_next = place or (self._next is not None and digest_in(part) == self._next.setup_digest)
            answers += self._set_up(part) if of_next else [current.receive(part)]
        if any(message_type(answer) is MessageType.MASKED_INPUT for answer in answers):
            answers.append(self._advertise())
        return self._bundle(answers) if answers else None

    def _advertise(self) -> bytes:
        upcoming = self._series.sum(self._index + 1, NOT_YET, b"")
        self._next = MaskedClient(upcoming, self.party, None, secrets=self._secrets, entropy=self._entropy)
        return self._next.start()

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
    """The sum that a client is in, its session there, and the session of the next sum's set-up.

    Each session follows what ties it to its own sum: ``SeriesMember.bound_to`` knows the series alone.
    """

    index: int
    current: bytes | None
    upcoming: bytes | None


class SeriesMember:
    """A client's ``ClientSession`` for one sum of a series; stored, it brings the next sum's set-up along."""

    def __init__(
        self, client: SeriesClient, number: int, layout: Layout, context: bytes, client_input: ClientInput
    ) -> None:
        self._client, self._number = client, number
        self._layout, self._context = layout, context
        self._client_input: ClientInput | None = client_input
        """Until the sum begins: from then on the session of the sum has it, and forgets it."""
        self._starts = True
        self.party = client.party

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this series."""
        return binding(CLIENT, self._client.digest, self.party)

    def begin(self) -> None:
        """Begin the sum, if this session was not restored in the middle of it."""
        if self._client_input is not None:
            if self._number != self._client.next_number:
                raise LocalProtocolError(
                    f"sum {self._number} of this series follows one that is not here; restore the session of the sum "
                    "before, or begin a new series"
                )
            self._starts = self._client.begin_next(self._layout, self._context, self._client_input)
            self._client_input = None

    def start(self) -> bytes | None:
        """Return the first message of the first sum; in later ones nobody speaks first."""
        self.begin()
        return self._client.start() if self._starts else None

    def receive(self, message: bytes) -> bytes | None:
        """Answer the server's message."""
        self.begin()
        return self._client.receive(message)

    def snapshot(self) -> bytes:
        """Return the client's side of the series as bytes."""
        self.begin()
        return self._client.snapshot()

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says: to this sum, or to the one before, after which this one begins.

        Raises:
            SnapshotError: another sum's, or changed bytes.
        """
        if self._client_input is None:
            raise LocalProtocolError("this session has begun; restore a fresh one")
        if self._client.restore(snapshot, self._number, self._layout, self._context, self._client_input):
            self._client_input = None


class SeriesServer(Party):
    """The server's side of a series. ``begin_sum`` gives the session of the next sum."""

    def __init__(self, series: MaskedSeries, *, secrets: PartySecrets = NO_SECRETS) -> None:
        Party.__init__(self, series, SERVER, secrets)
        self._series, self._secrets = series, secrets
        self._index = -1
        self._next: MaskedServer | None = None

    def begin_sum(self, layout: Layout, context: bytes) -> ServerSession:
        """The session of the next sum; the one before must have its result. A refused one does not count.

        Raises:
            LocalProtocolError: the next sum's set-up did not come through; begin a new series.
        """
        index = self._index + 1
        config = self._series.sum(index, layout, context)
        upcoming = MaskedServer(self._series.sum(index + 1, NOT_YET, b""), secrets=self._secrets)
        if index == 0:
            current = MaskedServer(config, secrets=self._secrets)
        elif self._next is None:
            raise LocalProtocolError("too few clients finished the set-up of this sum; begin a new series")
        else:
            current = self._next
            current.begin_sum(config)
        self._index, self._next = index, upcoming
        return _SeriesServerSession(self, current, is_set_up=index > 0)

    @property
    def digest(self) -> bytes:
        """What the bundles of this series are bound to."""
        return self._series.digest

    @property
    def upcoming(self) -> MaskedServer | None:
        """The next sum's server, while its set-up goes well."""
        return self._next

    def parts(self, sender: PartyId, message: bytes) -> list[bytes]:
        """The messages in a client's bundle."""
        return read_bundle(self._open_message(message, sender), peer=sender)

    def bundle(self, party: PartyId, parts: list[bytes]) -> bytes:
        """Messages to a client as one."""
        return self._seal_message(MessageType.BUNDLE, write_bundle(parts), party)

    def take_set_up(self, sender: PartyId, message: bytes) -> None:
        """A message of the next sum's set-up. A bad one leaves its sender out of that sum and harms nothing else."""
        if self._next is None:
            return
        with suppress(RemoteProtocolError):
            self._next.receive(sender, message)

    def give_up_upcoming(self) -> None:
        """The next sum's set-up failed; this one goes on."""
        self._next = None


class _SeriesServerSession:
    """A ``ServerSession`` for one sum of a series."""

    def __init__(self, series: SeriesServer, current: MaskedServer, *, is_set_up: bool) -> None:
        self._series, self._current = series, current
        self._is_set_up = is_set_up

    @property
    def snapshot_id(self) -> bytes:
        return self._current.snapshot_id

    def snapshot(self) -> bytes:
        raise ConfigurationError("the server of a series is not stored: begin a new series after a crash")

    def restore(self, snapshot: bytes) -> None:
        raise ConfigurationError("the server of a series is not stored: begin a new series after a crash")

    @property
    def result(self) -> SumResult | None:
        return self._current.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        return frozenset() if self._is_set_up else self._current.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        parts = self._series.parts(sender, message)
        self._current.receive(sender, parts[0])
        for part in parts[1:]:
            self._series.take_set_up(sender, part)

    def close_round(self) -> Mapping[PartyId, bytes]:
        self._is_set_up = False
        requests = {party: [message] for party, message in self._current.close_round().items()}
        if any(message_type(parts[0]) is MessageType.UNMASK_REQUEST for parts in requests.values()):
            for party, roster in self._rosters().items():
                requests.setdefault(party, []).append(roster)
        return {party: self._series.bundle(party, parts) for party, parts in requests.items()}

    def _rosters(self) -> Mapping[PartyId, bytes]:
        """The next sum's rosters; they travel with this sum's unmask requests."""
        upcoming = self._series.upcoming
        try:
            return upcoming.close_round() if upcoming is not None else {}
        except TooFewSurvivorsError:
            self._series.give_up_upcoming()
            return {}


def _the(client: MaskedClient | None) -> MaskedClient:
    if client is None:
        raise LocalProtocolError("no sum has begun in this series")
    return client
