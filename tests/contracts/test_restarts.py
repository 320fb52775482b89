"""What every mode owes whoever dies: back from its store it goes on, and nobody speaks or answers twice."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
from support.crashes import KEY, KillableStore, Killer, Process, ServerProcess, run
from support.memory_store import MemoryStore
from support.rows import LAYOUT, ROWS, make, some_vectors

from secagg import ClientSession, InOneProcess, IntVector, PartyId, SumResult, os_entropy
from secagg.durable import DurableClient, DurableServer
from secagg.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    SnapshotError,
    TooFewSurvivorsError,
)
from secagg.primitives.sealing import seal
from secagg.snapshots import VERSION

COHORT = (3, 8, 9)
VECTORS = {party: vector for party, vector in some_vectors().items() if party in COHORT}
ENCRYPTED = {"bfv": 2, "ckks": 5, "masked+bfv": 4, "masked+ckks": 9}
EVERY = ENCRYPTED | {"committee, 1 of 4, identities": 3, "committee, 2 of 5": 3}
EVERY |= {"masked, countersigned": 2, "committee, countersigned": 2}
"""Of modes with many or slow messages only each such save is tried; all of them in the slow form."""

NAMES = [name for name, row in ROWS.items() if row.stores_its_server]
"""Series are restored from sum to sum: tests/secagg/masked/test_series_snapshots.py."""

NAMED = pytest.mark.parametrize("name", NAMES)
WITH_HELPERS = pytest.mark.parametrize("name", [name for name in NAMES if "committee" in name or name in ENCRYPTED])


def parties_of(name: str) -> InOneProcess:
    return make(ROWS[name], clients=COHORT)


def session_of(parties: InOneProcess, party: PartyId) -> ClientSession:
    """A fresh session of a client or of a helper."""
    return parties.helper(party) if party in parties.helpers else parties.client(party, VECTORS[party])


def cohort(parties: InOneProcess, killer: Killer) -> tuple[dict[PartyId, Process], ServerProcess]:
    """Each party in a store that it may be killed at."""
    everybody = (*COHORT, *parties.helpers)
    processes = {party: Process(killer, partial(session_of, parties, party)) for party in everybody}
    return processes, ServerProcess(killer, parties.server)


def is_exact(name: str, result: SumResult) -> bool:
    total = sum(VECTORS.values()) + ROWS[name].noise_in(LAYOUT, COHORT)
    return result.survivors == COHORT and result.total.tobytes() == total.tobytes()


def saves(name: str) -> int:
    """How often parties save in a run in which nobody dies."""
    killer = Killer()
    assert is_exact(name, run(*cohort(parties_of(name), killer)).result)
    return killer.saves


@pytest.mark.parametrize(
    ("name", "every"),
    [
        *((name, EVERY.get(name, 1)) for name in NAMES),
        *(pytest.param(name, 1, marks=pytest.mark.slow) for name in EVERY),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_at_any_save_comes_back_and_the_sum_is_exact(name: str, every: int, when: str) -> None:
    for number in range(saves(name), 0, -every):
        killer = Killer(when, number)
        assert is_exact(name, run(*cohort(parties_of(name), killer)).result)
        assert killer.deaths == 1


@NAMED
def test_a_save_stands_before_every_answer_taken_message_and_closed_round(name: str) -> None:
    """Each party's start and answers, each message that the server takes, each round that it closes."""
    if ROWS[name].adds:  # countersignatures and receipts, stored likewise
        return
    guarantee, helpers = parties_of(name).protocol.guarantee, len(parties_of(name).helpers)
    *_, costs_of_helper = parties_of(name).protocol.costs.values()
    in_rounds = costs_of_helper.messages_up if helpers else 0
    rounds = guarantee.messages + in_rounds
    spoken = guarantee.messages * len(COHORT) + in_rounds * helpers
    assert saves(name) == helpers + spoken + spoken + rounds


