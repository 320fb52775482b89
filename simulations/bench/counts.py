"""e. SAFLe's count Gram, beside the product of the one-hot matrix that it never builds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import blas

from analytic.counts import Counts, CountSpec
from simulations.bench.measure import Spread, alternate, cpu_seconds, quotient
from simulations.bench.rows import Goal, Row, Section, spaced
from simulations.bench.settings import Settings

GOAL = Goal(limit=1.0)
N_CLASSES = 10


def measure(settings: Settings) -> Iterator[Row]:
    """Groups of few and of many values."""
    n_rows, cells = settings.choose(full=(10_000, 2048), quick=(2_000, 512))
    for n_values in (4, 16, 64):
        yield _row(settings, n_rows, cells // n_values, n_values)


def _row(settings: Settings, n_rows: int, n_groups: int, n_values: int) -> Row:
    rng = np.random.default_rng(n_values)
    indices = rng.integers(0, n_values, (n_rows, n_groups), dtype=np.uint16)
    labels = rng.integers(0, N_CLASSES, n_rows)
    spec = CountSpec(n_groups=n_groups, n_values=n_values, n_classes=N_CLASSES, max_rows=n_rows)
    one_hot = (indices[:, :, None] == np.arange(n_values)).reshape(n_rows, -1).astype(np.float64)
    blocks = [
        (indices[start : start + spec.block_rows], labels[start : start + spec.block_rows])
        for start in range(0, n_rows, spec.block_rows)
    ]
    expected = blas.dsyrk(1.0, one_hot.T)[np.triu_indices(spec.n_cells)].astype(np.int64)
    assert Counts.from_blocks(spec, blocks).vector[: len(expected)].tobytes() == expected.tobytes()
    seconds = alternate(
        {
            "dense": cpu_seconds(lambda: blas.dsyrk(1.0, one_hot.T)),
            "ours": cpu_seconds(lambda: Counts.from_blocks(spec, blocks)),
        },
        runs=settings.runs,
    )
    return Row(
        case=f"{spaced(n_rows)} rows, {n_groups} groups of {n_values} values",
        figures={"dense dsyrk, CPU s": Spread.of(seconds["dense"]), "ours, CPU s": Spread.of(seconds["ours"])},
        ratio=quotient(seconds["ours"], seconds["dense"]),
        goal=GOAL,
    )


SECTION = Section(
    letter="e",
    title="SAFLe's counts against the dense product",
    method=(
        "Dense: one float64 `dsyrk` of the one-hot matrix, which stands ready. Ours: `Counts.from_blocks`, Gram, "
        "cross-correlation and count from indices; the integers are compared before anything is timed."
    ),
    run=measure,
)
