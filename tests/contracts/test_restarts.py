"""What every mode owes whoever dies: back from its store it goes on, and nobody speaks or answers twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from support.crashes import KEY, KillableStore, Killer, Process, ServerProcess, run
from support.rows import ROWS, make, some_vectors

from secagg import ClientSession, CommitteeSum, InOneProcess, MaskedSum, PartyId, PlainSum, SumResult
from secagg.config import SERVER
from secagg.durable import DurableClient
from secagg.errors import LocalProtocolError, RepeatedMessageError, SnapshotError, TooFewSurvivorsError

COHORT = (3, 8, 9)
VECTORS = {party: vector for party, vector in some_vectors().items() if party in COHORT}
EVERY = {"bfv": 2, "ckks": 5, "masked+bfv": 4, "masked+ckks": 9}
"""Of encrypted modes only each such save is tried; all of them in the slow test."""

NAMED = pytest.mark.parametrize("name", ROWS)
WITH_HELPERS = pytest.mark.parametrize("name", [name for name, row in ROWS.items() if make(row).helpers])


def parties_of(name: str) -> InOneProcess:
    return make(ROWS[name], clients=COHORT)


def cohort(parties: InOneProcess, killer: Killer) -> tuple[dict[PartyId, Process], ServerProcess]:
    """Each party with its own secrets, in a store that it may be killed at."""
    protocol, of = parties.protocol, parties.of_party

    def client(party: PartyId) -> Process:
        return Process(
            killer,
            fresh=lambda: parties.client(party, VECTORS[party]),
            restore=lambda stored: protocol.restore_client(party, VECTORS[party], stored, KEY, secrets=of(party)),
            snapshot=lambda session: protocol.snapshot_client(session, KEY),
        )

    processes = {party: client(party) for party in COHORT}
    processes |= {party: Process(killer, **helping(parties, party)) for party in parties.helpers}
    server = ServerProcess(
        killer,
        fresh=parties.server,
        restore=lambda stored: protocol.restore_server(stored, secrets=of(SERVER)),
        snapshot=protocol.snapshot_server,
    )
    return processes, server


def helping(parties: InOneProcess, party: PartyId) -> dict[str, Any]:
    """How a helper's session is made, restored and stored."""
    protocol, own = parties.protocol, parties.of_party(party)
    return {
        "fresh": partial(parties.helper, party),
        "restore": lambda stored: protocol.restore_helper(party, stored, KEY, secrets=own),
        "snapshot": lambda session: protocol.snapshot_helper(session, KEY),
    }


def is_exact(result: SumResult) -> bool:
    return result.survivors == COHORT and result.total.tobytes() == sum(VECTORS.values()).tobytes()


def saves(name: str) -> int:
    """How often parties save in a run in which nobody dies."""
    killer = Killer()
    assert is_exact(run(*cohort(parties_of(name), killer)).result)
    return killer.saves


def kill_at(name: str, when: str, numbers: range) -> None:
    for number in numbers:
        killer = Killer(when, number)
        assert is_exact(run(*cohort(parties_of(name), killer)).result)
        assert killer.deaths == 1


