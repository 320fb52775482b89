"""Totals that no rows can have: what a poisoned vector, or a key holder that decrypts something else, adds up to.

A total of real rows keeps every condition here, exactly, whoever holds them; nothing is estimated. What passes may
still be of rows that somebody made up. One condition is that every Gram is positive semidefinite, which float64 proves
or exact integers decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.solve.certified import (
    IndefiniteError,
    System,
    UndecidedError,
    inverses,
    one_blas_thread,
    proven,
    verified,
)
from analytic.solve.digits import Digits, FloatMatrix, digit_bits
from analytic.solve.minimum_norm import rank_guess
from analytic.tallies import IntVector, refuse_impossible

if TYPE_CHECKING:
    from analytic.statistics import Statistics, StatisticsSpec

IntMatrix = NDArray[np.int64]

EXACT_SIZE = 256
"""Up to here a matrix that float64 leaves open is decided in exact integers: below a second."""
LIFT = 2.0**-40
"""Addition to a diagonal near one, times d, so that a singular Gram has a Cholesky factor in float64."""
WITNESS_BITS = 40
"""Bits of the largest entry of a vector that is tried in exact integers."""


def check_statistics(total: Statistics, spec: StatisticsSpec) -> None:
    """Refuse statistics that no rows in the formats of a specification have; what the RI process added is off already.

    Of n rows whose entries are at most m: 0 <= G_jj <= n m^2, as of real targets with their own m; the Gram of
    features, of real targets beside them, and of each class beside them is positive semidefinite; a class has 0 to n
    rows, which add up to n where every row has one class, and no entry of its column is above m times as many; a
    constant column's line has the columns' sums.

    Raises:
        ImpossibleTotalError: names the first condition that fails, and no number of the total but its rows.
    """
    refuse_impossible(_broken(total, spec), total.count)


def _broken(total: Statistics, spec: StatisticsSpec) -> Iterator[str]:
    """The conditions that fail, cheap ones first."""
    n, most = total.count, spec.feature_format.magnitude
    diagonal = total.gram.diagonal()
    if (diagonal < 0).any() or (diagonal > n * most**2).any():
        yield f"a Gram whose diagonal lies in 0 to rows times the square of the largest value in {spec.feature_format}"
    if (
        not (spec.feature_format.signed or spec.target_format.signed)
        and min(total.gram.min(initial=0), total.cross.min(initial=0)) < 0
    ):
        yield f"a Gram and a cross-correlation without negative entries, as {spec.feature_format} has none"
    counts = spec.class_rows(total)
    if counts is not None:
        yield from _broken_classes(total, spec, counts)
    if spec.constant:
        yield from _broken_constant(total, spec, counts)
    if not is_semidefinite(total.gram):
        yield "a positive semidefinite Gram"
    elif counts is not None:
        if spec.one_class and not _is_joint_semidefinite(total, spec, counts):
            yield "a positive semidefinite Gram of features beside classes"
        if not spec.one_class and exceeding_columns(total.gram, total.cross, counts.tolist()):
            yield "a positive semidefinite Gram of features beside each class"
    elif total.target_gram is not None:
        if (total.target_gram.diagonal() > n * spec.target_format.magnitude**2).any():
            yield f"sums of the targets' squares of at most rows times the largest square in {spec.target_format}"
        if not is_semidefinite(np.block([[total.gram, total.cross], [total.cross.T, total.target_gram]])):
            yield "a positive semidefinite Gram of features beside targets"
        if total.target_sum is not None and exceeding_columns(total.target_gram, total.target_sum[:, None], [n]):
            yield "targets whose sums and squares are of so many rows"


def _broken_classes(total: Statistics, spec: StatisticsSpec, counts: IntVector) -> Iterator[str]:
    if (counts < 0).any() or (counts > total.count).any():
        yield "classes of 0 rows to all of them"
    elif spec.one_class and sum(counts.tolist()) != total.count:
        yield "classes whose rows add up to all of them"
    if (np.abs(total.cross) > counts * spec.feature_format.magnitude).any():
        yield f"columns of classes that so many rows in {spec.feature_format} can add up to"


def _broken_constant(total: Statistics, spec: StatisticsSpec, counts: IntVector | None) -> Iterator[str]:
    unit, sums = spec.constant, total.target_sum
    is_constant = int(total.gram[-1, -1]) == total.count * unit**2 and not (total.gram[-1] % unit).any()
    if not is_constant or (np.abs(total.gram[-1]) > total.count * unit * spec.feature_format.magnitude).any():
        yield "an intercept's column with one unit a row, and column sums of so many rows"
    if sums is not None and (total.cross[-1] != sums * unit).any():
        yield "an intercept's column with the sums of the targets"
    if counts is not None and spec.one_class and (total.gram[-1] != total.cross.sum(axis=1) * unit).any():
        yield "column sums that the classes' columns add up to"


def _is_joint_semidefinite(total: Statistics, spec: StatisticsSpec, counts: IntVector) -> bool:
    """[[G, H], [H^T, diag(n_c)]]; a constant column is the sum of the classes' and adds nothing to it."""
    kept = slice(None, -1) if spec.constant else slice(None)
    gram, cross = total.gram[kept, kept], total.cross[kept]
    return is_semidefinite(np.block([[gram, cross], [cross.T, np.diag(counts)]]))


