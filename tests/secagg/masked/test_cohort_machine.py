"""Whole cohorts under a random adversary: clients drop, repeat, reorder and lie; the server crashes and replays.

The invariant: the sum of exactly the agreed survivors, or a named error; never a wrong sum, never two unmaskings. Where
nobody lied the only error is that too few survived.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.parties import SERVER_KEY, garbled, knows

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.config import SERVER
from secagg.errors import LocalProtocolError, RemoteProtocolError, SecureSumError, TooFewSurvivorsError
from secagg.masked.messages import UnmaskRequest
from secagg.masked.states import ClientState
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, ServerSession
from secagg.wire import MessageType, message_type, seal_frame

LAYOUT = Layout.of([("narrow", 3, 100), ("wide", 2, 2**60)])
KEY = bytes(32)


class CohortMachine(RuleBasedStateMachine):
    """Messages lie in boxes until a rule delivers, repeats, drops or changes them. The threshold is the lowest."""

    @initialize(
        n=st.integers(2, 7),
        authenticated=st.booleans(),
        seed=st.integers(0, 2**32),
        vanishing=st.lists(st.sampled_from((0, 0, 1, 2, 3)), max_size=4),
    )
    def begin(self, n: int, authenticated: bool, seed: int, vanishing: list[int]) -> None:
        """A session some rounds far, so that runs are as often near its end as near its beginning."""
        self.parties = tuple(range(1, n + 1))
        self.identities = {party: IdentityKey(bytes([party]) * 32) for party in self.parties}
        self.config = MaskedSum(
            layout=LAYOUT,
            clients=self.parties,
            session_id=seed.to_bytes(16, "big"),
            threshold=n // 2 + 1,
            identities=tuple(key.public for key in self.identities.values()) if authenticated else (),
            server_identity=SERVER_KEY.public if authenticated else b"",
        )
        rng = np.random.default_rng(seed)
        self.vectors = {party: rng.integers(-10, 11, size=LAYOUT.size) for party in self.parties}
        self.entropy = InsecureSeededEntropy(seed)
        self.clients: dict[int, ClientSession] = {party: self._client(party) for party in self.parties}
        self.server: ServerSession = self._server()
        self.to_server: list[tuple[int, bytes]] = []
        self.to_clients: list[tuple[int, bytes]] = []
        self.seen_by_clients: list[tuple[int, bytes]] = []
        self.seen_by_server: list[tuple[int, bytes]] = []
        self.vector_taken: set[int] = set()
        self.liars: set[int] = set()
        self.reveals = dict.fromkeys(self.parties, 0)
        self.failed = False
        for party in self.parties:
            self.to_server.append((party, self.clients[party].start()))
        for gone in vanishing:
            if not self.failed:
                self.a_round_goes_well(gone)

    def _client_receives(self, party: int, message: bytes) -> None:
        try:
            answer = self.clients[party].receive(message)
        except SecureSumError:
            return
        self.reveals[party] += message_type(answer) is MessageType.UNMASK_SHARES
        self.to_server.append((party, answer))

    def _server_receives(self, party: int, message: bytes) -> bool:
        try:
            self.server.receive(party, message)
        except (RemoteProtocolError, LocalProtocolError):
            return False
        if message_type(message) is MessageType.MASKED_INPUT:
            assert party not in self.vector_taken, "a vector was added twice"
            self.vector_taken.add(party)
        return True

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_reaches_the_server(self, data: st.DataObject) -> None:
        party, message = self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1)))
        self.seen_by_server.append((party, message))
        self._server_receives(party, message)

    @precondition(lambda self: self.to_clients)
    @rule(data=st.data())
    def a_message_reaches_its_client(self, data: st.DataObject) -> None:
        party, message = self.to_clients.pop(data.draw(st.integers(0, len(self.to_clients) - 1)))
        self.seen_by_clients.append((party, message))
        self._client_receives(party, message)

    @precondition(lambda self: self.to_server or self.to_clients)
    @rule()
    def everything_arrives(self) -> None:
        while self.to_clients:
            self.seen_by_clients.append(self.to_clients[0])
            self._client_receives(*self.to_clients.pop(0))
        while self.to_server:
            self.seen_by_server.append(self.to_server[0])
            self._server_receives(*self.to_server.pop(0))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_to_the_server_is_lost(self, data: st.DataObject) -> None:
        self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1)))

    @precondition(lambda self: self.seen_by_server)
    @rule(data=st.data())
    def an_old_message_reaches_the_server_again(self, data: st.DataObject) -> None:
        party, message = data.draw(st.sampled_from(self.seen_by_server))
        assert not self._server_receives(party, message) or message not in {m for _, m in self.seen_by_server[:-1]}

    @precondition(lambda self: self.seen_by_clients)
    @rule(data=st.data())
    def an_old_request_reaches_its_client_again(self, data: st.DataObject) -> None:
        party, message = data.draw(st.sampled_from(self.seen_by_clients))
        before = self.reveals[party]
        self._client_receives(party, message)
        assert self.reveals[party] == before or before == 0

    @precondition(lambda self: self.to_server)
    @rule(data=st.data(), position=st.integers(0, 354), value=st.integers(1, 255), seldom=st.integers(0, 5))
    def a_client_lies(self, data: st.DataObject, position: int, value: int, seldom: int) -> None:
        """A changed payload, as a dishonest client could have sent it. Its own vector may be anything then."""
        if seldom:
            return
        place = data.draw(st.integers(0, len(self.to_server) - 1))
        party, message = self.to_server[place]
        self.to_server[place] = (party, garbled(message, position, value, self.identities))
        self.liars.add(party)

    @rule(party=st.integers(1, 7), dropouts=st.sets(st.integers(0, 8)), seldom=st.integers(0, 5))
    def the_server_forges_an_unmask_request(self, party: int, dropouts: set[int], seldom: int) -> None:
        if party not in self.clients or seldom:
            return
        payload = UnmaskRequest(dropouts=tuple(sorted(dropouts))).to_payload()
        forged = seal_frame(
            MessageType.UNMASK_REQUEST,
            payload,
            digest=self.config.digest,
            sender=SERVER,
            recipient=party,
            identity=SERVER_KEY if self.config.is_authenticated else None,
        )
        try:
            answer = self.clients[party].receive(forged)
        except SecureSumError:
            return
        self.reveals[party] += message_type(answer) is MessageType.UNMASK_SHARES

    def _client(self, party: int) -> ClientSession:
        own = knows(self.identities[party] if self.config.is_authenticated else None)
        return self.config.client(party, self.vectors[party], entropy=self.entropy, secrets=own)

    def _server(self) -> ServerSession:
        return self.config.server(secrets=knows(SERVER_KEY if self.config.is_authenticated else None))

    @rule()
    def the_server_crashes_and_restarts(self) -> None:
        stored = self.server.snapshot()
        self.server = self._server()
        self.server.restore(stored)

    @rule(party=st.integers(1, 7))
    def a_client_crashes_and_restarts(self, party: int) -> None:
        if party not in self.clients:
            return
        stored = self.clients[party].snapshot()
        self.clients[party] = self._client(party)
        self.clients[party].restore(stored)

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule(vanishing=st.sampled_from((0, 0, 1, 2, 3)))
    def a_round_goes_well(self, vanishing: int) -> None:
        """Most do, but for a client that vanishes; without them no random run would ever get to a sum."""
        self.to_clients = [(party, message) for party, message in self.to_clients if party != vanishing]
        self.to_server = [(party, message) for party, message in self.to_server if party != vanishing]
        self.everything_arrives()
        self.close_round()

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule(patience=st.integers(0, 7))
    def the_round_is_closed(self, patience: int) -> None:
        if patience < 7 and (self.to_server or self.to_clients):
            self.everything_arrives()
        self.close_round()

    def close_round(self) -> None:
        try:
            self.to_clients += self.server.close_round().items()
        except TooFewSurvivorsError:
            self.failed = True
        except SecureSumError:
            assert self.liars, "nobody lied, so nothing but too few survivors can stand in a sum's way"
            self.failed = True

    @invariant()
    def the_sum_is_right_or_there_is_none(self) -> None:
        result = getattr(self, "server", None) and self.server.result
        if result is None:
            return
        assert not self.failed
        assert set(result.survivors) == self.vector_taken
        assert len(result.survivors) >= self.config.survivors_needed
        if not self.liars & set(result.survivors):
            exact = sum(self.vectors[party] for party in result.survivors)
            assert result.total.tobytes() == exact.tobytes()

    @invariant()
    def nobody_reveals_twice(self) -> None:
        assert all(count <= 1 for count in getattr(self, "reveals", {}).values())

    @invariant()
    def finished_clients_hold_no_secrets(self) -> None:
        for client in getattr(self, "clients", {}).values():
            if client.state in (ClientState.DONE, ClientState.ABORTED):
                assert client._kept.secrets is None


CohortMachine.TestCase.settings = settings(stateful_step_count=40)
TestCohorts = CohortMachine.TestCase
