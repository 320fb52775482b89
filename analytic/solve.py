"""From exact totals to weights: deterministic float64 solves, ridge and sandwiched least squares."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from threading import RLock

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, lapack, svd
from threadpoolctl import ThreadpoolController

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.row_format import FloatMatrix

FloatVector = NDArray[np.float64]

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResidualBlock:
    """One block's transform and how well its total determined it.

    Args:
        transform: Omega_{t+1}, shape (d_F, d_Phi), float64, read-only.
        rank: numerical rank of F_t^T F_t.
        reciprocal_condition: its smallest over its largest eigenvalue.
        digest: SHA-256 of the transform's bytes.
    """

    transform: FloatMatrix
    rank: int
    reciprocal_condition: float
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.transform.setflags(write=False)
        object.__setattr__(self, "digest", hashlib.sha256(self.transform.tobytes()).digest())


def sandwiched_least_squares(
    gram: FloatMatrix, cross: FloatMatrix, weights: FloatMatrix, *, gamma: float = 0.0
) -> ResidualBlock:
    """The transform that best explains residuals through a classifier.

    Omega minimises |R - F Omega W|^2 + gamma |Omega|^2 (DeepAFL, Lemma 2 and eq. 8, with the element-wise
    *division* that eq. 17, 23 and 46 print as a product). Only the c columns of U that belong to W W^T's range
    matter. With F^T F = V L V^T and the thin decomposition W = U S P^T (so W^T W = P S^2 P^T),

        Omega = V [(V^T F^T R P S) / (gamma + diag(L) (x) diag(S)^2)] U^T.

    When gamma is 0, directions whose eigenvalue is zero to working precision carry nothing (minimum norm).

    Args:
        gram: F^T F, shape (d_F, d_F).
        cross: F^T R, shape (d_F, c).
        weights: W, shape (d_Phi, c).
        gamma: penalty >= 0.

    Raises:
        SpecificationError: a gamma that is negative or not finite.
        NotPositiveDefiniteError: the Gram has an eigenvalue clearly below zero that gamma does not outweigh.
    """
    if not (math.isfinite(gamma) and gamma >= 0):
        raise SpecificationError(f"gamma must be a finite number >= 0, not {gamma}")
    # one memory order for the same numbers: LAPACK may round differently for another
    gram, cross, weights = (np.ascontiguousarray(matrix) for matrix in (gram, cross, weights))
    with one_blas_thread():
        values, vectors = eigh(gram)
        left, strengths, right = svd(weights, full_matrices=False)
        kept = _clear_of_zero(values)
        denominators = gamma + np.outer(np.where(kept, values, 0.0), strengths**2)
        if denominators.min() < 0:
            raise NotPositiveDefiniteError(
                f"F^T F must be positive semidefinite; its smallest eigenvalue is {values[0]:.3g} where the largest is "
                f"{values[-1]:.3g}, and gamma {gamma:g} does not outweigh it. A Gram of rows never has that: check the "
                "total, or use a larger gamma for a noisy one"
            )
        usable = denominators > 0 if gamma else np.outer(kept, _clear_of_zero(strengths**2))
        rotated = (vectors.T @ cross @ right.T) * strengths
        scaled = np.divide(rotated, denominators, out=np.zeros_like(rotated), where=usable)
        transform = vectors @ scaled @ left.T
    largest = float(np.abs(values).max())
    return ResidualBlock(
        transform=np.ascontiguousarray(transform),
        rank=int(np.count_nonzero(kept)),
        reciprocal_condition=max(0.0, float(values[0])) / largest if largest else 0.0,
    )


def _clear_of_zero(values: FloatVector) -> NDArray[np.bool_]:
    """Eigenvalues that are not zero to working precision: the rule of ``solve_ridge``."""
    magnitude = np.abs(values)
    clear: NDArray[np.bool_] = magnitude > singular_below(len(values)) * magnitude.max()
    return clear
