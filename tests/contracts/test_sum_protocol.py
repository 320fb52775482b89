"""What every `SumProtocol` owes its caller: the exact integers of the survivors, or a named error and no result.

To bring a new implementation under the contract, add a row to ``support.rows.ROWS``.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.by_hand import ByHand
from support.collusion import wrongly_stated
from support.faulty_network import FaultyNetwork
from support.rows import CLIENTS, LAYOUT, ROWS, SESSION, Row, make, some_vectors

from secagg import (
    ClientSession,
    InOneProcess,
    InsecureSeededEntropy,
    IntVector,
    Layout,
    PartyId,
    PartySecrets,
    os_entropy,
    run_in_memory,
)
from secagg.config import SERVER
from secagg.entropy import Entropy
from secagg.errors import (
    ConfigurationError,
    InvalidVectorError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    RepeatedMessageError,
    SecureSumError,
    TooFewSurvivorsError,
)
from secagg.in_memory import Envelope
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientInput, ServerSession
from secagg.sums import CoalitionView, Upload


@pytest.fixture(params=ROWS.values(), ids=ROWS.keys(), scope="module")
def row(request: pytest.FixtureRequest) -> Row:
    """Every implementation in turn."""
    found: Row = request.param
    return found


def layouts(row: Row) -> st.SearchStrategy[Layout]:
    """Any; noise needs room."""
    bounds = st.one_of(st.integers(0, 300), st.integers(0, 2**62 if row.noise else 2**63 - 1))
    return st.lists(st.tuples(st.integers(1, 7), bounds), min_size=1, max_size=3).map(
        lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes))
    )


cohorts = st.sets(st.integers(1, 2**32 - 1), min_size=2, max_size=6).map(lambda ids: tuple(sorted(ids)))


def vector_of(layout: Layout, share: int) -> st.SearchStrategy[IntVector]:
    """Vectors with a ``share``-th of each bound at most, extremes often."""

    def entry(bound: int) -> st.SearchStrategy[int]:
        return st.one_of(st.sampled_from([-bound, 0, bound]), st.integers(-bound, bound))

    entries = (entry(s.bound // share) for s in layout.segments for _ in range(s.size))
    return st.tuples(*entries).map(lambda values: np.array(values, dtype=np.int64))


def exact(row: Row, vectors: Mapping[int, IntVector], survivors: Iterable[int], layout: Layout = LAYOUT) -> bytes:
    """The oracle: Python's integers, added one by one, and the noise of those who are in the total."""
    noise = row.noise_in(layout, survivors)
    total = [sum(int(vectors[party][i]) for party in survivors) + int(noise[i]) for i in range(layout.size)]
    return np.array(total, dtype=np.int64).tobytes()


def test_totals_are_exact_for_any_layout_cohort_and_order(row: Row) -> None:
    @row.settings
    @given(data=st.data(), layout=layouts(row), clients=cohorts)
    def check(data: st.DataObject, layout: Layout, clients: tuple[int, ...]) -> None:
        vectors = {party: data.draw(vector_of(layout, len(clients))) for party in clients}
        order = data.draw(st.permutations(clients))
        run = run_in_memory(row.make(layout, clients, SESSION, b""), {party: vectors[party] for party in order})
        assert run.result.survivors == clients
        assert run.result.total.dtype == np.int64
        assert run.result.total.tobytes() == exact(row, vectors, clients, layout)
        assert run.refused == ()

    check()


def test_honest_clients_never_add_up_to_another_total_than_their_sum(row: Row) -> None:
    """Each vector is within the sum's bound and the sum is not: in a ring of one byte [300, -300] is [44, -44]."""
    vectors = dict.fromkeys(CLIENTS, np.array([60, -60]))
    alone, shared = Layout.of([("s", 2, 127)]), Layout.of([("s", 2, 127, 60)])
    session = row.make(alone, CLIENTS, SESSION, b"")
    for client_input in (vectors[CLIENTS[0]], lambda: vectors[CLIENTS[0]]):
        with pytest.raises(InvalidVectorError, match="bound for one client 25, an equal share of the sum's 127"):
            run_in_memory(session, {**vectors, CLIENTS[0]: client_input})
    with pytest.raises(ConfigurationError, match=r"5 clients of at most .* each can add up to .*, beyond the bound"):
        row.make(shared, CLIENTS, SESSION, b"")
    vectors = {party: np.array([100, -100]) if party == CLIENTS[0] else np.array([6, -6]) for party in CLIENTS}
    known = row.make(replace(alone, sum_fits=True), CLIENTS, SESSION, b"")  # whoever knows all five vectors says so
    assert run_in_memory(known, vectors).result.total.tobytes() == exact(row, vectors, CLIENTS, alone)


