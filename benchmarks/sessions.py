"""g, h. Whole sessions: from ten clients to ten thousand, each in a process of its own, and of every mode."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from analytic.statistics import Statistics, StatisticsSpec
from analytic_secagg.modes import MODES
from benchmarks.learning import FORMAT, N_CLASSES
from benchmarks.measure import Goal, Row, Section, Settings, Spread, in_own_process, one_thread, spaced
from secagg import (
    Assumptions,
    CommitteeSum,
    InMemoryRun,
    IntVector,
    Layout,
    MaskedSum,
    SumProtocol,
    new_session_id,
    run_in_memory,
)
from secagg.dp import DistributedNoise, NoisySum
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.in_memory import Parties
from simulations.compare.memory import peak_rss_bytes

ROWS_A_CLIENT, ROOM = 20, 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """A cohort's public shape and its clients' vectors, each made when it is asked for.

    A vector is the statistics of a few rows, made once, plus a small number that differs between clients; the
    total is known beforehand.
    """

    n_clients: int
    layout: Layout
    shared: IntVector

    @classmethod
    def of(cls, n_clients: int, n_features: int) -> Cohort:
        """A cohort of this size."""
        spec = StatisticsSpec(
            n_features=n_features, n_targets=N_CLASSES, feature_format=FORMAT, max_rows=ROOM * n_clients
        )
        rng = np.random.default_rng(n_features)
        features = rng.random((ROWS_A_CLIENT, n_features), dtype=np.float32)
        statistics_ = Statistics.from_rows(spec, features, rng.integers(0, N_CLASSES, ROWS_A_CLIENT))
        return cls(n_clients=n_clients, layout=Layout.of(spec.segments), shared=spec.to_vector(statistics_))

    @property
    def clients(self) -> tuple[int, ...]:
        """1 to n."""
        return tuple(range(1, self.n_clients + 1))

    @property
    def contributions(self) -> dict[int, Callable[[], IntVector]]:
        """A call a client."""
        return {party: partial(self._vector, party) for party in self.clients}

    @property
    def total(self) -> IntVector:
        """What the sum must be."""
        return self.n_clients * self.shared + sum(party % 7 for party in self.clients)

    def _vector(self, party: int) -> IntVector:
        return self.shared + party % 7


def masked(cohort: Cohort) -> SumProtocol:
    """A masked sum on the sparsest graph for a tenth of corrupt clients and three tenths of dropouts."""
    return MaskedSum.planned(
        layout=cohort.layout,
        clients=cohort.clients,
        session_id=new_session_id(),
        assumptions=Assumptions(),
        graph_seed=bytes(16),
    )


def committee(cohort: Cohort, *, helpers: int = 2, corrupt: int = 1) -> Parties:
    """A committee, of which so many helpers may be corrupt."""
    return CommitteeSum.generate(
        layout=cohort.layout,
        clients=cohort.clients,
        session_id=new_session_id(),
        n_helpers=helpers,
        corrupt_helpers=corrupt,
    )


SESSIONS: dict[str, Callable[[Cohort], Parties]] = {
    "masked": masked,
    "committee": committee,
    "committee, 1 of 4": partial(committee, helpers=4, corrupt=1),
    "committee, 2 of 7": partial(committee, helpers=7, corrupt=2),
}


def measure_session(mode: str, n_clients: int, n_features: int) -> dict[str, float]:
    """Seconds, bytes and peak memory of one session; its total is checked."""
    cohort = Cohort.of(n_clients, n_features)
    contributions = cohort.contributions
    started, cpu_started = time.perf_counter(), time.process_time()
    run = run_in_memory(SESSIONS[mode](cohort), contributions)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    assert run.result.total.tobytes() == cohort.total.tobytes()
    return {
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "server_seconds": run.server_seconds,
        "client_seconds": statistics.median(run.traffic[party].seconds for party in cohort.clients),
        "bytes_up": statistics.median(run.traffic[party].bytes_up for party in cohort.clients),
        "peak_bytes": peak_rss_bytes() or float("nan"),
        "vector_bytes": cohort.shared.nbytes,
    }


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=tuple(SESSIONS))
    parser.add_argument("n_clients", type=int)
    parser.add_argument("n_features", type=int)
    arguments = parser.parse_args()
    with one_thread():
        print(json.dumps(measure_session(arguments.mode, arguments.n_clients, arguments.n_features)))


Measured = Mapping[str, float]
Curve = np.ndarray[tuple[int], np.dtype[np.float64]]

MINUTES_FOR_1000 = 2.0
REPEATED_UP_TO = 100
"""Sessions of more clients run once: they are long, and their sums over clients are averages already."""
SPARSE_FROM = 100
"""Below, the graph is (nearly) complete and a client's work grows with the cohort."""
KEPT_VECTORS = Goal(limit=0.5)
GROWTH = Goal(limit=1.5)
"""The exponent of n log n is 1.2 between 100 and 10 000 clients, that of n^2 is 2."""


def by_cohort_size(settings: Settings) -> Iterator[Row]:
    """Each mode from small to large, then how its time and memory grow."""
    sizes = settings.choose(full=(10, 100, 1000, 10_000), quick=(10, 30, 100))
    n_features = settings.choose(full=512, quick=64)
    for mode in SESSIONS:
        found: dict[int, list[Measured]] = {}
        for n_clients in sizes:
            repeats = settings.runs if n_clients <= REPEATED_UP_TO else 1
            found[n_clients] = [_in_own_process(mode, n_clients, n_features) for _ in range(repeats)]
            yield _row(mode, n_clients, found[n_clients])
        yield _growth(mode, {n: _median(runs, "cpu_seconds") for n, runs in found.items()})
        yield _memory(mode, found)