@NAMED
def test_all_may_restart_before_every_message(name: str) -> None:
    finished = run(*cohort(parties_of(name), Killer()), restart_always=True)
    assert is_exact(name, finished.result)
    with pytest.raises(LocalProtocolError):
        finished.close_round()


@NAMED
def test_an_aborted_server_comes_back_without_a_total(name: str) -> None:
    parties = parties_of(name)
    server = parties.server()
    with pytest.raises(TooFewSurvivorsError, match="no sum is released"):
        server.close_round()
    restored = parties.server()
    restored.restore(server.snapshot())
    assert restored.result is None
    with pytest.raises(LocalProtocolError, match="over"):
        restored.close_round()


def requests_to_helpers(parties: InOneProcess) -> dict[PartyId, bytes]:
    """What the helpers of a sum are asked."""
    server = parties.server()
    clients = {party: parties.client(party, VECTORS[party]) for party in COHORT}
    answers = {party: client.start() for party, client in clients.items()}
    while True:
        for party, answer in answers.items():
            assert answer is not None
            server.receive(party, answer)
        requests = dict(server.close_round())
        if requests.keys() == set(parties.helpers):
            return requests
        answers = {party: clients[party].receive(message) for party, message in requests.items()}


@WITH_HELPERS
def test_a_helper_that_answered_answers_no_other_request_after_a_restart(name: str) -> None:
    parties = parties_of(name)
    helper = parties.helpers[0]
    request, other = requests_to_helpers(parties)[helper], requests_to_helpers(parties)[helper]
    assert request != other, "seeds and ciphertexts are fresh"
    store = KillableStore(Killer())

    def durable() -> DurableClient:
        return DurableClient(store, KEY, parties.helper(helper))

    answer = durable().receive(request)
    with pytest.raises(
        (LocalProtocolError, RemoteProtocolError), match=r"is due, SEED_DELIVERY came|forgotten its key"
    ):
        durable().receive(other)
    assert durable().receive(request) == answer


@WITH_HELPERS
def test_a_helper_comes_back_as_it_was_and_its_secrets_are_in_no_snapshot(name: str) -> None:
    parties = parties_of(name)
    party = parties.helpers[0]
    request, own, waiting = requests_to_helpers(parties)[party], parties.of_party(party), parties.helper(party)
    assert len(waiting.snapshot()) < 200
    assert own.boxes is None or own.boxes.secret not in waiting.snapshot()
    restored = parties.helper(party)
    restored.restore(waiting.snapshot())
    assert restored.receive(request)
    done = parties.helper(party)
    done.restore(restored.snapshot())
    with pytest.raises(RepeatedMessageError):
        done.receive(request)


@NAMED
def test_a_client_says_nothing_twice_after_a_restart(name: str) -> None:
    parties, party = parties_of(name), COHORT[0]
    spoken, restored = session_of(parties, party), session_of(parties, party)
    spoken.start()
    restored.restore(spoken.snapshot())
    with pytest.raises(LocalProtocolError, match=r"one session sends one vector|begins a session once"):
        restored.start()


class Rows:
    """A client's rows, which can be seen to be forgotten."""

    def __call__(self) -> IntVector:
        return VECTORS[COHORT[0]]


@NAMED
def test_a_client_that_sent_its_vector_forgets_it_also_in_a_session_that_was_restored(name: str) -> None:
    gc.freeze()  # what other tests left need not be looked through below
    parties, first, store, rows = parties_of(name), COHORT[0], MemoryStore(), Rows()
    sessions = {party: DurableClient(MemoryStore(), KEY, session_of(parties, party)) for party in parties.helpers}
    sessions |= {party: DurableClient(MemoryStore(), KEY, session_of(parties, party)) for party in COHORT[1:]}
    sessions[first] = DurableClient(store, KEY, parties.client(first, rows))
    assert is_exact(name, run(sessions, ServerProcess(Killer(), parties.server)).result)
    restored = DurableClient(store, KEY, parties.client(first, rows))
    kept = weakref.ref(rows)
    del rows
    gc.collect()
    gc.unfreeze()
    assert kept() is None
    assert restored.party == sessions[first].party


