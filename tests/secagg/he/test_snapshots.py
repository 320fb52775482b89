"""Sessions of encrypted sums as bytes: whoever dies at any step comes back, and nobody speaks or decrypts twice."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.parties import knows

from secagg import CommitteeSum, Layout, MaskedSum, PlainSum
from secagg.carriers import encrypted
from secagg.carriers.key_holder import KeyHolder, KeyHolderState
from secagg.durable import DurableClient
from secagg.errors import LocalProtocolError, SnapshotError
from secagg.primitives.identity import IdentityKey

sys.path.append(str(Path(__file__).resolve().parents[1] / "crashes"))

from crash_driver import KEY, KillableStore, Killer, Process, ServerProcess, run

LAYOUT = Layout.of([("narrow", 5, 100), ("wide", 7, 2**60)])
CLIENTS = (1, 2, 3)
HOLDER = 9
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
PLAIN_SAVES = 3 + 1 + (3 + 1) + 1 + (1 + 1)
"""Starts of clients and key holder; the server's three messages and a closed round; an answer, taken, and closed."""
MASKED_SAVES = 3 + 1 + 4 * (3 + 1) + 3 * 3 + 1 + (1 + 1)
SAVES = {"bfv": PLAIN_SAVES, "ckks": PLAIN_SAVES, "masked+bfv": MASKED_SAVES, "masked+ckks": MASKED_SAVES}
KINDS = pytest.mark.parametrize("kind", list(SAVES))
CHEAP = pytest.mark.parametrize("kind", ["ckks", "masked+bfv"])


@lru_cache
def parties_of(kind: str, identities: bool = False) -> Any:
    """All parties of a sum."""
    session = {"layout": LAYOUT, "clients": CLIENTS, "session_id": bytes(16)}
    if identities:
        session |= {"identities": tuple(key.public for key in IDENTITIES.values())}
    alone = MaskedSum if kind.startswith("masked") else PlainSum
    return encrypted(alone(**session), kind.removeprefix("masked+"), key_holder=HOLDER)


def protocol_of(kind: str) -> Any:
    """The sum, which is public."""
    return parties_of(kind).protocol


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) * party


def cohort(parties: Any, killer: Killer) -> tuple[dict[int, Process], ServerProcess]:
    """Each party with its own secrets."""
    public = parties.protocol

    def client(party: int) -> Process:
        more = {"secrets": knows(IDENTITIES[party])} if getattr(public, "identities", ()) else {}
        return Process(
            killer,
            fresh=lambda: public.client(party, vector(party), **more),
            restore=lambda snapshot: public.restore_client(party, vector(party), snapshot, KEY, **more),
            snapshot=lambda session: public.snapshot_client(session, KEY),
        )

    holder = Process(
        killer,
        fresh=lambda: parties.helper(HOLDER),
        restore=lambda snapshot: public.restore_helper(HOLDER, snapshot, KEY, secrets=parties.secrets[HOLDER]),
        snapshot=lambda session: public.snapshot_helper(session, KEY),
    )
    server = ServerProcess(killer, fresh=public.server, restore=public.restore_server, snapshot=public.snapshot_server)
    return {party: client(party) for party in CLIENTS} | {HOLDER: holder}, server


def check(result: Any) -> None:
    assert result.survivors == CLIENTS
    assert result.total.tobytes() == sum(map(vector, CLIENTS)).tobytes()


def check_kills(kind: str, when: str, numbers: range) -> None:
    for number in numbers:
        killer = Killer(when, number)
        check(run(*cohort(parties_of(kind), killer)).result)
        assert killer.deaths == 1


@KINDS
def test_the_saves_of_a_run_are_counted(kind: str) -> None:
    killer = Killer()
    check(run(*cohort(parties_of(kind), killer)).result)
    assert killer.saves == SAVES[kind]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("kind", "step"), [("bfv", 2), ("ckks", 5), ("masked+bfv", 4), ("masked+ckks", 9)])
def test_whoever_is_killed_comes_back_and_the_sum_is_exact(kind: str, step: int, when: str) -> None:
    """The last save, and every ``step``-th before it."""
    check_kills(kind, when, range(SAVES[kind], 0, -step))


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@KINDS
def test_whoever_is_killed_at_any_save_comes_back_and_the_sum_is_exact(kind: str, when: str) -> None:
    check_kills(kind, when, range(1, SAVES[kind] + 1))


@KINDS
def test_all_may_restart_before_every_message(kind: str) -> None:
    check(run(*cohort(parties_of(kind), Killer()), restart_always=True).result)


def test_all_may_restart_where_identities_are_signed_too() -> None:
    check(run(*cohort(parties_of("masked+bfv", identities=True), Killer()), restart_always=True).result)


def holder_and_request(kind: str) -> tuple[Any, bytes]:
    """The key holder's view, and the request that comes to the key holder."""
    protocol = protocol_of(kind)
    server = protocol.server()
    clients = {party: protocol.client(party, vector(party)) for party in CLIENTS}
    answers = {party: client.start() for party, client in clients.items()}
    while True:
        for party, answer in answers.items():
            server.receive(party, answer)
        requests = server.close_round()
        if HOLDER in requests:
            return protocol, requests[HOLDER]
        answers = {party: clients[party].receive(message) for party, message in requests.items()}


