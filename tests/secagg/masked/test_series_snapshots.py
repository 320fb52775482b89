"""A series whose clients die after every message: every sum exact, and nothing to be had from a snapshot."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.memory_store import MemoryStore
from support.parties import SERVER_KEY, knows

from secagg import IntVector, Layout
from secagg.durable import DurableClient
from secagg.errors import LocalProtocolError, SnapshotError
from secagg.masked.bundles import write_bundle
from secagg.masked.series import MaskedSeries, SeriesMember
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, seal_frame

CLIENTS = (1, 2, 3, 4)
KEYS = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
SERIES = MaskedSeries(
    clients=CLIENTS,
    series_id=bytes(16),
    threshold=3,
    identities=tuple(KEYS[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)
LAYOUTS = [Layout.of([("counts", size, 1000)]) for size in (5, 3, 8)]


def vector(party: int, index: int) -> IntVector:
    return np.arange(LAYOUTS[index].size, dtype=np.int64) * party + index


def member(party: int, index: int, series: MaskedSeries = SERIES) -> SeriesMember:
    return series.member(
        party, index, LAYOUTS[index], b"model %d" % index, vector(party, index), secrets=knows(KEYS[party])
    )


def restored(party: int, stored: bytes, index: int) -> SeriesMember:
    session = member(party, index)
    session.restore(stored)
    return session


def session(store: MemoryStore, party: int, index: int) -> DurableClient:
    """A client in a process of its own, in the sum of this number."""
    return DurableClient(store, bytes([party]) * 32, member(party, index))


def run(
    stores: dict[int, MemoryStore],
    lost: Callable[[int, int, int], bool] = lambda party, index, step: False,
    *,
    server_dies: bool = False,
) -> list[tuple]:
    """All sums; each message meets a new process, twice. Returns totals and survivors.

    Where the server dies, what it sends comes from a process that ended with the round, and is taken by another one.
    """
    server, found = SERIES.server(secrets=knows(SERVER_KEY)), []
    for index, layout in enumerate(LAYOUTS):
        running = server.begin_sum(layout, b"model %d" % index)
        if index == 0:
            for party, store in stores.items():
                first = session(store, party, index).start()
                assert session(store, party, index).start() == first
                running.receive(party, first)
        step = 0
        while (requests := running.close_round()) or running.result is None:
            if server_dies:
                stored, server = running.snapshot(), SERIES.server(secrets=knows(SERVER_KEY))
                running = server.resume_sum(index, layout, b"model %d" % index)
                running.restore(stored)
            for party, request in requests.items():
                if lost(party, index, step):
                    continue
                answer = session(stores[party], party, index).receive(request)
                assert session(stores[party], party, index).receive(request) == answer
                running.receive(party, answer)
            step += 1
        found.append((running.result.total, running.result.survivors))
    return found


def test_every_sum_is_exact_though_every_client_dies_after_every_message() -> None:
    for index, (total, survivors) in enumerate(run({party: MemoryStore() for party in CLIENTS})):
        assert survivors == CLIENTS
        assert total.tobytes() == sum(vector(party, index) for party in CLIENTS).tobytes()


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_client_that_misses_a_message_of_the_second_sum(step: int) -> None:
    """Steps of the second sum: shares, unmask request with the next rosters, survivors' proof."""
    found = run(
        {party: MemoryStore() for party in CLIENTS}, lost=lambda party, index, at: (party, index, at) == (4, 1, step)
    )
    missing = [set(CLIENTS) - set(survivors) for _, survivors in found]
    assert missing == [set(), {4} if step == 0 else set(), {4} if step < 2 else set()]
    for index, (total, survivors) in enumerate(found):
        assert total.tobytes() == sum(vector(party, index) for party in survivors).tobytes()


def test_a_record_is_its_owner_s_and_its_series() -> None:
    store = MemoryStore()
    session(store, 1, 0).start()
    other = replace(SERIES, series_id=bytes(range(16)))
    record = store.record or b""
    changed = record[:-1] + bytes([record[-1] ^ 1])
    for series, party, content, key in (
        (SERIES, 1, record, b"x" * 32),
        (SERIES, 2, record, bytes([1]) * 32),
        (other, 1, record, bytes([1]) * 32),
        (SERIES, 1, changed, bytes([1]) * 32),
    ):
        with pytest.raises(SnapshotError):
            DurableClient(MemoryStore(content), key, member(party, 0, series))
    single = SERIES.sum(0, LAYOUTS[0], b"model 0").client(1, vector(1, 0), secrets=knows(KEYS[1]))
    with pytest.raises(SnapshotError):
        DurableClient(MemoryStore(record), bytes([1]) * 32, single)


