"""Whether an integer matrix is positive semidefinite, as every Gram is: float64 proves it, or exact integers do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh, lapack

from analytic.row_format import FloatMatrix
from analytic.solve.certified import (
    IndefiniteError,
    System,
    UndecidedError,
    inverses,
    one_blas_thread,
    proven,
    verified,
)
from analytic.solve.digits import Digits, digit_bits
from analytic.solve.minimum_norm import rank_guess

IntMatrix = NDArray[np.int64]

EXACT_SIZE = 256
"""Up to here a matrix that float64 leaves open is decided in exact integers: below a second."""
LIFT = 2.0**-40
"""What is added to a diagonal near one, times d, so that a singular Gram has a Cholesky factor in float64."""
WITNESS_BITS = 40
"""Bits of the largest entry of a vector that is tried in exact integers."""


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
        if not lapack.dpotrf(floats, lower=1)[1]:
            return True
        _, vectors = eigh(floats, subset_by_index=[0, 0])
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
        found = cho_solve(cho_factor(floats, lower=True), scaled)
    wanted = np.einsum("dc,dc->c", scaled, found)
    suspects = np.flatnonzero(wanted > np.array(squares, dtype=np.float64) * (1 + 1e-9))
    return sum(
        _is_negative(_bordered(matrix, columns[:, place], squares[place]), np.append(scale * found[:, place], -1.0))
        for place in suspects
    )


def _scaled(matrix: IntMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    """A in float64 with a diagonal near one, and the powers of two that bring it there."""
    scale = np.ldexp(1.0, -(np.frexp(matrix.diagonal().astype(np.float64))[1] // 2))
    return matrix * scale * scale[:, None], scale


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


def _bordered(matrix: IntMatrix, column: NDArray[np.int64], square: int) -> IntMatrix:
    return np.block([[matrix, column[:, None]], [column[None], np.array([[square]])]])


def _is_negative(matrix: IntMatrix, vector: NDArray[np.float64]) -> bool:
    """Whether v^T A v < 0, exactly, for the vector rounded to whole multiples of a unit."""
    units = np.rint(np.ldexp(vector / np.abs(vector).max(), WITNESS_BITS)).astype(np.int64).astype(object)
    return bool(units @ (matrix.astype(object) @ units) < 0)