def _in_own_process(mode: str, n_clients: int, n_features: int) -> Measured:
    what = f"{n_clients} clients ({mode})"
    return in_own_process("benchmarks.sessions", mode, n_clients, n_features, what=what)


def _row(mode: str, n_clients: int, runs: Sequence[Measured]) -> Row:
    columns = {
        "wall, s": "wall_seconds",
        "CPU, s": "cpu_seconds",
        "server, s": "server_seconds",
        "a client, s": "client_seconds",
    }
    wall = Spread.of([run["wall_seconds"] for run in runs])
    timed = n_clients == 1000
    return Row(
        case=f"{mode}, {spaced(n_clients)} clients",
        figures={
            **{column: Spread.of([run[key] for run in runs]) for column, key in columns.items()},
            "a client up, bytes": int(_median(runs, "bytes_up")),
            "peak of the process, MiB": _median(runs, "peak_bytes") / 2**20,
        },
        ratio=Spread.of([wall.median / (60 * MINUTES_FOR_1000)]) if timed else None,
        goal=Goal(limit=1.0) if timed else None,
    )


def _growth(mode: str, seconds: Mapping[int, float]) -> Row:
    """The exponent p of a n^p, and how far the seconds lie from the nearest a n log n and a n^2."""
    sizes = [n for n in seconds if n >= SPARSE_FROM] if max(seconds) > SPARSE_FROM else list(seconds)
    n, measured = np.array(sizes, dtype=np.float64), np.array([seconds[size] for size in sizes])
    exponent = float(np.polyfit(np.log(n), np.log(measured), 1)[0])
    steps = "; ".join(f"x {b / a:.3g} clients: x {seconds[b] / seconds[a]:.3g}" for a, b in pairwise(seconds))
    return Row(
        case=f"{mode}, CPU seconds: {steps}; exponent from {sizes[0]} clients on",
        figures={"misfit of n log n": _misfit(measured, n * np.log(n)), "misfit of n^2": _misfit(measured, n**2)},
        ratio=Spread.of([exponent]),
        goal=GROWTH,
    )


def _misfit(measured: Curve, shape: Curve) -> float:
    """Standard deviation of what the best factor leaves over, in logarithms: 0.1 is about a tenth."""
    return float(np.std(np.log(measured / shape)))


def _memory(mode: str, found: Mapping[int, Sequence[Measured]]) -> Row:
    """What one more client adds to the peak: keys and shares of all parties, but no vector."""
    small, large = min(found), max(found)
    extra = _median(found[large], "peak_bytes") - _median(found[small], "peak_bytes")
    a_client = extra / (large - small)
    return Row(
        case=f"{mode}, growth of the peak from {small} to {spaced(large)} clients, in vectors a client",
        figures={"a client more, KiB": a_client / 2**10},
        ratio=Spread.of([a_client / _median(found[large], "vector_bytes")]),
        goal=KEPT_VECTORS,
    )


def _median(runs: Sequence[Measured], key: str) -> float:
    return statistics.median(run[key] for run in runs)


BY_COHORT_SIZE = Section(
    letter="g",
    title="Whole sessions by cohort size",
    method=(
        "All clients and the server in one process, 512 features and 10 classes; a client makes its vector when it "
        "masks it. masked: the sparsest graph for a tenth corrupt and three tenths of dropouts; committee: two "
        "helpers of whom one may be corrupt, or as named. Every total is checked. Sessions up to "
        f"{REPEATED_UP_TO} clients are repeated, larger ones run once. The ratio of 1 000 clients is to "
        f"{MINUTES_FOR_1000:g} minutes on the clock. A process that kept vectors would grow by one vector a client; "
        "what grows is the secrets, shares and messages of all parties, which a simulation holds together. Growth: the "
        "exponent of n."
    ),
    run=by_cohort_size,
)


N_CLIENTS = 10
NOISE_VARIANCE = 2**32
"""In squared units of the statistics: what noise costs hardly depends on its size."""


def by_mode(settings: Settings) -> Iterator[Row]:
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
        yield _costs(name, cohort, found)
    for mode in MODES.values():
        if not mode.installed:
            yield Row(case=mode.name, figures={"a client, s": f"pip install '.[{mode.extra}]'"})


def _mode(name: str, cohort: Cohort) -> Parties:
    return MODES[name].in_one_process(layout=cohort.layout, clients=cohort.clients, session_id=new_session_id())


def with_noise(cohort: Cohort) -> SumProtocol:
    """Masked sums to which each client adds its share of discrete Gaussian noise."""
    total = CoordinateNoise(levels=np.ones(cohort.layout.size, dtype=np.uint8), variances=(NOISE_VARIANCE,))
    noise = DistributedNoise(total=total, min_noise_shares=2 * cohort.n_clients // 3)
    room = with_headroom(cohort.layout, cohort.n_clients, noise)
    masked = MaskedSum(layout=room, clients=cohort.clients, session_id=new_session_id())
    return NoisySum(protocol=masked, layout=cohort.layout, noise=noise)


def _costs(name: str, cohort: Cohort, runs: list[InMemoryRun]) -> Row:
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


BY_MODE = Section(
    letter="h",
    title="What each mode costs",
    method=(
        f"The same statistics of {N_CLIENTS} clients, 512 features and 10 classes, one session of every mode a round, "
        "seconds on the clock of one thread. Every total but the noisy one is checked to be the same integers. "
        "Helpers: all helpers of the committee together, or the key holder; making their keys is not counted."
    ),
    run=by_mode,
)


if __name__ == "__main__":
    main()
