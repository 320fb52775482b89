"""d, e, f. Exact statistics, counts and the deterministic solve, beside float64 products and LAPACK."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.linalg import blas, lapack

from analytic.counts import Counts, CountSpec
from analytic.row_format import RowFormat
from analytic.solve import solve_ridge
from analytic.statistics import BLOCK_ROWS, Statistics, StatisticsSpec
from benchmarks.measure import (
    Goal,
    Row,
    Section,
    Settings,
    Spread,
    alternate,
    compared,
    cpu_seconds,
    quotient,
    spaced,
)

N_CLASSES = 10
FORMAT = RowFormat(integer_bits=5, fraction_bits=11, signed=False)


CLIENTS = (
    (60_000, 512, 10, Goal(limit=1.15)),
    (60_000, 1024, 10, Goal(limit=1.15)),
    (200, 512, 10, Goal(limit=3.0)),
    (500, 2048, 10, Goal(limit=3.0)),
    (500, 2048, 1000, None),
    (25_600, 2048, 1000, None),
)
"""Rows, features and classes of a client, and the goal beside ``dsyrk``: many rows, few, the classes of ImageNet."""


def statistics(settings: Settings) -> Iterator[Row]:
    """Yield a row a client."""
    for n_rows, d, n_classes, goal in settings.choose(
        full=CLIENTS, quick=((6_000, 256, 10, None), (200, 512, 10, None))
    ):
        yield _of_client(settings, n_rows, d, n_classes, goal)


def _of_client(settings: Settings, n_rows: int, d: int, n_classes: int, goal: Goal | None) -> Row:
    rng = np.random.default_rng(d)
    features = rng.random((n_rows, d), dtype=np.float32)
    labels = rng.integers(0, n_classes, n_rows)
    spec = StatisticsSpec(n_features=d, n_targets=n_classes, feature_format=FORMAT, max_rows=n_rows)
    units = FORMAT.quantise(features)
    # So few rows of 16 bits are exact in float64 too: what is timed must be the same integers.
    expected = np.triu(blas.dsyrk(1.0, units.T)).astype(np.int64)
    assert np.triu(Statistics.from_rows(spec, features, labels).gram).tobytes() == expected.tobytes()
    block = np.empty((BLOCK_ROWS, d))

    def quantise() -> None:
        for start in range(0, n_rows, BLOCK_ROWS):
            rows = features[start : start + BLOCK_ROWS]
            FORMAT.quantise(rows, out=block[: len(rows)])

    seconds = alternate(
        {
            "dsyrk": cpu_seconds(lambda: blas.dsyrk(1.0, units.T)),
            "ours": cpu_seconds(lambda: Statistics.from_rows(spec, features, labels)),
            "of it quantising": cpu_seconds(quantise),
            "dgemm": cpu_seconds(lambda: blas.dgemm(1.0, units.T, units.T, trans_b=True)),
        },
        runs=settings.runs,
    )
    return Row(
        case=f"{spaced(n_rows)} x {d} rows of {n_classes} classes",
        figures={f"{name}, CPU s": Spread.of(values) for name, values in seconds.items()},
        ratio=quotient(seconds["ours"], seconds["dsyrk"]),
        goal=goal,
    )


def counts(settings: Settings) -> Iterator[Row]:
    """Yield groups of few and of many values."""
    n_rows, cells = settings.choose(full=(10_000, 2048), quick=(2_000, 512))
    for n_values in (4, 16, 64):
        yield _of_groups(settings, n_rows, cells // n_values, n_values)


def _of_groups(settings: Settings, n_rows: int, n_groups: int, n_values: int) -> Row:
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
    return compared(
        f"{spaced(n_rows)} rows, {n_groups} groups of {n_values} values",
        {
            "dense dsyrk, CPU s": cpu_seconds(lambda: blas.dsyrk(1.0, one_hot.T)),
            "ours, CPU s": cpu_seconds(lambda: Counts.from_blocks(spec, blocks)),
        },
        settings,
        ratio=("ours, CPU s", "dense dsyrk, CPU s"),
        goal=Goal(limit=1.0),
    )


SYSTEMS = (
    (512, 10, Goal(limit=10.0)),
    (1024, 10, Goal(limit=10.0)),
    (2048, 100, Goal(limit=6.0)),
    (2048, 1000, Goal(limit=12.0)),
    (4096, 10, Goal(limit=10.0)),
)
"""Features and targets of a system, and the goal beside ``dposv``."""


def solving(settings: Settings) -> Iterator[Row]:
    """Yield one row a size, and how the time grows from 1 024 to 4 096 features."""
    seconds = {}
    for d, n_targets, goal in settings.choose(full=SYSTEMS, quick=((256, 10, None),)):
        row = _of_size(settings, d, n_targets, goal)
        seconds[d] = row.figures["ours, CPU s"]
        yield row
    small, large = seconds.get(1024), seconds.get(4096)
    if isinstance(small, Spread) and isinstance(large, Spread):
        exponent = math.log(large.median / small.median, 4096 / 1024)
        case = "10 targets, exponent of the features from 1024 to 4096"
        yield Row(case=case, figures={}, ratio=Spread.of([exponent]), goal=Goal(limit=3.0))


def _of_size(settings: Settings, d: int, n_targets: int, goal: Goal | None) -> Row:
    rng = np.random.default_rng(d)
    rows = rng.integers(-(2**11), 2**11, (2 * d, d)).astype(np.float64)
    floats, goals = rows.T @ rows, np.eye(n_targets)[rng.integers(0, n_targets, 2 * d)]
    gram, cross = floats.astype(np.int64), (rows.T @ goals).astype(np.int64)
    factor_order, right = np.asfortranarray(floats), cross.astype(np.float64)  # as LAPACK wants it: no slow copy
    assert solve_ridge(gram, cross).certified
    return compared(
        f"{d} features, {n_targets} targets",
        {
            "dposv, CPU s": cpu_seconds(lambda: lapack.dposv(factor_order, right, lower=1)),
            "ours, CPU s": cpu_seconds(lambda: solve_ridge(gram, cross)),
        },
        settings,
        ratio=("ours, CPU s", "dposv, CPU s"),
        goal=goal,
    )


SECTIONS = (
    Section(
        letter="d",
        title="Exact statistics against a float64 product",
        method=(
            "Floor: one `dsyrk` of rows that are float64 already; `dgemm` is all of that product, not half. Ours: "
            "`Statistics.from_rows` of float32 rows with labels, that is quantising to 16 bits, Gram, "
            "cross-correlation and count; the integers are compared before anything is timed."
        ),
        run=statistics,
    ),
    Section(
        letter="e",
        title="SAFLe's counts against the dense product",
        method=(
            "Dense: one float64 `dsyrk` of the one-hot matrix, which stands ready. Ours: `Counts.from_blocks`, Gram, "
            "cross-correlation and count from indices; the integers are compared before anything is timed."
        ),
        run=counts,
    ),
    Section(
        letter="f",
        title="The solve against LAPACK",
        method=(
            "LAPACK: `dposv`, which rounds as its kernels do. Ours: `solve_ridge` of the same integers, where every "
            "entry is the exact solution rounded once, and certified. One BLAS thread on both sides."
        ),
        run=solving,
    ),
)
