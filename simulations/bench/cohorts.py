"""g. Whole sessions from ten clients to ten thousand, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from federation.errors import FederationError
from simulations.bench.cohort_process import MODES
from simulations.bench.measure import Goal, Row, Section, Settings, Spread, spaced

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


def measure(settings: Settings) -> Iterator[Row]:
    """Each mode from small to large, then how its time and memory grow."""
    sizes = settings.choose(full=(10, 100, 1000, 10_000), quick=(10, 30, 100))
    n_features = settings.choose(full=512, quick=64)
    for mode in MODES:
        found: dict[int, list[Measured]] = {}
        for n_clients in sizes:
            repeats = settings.runs if n_clients <= REPEATED_UP_TO else 1
            found[n_clients] = [_in_own_process(mode, n_clients, n_features) for _ in range(repeats)]
            yield _row(mode, n_clients, found[n_clients])
        yield _growth(mode, {n: _median(runs, "cpu_seconds") for n, runs in found.items()})
        yield _memory(mode, found)


def _in_own_process(mode: str, n_clients: int, n_features: int) -> Measured:
    done = subprocess.run(  # noqa: S603  (this interpreter and this package)
        [sys.executable, "-m", "simulations.bench.cohort_process", mode, str(n_clients), str(n_features)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "it was killed, perhaps for memory").splitlines()[-1]
        raise FederationError(f"the session of {n_clients} clients ({mode}) did not come to its end: {reason}")
    measured: Measured = json.loads(done.stdout)
    return measured


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
    return float(np.median([run[key] for run in runs]))


SECTION = Section(
    letter="g",
    title="Whole sessions by cohort size",
    method=(
        "All clients and the server in one process, 512 features and 10 classes; a client makes its vector when it "
        "masks it. masked: the sparsest graph for a tenth corrupt and three tenths of dropouts; committee: two "
        "helpers. Every total is checked. Sessions up to "
        f"{REPEATED_UP_TO} clients are repeated, larger ones run once. The ratio of 1 000 clients is to "
        f"{MINUTES_FOR_1000:g} minutes on the clock. A process that kept vectors would grow by one vector a client; "
        "what grows is the secrets, shares and messages of all parties, which a simulation holds together. Growth: the "
        "exponent of n."
    ),
    run=measure,
)