def test_a_snapshot_leads_to_this_sum_or_the_next() -> None:
    client = member(1, 0)
    first = client.start()
    stored = client.snapshot()
    with pytest.raises(LocalProtocolError, match="begins a session once"):
        restored(1, stored, 0).start()
    with pytest.raises(SnapshotError, match="it does not lead to sum 2"):
        restored(1, stored, 2)
    with pytest.raises(SnapshotError, match="changed bytes"):
        restored(1, stored[:-1], 0)
    with pytest.raises(LocalProtocolError, match="has begun; restore a fresh one"):
        client.restore(stored)
    assert first is not None
    assert first[5] == MessageType.BUNDLE


@pytest.mark.parametrize(("layout", "context"), [(LAYOUTS[0], b"another model"), (LAYOUTS[1], b"model 0")])
def test_a_snapshot_does_not_go_on_in_a_sum_of_another_layout_or_context(layout: Layout, context: bytes) -> None:
    client = member(1, 0)
    client.start()
    other = SERIES.member(1, 0, layout, context, np.zeros(layout.size, dtype=np.int64), secrets=knows(KEYS[1]))
    with pytest.raises(SnapshotError, match="another layout or context"):
        other.restore(client.snapshot())
    assert other.start(), "what was refused changed nothing"


class Rows:
    """A client's rows, which can be seen to be forgotten."""

    def __call__(self) -> IntVector:
        return vector(1, 0)


def test_a_client_that_sent_its_vector_forgets_it_also_in_a_session_that_was_restored() -> None:
    """The first sum up to the masked vectors; the last message that the client gets is the one with its shares."""
    rows = Rows()
    first, again = (SERIES.member(1, 0, LAYOUTS[0], b"model 0", rows, secrets=knows(KEYS[1])) for _ in range(2))
    clients = {party: member(party, 0) for party in CLIENTS} | {1: first}
    server = SERIES.server(secrets=knows(SERVER_KEY)).begin_sum(LAYOUTS[0], b"model 0")
    for party, client in clients.items():
        server.receive(party, client.start() or b"")
    for _ in range(2):
        for party, request in server.close_round().items():
            server.receive(party, clients[party].receive(request) or b"")
    again.restore(clients[1].snapshot())
    kept = weakref.ref(rows)
    del rows
    gc.collect()
    assert kept() is None


def test_a_later_sum_does_not_begin_as_the_first() -> None:
    """Without the session of the sum before it would set itself up anew under the first sum's session id."""
    late = member(1, 1)
    for refused in (late.start, late.snapshot, lambda: late.receive(b"")):
        with pytest.raises(LocalProtocolError, match="sum 1 of this series follows one that is not here"):
            refused()


def test_a_client_that_was_not_set_up_sends_no_vector() -> None:
    """Restored for a sum whose set-up it missed, it refuses instead of masking with keys that nobody knows."""
    client = member(1, 0)
    client.start()
    late = restored(1, client.snapshot(), 1)

    def said(type_: MessageType, payload: bytes, digest: bytes) -> bytes:
        return seal_frame(type_, payload, digest=digest, sender=0, recipient=1, identity=SERVER_KEY)

    delivery = said(MessageType.SHARE_DELIVERY, bytes(4), SERIES.sum(1, LAYOUTS[1], b"model 1").digest)
    message = said(MessageType.BUNDLE, write_bundle([delivery]), SERIES.digest)
    with pytest.raises(LocalProtocolError, match="takes no SHARE_DELIVERY"):
        late.receive(message)


def test_every_sum_is_exact_though_the_server_dies_after_every_round() -> None:
    for lost in (lambda party, index, at: False, lambda party, index, at: (party, index, at) == (4, 1, 1)):
        stored, fresh = (
            run({party: MemoryStore() for party in CLIENTS}, lost, server_dies=dies) for dies in (True, False)
        )
        for index, ((total, survivors), (_, expected)) in enumerate(zip(stored, fresh, strict=True)):
            assert survivors == expected
            assert total.tobytes() == sum(vector(party, index) for party in survivors).tobytes()


def test_a_server_s_snapshot_is_one_sum_s() -> None:
    running = SERIES.server(secrets=knows(SERVER_KEY)).begin_sum(LAYOUTS[0], b"model 0")
    stored, other = running.snapshot(), SERIES.server(secrets=knows(SERVER_KEY))
    assert running.snapshot_id != other.resume_sum(1, LAYOUTS[1], b"model 1").snapshot_id
    with pytest.raises(SnapshotError, match="changed bytes"):
        other.resume_sum(0, LAYOUTS[0], b"model 0").restore(stored[:-1])
