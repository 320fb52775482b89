"""f. The deterministic solve, beside LAPACK's own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import lapack

from analytic.solve import solve_ridge
from simulations.bench.measure import Spread, alternate, cpu_seconds, quotient
from simulations.bench.rows import Goal, Row, Section
from simulations.bench.settings import Settings

GOAL = Goal(limit=1.2)


def measure(settings: Settings) -> Iterator[Row]:
    """One row a size."""
    for d, n_targets in settings.choose(full=((512, 10), (1024, 10), (2048, 100)), quick=((256, 10),)):
        yield _row(settings, d, n_targets)


def _row(settings: Settings, d: int, n_targets: int) -> Row:
    rng = np.random.default_rng(d)
    rows = rng.standard_normal((2 * d, d))
    gram, cross = rows.T @ rows, rng.standard_normal((d, n_targets))
    factor_order = np.asfortranarray(gram)  # as LAPACK wants it, so that its copy is as cheap as ours
    seconds = alternate(
        {
            "dposv": cpu_seconds(lambda: lapack.dposv(factor_order, cross, lower=1)),
            "ours": cpu_seconds(lambda: solve_ridge(gram, cross)),
        },
        runs=settings.runs,
    )
    return Row(
        case=f"{d} features, {n_targets} targets",
        figures={"dposv, CPU s": Spread.of(seconds["dposv"]), "ours, CPU s": Spread.of(seconds["ours"])},
        ratio=quotient(seconds["ours"], seconds["dposv"]),
        goal=GOAL,
    )


SECTION = Section(
    letter="f",
    title="The solve against LAPACK",
    method=(
        "LAPACK: `dposv`. Ours: `solve_ridge`, which also refuses NaN, copies into one memory order, estimates the "
        "condition number and falls back to the solution of minimum norm. One BLAS thread on both sides."
    ),
    run=measure,
)
