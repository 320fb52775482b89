"""Whole cohorts of every mode under a random adversary: parties drop, repeat, reorder and lie; all crash and go on.

The invariant: the sum of exactly the agreed survivors, or a named error; never a wrong sum, nobody answers twice, no
masks come off too small a sum. Where nobody lied the only error is that too few answered.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.by_hand import content_of, forged
from support.examples import examples
from support.parties import garbled, key_of
from support.rows import ROWS

from secagg import InsecureSeededEntropy, Layout
from secagg.config import SERVER
from secagg.errors import (
    HelperMissingError,
    LocalProtocolError,
    RemoteProtocolError,
    SecureSumError,
    TooFewSurvivorsError,
)
from secagg.masked.client import MaskedClient
from secagg.masked.states import ClientState
from secagg.wire import MessageType, carries_vector, message_type, seal_frame, write_parties

LAYOUT = Layout.of([("narrow", 3, 100), ("wide", 2, 2**60)])
NAMES = sorted(name for name, row in ROWS.items() if row.max_examples > 100 and not (row.noise or row.is_of_series))
"""Encryption is too slow for this; noise and series are sums of these modes with more around them."""


def under(session: Any) -> Any:
    """The session that a receipt is about."""
    return getattr(session, "_under", session)


class CohortMachine(RuleBasedStateMachine):
    """Messages lie in boxes until a rule delivers, repeats, drops or changes them. The threshold is the lowest."""

    @initialize(
        name=st.sampled_from(NAMES),
        n=st.integers(2, 7),
        seed=st.integers(0, 2**32),
        vanishing=st.lists(st.sampled_from((0, 0, 1, 2, 3)), max_size=4),
    )
    def begin(self, name: str, n: int, seed: int, vanishing: list[int]) -> None:
        """A session some rounds far, so that runs are as often near its end as near its beginning."""
        self.clients = tuple(range(1, n + 1))
        self.everybody = ROWS[name].make(LAYOUT, self.clients, seed.to_bytes(16, "big"), b"")
        protocol: Any = self.everybody.protocol
        self.config: Any = getattr(protocol, "protocol", protocol)  # under a receipt
        rng = np.random.default_rng(seed)
        self.vectors = {party: rng.integers(-10, 11, size=LAYOUT.size) for party in self.clients}
        self.entropy = InsecureSeededEntropy(seed)
        self.sessions: dict[int, Any] = {p: self._session(p) for p in (*self.clients, *self.everybody.helpers)}
        self.server: Any = self.everybody.server()
        self.to_server: list[tuple[int, bytes]] = []
        self.to_parties: list[tuple[int, bytes]] = []
        self.seen_by_parties: list[tuple[int, bytes]] = []
        self.seen_by_server: list[tuple[int, bytes]] = []
        self.taken: set[tuple[int, bytes]] = set()
        self.vector_taken: set[int] = set()
        self.liars: set[int] = set()
        self.spoken: set[tuple[int, MessageType | None]] = set()
        self.failed = False
        for party, session in self.sessions.items():
            self._says(party, session.start())
        for gone in vanishing:
            if not self.failed and self.server.result is None:
                self.a_round_goes_well(gone)

    def _session(self, party: int) -> Any:
        if party in self.everybody.helpers:
            return self.everybody.helper(party)
        return self.everybody.client(party, self.vectors[party], entropy=self.entropy)

    def _says(self, party: int, answer: bytes | None) -> None:
        if answer is None:
            return
        type_ = message_type(answer)
        assert type_ is MessageType.MASK_SUM or (party, type_) not in self.spoken, "nobody says anything twice"
        self.spoken.add((party, type_))
        if type_ in (MessageType.SUM_HASHES, MessageType.MASK_SUM):
            assert len(under(self.sessions[party])._kept.seeds) >= self.config.survivors_needed
        self.to_server.append((party, answer))

    def _party_receives(self, party: int, message: bytes) -> None:
        self.seen_by_parties.append((party, message))
        try:
            answer = self.sessions[party].receive(message)
        except SecureSumError:
            return
        self._says(party, answer)

    def _server_receives(self, party: int, message: bytes) -> None:
        self.seen_by_server.append((party, message))
        try:
            self.server.receive(party, message)
        except (RemoteProtocolError, LocalProtocolError):
            return
        assert (party, message) not in self.taken, "a message was taken twice"
        self.taken.add((party, message))
        if carries_vector(message):
            assert party not in self.vector_taken, "a vector was added twice"
            self.vector_taken.add(party)

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_reaches_the_server(self, data: st.DataObject) -> None:
        self._server_receives(*self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1))))

    @precondition(lambda self: self.to_parties)
    @rule(data=st.data())
    def a_request_reaches_its_party(self, data: st.DataObject) -> None:
        self._party_receives(*self.to_parties.pop(data.draw(st.integers(0, len(self.to_parties) - 1))))

    @precondition(lambda self: self.to_server or self.to_parties)
    @rule()
    def everything_arrives(self) -> None:
        while self.to_parties:
            self._party_receives(*self.to_parties.pop(0))
        while self.to_server:
            self._server_receives(*self.to_server.pop(0))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_to_the_server_is_lost(self, data: st.DataObject) -> None:
        self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1)))

    @precondition(lambda self: self.seen_by_server)
    @rule(data=st.data())
    def an_old_message_reaches_the_server_again(self, data: st.DataObject) -> None:
        self._server_receives(*data.draw(st.sampled_from(self.seen_by_server)))

    @precondition(lambda self: self.seen_by_parties)
    @rule(data=st.data())
    def an_old_request_reaches_its_party_again(self, data: st.DataObject) -> None:
        self._party_receives(*data.draw(st.sampled_from(self.seen_by_parties)))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data(), position=st.integers(0, 400), value=st.integers(1, 255), seldom=st.integers(0, 5))
    def somebody_lies(self, data: st.DataObject, position: int, value: int, seldom: int) -> None:
        """A changed payload, as a dishonest party could have sent it. Its own vector or masks may be anything then."""
        if seldom:
            return
        place = data.draw(st.integers(0, len(self.to_server) - 1))
        party, message = self.to_server[place]
        self.to_server[place] = (party, garbled(message, position, value))
        self.liars.add(party)

    @rule(data=st.data(), others=st.sets(st.integers(0, 8)), seldom=st.integers(0, 5))
    def the_server_asks_about_another_survivor_set(self, data: st.DataObject, others: set[int], seldom: int) -> None:
        """Of its clients, or of the helpers that it asked before; it signs what it likes."""
        if seldom:
            return
        asked = [seen for seen in self.seen_by_parties if seen[0] in self.everybody.helpers]
        if self.config.guarantee.threshold:
            party = data.draw(st.sampled_from(self.clients))
            payload = write_parties(others)
            message = seal_frame(
                MessageType.UNMASK_REQUEST,
                payload,
                digest=self.config.digest,
                sender=SERVER,
                recipient=party,
                identity=key_of(SERVER) if self.config.is_authenticated else None,
            )
            self._party_receives(party, message)
        elif asked:
            party, message = data.draw(st.sampled_from(asked))
            request = content_of(message, self.config)
            if isinstance(request, tuple):
                self._party_receives(party, forged(message, write_parties(others)))
                return
            (name, named), *_ = ((field.name, getattr(request, field.name)) for field in fields(request))
            some = {p: named[p] for p in named if p in others} if isinstance(named, dict) else tuple(sorted(others))
            self._party_receives(party, forged(message, replace(request, **{name: some})))

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule()
    def the_server_crashes_and_restarts(self) -> None:
        stored = self.server.snapshot()
        self.server = self.everybody.server()
        self.server.restore(stored)

    @rule(data=st.data())
    def a_party_crashes_and_restarts(self, data: st.DataObject) -> None:
        party = data.draw(st.sampled_from(sorted(self.sessions)))
        stored = self.sessions[party].snapshot()
        self.sessions[party] = self._session(party)
        self.sessions[party].restore(stored)
        try:
            assert self.sessions[party].start() is None, "a client spoke twice in one session"
        except LocalProtocolError:
            return

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule(vanishing=st.sampled_from((0, 0, 1, 2, 3)))
    def a_round_goes_well(self, vanishing: int) -> None:
        """Most do, but for a client that vanishes; without them no random run would ever get to a sum."""
        self.to_parties = [(party, message) for party, message in self.to_parties if party != vanishing]
        self.to_server = [(party, message) for party, message in self.to_server if party != vanishing]
        self.everything_arrives()
        self.close_round()

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule(patience=st.integers(0, 7))
    def the_round_is_closed(self, patience: int) -> None:
        if patience < 7 and (self.to_server or self.to_parties):
            self.everything_arrives()
        self.close_round()

    def close_round(self) -> None:
        try:
            self.to_parties += self.server.close_round().items()
        except (TooFewSurvivorsError, HelperMissingError):
            self.failed = True
        except SecureSumError:
            assert self.liars, "nobody lied, so nothing but too few answers can stand in a sum's way"
            self.failed = True

    @invariant()
    def the_sum_is_right_or_there_is_none(self) -> None:
        result = getattr(self, "server", None) and self.server.result
        if result is None:
            return
        assert not self.failed
        assert set(result.survivors) <= self.vector_taken
        if not self.liars & set(self.everybody.helpers):
            assert set(result.survivors) == self.vector_taken - {client for client, _ in result.complaints}
        assert len(result.survivors) >= self.config.survivors_needed
        if not self.liars & {*result.survivors, *self.everybody.helpers}:
            exact = sum(self.vectors[party] for party in result.survivors)
            assert result.total.tobytes() == exact.tobytes()

    @invariant()
    def finished_clients_hold_no_secrets(self) -> None:
        for session in map(under, getattr(self, "sessions", {}).values()):
            if isinstance(session, MaskedClient) and session.state in (ClientState.DONE, ClientState.ABORTED):
                assert session._kept.secrets is None


CohortMachine.TestCase.settings = settings(stateful_step_count=40, max_examples=examples(2).max_examples)
TestCohorts = CohortMachine.TestCase