def test_dropouts_at_any_time_give_the_survivors_sum_or_none(row: Row) -> None:
    @row.settings
    @given(dropouts=st.dictionaries(st.sampled_from(CLIENTS), st.integers(0, 5), max_size=4))
    def check(dropouts: dict[int, int]) -> None:
        vectors, protocol = some_vectors(), make(row)
        counted = tuple(party for party in CLIENTS if dropouts.get(party, 9) >= row.counts_at)
        try:
            run = run_in_memory(protocol, vectors, dropouts=dropouts)
        except TooFewSurvivorsError as error:
            came_short = error
            assert dropouts
        else:
            came_short = None
        if came_short is not None:
            assert came_short.came < came_short.needed
            assert f"{came_short.came} of {came_short.cohort}" in str(came_short)
            assert "no sum is released" in str(came_short)
        else:
            assert run.result.survivors == counted
            assert run.result.total.tobytes() == exact(row, vectors, counted)

    check()


def test_faulty_networks_never_give_a_wrong_sum(row: Row) -> None:
    @row.settings
    @given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.0, 0.5]), st.booleans())
    def check(seed: int, loss: float, repeat: float, reorder: bool) -> None:
        vectors = some_vectors()
        network = FaultyNetwork(np.random.default_rng(seed), loss=loss, repetition=repeat, reorder=reorder)
        try:
            run = run_in_memory(make(row), vectors, network=network)
        except SecureSumError:
            assert loss > 0
        else:
            assert len(run.result.survivors) >= make(row).protocol.survivors_needed
            assert run.result.total.tobytes() == exact(row, vectors, run.result.survivors)

    check()


def server_of(parties: InOneProcess) -> ServerSession:
    """A server that waits for clients; in later sums of a series it asks them first."""
    server = parties.server()
    if not server.waiting_for:
        server.close_round()
    return server


def rounds(parties: InOneProcess, vectors: Mapping[int, IntVector]) -> list[list[Envelope]]:
    """All messages of a perfect run: upload, requests, upload, ..."""
    said: list[list[Envelope]] = [[]]

    def record(envelope: Envelope) -> None:
        if said[-1] and (said[-1][0].sender == SERVER) != (envelope.sender == SERVER):
            said.append([])
        said[-1].append(envelope)

    class Slow:
        """Lets every message of a round be sent before the first arrives."""

        def carry(self, envelopes):  # type: ignore[no-untyped-def]
            return iter(list(envelopes))

    run_in_memory(parties, vectors, network=Slow(), entropy=InsecureSeededEntropy(1), record=record)
    return said


def test_a_contribution_is_called_once_and_not_before_it_is_needed(row: Row) -> None:
    calls: list[int] = []
    vectors = some_vectors()

    def of(party: int) -> Callable[[], IntVector]:
        def client_input() -> IntVector:
            calls.append(party)
            return vectors[party]

        return client_input

    protocol = make(row)
    clients = {party: protocol.client(party, of(party)) for party in CLIENTS}
    assert calls == []
    del clients
    run = run_in_memory(protocol, {party: of(party) for party in CLIENTS}, dropouts={CLIENTS[0]: row.counts_at - 1})
    assert sorted(calls) in (list(CLIENTS), list(CLIENTS[1:]))
    assert run.result.total.tobytes() == exact(row, vectors, CLIENTS[1:])


@pytest.mark.parametrize("given_as", ["array", "callable"])
def test_a_vector_that_does_not_fit_leaves_nothing(row: Row, given_as: str) -> None:
    """Given, it is refused at once; made late, before the message that would carry it."""
    vectors = some_vectors()
    beyond = vectors[3].copy()
    beyond[6] = 101
    sent: list[Envelope] = []
    client_inputs = vectors | {3: beyond if given_as == "array" else lambda: beyond}
    with pytest.raises(InvalidVectorError, match="'cross': 1 of 2"):
        run_in_memory(make(row), client_inputs, record=sent.append)
    assert sum(envelope.sender == 3 for envelope in sent) < row.counts_at