@NAMED
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_at_any_save_comes_back_and_the_sum_is_exact(name: str, when: str) -> None:
    kill_at(name, when, range(saves(name), 0, -EVERY.get(name, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_at_any_save_of_an_encrypted_sum_comes_back_too(name: str, when: str) -> None:
    kill_at(name, when, range(saves(name), 0, -1))


@NAMED
def test_a_save_stands_before_every_answer_taken_message_and_closed_round(name: str) -> None:
    """Each party's start and answers, each message that the server takes, each round that it closes."""
    guarantee, helpers = parties_of(name).protocol.guarantee, len(parties_of(name).helpers)
    rounds = guarantee.messages + (helpers > 0)
    spoken = guarantee.messages * len(COHORT) + helpers
    assert saves(name) == helpers + spoken + spoken + rounds


@NAMED
def test_all_may_restart_before_every_message(name: str) -> None:
    finished = run(*cohort(parties_of(name), Killer()), restart_always=True)
    assert is_exact(finished.result)
    with pytest.raises(LocalProtocolError):
        finished.close_round()


@NAMED
def test_an_aborted_server_comes_back_without_a_total(name: str) -> None:
    parties = parties_of(name)
    server = parties.server()
    with pytest.raises(TooFewSurvivorsError, match="no sum is released"):
        server.close_round()
    stored = parties.protocol.snapshot_server(server)
    restored = parties.protocol.restore_server(stored, secrets=parties.of_party(SERVER))
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
        return DurableClient(store, KEY, **helping(parties, helper))

    answer = durable().receive(request)
    with pytest.raises(LocalProtocolError, match=r"has answered in this session|forgotten its key"):
        durable().receive(other)
    assert durable().receive(request) == answer


@WITH_HELPERS
def test_a_helper_comes_back_as_it_was_and_its_secrets_are_in_no_snapshot(name: str) -> None:
    parties = parties_of(name)
    helper = parties.helpers[0]
    how, request = helping(parties, helper), requests_to_helpers(parties)[helper]
    own, waiting = parties.of_party(helper), how["snapshot"](parties.helper(helper))
    assert len(waiting) < 200
    assert own.agreement is None or own.agreement.secret not in waiting
    assert how["restore"](waiting).receive(request)
    done = parties.helper(helper)
    done.receive(request)
    with pytest.raises(RepeatedMessageError):
        how["restore"](how["snapshot"](done)).receive(request)


@NAMED
def test_a_client_says_nothing_twice_after_a_restart(name: str) -> None:
    parties, party = parties_of(name), COHORT[0]
    spoken = parties.client(party, VECTORS[party])
    spoken.start()
    stored = parties.protocol.snapshot_client(spoken, KEY)
    restored = parties.protocol.restore_client(party, VECTORS[party], stored, KEY, secrets=parties.of_party(party))
    with pytest.raises(LocalProtocolError, match=r"one session sends one vector|begins a session once"):
        restored.start()


def stored_by_clients_and_helpers(parties: InOneProcess) -> dict[PartyId, tuple[bytes, Any]]:
    """Each party's snapshot, and what restores a snapshot for it under a key."""
    protocol, found = parties.protocol, {}
    for party in (COHORT[0], *parties.helpers[:1]):
        session: ClientSession = (
            parties.helper(party) if party in parties.helpers else parties.client(party, VECTORS[party])
        )
        session.start()

        def restore(stored: bytes, key: bytes, of: Any = protocol, party: PartyId = party) -> ClientSession:
            own = parties.of_party(party)
            if party in parties.helpers:
                return of.restore_helper(party, stored, key, secrets=own)
            return of.restore_client(party, VECTORS[party], stored, key, secrets=own)

        store = protocol.snapshot_helper if party in parties.helpers else protocol.snapshot_client
        found[party] = store(session, KEY), restore
    return found


@NAMED
def test_snapshots_open_for_their_owner_role_and_session_only(name: str) -> None:
    parties, elsewhere = parties_of(name), make(ROWS[name], clients=COHORT, session_id=b"x" * 16)
    stored = stored_by_clients_and_helpers(parties)
    for snapshot, restore in stored.values():
        assert restore(snapshot, KEY)
        with pytest.raises(SnapshotError, match="another key, or changed bytes"):
            restore(snapshot, b"x" * 32)
        with pytest.raises(SnapshotError, match="another key, or changed bytes"):
            restore(snapshot[:-1] + bytes([snapshot[-1] ^ 1]), KEY)
        with pytest.raises(SnapshotError, match="another party, session"):
            parties.protocol.restore_server(snapshot, secrets=parties.of_party(SERVER))
    snapshot, _ = stored[COHORT[0]]
    for other, protocol in ((8, parties), (3, elsewhere)):
        with pytest.raises(SnapshotError, match="another party, session"):
            protocol.protocol.restore_client(other, VECTORS[other], snapshot, KEY, secrets=protocol.of_party(other))
    for party in parties.helpers[:1]:
        with pytest.raises(SnapshotError, match="another party, session"):
            parties.protocol.restore_helper(party, snapshot, KEY, secrets=parties.of_party(party))


@NAMED
def test_a_server_snapshot_that_was_cut_or_lengthened_is_refused(name: str) -> None:
    parties = parties_of(name)
    protocol, own, server = parties.protocol, parties.of_party(SERVER), parties.server()
    message = parties.client(COHORT[0], VECTORS[COHORT[0]]).start()
    assert message is not None
    server.receive(COHORT[0], message)
    snapshot = protocol.snapshot_server(server)
    for size in [*range(0, min(300, len(snapshot)), 7), len(snapshot) // 2, len(snapshot) - 1]:
        with pytest.raises(SnapshotError):
            protocol.restore_server(snapshot[:size], secrets=own)
    unknown_round = bytearray(snapshot)
    unknown_round[42 + 4] = 255
    for changed in (snapshot + b"\0", bytes(unknown_round)):
        with pytest.raises(SnapshotError, match="changed bytes"):
            protocol.restore_server(changed, secrets=own)


@NAMED
def test_sessions_of_other_sums_are_not_stored(name: str) -> None:
    protocol = parties_of(name).protocol
    others: list[Any] = [
        PlainSum(layout=protocol.layout, clients=COHORT, session_id=bytes(16)),
        MaskedSum(layout=protocol.layout, clients=COHORT, session_id=bytes(16)),
        CommitteeSum.generate(layout=protocol.layout, clients=COHORT, session_id=bytes(16)),
    ]
    own = type(parties_of(name).server())
    for other in others:
        client, server = other.client(3, VECTORS[3]), other.server()
        if isinstance(server, own):
            continue
        with pytest.raises(LocalProtocolError, match=type(client).__name__):
            protocol.snapshot_client(client, KEY)
        with pytest.raises(LocalProtocolError, match=type(server).__name__):
            protocol.snapshot_server(server)
        for _ in protocol.helpers[:1]:
            with pytest.raises(LocalProtocolError, match=type(client).__name__):
                protocol.snapshot_helper(client, KEY)
