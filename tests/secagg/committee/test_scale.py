"""What a server and a helper of a committee hold for each client of a large cohort: no vector, and little else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.parties import signed

from secagg import CommitteeSum, InOneProcess, Layout
from secagg.committee import parts
from secagg.primitives.mask_stream import Keystreams
from secagg.ring import RingVector
from secagg.sums import CLIENT_ROLE

LAYOUT = Layout.of([("sum", 6_000, 2**38)])
"""A vector of 30 kB, six times all that a client sends beside it."""


@contextmanager
def peak() -> Iterator[Callable[[], int]]:
    """The most bytes that were allocated within the block, beside those before it."""
    tracemalloc.start()
    most = list[int]()
    yield lambda: most[0]
    most.append(tracemalloc.get_traced_memory()[1])
    tracemalloc.stop()


def sizes(n: int) -> dict[str, int]:
    """Of one sum of n clients whose uploads come one by one and are dropped: peaks, and what is stored, in bytes."""
    clients, vector = tuple(range(1, n + 1)), np.ones(LAYOUT.size, dtype=np.int64)
    cohort = CommitteeSum.generate(
        layout=LAYOUT, clients=clients, session_id=bytes(16), n_helpers=4, corrupt_helpers=1, min_survivors=2
    )
    parties = signed(cohort)
    found = {"beside a vector": parties.protocol.costs[CLIENT_ROLE].bytes_up - LAYOUT.wire_bytes}
    server, helpers = parties.server(), {helper: parties.helper(helper) for helper in parties.helpers}
    with peak() as used:
        for client in clients:
            server.receive(client, parties.client(client, vector).start() or b"")
    found["server, uploads"] = used()
    with peak() as used:
        requests = server.close_round()
    found["server, passing boxes on"] = used()
    while requests:
        found["server, then"] = len(server.snapshot())
        for helper, request in requests.items():
            with peak() as used:
                answer: Any = helpers[helper].receive(request)
            found["helper"] = max(used(), found.get("helper", 0))
            found["helper, then"] = len(helpers[helper].snapshot())
            server.receive(helper, answer)
        with peak() as used:
            requests = server.close_round()
        found["server, later"] = max(used(), found.get("server, later", 0))
    assert server.result is not None
    assert server.result.survivors == clients
    return found


@pytest.mark.parametrize(("few", "many"), [(32, 80), pytest.param(200, 2000, marks=pytest.mark.slow)])
def test_a_further_client_costs_server_and_helpers_no_vector(few: int, many: int) -> None:
    """From 32 clients on, which have a partial sum each. Boxes lie at the server until helpers have them, copied while
    they are passed on; then it holds a number and a hash of each client, and a helper seeds and a hash.
    """
    small, large = sizes(few), sizes(many)
    beside = small.pop("beside a vector")
    assert 5 * beside < LAYOUT.wire_bytes
    grows = {name: (large[name] - small[name]) / (many - few) for name in small}
    assert grows["server, uploads"] < 2 * beside
    assert grows["server, passing boxes on"] < 4 * beside
    assert grows["server, later"] < beside / 10
    assert grows["server, then"] == 8 + 8 + 32
    assert grows["helper"] < beside
    assert grows["helper, then"] == 8 + 8 + 3 * 32 + 16 + 8 + 8 + 32


def test_a_server_of_long_vectors_holds_three_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short of one that comes; where parts are put together, they are added into one of them."""
    monkeypatch.setattr(parts, "MEMORY_BYTES", 10 * 8 * LAYOUT.size)
    assert parts.PartialSums(LAYOUT, (1, 2)).n_parts == 10
    monkeypatch.setattr(parts, "MEMORY_BYTES", 0)
    clients, vector = tuple(range(1, 10)), np.ones(LAYOUT.size, dtype=np.int64)
    sums = parts.PartialSums(LAYOUT, clients)
    upload = RingVector.encode(LAYOUT, vector).to_bytes()
    with peak() as adding:
        for client in clients:
            sums.add(client, upload)
    with peak() as merging:
        sums.leave_out(sums.sharing([4]))
        whole = sums.merged()
    assert sum(map(len, sums.to_snapshot())) <= 3 * (LAYOUT.wire_bytes + 1) + 1
    assert adding() < 6 * 8 * LAYOUT.size  # three, and what reads one that comes
    assert merging() < 0.1 * 8 * LAYOUT.size
    assert whole.words.decode().tolist() == (6 * vector).tolist()
    assert sums.sharing([4]) == {1, 4, 7}


def after_uploads(parties: InOneProcess, vector: NDArray[np.int64], away: set[int]) -> tuple[int, int]:
    """Entries of mask streams that server and helpers make from the last upload to the total, and the rounds of it.

    Making masks is what their time goes to, and it can be counted where a time cannot be relied on.
    """
    server, helpers = parties.server(), {helper: parties.helper(helper) for helper in parties.helpers}
    for client in parties.clients:
        server.receive(client, parties.client(client, vector).start() or b"")
    made, rounds, add_to = 0, 0, Keystreams.add_to

    def counted(streams: Keystreams, parts: Any, *, is_last: bool) -> None:
        nonlocal made
        made += sum(map(len, parts)) * len(streams._keys)
        add_to(streams, parts, is_last=is_last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Keystreams, "add_to", counted)
        while server.result is None:
            rounds += 1
            for helper, request in server.close_round().items():
                if helper not in away and (answer := helpers[helper].receive(request)) is not None:
                    server.receive(helper, answer)
    assert server.result.total.tolist() == (len(parties.clients) * vector).tolist()
    return made, rounds


def test_one_helper_away_costs_no_more_than_none_away_and_at_most_a_round() -> None:
    layout, clients = Layout.of([("sum", 200, 2**38)]), tuple(range(1, 41))
    found = []
    for n_away in (0, 1):
        cohort = CommitteeSum.generate(
            layout=layout, clients=clients, session_id=bytes(16), n_helpers=4, corrupt_helpers=1, min_survivors=2
        )
        parties = signed(cohort)
        found.append(after_uploads(parties, np.ones(layout.size, dtype=np.int64), set(parties.helpers[:n_away])))
    (whole, rounds), (lacking, more) = found
    assert rounds <= more <= rounds + 1
    assert 0 < lacking <= whole
