"""From exact totals to weights: certified ridge solves and sandwiched least squares."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from threading import RLock

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd
from threadpoolctl import ThreadpoolController

from analytic.certified import IndefiniteError, System, UndecidedError, inverses, positive_definite, proven
from analytic.digits import Digits, digit_bits
from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.minimum_norm import minimum_norm, rank_guess
from analytic.row_format import FloatMatrix
from analytic.sandwich import transform as certified_transform

FloatVector = NDArray[np.float64]
Exact = NDArray[np.int64] | FloatMatrix | Digits
"""Matrices of numbers that stand for themselves."""

_ONE_AT_A_TIME = RLock()
"""The number of BLAS threads belongs to the process: overlapping changes from several threads would undo each other."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Weights and how well the totals determined them.

    Args:
        weights: W, shape (d, c), float64, read-only.
        method: ``cholesky``, or ``minimum norm`` when G + ridge I is singular.
        rank: rank of the matrix that was solved with.
        reciprocal_condition: an estimate in the 1-norm, once powers of two have brought the diagonal near one; 0 for a
            singular matrix, and for one that float64 alone cannot tell from it.
        certified: whether the weights are the exact solution correctly rounded, and so the same on every machine.
    """

    weights: FloatMatrix
    method: str
    rank: int
    reciprocal_condition: float
    certified: bool = False

    def __post_init__(self) -> None:
        self.weights.setflags(write=False)


def solve_ridge(gram: Exact, cross: Exact, *, ridge: float = 0.0) -> Solution:
    """Ridge weights from summed statistics, correctly rounded: the same bits on every machine.

    (G + ridge I) W = H, the normal equations of min |XW - Y|^2 + ridge |W|^2, has one solution in rational numbers, or
    one of minimum norm where the matrix is singular. Every entry of the result is the float64 nearest to it (ties to
    even): see ``analytic.certified`` and ``analytic.minimum_norm``. BLAS runs on one thread, so that the conditioning
    that is reported does not depend on how many there are; the weights would not.

    Args:
        gram: G, shape (d, d), positive semidefinite: int64 or float64, taken as the exact numbers they are, or digits.
            Its lower triangle counts.
        cross: H, shape (d, c).
        ridge: penalty >= 0, in the units of ``gram``.

    Raises:
        SpecificationError: a ridge that is negative or not finite.
        InvalidRowsError: shapes that disagree, NaN or infinity among the entries, or weights beyond float64.
        NotPositiveDefiniteError: G + ridge I has an eigenvalue below zero, proven, as noise in the sum can cause; a
            larger ``ridge`` cures it.
    """
    if not (np.isfinite(ridge) and ridge >= 0):
        raise SpecificationError(f"a ridge must be a finite number >= 0, not {ridge}")
    shapes = [matrix.planes.shape[1:] if isinstance(matrix, Digits) else matrix.shape for matrix in (gram, cross)]
    if len(shapes[0]) != 2 or shapes[0][0] != shapes[0][1] or len(shapes[1]) != 2 or shapes[1][0] != shapes[0][0]:
        raise InvalidRowsError(
            f"a solve needs a Gram of shape (d, d) and a cross-correlation of shape (d, c), not {shapes[0]} and "
            f"{shapes[1]}"
        )
    bits = digit_bits(shapes[0][0])
    with one_blas_thread():
        return _solved(_in_digits(gram, bits, symmetric=True), _in_digits(cross, bits), float(ridge))


def _in_digits(matrix: Exact, bits: int, *, symmetric: bool = False) -> Digits:
    """A matrix, or the symmetric matrix of its lower triangle, as digits of that width."""
    if isinstance(matrix, Digits):
        return matrix
    if not np.isfinite(matrix).all():
        raise InvalidRowsError("a solve needs finite numbers; this Gram or cross-correlation holds NaN or infinity")
    if symmetric and not np.array_equal(matrix, matrix.T):
        return Digits.of(np.tril(matrix) + np.tril(matrix, -1).T, bits)
    return Digits.of(np.ascontiguousarray(matrix), bits)


def _solved(gram: Digits, cross: Digits, ridge: float) -> Solution:
    # powers of two change no digit: entries near one keep float64 clear of its ends
    size, height = max(gram.magnitude, math.frexp(ridge)[1]), cross.magnitude
    if math.ldexp(math.ldexp(ridge, -size), size) != ridge:
        size = 0
    system, cross = System(gram.shifted(-size), math.ldexp(ridge, -size)), cross.shifted(-height)
    exponent = height - size
    d, c = system.shape[0], cross.shape[1]
    if system.diagonal.min() < 2.0**-30 * system.ridge:  # a Gram has no such diagonal; this one may cancel the ridge
        system = System(system.joined())
    # An empty column of the rows weighs nothing, and no digit could find out an exact zero.
    live = np.flatnonzero(_holds(system.gram) | (_holds(cross) & (system.ridge > 0)))
    try:
        if not system.diagonal[live].all():
            raise IndefiniteError
        weights = np.zeros((d, c))
        weights[live], rank, rcond = _certified(system.of(live), cross[live], exponent)
        rank += d - len(live) if system.ridge else 0
    except IndefiniteError:
        values = np.ldexp(np.linalg.eigvalsh(system.floats()), size)
        raise NotPositiveDefiniteError(
            f"G + ridge I must be positive semidefinite; its smallest eigenvalue is {values[0]:.3g} where the "
            f"largest is {values[-1]:.3g}. A Gram of rows never has that: check the total, or use a larger ridge for a "
            "noisy one"
        ) from None
    except UndecidedError:
        return _by_eigenvalues(system.floats(), cross.floats(), exponent)
    except OverflowError as error:
        raise InvalidRowsError("the weights of this total leave float64; scale its features or its targets") from error
    return Solution(
        weights=weights,
        method="cholesky" if rank == d else "minimum norm",
        rank=rank,
        reciprocal_condition=rcond if rank == d else 0.0,
        certified=True,
    )


def _holds(matrix: Digits) -> NDArray[np.bool_]:
    """Which rows of a matrix hold anything but zeros."""
    return np.asarray(matrix.planes.any(axis=(0, 2)))


def _certified(system: System, cross: Digits, exponent: int) -> tuple[FloatMatrix, int, float]:
    """Weights, rank and conditioning of a matrix without empty rows.

    Raises:
        UndecidedError: nothing can be certified within the budget.
    """
    if not cross.shape[0]:
        return cross.floats(), 0, 1.0
    better = inverses(system)
    try:
        first = next(better)
    except UndecidedError:  # only rationals can decide it
        first, better = None, iter(())
    if first is None:
        matrix = system.joined()
        rank, columns = rank_guess(matrix)
        if rank < cross.shape[0]:
            return minimum_norm(matrix, cross, columns, exponent=exponent), rank, 0.0
    weights = positive_definite(system, cross, proven(chain([first], better)), exponent=exponent)
    return weights, cross.shape[0], 0.0 if first is None else first.reciprocal_condition


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


def _by_eigenvalues(matrix: FloatMatrix, cross: FloatMatrix, exponent: int) -> Solution:
    """What float64 makes of a system that cannot be certified: its bits are this machine's."""
    values, vectors = eigh(matrix)
    kept = values > singular_below(len(matrix)) * float(np.abs(values).max())
    basis = vectors[:, kept]
    return Solution(
        weights=np.ldexp(basis @ ((basis.T @ cross) / values[kept][:, None]), exponent),
        method="minimum norm, not certified",
        rank=int(np.count_nonzero(kept)),
        reciprocal_condition=max(0.0, float(values[0] / values[-1])),
        certified=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResidualBlock:
    """One block's transform and how well its total determined it.

    Args:
        transform: Omega_{t+1}, shape (d_F, d_Phi), float64, read-only.
        rank: numerical rank of F_t^T F_t.
        reciprocal_condition: its smallest over its largest eigenvalue.
        certified: whether the transform is the exact solution rounded once, and so the same on every machine.
        digest: SHA-256 of the transform's bytes.
    """

    transform: FloatMatrix
    rank: int
    reciprocal_condition: float
    certified: bool = False
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.transform.setflags(write=False)
        object.__setattr__(self, "digest", hashlib.sha256(self.transform.tobytes()).digest())


def sandwiched_least_squares(gram: Exact, cross: Exact, weights: FloatMatrix, *, gamma: float = 0.0) -> ResidualBlock:
    """The transform that best explains residuals through a classifier, rounded once: the same bits on every machine.

    Omega minimises |R - F Omega W|^2 + gamma |Omega|^2 (DeepAFL, Lemma 2 and eq. 8, with the element-wise
    *division* that eq. 17, 23 and 46 print as a product), so F^T F Omega W W^T + gamma Omega = F^T R W^T exactly. Every
    entry is the nearest multiple of 2^(e - 53), ties to even, where e is the least with all |entries| < 2^e: 53 bits of
    the largest entry. ``analytic.sandwich`` proves it, for gamma > 0 as for gamma = 0, where both F^T F and W^T W must
    be clearly regular. What it cannot prove is not ``certified``: a gamma that is lost in float64 beside F^T F and W,
    gamma = 0 with rows or weights that float64 takes for dependent, an entry exactly between two multiples.

    Only the c columns of U that belong to W W^T's range matter. With F^T F = V L V^T and the thin decomposition
    W = U S P^T (so W^T W = P S^2 P^T), float64 finds, and returns where nothing is certified,

        Omega = V [(V^T F^T R P S) / (gamma + diag(L) (x) diag(S)^2)] U^T.

    When gamma is 0, directions whose eigenvalue is zero to working precision carry nothing (minimum norm).

    Args:
        gram: F^T F, shape (d_F, d_F), as ``solve_ridge`` takes it; digits must be narrow enough for d_Phi and c too.
        cross: F^T R, shape (d_F, c).
        weights: W, shape (d_Phi, c).
        gamma: penalty >= 0.

    Raises:
        SpecificationError: a gamma that is negative or not finite.
        InvalidRowsError: NaN or infinity among the entries, or a transform beyond float64.
        NotPositiveDefiniteError: the Gram has an eigenvalue clearly below zero that gamma does not outweigh.
    """
    if not (math.isfinite(gamma) and gamma >= 0):
        raise SpecificationError(f"gamma must be a finite number >= 0, not {gamma}")
    bits = gram.bits if isinstance(gram, Digits) else digit_bits(max(*gram.shape, *weights.shape))
    gram, cross, weights_exactly = (
        _in_digits(gram, bits, symmetric=True),
        _in_digits(cross, bits),
        _in_digits(weights, bits),
    )
    # powers of two change no digit: entries below one keep float64 clear of its ends
    breadth, height = weights_exactly.magnitude, cross.magnitude
    size = max(gram.magnitude, math.frexp(gamma)[1] - 2 * breadth)
    gram, cross, weights_exactly = gram.shifted(-size), cross.shifted(-height), weights_exactly.shifted(-breadth)
    penalty, exponent = math.ldexp(gamma, -size - 2 * breadth), height - size - breadth
    d_phi, c = weights.shape
    with one_blas_thread():
        values, vectors = eigh(gram.floats())
        # rows of zeros change nothing but make P square
        padded = np.concatenate([weights_exactly.floats(), np.zeros((max(0, c - d_phi), c))])
        left, strengths, right = svd(padded, full_matrices=False)
        kept = _clear_of_zero(values)
        denominators = penalty + np.outer(np.where(kept, values, 0.0), strengths**2)
        if denominators.min() < 0:
            smallest, largest = np.ldexp(values[[0, -1]], size)
            raise NotPositiveDefiniteError(
                f"F^T F must be positive semidefinite; its smallest eigenvalue is {smallest:.3g} where the largest is "
                f"{largest:.3g}, and gamma {gamma:g} does not outweigh it. A Gram of rows never has that: check the "
                "total, or use a larger gamma for a noisy one"
            )
        usable = denominators > 0 if gamma else np.outer(kept, _clear_of_zero(strengths**2))

        def rotated(residual: FloatMatrix) -> FloatMatrix:
            found: FloatMatrix = vectors.T @ residual @ right.T
            quotients: FloatMatrix = np.divide(found, denominators, out=np.zeros_like(found), where=usable)
            return quotients

        try:
            transform = certified_transform(
                gram,
                cross,
                weights_exactly,
                (gamma, -size - 2 * breadth),
                step=lambda residual: vectors @ rotated(residual) @ right,
                smallest=float(values[0]),
            )
            certified = True
        except UndecidedError:
            transform = vectors @ (rotated(cross.floats()) * strengths) @ left[:d_phi].T
            certified = False
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.ldexp(transform, exponent)
    if not np.isfinite(scaled).all():
        raise InvalidRowsError("the transform of this total leaves float64; scale its features or its targets")
    largest = float(np.abs(values).max())
    return ResidualBlock(
        transform=np.ascontiguousarray(scaled),
        rank=int(np.count_nonzero(kept)),
        reciprocal_condition=max(0.0, float(values[0])) / largest if largest else 0.0,
        certified=certified and np.array_equal(np.ldexp(scaled, -exponent), transform),
    )


def _clear_of_zero(values: FloatVector) -> NDArray[np.bool_]:
    """Eigenvalues that are not zero to working precision: the rule of ``solve_ridge``."""
    magnitude = np.abs(values)
    clear: NDArray[np.bool_] = magnitude > singular_below(len(values)) * magnitude.max()
    return clear
