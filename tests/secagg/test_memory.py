"""Memory of each party of a sum of long vectors, in packed vectors: what a vector takes on the wire.

Ten megabytes stand for the hundreds that a wide learner's statistics take. All that is allocated at once is counted;
``python -m benchmarks.memory`` measures whole processes.
"""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest
from support.memory_store import MemoryStore

from secagg import CommitteeSum, InOneProcess, Layout, MaskedSum, PlainSum, new_session_id
from secagg.durable import DurableClient, DurableServer

T = TypeVar("T")

LAYOUT = Layout.of([("gram", 1_000_000, 2**51), ("cross", 600_000, 2**33), ("count", 1, 2**62)])
"""Entries of seven, five and eight bytes, as of a Gram and its cross-correlation."""

CLIENTS = (1, 2, 3)
VECTOR = np.arange(LAYOUT.size, dtype=np.int64) % 1000
WORDS = sum(segment.size * segment.word.itemsize for segment in LAYOUT.segments) / LAYOUT.wire_bytes
"""The running sum, whose words are wider than entries on the wire."""
TOTAL = VECTOR.nbytes / LAYOUT.wire_bytes
PIECES = 0.25
"""Pieces of 256 KiB, and what a message that is being written has in reserve: an eighth."""


def measured(peaks: dict[str, float], role: str, work: Callable[[], T]) -> T:
    """Do some work; note what it allocated at once, in packed vectors, where that is the most of this role."""
    tracemalloc.start()
    try:
        return work()
    finally:
        peaks[role] = max(peaks[role], tracemalloc.get_traced_memory()[1] / LAYOUT.wire_bytes)
        tracemalloc.stop()


def peaks_of(parties: InOneProcess, *, stored: bool) -> dict[str, float]:
    """Play a sum; return the peaks of its roles."""
    machines: dict[int, Any] = {party: parties.client(party, VECTOR) for party in CLIENTS}
    machines |= {party: parties.helper(party) for party in parties.helpers}
    server: Any = parties.server()
    if stored:
        machines = {party: DurableClient(MemoryStore(), bytes(32), machine) for party, machine in machines.items()}
        server = DurableServer(MemoryStore(), server, each_message=False)
    role_of = {party: "client" if party in CLIENTS else "helper" for party in machines}
    peaks = defaultdict[str, float](float)

    def said(party: int, message: bytes | None) -> None:
        if message is not None:
            measured(peaks, "receive", lambda: server.receive(party, message))

    for party, machine in machines.items():
        said(party, measured(peaks, role_of[party], machine.start))
    while asked := measured(peaks, "close", server.close_round):
        for party, request in asked.items():
            said(party, measured(peaks, role_of[party], lambda: machines[party].receive(request)))  # noqa: B023
    assert server.result.total.tobytes() == (len(CLIENTS) * VECTOR).tobytes()
    return dict(peaks)


def plain() -> InOneProcess:
    return InOneProcess(protocol=PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=new_session_id()), secrets={})


def masked() -> InOneProcess:
    return InOneProcess(protocol=MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=new_session_id()), secrets={})


def committee() -> InOneProcess:
    return CommitteeSum.generate(layout=LAYOUT, clients=CLIENTS, session_id=new_session_id(), n_helpers=2)


@pytest.mark.parametrize("mode", [plain, masked, committee])
def test_a_party_allocates_its_message_and_pieces(mode: Callable[[], InOneProcess]) -> None:
    """Beside its own integers a client makes a message, a helper likewise; the server adds one to its sum."""
    peaks = peaks_of(mode(), stored=False)
    assert peaks["client"] < 1 + PIECES
    assert peaks.get("helper", 0.0) < 1 + PIECES
    assert peaks["receive"] < (WORDS if mode is committee else 0) + PIECES  # a committee's server sums in parts
    assert peaks["close"] < TOTAL + WORDS + PIECES


@pytest.mark.parametrize("mode", [plain, masked, committee])
def test_a_stored_party_holds_one_copy_more(mode: Callable[[], InOneProcess]) -> None:
    """The record that goes to the store. A server's is put together from its snapshot, at last with the total in it."""
    peaks = peaks_of(mode(), stored=True)
    assert peaks["client"] < 2 + PIECES
    assert peaks.get("helper", 0.0) < 2 + PIECES
    assert peaks["receive"] < (WORDS if mode is committee else 0) + PIECES
    assert peaks["close"] < (TOTAL + WORDS) + 2 * (1 + TOTAL) * (1 + PIECES)
