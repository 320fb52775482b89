"""d. Exact statistics of rows, beside one float64 product of the same size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import blas

from analytic.row_format import RowFormat
from analytic.statistics import BLOCK_ROWS, Statistics, StatisticsSpec
from simulations.bench.measure import Spread, alternate, cpu_seconds, quotient
from simulations.bench.rows import Goal, Row, Section, spaced
from simulations.bench.settings import Settings

N_CLASSES = 10
FORMAT = RowFormat(integer_bits=5, fraction_bits=11, signed=False)
GOAL = Goal(limit=1.1)


def measure(settings: Settings) -> Iterator[Row]:
    """Two rows a width: against half a product and against the whole one."""
    n_rows = settings.choose(full=60_000, quick=6_000)
    for d in settings.choose(full=(512, 1024), quick=(256,)):
        yield from _width(settings, n_rows, d)


def _width(settings: Settings, n_rows: int, d: int) -> Iterator[Row]:
    rng = np.random.default_rng(d)
    features = rng.random((n_rows, d), dtype=np.float32)
    labels = rng.integers(0, N_CLASSES, n_rows)
    spec = StatisticsSpec(n_features=d, n_targets=N_CLASSES, feature_format=FORMAT, max_rows=n_rows)
    units = FORMAT.quantise(features)
    _check(Statistics.from_rows(spec, features, labels), units)
    block = np.empty((BLOCK_ROWS, d))
    starts = range(0, n_rows, BLOCK_ROWS)

    def quantise() -> None:
        for start in starts:
            rows = features[start : start + BLOCK_ROWS]
            FORMAT.quantise(rows, out=block[: len(rows)])

    seconds = alternate(
        {
            "dsyrk": cpu_seconds(lambda: blas.dsyrk(1.0, units.T)),
            "ours": cpu_seconds(lambda: Statistics.from_rows(spec, features, labels)),
            "dgemm": cpu_seconds(lambda: blas.dgemm(1.0, units.T, units.T, trans_b=True)),
            "quantise": cpu_seconds(quantise),
        },
        runs=settings.runs,
    )
    for floor, goal in (("dsyrk", GOAL), ("dgemm", None)):
        yield Row(
            case=f"{spaced(n_rows)} x {d} rows against {floor}",
            figures={
                f"{floor}, CPU s": Spread.of(seconds[floor]),
                "ours, CPU s": Spread.of(seconds["ours"]),
                "of it quantising, CPU s": Spread.of(seconds["quantise"]),
            },
            ratio=quotient(seconds["ours"], seconds[floor]),
            goal=goal,
        )


def _check(statistics: Statistics, units: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    """So few rows of 16 bits are exact in float64 too: what is timed must be the same integers."""
    expected = np.triu(blas.dsyrk(1.0, units.T)).astype(np.int64)
    assert np.triu(statistics.gram).tobytes() == expected.tobytes()


SECTION = Section(
    letter="d",
    title="Exact statistics against a float64 product",
    method=(
        "Floor: one `dsyrk` (half the work) or `dgemm` (all of it) of rows that are float64 already. Ours: "
        "`Statistics.from_rows` of float32 rows with labels, that is quantising to 16 bits, Gram, cross-correlation "
        "and count; the integers are compared before anything is timed."
    ),
    run=measure,
)