@pytest.mark.parametrize(
    "wrong",
    [np.zeros(9), np.zeros(8, dtype=np.int64), np.zeros((9, 1), dtype=np.int64), [0] * 9],
    ids=["float64", "too short", "two axes", "list"],
)
def test_other_shapes_and_types_get_no_session(row: Row, wrong: object) -> None:
    with pytest.raises(InvalidVectorError):
        make(row).client(3, wrong)  # type: ignore[arg-type]


def test_strangers_get_no_session(row: Row) -> None:
    with pytest.raises((ConfigurationError, KeyError)):
        make(row).client(4, some_vectors()[3])


@pytest.mark.parametrize(
    "change",
    [{"session_id": bytes(16)}, {"context": b"another model"}, {"layout": Layout.of([("gram", 9, 2**40)])}],
    ids=lambda change: next(iter(change)),
)
def test_whoever_differs_in_public_parameters_is_not_in_the_sum(row: Row, change: dict[str, object]) -> None:
    """One client of another session, model or layout: its messages are refused, and the others' sum is exact."""
    vectors, parties, other = some_vectors(), make(row), make(row, **change)
    sessions = {p: (other if p == 9 else parties).client(p, np.zeros(9, dtype=np.int64)) for p in CLIENTS}

    class Swapped:
        """The same parties, but client 9 speaks from the other session."""

        def __getattr__(self, name: str) -> object:
            return getattr(parties, name)

        def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
            return sessions[9] if party == 9 else parties.client(party, client_input, entropy=entropy)

    run = run_in_memory(Swapped(), vectors)  # type: ignore[arg-type]
    assert 9 not in run.result.survivors
    assert run.result.total.tobytes() == exact(row, vectors, run.result.survivors)
    assert any("another session or another configuration" in str(error) for _, error in run.refused)


def test_every_message_of_another_session_is_refused_and_harmless(row: Row) -> None:
    """Each message of a whole foreign session, thrown at every party in every round, changes nothing."""
    vectors = some_vectors()
    foreign = [envelope for said in rounds(make(row, session_id=bytes(16)), vectors) for envelope in said]

    class WithForeign:
        def carry(self, envelopes):  # type: ignore[no-untyped-def]
            batch = list(envelopes)
            to_server = bool(batch) and batch[0].recipient == SERVER
            return iter([e for e in foreign if (e.recipient == SERVER) == to_server] + batch)

    run = run_in_memory(make(row), vectors, network=WithForeign())
    assert run.result.total.tobytes() == exact(row, vectors, CLIENTS)
    assert len(run.refused) >= len([e for e in foreign if e.recipient == SERVER])
    assert all(isinstance(error, MalformedMessageError) for _, error in run.refused)


def test_the_server_takes_arbitrary_bytes_calmly(row: Row) -> None:
    @row.settings
    @given(st.binary(max_size=200), st.sampled_from([*CLIENTS, 0, 1, 2**32 + 5]))
    def check(message: bytes, sender: int) -> None:
        server = server_of(make(row))
        with pytest.raises(RemoteProtocolError) as caught:
            server.receive(sender, message)
        assert caught.value.peer == sender
        assert server.waiting_for == frozenset(CLIENTS)
        assert server.result is None

    check()


@pytest.mark.parametrize("wrong", ["sender", "message"])
def test_a_caller_s_mistake_is_no_dropout_and_ends_nothing(row: Row, wrong: str) -> None:
    """A transport has numbers as text and may have no body: no ``RemoteProtocolError``, which callers go on after."""
    hand = ByHand(make(row), some_vectors())
    message, server = hand.first_answers()[8], hand.server
    sender, came = ("8", message) if wrong == "sender" else (8, None)
    with pytest.raises(LocalProtocolError, match=r"plain int such as 1, not str|is bytes, not NoneType"):
        server.receive(sender, came)  # type: ignore[arg-type]
    assert server.waiting_for == frozenset(CLIENTS)
    server.receive(8, bytearray(message))  # type: ignore[arg-type]
    assert server.waiting_for == frozenset(CLIENTS) - {8}


