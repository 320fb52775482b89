"""Memory of statistics, of the check of a total and of the certified solve, in matrices of d x d.

All that is allocated at once is counted, beside what was given; ``python -m benchmarks.memory`` measures processes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.row_format import RowFormat
from analytic.solve.certified import verified
from analytic.solve.minimum_norm import solve_ridge
from analytic.statistics import Statistics, StatisticsSpec
from analytic.total_check import is_semidefinite

T = TypeVar("T")

D, TARGETS, ROWS = 1024, 100, 1200


def peak(work: Callable[[], T]) -> tuple[float, T]:
    """Do some work; return what it allocated at once, in matrices, and what came of it."""
    tracemalloc.start()
    try:
        done = work()
        return tracemalloc.get_traced_memory()[1] / (8 * D**2), done
    finally:
        tracemalloc.stop()


def spec_of(d: int) -> StatisticsSpec:
    row_format = RowFormat(integer_bits=1, fraction_bits=14, signed=False)
    return StatisticsSpec(n_features=d, n_targets=TARGETS, feature_format=row_format, max_rows=ROWS)


def rows_of(d: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    return rng.random((ROWS, d), dtype=np.float32), rng.integers(0, TARGETS, ROWS)


def test_statistics_become_a_vector_beside_one_gram() -> None:
    """The Gram's sum is converted where it stands. A block of 1 024 rows and the cross-correlation come to it."""
    spec, rows = spec_of(D), rows_of(D)
    spec.to_vector(Statistics.from_rows(spec_of(D), *rows))  # caches fill once
    block, cross, triangle = 1024 / D, TARGETS / D, 0.5
    most, _ = peak(lambda: spec.to_vector(Statistics.from_rows(spec, *rows)))
    assert most < 1 + max(block + 3 * cross, triangle + 3 * cross) + 0.1


def test_a_total_is_checked_in_one_matrix_and_solved_in_six() -> None:
    spec, rows = spec_of(D), rows_of(D)
    total = Statistics.from_rows(spec, *rows)
    most, is_gram = peak(lambda: is_semidefinite(total.gram))
    assert is_gram
    assert most < 1.2
    most, solution = peak(lambda: solve_ridge(total.gram, total.cross, ridge=2.0**28))
    assert solution.certified
    assert most < 6


def test_a_matrix_that_float64_cannot_prove_is_restored() -> None:
    """The proof overwrites its matrix; what comes after a failure must see the same one, to the last bit."""
    rows = np.random.default_rng(1).integers(-3, 4, (40, 64)).astype(np.float64)
    singular = rows.T @ rows
    given = singular.copy()
    assert verified(given, 1.0) == 0.0
    assert given.tobytes() == singular.tobytes()
    assert verified(given + 64 * np.eye(64), 32.0) > 16
