"""c. What one client sends and receives, beside the bytes that its vector's bounds take."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

import numpy as np

from secagg import Assumptions, MaskedSum, run_in_memory
from secagg.sums import CLIENT_ROLE
from simulations.bench.measure import Goal, Row, Section, Settings, Spread
from simulations.command_line.example_layout import layout_of_statistics, planned_sum

FACTOR, BYTES_A_NEIGHBOUR = 1.02, 2048
GOAL = Goal(limit=1.0)


def measure(settings: Settings) -> Iterator[Row]:
    """Runs of real sessions, then larger cohorts from the message formats."""
    features = settings.choose(full=512, quick=48)
    for n_clients in settings.choose(full=(11, 33), quick=(11,)):
        layout = layout_of_statistics(n_clients, n_features=features)
        protocol = MaskedSum(layout=layout, clients=tuple(range(1, n_clients + 1)), session_id=bytes(16))
        zeros = np.zeros(protocol.layout.size, dtype=np.int64)
        run = run_in_memory(protocol, dict.fromkeys(protocol.clients, zeros))
        traffic = run.traffic[1]
        yield _row(f"{n_clients} clients, a real run", protocol, traffic.bytes_up, traffic.bytes_down)
    for n_clients in (100, 1000, 10_000):
        for malicious in (False, True):
            planned = planned_sum(n_clients, Assumptions(malicious_server=malicious), n_features=features)
            cost = planned.costs[CLIENT_ROLE]
            server = "malicious" if malicious else "semi-honest"
            yield _row(f"{n_clients} clients, {server} server", planned, cost.bytes_up, cost.bytes_down)


def _row(case: str, protocol: MaskedSum, bytes_up: int, bytes_down: int) -> Row:
    bound = sum(ceil(segment.bits / 8) * segment.size for segment in protocol.layout.segments)
    neighbours = len(protocol.neighbours(1))
    allowed = FACTOR * bound + BYTES_A_NEIGHBOUR * neighbours
    return Row(
        case=case,
        figures={
            "neighbours": neighbours,
            "vector's bound, bytes": bound,
            "up, bytes": bytes_up,
            "down, bytes": bytes_down,
            "up / bound": bytes_up / bound,
        },
        ratio=Spread.of([(bytes_up + bytes_down) / allowed]),
        goal=GOAL,
    )


SECTION = Section(
    letter="c",
    title="Bytes on the wire",
    method=(
        "The bound is ceil(bits / 8) bytes an entry, bits from the bound of the sum. The ratio sets all that a client "
        f"sends and receives against {FACTOR} x bound + {BYTES_A_NEIGHBOUR // 1024} KiB per neighbour."
    ),
    run=measure,
)