@CHEAP
def test_a_key_holder_that_answered_answers_no_other_request_after_a_restart(kind: str) -> None:
    own = parties_of(kind).secrets[HOLDER]
    protocol, request = holder_and_request(kind)
    _, other = holder_and_request(kind)
    store = KillableStore(Killer())

    def durable() -> DurableClient:
        return DurableClient(
            store,
            KEY,
            fresh=lambda: parties_of(kind).helper(HOLDER),
            restore=lambda snapshot: protocol.restore_helper(HOLDER, snapshot, KEY, secrets=own),
            snapshot=lambda session: protocol.snapshot_helper(session, KEY),
        )

    answer = durable().receive(request)
    assert request != other  # encrypted afresh
    with pytest.raises(LocalProtocolError, match="forgotten its key"):
        durable().receive(other)
    assert durable().receive(request) == answer


@CHEAP
def test_a_key_holder_comes_back_as_it_was_and_its_key_is_in_no_snapshot(kind: str) -> None:
    own = parties_of(kind).secrets[HOLDER]
    protocol, request = holder_and_request(kind)
    holder = parties_of(kind).helper(HOLDER)
    waiting = protocol.snapshot_helper(holder, KEY)
    assert len(waiting) < 200
    restored = protocol.restore_helper(HOLDER, waiting, KEY, secrets=own)
    assert isinstance(restored, KeyHolder)
    assert (restored.state, restored.error) == (KeyHolderState.WAITING, None)
    assert restored.receive(request)
    again = protocol.restore_helper(HOLDER, protocol.snapshot_helper(restored, KEY), KEY, secrets=own)
    assert (again.state, again.error) == (KeyHolderState.DONE, restored.error)
    with pytest.raises(Exception, match="is due"):
        holder.receive(request[:5] + b"\x10" + request[6:])
    aborted = protocol.restore_helper(HOLDER, protocol.snapshot_helper(holder, KEY), KEY, secrets=own)
    with pytest.raises(LocalProtocolError, match="aborted"):
        aborted.receive(request)


@CHEAP
def test_snapshots_open_for_their_owner_and_role_only(kind: str) -> None:
    own = parties_of(kind).secrets[HOLDER]
    protocol = protocol_of(kind)
    client = protocol.client(1, vector(1))
    client.start()
    of_client, of_holder = (
        protocol.snapshot_client(client, KEY),
        protocol.snapshot_helper(parties_of(kind).helper(HOLDER), KEY),
    )
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        protocol.restore_client(1, vector(1), of_client, b"x" * 32)
    with pytest.raises(SnapshotError, match="another party"):
        protocol.restore_client(2, vector(2), of_client, KEY)
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        protocol.restore_helper(HOLDER, of_holder[:-1] + bytes([of_holder[-1] ^ 1]), KEY, secrets=own)
    other = replace(protocol, session_id=b"x" * 16)
    with pytest.raises(SnapshotError, match="another party, session"):
        other.restore_helper(HOLDER, of_holder, KEY, secrets=own)
    with pytest.raises(SnapshotError, match="another party, session"):
        protocol.restore_server(of_client)


@CHEAP
def test_a_server_snapshot_that_was_cut_or_lengthened_is_refused(kind: str) -> None:
    protocol = protocol_of(kind)
    server = protocol.server()
    server.receive(1, protocol.client(1, vector(1)).start())
    snapshot = protocol.snapshot_server(server)
    for size in [*range(0, 300, 7), len(snapshot) // 2, len(snapshot) - 1]:
        with pytest.raises(SnapshotError):
            protocol.restore_server(snapshot[:size])
    with pytest.raises(SnapshotError, match="changed bytes"):
        protocol.restore_server(snapshot + b"\0")


@KINDS
def test_a_finished_server_comes_back_with_its_total_and_an_aborted_one_without(kind: str) -> None:
    protocol = protocol_of(kind)
    finished = run(*cohort(parties_of(kind), Killer()), restart_always=True)
    check(finished.result)
    with pytest.raises(LocalProtocolError):
        finished.close_round()
    server = protocol.server()
    with pytest.raises(Exception, match="no sum is released"):
        server.close_round()
    restored = protocol.restore_server(protocol.snapshot_server(server))
    assert restored.result is None
    with pytest.raises(LocalProtocolError, match="over"):
        restored.close_round()


@CHEAP
def test_sessions_of_other_sums_are_refused(kind: str) -> None:
    protocol = protocol_of(kind)
    committee = CommitteeSum.generate(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16))
    with pytest.raises(LocalProtocolError, match="CommitteeClient"):
        protocol.snapshot_client(committee.client(1, vector(1)), KEY)
    with pytest.raises(LocalProtocolError, match="no key holder: CommitteeClient"):
        protocol.snapshot_helper(committee.client(1, vector(1)), KEY)
    with pytest.raises(LocalProtocolError, match="CommitteeServer"):
        protocol.snapshot_server(committee.server())