def is_semidefinite(matrix: IntMatrix) -> bool:
    """Return False for a symmetric matrix A with v^T A v < 0 for some v, an exact statement; True where none is found.

    A Cholesky factor that float64 completes proves that there is none (``verified``), which is all
    that an ordinary Gram needs. What it leaves open, singular matrices among it, is decided in exact integers: a part
    of full rank is proven positive definite, and the rank of all is that of the part modulo a prime near 2^63. Beyond
    ``EXACT_SIZE`` an A that has a factor once its diagonal is lifted by ``LIFT`` passes, which is indefinite by less
    than that at most; of others the vector of the least eigenvalue is tried in exact integers.

    Args:
        matrix: A, shape (d, d).
    """
    diagonal = matrix.diagonal()
    if (diagonal < 0).any() or matrix[diagonal == 0].any():
        return False
    used = np.flatnonzero(diagonal)
    if len(used) < len(matrix):
        matrix = matrix[np.ix_(used, used)]
    if not len(matrix):
        return True
    floats, scale = _scaled(matrix)
    with one_blas_thread():
        if verified(floats):
            return True
        if len(matrix) <= EXACT_SIZE:
            return _is_semidefinite_exactly(matrix)
        floats.flat[:: len(floats) + 1] += LIFT * len(floats)
        if not scipy.linalg.lapack.dpotrf(floats.T, lower=1, overwrite_a=1, clean=0)[1]:
            return True
        floats, _ = _scaled(matrix)
        _, vectors = scipy.linalg.eigh(floats, subset_by_index=[0, 0])
    return not _is_negative(matrix, scale * vectors[:, 0])


def exceeding_columns(matrix: IntMatrix, columns: IntMatrix, squares: list[int]) -> int:
    """Return of how many columns h with a square q the matrix [[A, h], [h^T, q]] is proven not to be semidefinite.

    Args:
        matrix: A, shape (d, d), positive semidefinite.
        columns: shape (d, c).
        squares: q of each.
    """
    used = np.flatnonzero(matrix.diagonal())
    if not len(used):
        return int(np.count_nonzero(columns.any(axis=0)))
    matrix, columns = matrix[np.ix_(used, used)], columns[used]
    floats, scale = _scaled(matrix)
    floats.flat[:: len(floats) + 1] += LIFT * len(floats)
    scaled = columns * scale[:, None]
    with one_blas_thread():
        found = scipy.linalg.cho_solve(scipy.linalg.cho_factor(floats, lower=True), scaled)
    wanted = np.einsum("dc,dc->c", scaled, found)
    suspects = np.flatnonzero(wanted > np.array(squares, dtype=np.float64) * (1 + 1e-9))
    return sum(
        _is_negative(
            np.block([[matrix, columns[:, [place]]], [columns[:, place], np.array([squares[place]])]]),
            np.append(scale * found[:, place], -1.0),
        )
        for place in suspects
    )


def _scaled(matrix: IntMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    """A in float64 with a diagonal near one, and the powers of two that bring it there."""
    scale = np.ldexp(1.0, -(np.frexp(matrix.diagonal().astype(np.float64))[1] // 2))
    floats: FloatMatrix = np.multiply(matrix, scale, order="C")
    floats *= scale[:, None]
    return floats, scale


def _is_semidefinite_exactly(matrix: IntMatrix) -> bool:
    system = System(Digits.of(np.ascontiguousarray(matrix), digit_bits(len(matrix))))
    try:
        better = inverses(system)
        if next(better) is not None:
            return True
        rank, columns = rank_guess(system.joined())
        next(proven(better if rank == len(matrix) else inverses(system.of(columns))))
    except IndefiniteError:
        return False
    except UndecidedError:
        pass
    return True


def _is_negative(matrix: IntMatrix, vector: NDArray[np.float64]) -> bool:
    """Whether v^T A v < 0, exactly, for the vector rounded to whole multiples of a unit."""
    units = np.rint(np.ldexp(vector / np.abs(vector).max(), WITNESS_BITS)).astype(np.int64).astype(object)
    return bool(units @ (matrix.astype(object) @ units) < 0)