@WITH_HELPERS
def test_a_helper_that_answered_forgets_its_secrets_also_when_restored(name: str) -> None:
    parties = parties_of(name)
    party = parties.helpers[0]
    helper, restored = parties.helper(party), parties.helper(party)
    helper.receive(requests_to_helpers(parties)[party])
    restored.restore(helper.snapshot())
    own = parties.of_party(party)
    for session in (helper, restored):
        held = list(vars(session).values())
        assert not any(value is own.boxes or value == own.decryption for value in held if value)


@NAMED
def test_a_record_opens_for_its_owner_role_and_session_only(name: str) -> None:
    """Sealed, for it holds the session's secrets; bound to role, party and configuration."""
    parties, elsewhere = parties_of(name), make(ROWS[name], clients=COHORT, session_id=b"x" * 16)
    for party in (COHORT[0], *parties.helpers[:1]):
        store = MemoryStore()
        DurableClient(store, KEY, session_of(parties, party)).start()
        record = store.record
        assert record is not None
        assert parties.protocol.digest not in record
        assert DurableClient(MemoryStore(record), KEY, session_of(parties, party)).party == party
        others = [session_of(parties, 8), session_of(elsewhere, COHORT[0])]
        others += [session_of(parties, helper) for helper in parties.helpers if helper != party]
        for other in others:
            with pytest.raises(SnapshotError, match="another party, session or configuration"):
                DurableClient(MemoryStore(record), KEY, other)
        for key, changed in ((b"x" * 32, record), (KEY, record[:-1] + bytes([record[-1] ^ 1]))):
            with pytest.raises(SnapshotError, match="another key"):
                DurableClient(MemoryStore(changed), key, session_of(parties, party))
        with pytest.raises(SnapshotError, match="another session or configuration"):
            DurableServer(MemoryStore(record), parties.server())


@NAMED
def test_a_snapshot_that_was_cut_or_lengthened_is_refused(name: str) -> None:
    parties = parties_of(name)
    client, server = session_of(parties, COHORT[0]), parties.server()
    message = client.start()
    assert message is not None
    server.receive(COHORT[0], message)
    for snapshot, fresh in ((server.snapshot(), parties.server), (client.snapshot(), partial(session_of, parties, 3))):
        for size in [*range(0, min(300, len(snapshot)), 7), len(snapshot) // 2, len(snapshot) - 1]:
            with pytest.raises(SnapshotError, match="changed bytes"):
                fresh().restore(snapshot[:size])
        with pytest.raises(SnapshotError, match="changed bytes"):
            fresh().restore(snapshot + b"\0")
        fresh().restore(snapshot)


@NAMED
def test_a_server_that_refuses_a_snapshot_stays_as_it_was(name: str) -> None:
    parties = parties_of(name)
    full, server = parties.server(), parties.server()
    for party in COHORT:
        full.receive(party, session_of(parties, party).start() or b"")
    before = server.snapshot()
    with pytest.raises(SnapshotError, match="changed bytes"):
        server.restore(full.snapshot() + b"\0")
    assert server.snapshot() == before
    server.restore(full.snapshot())
    assert server.snapshot() == full.snapshot()


@NAMED
@pytest.mark.parametrize("is_first", [True, False], ids=["format 1", "the format before"])
def test_sessions_stored_by_the_old_version_are_refused_by_name(name: str, is_first: bool) -> None:
    """A record of format 1 has no header; what follows is a seal's nonce, or a server's hash."""
    parties, header = parties_of(name), b"" if is_first else b"SAGD" + bytes([VERSION - 1])
    sealed = seal(KEY, bytes(200), b"analytic-secagg/1 durable client", entropy=os_entropy)
    refused = f"written by another version of this library, not in format {VERSION}"
    with pytest.raises(SnapshotError, match=refused):
        DurableClient(MemoryStore(header + sealed), KEY, session_of(parties, COHORT[0]))
    with pytest.raises(SnapshotError, match=refused):
        DurableServer(MemoryStore(header + bytes(300)), parties.server())
