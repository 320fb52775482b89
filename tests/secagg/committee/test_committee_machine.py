"""Committees under a random adversary: clients drop and lie, messages repeat, the server forges, everybody crashes.

The invariant: the sum of exactly the clients that were taken, or a named error; no helper ever takes its masks off two
different sums, nor off one of fewer than the minimum.
"""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.parties import SERVER_KEY, garbled, knows

from secagg import CommitteeSum, InsecureSeededEntropy, Layout
from secagg.committee.messages import MaskRequest
from secagg.config import SERVER
from secagg.errors import SecureSumError
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, ServerSession
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, payload_of, seal_frame

LAYOUT = Layout.of([("narrow", 3, 100), ("wide", 2, 2**60)])
KEY = bytes(32)


class CommitteeMachine(RuleBasedStateMachine):
    """Messages lie in boxes until a rule delivers, repeats, drops or changes them."""

    @initialize(
        n=st.integers(2, 5), n_helpers=st.integers(1, 3), authenticated=st.booleans(), seed=st.integers(0, 2**32)
    )
    def begin(self, n: int, n_helpers: int, authenticated: bool, seed: int) -> None:
        self.parties = tuple(range(1, n + 1))
        self.entropy = InsecureSeededEntropy(seed)
        self.helper_keys = {party: KeyPair.generate(self.entropy) for party in range(11, 11 + n_helpers)}
        numbers = (*self.parties, *self.helper_keys)
        self.identities = {party: IdentityKey(bytes([party]) * 32) for party in numbers}
        signing = numbers if authenticated else ()
        self.config = CommitteeSum(
            layout=LAYOUT,
            clients=self.parties,
            session_id=b"committee machine",
            helper_keys=tuple((party, pair.public) for party, pair in self.helper_keys.items()),
            min_survivors=n // 2 + 1,
            identities=tuple(self.identities[party].public for party in signing if party in self.parties),
            server_identity=SERVER_KEY.public if authenticated else b"",
            helper_identities=tuple((p, self.identities[p].public) for p in signing if p in self.helper_keys),
        )
        rng = np.random.default_rng(seed)
        self.vectors = {party: rng.integers(-10, 11, size=LAYOUT.size) for party in self.parties}
        self.clients = {party: self._client(party) for party in self.parties}
        self.helpers: dict[int, ClientSession] = {party: self._helper(party) for party in self.helper_keys}
        self.server: ServerSession = self.config.server(secrets=knows(self._server_key))
        self.to_server = [(party, client.start()) for party, client in self.clients.items()]
        self.to_helpers: list[tuple[int, bytes]] = []
        self.seen_by_server: list[tuple[int, bytes]] = []
        self.seen_by_helpers: list[tuple[int, bytes]] = []
        self.genuine: list[tuple[int, bytes]] = []
        self.taken: set[int] = set()
        self.liars: set[int] = set()
        self.answers: dict[int, set[bytes]] = {party: set() for party in self.helpers}
        self.failed = False

    @property
    def _server_key(self) -> IdentityKey | None:
        return SERVER_KEY if self.config.is_authenticated else None

    def _identity(self, party: int) -> IdentityKey | None:
        return self.identities[party] if self.config.is_authenticated else None

    def _helper(self, party: int) -> ClientSession:
        own = PartySecrets(agreement=self.helper_keys[party], identity=self._identity(party))
        return self.config.helper(party, secrets=own)

    def _client(self, party: int) -> ClientSession:
        return self.config.client(
            party, self.vectors[party], entropy=self.entropy, secrets=knows(self._identity(party))
        )

    def _server_receives(self, party: int, message: bytes) -> bool:
        self.seen_by_server.append((party, message))
        try:
            self.server.receive(party, message)
        except SecureSumError:
            return False
        if party in self.parties:
            assert party not in self.taken, "a vector was added twice"
            self.taken.add(party)
        return True

    def _helper_receives(self, helper: int, message: bytes) -> None:
        self.seen_by_helpers.append((helper, message))
        try:
            answer = self.helpers[helper].receive(message)
        except SecureSumError:
            return
        assert answer is not None
        named = int.from_bytes(payload_of(answer)[:4], "big")
        assert named >= self.config.min_survivors, "masks came off too small a sum"
        self.answers[helper].add(message)
        self.to_server.append((helper, answer))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_reaches_the_server(self, data: st.DataObject) -> None:
        self._server_receives(*self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1))))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data())
    def a_message_to_the_server_is_lost(self, data: st.DataObject) -> None:
        self.to_server.pop(data.draw(st.integers(0, len(self.to_server) - 1)))

    @precondition(lambda self: self.to_helpers)
    @rule(data=st.data())
    def a_request_reaches_its_helper(self, data: st.DataObject) -> None:
        self._helper_receives(*self.to_helpers.pop(data.draw(st.integers(0, len(self.to_helpers) - 1))))

    @precondition(lambda self: self.seen_by_server)
    @rule(data=st.data())
    def an_old_message_reaches_the_server_again(self, data: st.DataObject) -> None:
        party, message = data.draw(st.sampled_from(self.seen_by_server))
        was_taken = party in self.taken
        assert not (self._server_receives(party, message) and was_taken)

    @precondition(lambda self: self.seen_by_helpers)
    @rule(data=st.data())
    def an_old_request_reaches_its_helper_again(self, data: st.DataObject) -> None:
        self._helper_receives(*data.draw(st.sampled_from(self.seen_by_helpers)))

    @precondition(lambda self: self.to_server)
    @rule(data=st.data(), position=st.integers(0, 400), value=st.integers(1, 255), seldom=st.integers(0, 3))
    def somebody_lies(self, data: st.DataObject, position: int, value: int, seldom: int) -> None:
        """A changed payload, as a dishonest party could have sent it: a client's vector or seed, a helper's masks."""
        if seldom:
            return
        place = data.draw(st.integers(0, len(self.to_server) - 1))
        party, message = self.to_server[place]
        self.to_server[place] = (party, garbled(message, position, value, self.identities))
        self.liars.add(party)

    @precondition(lambda self: self.genuine)
    @rule(data=st.data(), seldom=st.integers(0, 3))
    def the_server_asks_about_another_survivor_set(self, data: st.DataObject, seldom: int) -> None:
        """It signs what it likes: it is the one who lies."""
        if seldom:
            return
        helper, message = data.draw(st.sampled_from(self.genuine))
        seeds = MaskRequest.read(Reader(memoryview(payload_of(message)), peer=SERVER), self.config).seeds
        some = data.draw(st.sets(st.sampled_from(sorted(seeds))))
        forged = MaskRequest(seeds={party: seeds[party] for party in some})
        self._helper_receives(
            helper,
            seal_frame(
                MessageType.MASK_REQUEST,
                forged.to_payload(),
                digest=self.config.digest,
                sender=SERVER,
                recipient=helper,
                identity=self._server_key,
            ),
        )

    @rule()
    def the_server_crashes_and_restarts(self) -> None:
        stored = self.server.snapshot()
        self.server = self.config.server(secrets=knows(self._server_key))
        self.server.restore(stored)

    @rule(data=st.data())
    def a_helper_crashes_and_restarts(self, data: st.DataObject) -> None:
        party = data.draw(st.sampled_from(sorted(self.helpers)))
        stored = self.helpers[party].snapshot()
        self.helpers[party] = self._helper(party)
        self.helpers[party].restore(stored)

    @rule(data=st.data())
    def a_client_crashes_and_does_not_speak_again(self, data: st.DataObject) -> None:
        party = data.draw(st.sampled_from(self.parties))
        stored = self.clients[party].snapshot()
        self.clients[party] = self._client(party)
        self.clients[party].restore(stored)
        try:
            self.clients[party].start()
        except SecureSumError:
            return
        raise AssertionError("a client spoke twice in one session")

    @precondition(lambda self: self.server.result is None and not self.failed)
    @rule(everything_arrives=st.integers(0, 4))
    def the_round_is_closed(self, everything_arrives: int) -> None:
        """Most rounds go well; without them no random run would ever get to a sum."""
        while everything_arrives and (self.to_helpers or self.to_server):
            while self.to_helpers:
                self._helper_receives(*self.to_helpers.pop(0))
            while self.to_server:
                self._server_receives(*self.to_server.pop(0))
        try:
            requests = list(self.server.close_round().items())
        except SecureSumError:
            self.failed = True
            return
        self.to_helpers += requests
        self.genuine += requests

    @invariant()
    def the_sum_is_right_or_there_is_none(self) -> None:
        result = getattr(self, "server", None) and self.server.result
        if result is None:
            return
        assert not self.failed
        assert set(result.survivors) == self.taken
        assert len(self.taken) >= self.config.min_survivors
        if not self.liars & (self.taken | self.helpers.keys()):
            assert result.total.tobytes() == sum(self.vectors[party] for party in self.taken).tobytes()

    @invariant()
    def no_helper_answers_twice(self) -> None:
        assert all(len(messages) <= 1 for messages in getattr(self, "answers", {}).values())


CommitteeMachine.TestCase.settings = settings(stateful_step_count=30)
TestCommittees = CommitteeMachine.TestCase
