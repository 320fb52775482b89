"""Attacks with whole messages and with bytes: replay, reorder, swap, cut, flip. Never a wrong sum, never twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.parties import SERVER_KEY, identified

from secagg import InsecureSeededEntropy, IntVector, Layout, MaskedSum, run_in_memory
from secagg.config import SERVER
from secagg.errors import (
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    RepeatedMessageError,
    SecureSumError,
)
from secagg.in_memory import Envelope
from secagg.masked.states import ClientState
from secagg.primitives.identity import IdentityKey
from secagg.wire import HEADER_BYTES, MessageType, message_type

LAYOUT = Layout.of([("s", 40, 2**16)])
"""24 bits carry 17: noise passes one entry's bound with probability 2^-7, all forty with 2^-280."""

CLIENTS = (1, 2, 3, 4, 5)
SESSION = bytes(range(16))
VECTORS: dict[int, IntVector] = {
    p: np.random.default_rng(p).integers(-(2**13), 2**13, size=LAYOUT.size) for p in CLIENTS
}


def protocol_of(kind: str) -> Any:
    """The semi-honest protocol, or the one with identities."""
    public: dict[str, Any] = {"layout": LAYOUT, "clients": CLIENTS, "session_id": SESSION, "threshold": 4}
    if kind == "semi-honest":
        return MaskedSum(**public)
    keys = {party: IdentityKey.generate(InsecureSeededEntropy(party)) for party in CLIENTS}
    roster = tuple(key.public for key in keys.values())
    return identified(MaskedSum(**public, identities=roster, server_identity=SERVER_KEY.public), keys)


KINDS = ["semi-honest", "identities"]


def exact(survivors: Iterable[int]) -> bytes:
    """The survivors' sum."""
    return np.sum([VECTORS[p] for p in survivors], axis=0).tobytes()


class Cohort:
    """Sessions that a test drives by hand, one half round at a time."""

    def __init__(self, kind: str = "semi-honest") -> None:
        self.protocol = protocol_of(kind)
        self.clients: dict[int, Any] = {p: self.protocol.client(p, VECTORS[p]) for p in CLIENTS}
        self.server = self.protocol.server()
        self.requests: dict[int, bytes] = {}
        self.said: dict[int, bytes] = {p: client.start() for p, client in self.clients.items()}

    def to_server(self) -> dict[int, bytes]:
        """Deliver what clients said; the server's next requests."""
        for party, message in self.said.items():
            self.server.receive(party, message)
        self.requests = dict(self.server.close_round())
        return self.requests

    def to_clients(self) -> dict[int, bytes]:
        """Deliver the requests; what clients say."""
        self.said = {party: self.clients[party].receive(message) for party, message in self.requests.items()}
        return self.said

    def until(self, due: MessageType) -> dict[int, bytes]:
        """The requests of this type, made and not yet delivered."""
        while True:
            requests = self.to_server()
            if message_type(next(iter(requests.values()))) is due:
                return requests
            self.to_clients()

    def finish(self) -> bytes:
        """The total of a session that is left alone from here."""
        while self.server.result is None:
            self.to_clients()
            self.to_server()
        return bytes(self.server.result.total.tobytes())


REQUESTS = {
    "semi-honest": [MessageType.ROSTER, MessageType.SHARE_DELIVERY, MessageType.UNMASK_REQUEST],
    "identities": [
        MessageType.ROSTER,
        MessageType.SHARE_DELIVERY,
        MessageType.UNMASK_REQUEST,
        MessageType.SURVIVOR_PROOF,
    ],
}
CASES = [(kind, type_) for kind in KINDS for type_ in REQUESTS[kind]]
each_request = pytest.mark.parametrize(("kind", "type_"), CASES, ids=lambda x: getattr(x, "name", x))


@each_request
def test_a_repeated_request_is_not_answered_again_and_harms_nothing(kind: str, type_: MessageType) -> None:
    cohort = Cohort(kind)
    requests = cohort.until(type_)
    cohort.to_clients()
    state = cohort.clients[1].state
    with pytest.raises(RepeatedMessageError, match="answered already"):
        cohort.clients[1].receive(requests[1])
    assert cohort.clients[1].state is state
    cohort.to_server()
    while cohort.server.result is None:
        cohort.to_clients()
        cohort.to_server()
    assert cohort.server.result.total.tobytes() == exact(CLIENTS)


