"""From exact totals to weights: one deterministic float64 solve."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock

import numpy as np
from scipy.linalg import eigh, lapack
from threadpoolctl import ThreadpoolController

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.row_format import FloatMatrix

_ONE_AT_A_TIME = RLock()
"""The number of BLAS threads belongs to the process: overlapping changes from several threads would undo each other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Weights and how well the totals determined them.

    Args:
        weights: W, shape (d, c), float64, read-only.
        method: ``cholesky``, or ``minimum norm`` when G + ridge I is singular in float64.
        rank: numerical rank of the Gram that was solved with.
        reciprocal_condition: 1-norm estimate (Cholesky) or smallest over largest eigenvalue of the whole matrix.
    """

    weights: FloatMatrix
    method: str
    rank: int
    reciprocal_condition: float

    def __post_init__(self) -> None:
        self.weights.setflags(write=False)


def solve_ridge(gram: FloatMatrix, cross: FloatMatrix, *, ridge: float = 0.0) -> Solution:
    """Ridge weights from summed statistics.

    Solves (G + ridge I) W = H, the normal equations of min |XW - Y|^2 + ridge |W|^2, by Cholesky. When that
    matrix is singular in float64 the solution of minimum norm is taken from the eigendecomposition: directions
    whose eigenvalue lies below (d + 32) eps times the largest carry no weight (H has no part in G's null space).
    BLAS runs on one thread, so that the bits do not depend on how many the machine has.

    Args:
        gram: G, shape (d, d), symmetric positive semidefinite.
        cross: H, shape (d, c).
        ridge: penalty >= 0, in the units of ``gram``.

    Raises:
        SpecificationError: a ridge that is negative or not finite.
        InvalidRowsError: shapes that disagree, or NaN or infinity among the entries.
        NotPositiveDefiniteError: G has an eigenvalue clearly below zero, as noise in the sum can cause; a
            larger ``ridge`` cures it.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise SpecificationError(f"a ridge must be a finite number >= 0, not {ridge}")
    if gram.ndim != 2 or gram.shape != (len(gram), len(gram)) or cross.ndim != 2 or len(cross) != len(gram):
        raise InvalidRowsError(
            f"a solve needs a Gram of shape (d, d) and a cross-correlation of shape (d, c), not {gram.shape} and "
            f"{cross.shape}"
        )
    _refuse_infinite(cross)
    # One memory order for the same numbers: BLAS takes another path, with other roundings, for another order.
    cross = np.ascontiguousarray(cross, dtype=np.float64)
    with one_blas_thread():
        return _by_cholesky(gram, cross, ridge) or _by_eigenvalues(gram, cross, ridge)


def triangular_factor(gram: FloatMatrix, ridge: float) -> FloatMatrix | None:
    """L with G + ridge I = L L^T in its lower triangle (above it, leftovers); None when singular in float64.

    Raises:
        InvalidRowsError: NaN or infinity among the entries of G.
    """
    found = _factor(gram, ridge)
    return None if found is None else found[0]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: results then have the same bits whatever the machine's core count.

    One Python thread at a time gets in; the others wait.
    """
    with _ONE_AT_A_TIME, _threadpools().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _threadpools() -> ThreadpoolController:
    return ThreadpoolController()


def singular_below(d: int) -> float:
    """The ratio of smallest to largest eigenvalue that rounding alone can produce in a singular matrix.

    LAPACK returns eigenvalues of exactly singular integer Grams up to 15 eps times the largest where d < 16, and
    up to 5 eps above (measured), so d eps alone would take null directions of small matrices for data.
    """
    return float((d + 32) * np.finfo(np.float64).eps)


def _refuse_infinite(matrix: FloatMatrix) -> None:
    if not np.isfinite(matrix).all():
        raise InvalidRowsError("a solve needs finite numbers; this Gram or cross-correlation holds NaN or infinity")


def _by_cholesky(gram: FloatMatrix, cross: FloatMatrix, ridge: float) -> Solution | None:
    found = _factor(gram, ridge)
    if found is None:
        return None
    factor, rcond = found
    weights, _ = lapack.dpotrs(factor, cross, lower=1)
    return Solution(
        weights=np.ascontiguousarray(weights),
        method="cholesky",
        rank=len(gram),
        reciprocal_condition=rcond,
    )


def _factor(gram: FloatMatrix, ridge: float) -> tuple[FloatMatrix, float] | None:
    # Row by row into LAPACK's column by column: the upper triangle, so that no copy goes across the memory order.
    matrix = np.array(gram.T, dtype=np.float64, order="F")
    matrix.T.reshape(-1)[:: len(matrix) + 1] += ridge
    norm = float(lapack.dlange("1", matrix))  # type: ignore[call-arg]  # the stub knows one argument
    if not np.isfinite(norm):  # one bad entry shows in the norm; so may large ones that are finite
        _refuse_infinite(gram)
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=0)
    if failed:
        return None
    rcond, _ = lapack.dpocon(factor, norm, uplo="L")
    return None if rcond < singular_below(len(gram)) else (factor, float(rcond))


def _by_eigenvalues(gram: FloatMatrix, cross: FloatMatrix, ridge: float) -> Solution:
    values, vectors = eigh(np.ascontiguousarray(gram, dtype=np.float64))
    largest = float(np.abs(values).max())
    cutoff = singular_below(len(gram)) * largest
    if values[0] + ridge < -cutoff:
        raise NotPositiveDefiniteError(
            f"G + ridge I must be positive semidefinite; its smallest eigenvalue is {values[0] + ridge:.3g} where the "
            f"largest is {largest:.3g}. A Gram of rows never has that: check the total, or use a larger ridge for a "
            "noisy one"
        )
    kept = values > cutoff
    basis = vectors[:, kept]
    weights = basis @ ((basis.T @ cross) / (values[kept] + ridge)[:, None])
    return Solution(
        weights=weights,
        method="minimum norm",
        rank=int(np.count_nonzero(kept)),
        reciprocal_condition=max(0.0, float(values[0]) + ridge) / (largest + ridge) if largest else 0.0,
    )
