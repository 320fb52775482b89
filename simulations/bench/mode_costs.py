"""h. What each mode costs client, server and wire for the same statistics."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from federation.modes import MODES
from secagg import InMemoryRun, MaskedSum, SumProtocol, new_session_id, run_in_memory
from secagg.dp import CoordinateNoise, DistributedNoise, NoisySum, make_room
from secagg.in_memory import Parties
from simulations.bench.cohort_process import Cohort
from simulations.bench.measure import Row, Section, Settings, Spread

N_CLIENTS = 10
NOISE_VARIANCE = 2**32
"""In squared units of the statistics: what noise costs hardly depends on its size."""


def measure(settings: Settings) -> Iterator[Row]:
    """One session of every mode a round, so that a noisy machine disturbs all of them alike."""
    cohort = Cohort.of(N_CLIENTS, settings.choose(full=512, quick=64))
    make: dict[str, Callable[[Cohort], Parties]] = {
        mode.name: partial(_mode, mode.name) for mode in MODES.values() if mode.installed
    }
    make["masked, with noise for differential privacy"] = with_noise
    runs: dict[str, list[InMemoryRun]] = {name: [] for name in make}
    for _ in range(settings.runs):
        for name, protocol in make.items():
            runs[name].append(run_in_memory(protocol(cohort), cohort.contributions))
    exact = cohort.total.tobytes()
    for name, found in runs.items():
        assert "noise" in name or all(run.result.total.tobytes() == exact for run in found)
        yield _row(name, cohort, found)
    for mode in MODES.values():
        if not mode.installed:
            yield Row(case=mode.name, figures={"a client, s": f"pip install 'analytic-secagg[{mode.extra}]'"})


def _mode(name: str, cohort: Cohort) -> Parties:
    return MODES[name].in_one_process(layout=cohort.layout, clients=cohort.clients, session_id=new_session_id())


def with_noise(cohort: Cohort) -> SumProtocol:
    """Masked sums to which each client adds its share of discrete Gaussian noise."""
    total = CoordinateNoise(levels=np.ones(cohort.layout.size, dtype=np.uint8), variances=(NOISE_VARIANCE,))
    noise = DistributedNoise(total=total, promised_survivors=2 * cohort.n_clients // 3)
    room = make_room(cohort.layout, cohort.n_clients, noise)
    masked = MaskedSum(layout=room, clients=cohort.clients, session_id=new_session_id())
    return NoisySum(protocol=masked, layout=cohort.layout, noise=noise)


def _row(name: str, cohort: Cohort, runs: list[InMemoryRun]) -> Row:
    clients = set(cohort.clients)

    def a_client(run: InMemoryRun) -> float:
        return statistics.median(run.traffic[party].seconds for party in clients)

    def helpers(run: InMemoryRun) -> float:
        return sum(traffic.seconds for party, traffic in run.traffic.items() if party not in clients)

    last = runs[-1].traffic[cohort.clients[0]]
    return Row(
        case=name,
        figures={
            "a client, s": Spread.of([a_client(run) for run in runs]),
            "server, s": Spread.of([run.server_seconds for run in runs]),
            "helpers, s": Spread.of([helpers(run) for run in runs]),
            "a client up, bytes": last.bytes_up,
            "a client down, bytes": last.bytes_down,
        },
    )


SECTION = Section(
    letter="h",
    title="What each mode costs",
    method=(
        f"The same statistics of {N_CLIENTS} clients, 512 features and 10 classes, one session of every mode a round, "
        "seconds on the clock of one thread. Every total but the noisy one is checked to be the same integers. "
        "Helpers: all helpers of the committee together, or the key holder; making their keys is not counted."
    ),
    run=measure,
)