@each_request
def test_requests_come_in_their_order_only(kind: str, type_: MessageType) -> None:
    """A request that is not due ends the session: it forgets its secrets and never answers again."""
    other = {t: Cohort(kind).until(t) for t in REQUESTS[kind]}
    for wrong, requests in other.items():
        same_bytes = (wrong, type_) == (MessageType.UNMASK_REQUEST, MessageType.SURVIVOR_PROOF)
        if wrong is type_ or same_bytes:  # without dropouts two unmask requests are one message: a repetition
            continue
        cohort = Cohort(kind)
        due = cohort.until(type_)
        client = cohort.clients[1]
        with pytest.raises(RemoteProtocolError, match=f"{type_.name} is due, {wrong.name} came"):
            client.receive(requests[1])
        assert client.state is ClientState.ABORTED
        assert client._kept.secrets is None
        for message in (due[1], *[r[1] for r in other.values()]):
            with pytest.raises((LocalProtocolError, RemoteProtocolError)):
                client.receive(message)


@each_request
def test_requests_for_another_are_refused_and_harm_nothing(kind: str, type_: MessageType) -> None:
    cohort = Cohort(kind)
    requests = cohort.until(type_)
    for party, client in cohort.clients.items():
        for recipient, message in requests.items():
            if recipient != party:
                with pytest.raises(MalformedMessageError, match=f"says it goes from 0 to {recipient}"):
                    client.receive(message)
    assert cohort.finish() == exact(CLIENTS)


@each_request
def test_messages_of_clients_sent_back_are_refused(kind: str, type_: MessageType) -> None:
    cohort = Cohort(kind)
    cohort.until(type_)
    with pytest.raises(MalformedMessageError):
        cohort.clients[1].receive(cohort.said[1])
    with pytest.raises(MalformedMessageError):
        cohort.clients[1].receive(cohort.said[2])
    assert cohort.finish() == exact(CLIENTS)


@each_request
def test_truncated_and_lengthened_requests_end_the_session(kind: str, type_: MessageType) -> None:
    for cut in (-1, -33, None):
        cohort = Cohort(kind)
        request = cohort.until(type_)[1]
        broken = request + b"\0" if cut is None else request[:cut]
        with pytest.raises(MalformedMessageError):
            cohort.clients[1].receive(broken)
        if len(broken) >= HEADER_BYTES:
            is_known = kind == "semi-honest"  # with identities nobody is known to have said so
            assert (cohort.clients[1].state is ClientState.ABORTED) is is_known


@each_request
def test_a_truncated_answer_is_refused_and_can_be_sent_again(kind: str, type_: MessageType) -> None:
    cohort = Cohort(kind)
    cohort.until(type_)
    cohort.to_clients()
    whole = cohort.said[2]
    for broken in (whole[:-1], whole + b"\0", whole[:HEADER_BYTES]):
        with pytest.raises(MalformedMessageError) as caught:
            cohort.server.receive(2, broken)
        assert caught.value.peer == 2
        assert 2 in cohort.server.waiting_for
    cohort.to_server()
    if cohort.server.result is None:
        cohort.finish()
    assert cohort.server.result.total.tobytes() == exact(CLIENTS)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_revealed_twice(kind: str) -> None:
    """After its answer a client has forgotten everything, whatever the server asks then."""
    cohort = Cohort(kind)
    last = REQUESTS[kind][-1]
    cohort.until(last)
    cohort.to_clients()
    others = [Cohort(kind).until(type_)[1] for type_ in REQUESTS[kind]]
    for client in cohort.clients.values():
        assert client.state is ClientState.DONE
        assert client._kept.secrets is None
    for message in others:
        with pytest.raises((LocalProtocolError, RemoteProtocolError)):
            cohort.clients[1].receive(message)
    assert cohort.clients[1].state is ClientState.DONE