def test_a_client_takes_arbitrary_bytes_calmly(row: Row) -> None:
    """Foreign bytes abort nobody: afterwards the session still completes. They are changed bytes in tests/fuzz."""

    @settings(max_examples=5)
    @given(st.lists(st.binary(max_size=200), min_size=1, max_size=8))
    def check(messages: list[bytes]) -> None:
        vectors, protocol = some_vectors(), make(row)

        class Noise:
            def carry(self, envelopes):  # type: ignore[no-untyped-def]
                for envelope in envelopes:
                    for message in messages:
                        yield Envelope(sender=envelope.sender, recipient=envelope.recipient, message=message)
                    yield envelope

        run = run_in_memory(protocol, vectors, network=Noise())
        assert run.result.total.tobytes() == exact(row, vectors, CLIENTS)

    check()


def test_the_server_waits_for_whom_it_asked(row: Row) -> None:
    hand = ByHand(make(row), some_vectors())
    message, server = hand.first_answers()[8], hand.server
    assert server.waiting_for == frozenset(CLIENTS)
    assert server.result is None
    server.receive(8, message)
    assert server.waiting_for == frozenset(CLIENTS) - {8}
    with pytest.raises(RepeatedMessageError) as caught:
        server.receive(8, message)
    assert caught.value.peer == 8


def test_nobody_speaks_for_another(row: Row) -> None:
    hand = ByHand(make(row), some_vectors())
    message, server = hand.first_answers()[8], hand.server
    for sender in (3, 9, 1, 0):
        with pytest.raises(MalformedMessageError, match=f"says it goes from 8 to 0, but it came from {sender}"):
            server.receive(sender, message)
    assert server.waiting_for == frozenset(CLIENTS)


def test_a_client_starts_once(row: Row) -> None:
    client = make(row).client(3, some_vectors()[3])
    assert (client.start() is not None) is row.speaks_first
    if row.speaks_first:
        with pytest.raises(LocalProtocolError, match=r"once|already"):
            client.start()


def finished(row: Row) -> tuple[object, list[list[Envelope]]]:
    """A server whose session is over, and what was said in it."""
    protocol, said = make(row), rounds(make(row), some_vectors())
    server = server_of(protocol)
    for batch in said:
        if batch[0].sender != SERVER:
            for envelope in batch:
                server.receive(envelope.sender, envelope.message)
            server.close_round()
    assert server.result is not None
    return server, said


def test_after_the_result_the_session_is_over(row: Row) -> None:
    server, said = finished(row)
    total = server.result.total.tobytes()  # type: ignore[attr-defined]
    with pytest.raises(LocalProtocolError):
        server.close_round()  # type: ignore[attr-defined]
    assert server.waiting_for == frozenset()  # type: ignore[attr-defined]
    for envelope in [e for batch in said for e in batch if e.sender != SERVER]:
        with pytest.raises(SecureSumError):
            server.receive(envelope.sender, envelope.message)  # type: ignore[attr-defined]
    assert server.result.total.tobytes() == total  # type: ignore[attr-defined]


def test_messages_of_other_rounds_are_refused(row: Row) -> None:
    """Late and early ones; what was sent for one round is never taken in another."""
    said = [batch for batch in rounds(make(row), some_vectors()) if batch[0].sender != SERVER]
    server = server_of(make(row))
    for number, batch in enumerate(said):
        for other in [b for i, b in enumerate(said) if i != number]:
            for envelope in other:
                with pytest.raises(RemoteProtocolError):
                    server.receive(envelope.sender, envelope.message)
        assert server.waiting_for == {envelope.sender for envelope in batch}
        for envelope in batch:
            server.receive(envelope.sender, envelope.message)
        server.close_round()
    assert server.result is not None


def test_too_few_release_nothing_and_end_the_session(row: Row) -> None:
    """Checked at the first round; dropouts at later ones are drawn above."""
    hand = ByHand(make(row), some_vectors())
    said, server = hand.first_answers(), hand.server
    server.receive(3, said[3])
    with pytest.raises(TooFewSurvivorsError) as caught:
        server.close_round()
    assert caught.value.came == 1
    assert caught.value.cohort == len(CLIENTS)
    for go_on in (server.close_round, lambda: server.receive(8, said[8])):
        with pytest.raises(LocalProtocolError, match="this session is over"):
            go_on()
    assert server.result is None


def test_helpers_share_the_number_space(row: Row) -> None:
    parties = make(row)
    assert not set(parties.helpers) & set(parties.clients)
    assert all(parties.helper(party).party == party for party in parties.helpers)


