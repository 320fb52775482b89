"""One whole session in a process of its own, so that its peak memory is its own: prints one line of JSON."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from analytic.row_format import RowFormat
from analytic.statistics import Statistics, StatisticsSpec
from secagg import Assumptions, CommitteeSum, IntVector, Layout, MaskedSum, SumProtocol, new_session_id, run_in_memory
from secagg.in_memory import Parties
from simulations.bench.machine import one_thread
from simulations.compare.memory import peak_rss_bytes

N_CLASSES, ROWS_A_CLIENT, ROOM = 10, 20, 32
FORMAT = RowFormat(integer_bits=5, fraction_bits=11, signed=False)


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


def committee(cohort: Cohort) -> Parties:
    """A committee of two helpers."""
    return CommitteeSum.generate(layout=cohort.layout, clients=cohort.clients, session_id=new_session_id())


MODES: dict[str, Callable[[Cohort], Parties]] = {"masked": masked, "committee": committee}


def measure(mode: str, n_clients: int, n_features: int) -> dict[str, float]:
    """Seconds, bytes and peak memory of one session; its total is checked."""
    cohort = Cohort.of(n_clients, n_features)
    contributions = cohort.contributions
    started, cpu_started = time.perf_counter(), time.process_time()
    run = run_in_memory(MODES[mode](cohort), contributions)
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    assert run.result.total.tobytes() == cohort.total.tobytes()
    return {
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "server_seconds": run.server_seconds,
        "client_seconds": statistics.median(run.traffic[party].seconds for party in cohort.clients),
        "bytes_up": statistics.median(run.traffic[party].bytes_up for party in cohort.clients),
        "peak_bytes": peak_rss_bytes(),
        "vector_bytes": cohort.shared.nbytes,
    }


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=tuple(MODES))
    parser.add_argument("n_clients", type=int)
    parser.add_argument("n_features", type=int)
    arguments = parser.parse_args()
    with one_thread():
        print(json.dumps(measure(arguments.mode, arguments.n_clients, arguments.n_features)))


if __name__ == "__main__":
    main()