def test_a_client_that_has_not_started_answers_nothing() -> None:
    cohort = Cohort()
    roster = cohort.until(MessageType.ROSTER)[1]
    fresh = cohort.protocol.client(1, VECTORS[1])
    with pytest.raises((LocalProtocolError, RemoteProtocolError)):
        fresh.receive(roster)
    assert fresh.state is not ClientState.SHARES_SENT


class Tampering:
    """Flips one bit of one message of a type; of which one, the test draws."""

    def __init__(self, victim: MessageType, which: int, bit: int) -> None:
        self._victim, self._which, self._bit = victim, which, bit
        self.changed = False

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        for envelope in envelopes:
            yield self._flip(envelope) if message_type(envelope.message) is self._victim else envelope

    def _flip(self, envelope: Envelope) -> Envelope:
        self._which -= 1
        if self._which != -1:
            return envelope
        message = bytearray(envelope.message)
        at = self._bit % (8 * len(message))
        message[at // 8] ^= 1 << at % 8
        self.changed = True
        return Envelope(sender=envelope.sender, recipient=envelope.recipient, message=bytes(message))


@pytest.mark.parametrize("kind", KINDS)
@given(
    victim=st.sampled_from([t for t in MessageType if 16 <= t <= 24]),
    which=st.integers(0, 4),
    bit=st.integers(0, 2**16),
    dropouts=st.dictionaries(st.sampled_from(CLIENTS), st.integers(0, 3), max_size=1),
)
def test_one_flipped_bit_never_gives_a_wrong_sum(
    kind: str, victim: MessageType, which: int, bit: int, dropouts: dict[int, int]
) -> None:
    """The exact sum or a named error; without identities the masked vector has only the transport to protect it."""
    assume(kind == "identities" or victim is not MessageType.MASKED_INPUT)
    network = Tampering(victim, which, bit)
    try:
        run = run_in_memory(protocol_of(kind), VECTORS, network=network, dropouts=dropouts)
    except SecureSumError:
        assert network.changed
    else:
        assert run.result.total.tobytes() == exact(run.result.survivors)


TIGHT = Layout.of([("s", 2, 127)])
"""8 bits carry 8: noise passes both entries' bounds with probability 0.99."""


def test_a_masking_key_changed_on_the_way_is_noticed_without_slack_in_the_layout() -> None:
    """A semi-honest server, one byte of client 1's masking key broken in transit: noise is released as a total."""
    protocol = MaskedSum(layout=TIGHT, clients=CLIENTS, session_id=SESSION)
    vectors = {party: np.array([1, -1], dtype=np.int64) for party in CLIENTS}

    class BreakOneKey:
        def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
            for envelope in envelopes:
                message = bytearray(envelope.message)
                if message_type(bytes(message)) is MessageType.ADVERTISED_KEYS and envelope.sender == 1:
                    message[HEADER_BYTES + 40] ^= 1
                yield Envelope(sender=envelope.sender, recipient=envelope.recipient, message=bytes(message))

    wrong = 0
    for seed in range(3):
        try:
            run = run_in_memory(protocol, vectors, network=BreakOneKey(), entropy=InsecureSeededEntropy(seed))
        except SecureSumError:
            continue
        wrong += run.result.total.tolist() != [len(run.result.survivors), -len(run.result.survivors)]
    assert wrong == 0


@given(st.lists(st.tuples(st.sampled_from(CLIENTS), st.integers(0, 60)), max_size=30))
def test_a_server_under_replayed_messages_keeps_its_sum(replays: list[tuple[int, int]]) -> None:
    """Old messages of any client, again and again between the new ones: refused, and the total is exact."""
    cohort = Cohort()
    history: list[tuple[int, bytes]] = []

    def replay() -> None:
        for sender, index in replays:
            mine = [message for party, message in history if party == sender]
            if mine:
                with pytest.raises(RemoteProtocolError):
                    cohort.server.receive(sender, mine[index % len(mine)])

    while cohort.server.result is None:
        replay()
        history += cohort.said.items()
        if not cohort.to_server():
            break
        cohort.to_clients()
    assert cohort.server.result is not None
    assert cohort.server.result.total.tobytes() == exact(CLIENTS)
    assert SERVER not in cohort.server.result.survivors