def test_strangers_are_no_helpers(row: Row) -> None:
    with pytest.raises(ConfigurationError):
        make(row).helper(3)


def test_the_public_face(row: Row) -> None:
    protocol = make(row).protocol
    assert protocol.clients == CLIENTS
    assert all(a < b for a, b in pairwise(protocol.clients))
    assert protocol.layout == LAYOUT
    assert protocol.name
    assert len(protocol.digest) == 32
    assert 1 <= protocol.survivors_needed == protocol.guarantee.min_survivors <= len(CLIENTS)
    assert set(protocol.guarantee.reconstruction_helpers) <= set(protocol.helpers)


def test_who_lacks_its_secrets_gets_no_session(row: Row) -> None:
    """Public parameters hold no secret: a party that needs one brings its own, and no other."""
    parties = make(row)
    stranger = PartySecrets(identity=IdentityKey(b"s" * 32), boxes=BoxKey(b"s" * 32), decryption=b"no context")
    for party in parties.secrets:
        for wrong in (PartySecrets(), stranger):
            with pytest.raises(ConfigurationError):
                begin(InOneProcess(protocol=parties.protocol, secrets={party: wrong}), party)


def begin(parties: InOneProcess, party: PartyId) -> object:
    """The session of a party."""
    if party == SERVER:
        return parties.server()
    return parties.helper(party) if party in parties.helpers else parties.client(party, some_vectors()[party])


def test_a_signing_key_that_serves_no_purpose_is_refused(row: Row) -> None:
    """Whoever signs believes that the server may lie; here nobody would look at the signature."""
    protocol, key = make(row).protocol, PartySecrets(identity=IdentityKey(b"s" * 32))
    with pytest.raises(ConfigurationError, match=r"identity key|serves no purpose"):
        protocol.client(3, some_vectors()[3], secrets=key)
    with pytest.raises(ConfigurationError, match=r"identity key|serves no purpose"):
        protocol.server(secrets=key)


def test_public_parameters_hold_no_secret(row: Row) -> None:
    parties = make(row)
    held = repr(parties.protocol).encode() + pickle.dumps(parties.protocol)
    for secrets in parties.secrets.values():
        for secret in (secrets.identity, secrets.boxes):
            assert secret is None or secret.secret not in held
        assert not secrets.decryption or secrets.decryption not in held
        assert repr(secrets) == "PartySecrets()"
    assert "PartySecrets" not in repr(parties)


def test_stated_costs_are_the_measured_ones(row: Row) -> None:
    parties = make(row)
    if row.is_of_series or row.adds:  # which has costs of its own: tests/secagg/test_explain.py
        return
    traffic, guarantee = run_in_memory(parties, some_vectors()).traffic, parties.protocol.guarantee
    costs = parties.protocol.costs
    stated = dict.fromkeys(CLIENTS, costs["client"])
    (role,) = costs.keys() - {"client"} or {"client"}
    stated |= dict.fromkeys(parties.helpers, costs[role])
    for party, measured in traffic.items():
        cost = stated[party]
        assert (measured.messages_up, measured.bytes_up) == (cost.messages_up, cost.bytes_up)
        assert measured.bytes_down == cost.bytes_down
    assert costs["client"].messages_up == guarantee.messages
    assert guarantee.vector_message == row.counts_at
    assert str(costs["client"]) in parties.protocol.explain() or guarantee.upload is Upload.CIPHERTEXT


def test_a_sum_says_the_server_may_lie_where_its_guarantee_does(row: Row) -> None:
    protocol = make(row).protocol
    assert ("MALICIOUS SERVER" in protocol.explain()) == protocol.guarantee.malicious_server


def test_a_guarantee_says_who_opens_an_upload(row: Row) -> None:
    """Each coalition of the server, clients and helpers, against the sum's own word and its own mathematics."""
    parties, vectors = make(row), some_vectors()
    if row.is_of_series:  # a later sum's secrets are drawn in the sum before
        return
    noise = row.noise_in(LAYOUT, CLIENTS[:1]) if row.noise == "shares" else 0
    assert wrongly_stated(parties, vectors, vectors[CLIENTS[0]] + noise) == []
    nothing = CoalitionView(messages=(), tapes={}, secrets={})
    assert parties.protocol.reconstruct_upload(nothing, CLIENTS[0]) is None
