"""Least squares from exact sums: the solution of minimum norm, each entry rounded once, and the rank with its proof.

With S the columns that a pivoted elimination keeps, C = A[:, S] spans A's range, and for H in that range

    W = C Z,   C^T C Z = H_S,

is the solution of least norm. A[S, S] positive definite proves rank >= |S|; an integer kernel N = [-K; I], A N = 0,
proves rank <= |S|. Where the kernel has fractions, elimination modulo primes whose product exceeds every minor does.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import flint
import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.shape_repr import shape_repr
from analytic.solve.certified import (
    EXACT_SIZE,
    FloatVector,
    IndefiniteError,
    Inverse,
    Problem,
    System,
    UndecidedError,
    by_rationals,
    inverses,
    lengths,
    one_blas_thread,
    positive_definite,
    proven,
    refined,
    whole,
)
from analytic.solve.certified import transform as transform_exactly
from analytic.solve.digits import Digits, FloatMatrix, digit_bits, fewest_bits

Exact = NDArray[np.int64] | FloatMatrix | Digits
"""Matrices of numbers that stand for themselves."""

ELIMINATION_SIZE = 1536
"""Largest system that is eliminated modulo a prime."""
SQUARE = 128
"""Entries of a side of the squares in which a matrix is compared with its transpose."""
BUDGET = 2**38
"""Multiplications modulo primes that a proof of rank may take: some two minutes."""


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

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.weights.setflags(write=False)


def solve_ridge(gram: Exact, cross: Exact, *, ridge: float = 0.0) -> Solution:
    """Ridge weights from summed statistics, correctly rounded: the same bits on every machine.

    (G + ridge I) W = H, the normal equations of min |XW - Y|^2 + ridge |W|^2, has one solution in rational numbers, or
    one of minimum norm where the matrix is singular. Every entry of the result is the float64 nearest to it (ties to
    even): see ``analytic.solve.certified`` and ``minimum_norm``. BLAS takes as many threads as it has where its result
    is certified, and one where it is reported as it comes: the conditioning, and weights without a certificate.

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
    widest = digit_bits(shapes[0][0])
    if isinstance(gram, Digits):
        return _solved(gram, _in_digits(cross, widest), float(ridge), gram.magnitude)
    bits = fewest_bits(gram) if gram.dtype.kind == "i" else widest
    system = _in_digits(gram, bits, symmetric=True)
    return _solved(system, _in_digits(cross, bits), float(ridge), widest * len(system.planes) + system.exponent)


def _in_digits(matrix: Exact, bits: int, *, symmetric: bool = False) -> Digits:
    """A matrix, or the symmetric matrix of its lower triangle, as digits of that width."""
    if isinstance(matrix, Digits):
        return matrix
    if matrix.dtype.kind == "f" and not np.isfinite(matrix).all():
        raise InvalidRowsError("a solve needs finite numbers; this Gram or cross-correlation holds NaN or infinity")
    if symmetric and not _is_symmetric(matrix):
        matrix = np.tril(matrix) + np.tril(matrix, -1).T
    return Digits.of(np.ascontiguousarray(matrix), bits)


def _is_symmetric(matrix: NDArray[Any]) -> bool:
    """Compare the triangles in squares that the cache holds."""
    starts = range(0, len(matrix), SQUARE)
    return all(
        np.array_equal(matrix[row : row + SQUARE, column : column + SQUARE], other.T)
        for row in starts
        for column in range(0, row + 1, SQUARE)
        for other in [matrix[column : column + SQUARE, row : row + SQUARE]]
    )


def _solved(gram: Digits, cross: Digits, ridge: float, reach: int) -> Solution:
    # powers of two change no digit: entries near one, below 2^reach now, keep float64 clear of its ends
    size, height = max(reach, math.frexp(ridge)[1]), cross.magnitude
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
        with one_blas_thread():
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
    """Return the rows of a matrix that are not all zeros."""
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
        with one_blas_thread():
            rank, columns = rank_guess(matrix)
        if rank < cross.shape[0]:
            return minimum_norm(matrix, cross, columns, exponent=exponent), rank, 0.0
    weights = positive_definite(system, cross, proven(itertools.chain([first], better)), exponent=exponent)
    return weights, cross.shape[0], 0.0 if first is None else first.reciprocal_condition


def singular_below(d: int) -> float:
    """The ratio of smallest to largest eigenvalue that rounding alone can produce in a singular matrix.

    LAPACK returns eigenvalues of exactly singular integer Grams up to 15 eps times the largest where d < 16, and
    up to 5 eps above (measured), so d eps alone would take null directions of small matrices for data.
    """
    return float((d + 32) * np.finfo(np.float64).eps)


def _by_eigenvalues(matrix: FloatMatrix, cross: FloatMatrix, exponent: int) -> Solution:
    """Solve a system that cannot be certified in float64: the bits are this machine's."""
    with one_blas_thread():
        values, vectors = scipy.linalg.eigh(matrix)
        kept = values > singular_below(len(matrix)) * float(np.abs(values).max())
        basis = vectors[:, kept]
        weights = np.ldexp(basis @ ((basis.T @ cross) / values[kept][:, None]), exponent)
    return Solution(
        weights=weights,
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

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.transform.setflags(write=False)
        object.__setattr__(self, "digest", hashlib.sha256(self.transform.tobytes()).digest())


def sandwiched_least_squares(gram: Exact, cross: Exact, weights: FloatMatrix, *, gamma: float = 0.0) -> ResidualBlock:
    """The transform that best explains residuals through a classifier, rounded once: the same bits on every machine.

    Omega minimises |R - F Omega W|^2 + gamma |Omega|^2 (DeepAFL, Lemma 2 and eq. 8, with the element-wise *division*
    that eq. 17, 23 and 46 print as a product), so F^T F Omega W W^T + gamma Omega = F^T R W^T exactly. Every entry is
    the nearest multiple of 2^(e - 53), ties to even, where e is the least with all |entries| < 2^e: 53 bits of the
    largest entry. ``analytic.solve.certified.transform`` proves it, for gamma > 0 as for gamma = 0, where both F^T F
    and W^T W must be clearly regular. What it cannot prove is not ``certified``: a gamma that is lost in float64 beside
    F^T F and W, gamma = 0 with rows or weights that float64 takes for dependent, an entry exactly between two
    multiples.

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
        values, vectors = scipy.linalg.eigh(gram.floats())
        # rows of zeros change nothing but make P square
        padded = np.concatenate([weights_exactly.floats(), np.zeros((max(0, c - d_phi), c))])
        left, strengths, right = scipy.linalg.svd(padded, full_matrices=False)
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
            transform = transform_exactly(
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


def rank_guess(matrix: Digits) -> tuple[int, NDArray[np.intp]]:
    """The rank, very likely, and as many columns that are independent, very likely; both are proven later."""
    floats = matrix.floats()
    d, scale = len(floats), np.ldexp(1.0, -(np.frexp(floats.diagonal())[1] // 2))
    floats *= scale
    floats *= scale[:, None]
    _, pivots, rank, _ = scipy.linalg.lapack.dpstrf(floats.T, lower=1, tol=float(d * d) * 2.0**-53, overwrite_a=1)
    if d > ELIMINATION_SIZE:
        return rank, np.sort(pivots[:rank] - 1)
    (prime,) = itertools.islice(_primes(), 1)
    reduced, found = flint.nmod_mat(whole(matrix), prime).rref()
    if found == rank:
        return rank, np.sort(pivots[:rank] - 1)
    rows = np.array([[int(value) != 0 for value in row] for row in reduced.tolist()[:found]])
    return found, rows.argmax(axis=1)


def minimum_norm(matrix: Digits, right: Digits, columns: NDArray[np.intp], *, exponent: int) -> FloatMatrix:
    """The solution of least norm times 2^exponent, correctly rounded.

    Args:
        matrix: A, symmetric, of the rank that ``columns`` says.
        right: H, the right side.
        columns: S, the chosen columns.
        exponent: of the unit of the weights.

    Raises:
        UndecidedError: the rank, or an entry, cannot be certified within the budget.
        IndefiniteError: A has a negative eigenvalue.
    """
    d, rest = matrix.shape[0], np.setdiff1d(np.arange(matrix.shape[0]), columns)
    system = System(matrix[np.ix_(columns, columns)])
    basis = matrix[:, columns]
    better = proven(inverses(system))
    first = next(better)
    others = basis.floats()[rest].T
    kernel = _kernel(system, first, others)
    consistent = _spans(matrix, right, columns, rest, kernel)
    try:
        mixed = scipy.linalg.cho_factor(np.eye(len(rest)) + kernel.T @ kernel) if len(rest) else None
    except ValueError:  # LinAlgError is one: K^T K is so large that float64 loses I beside it
        consistent, mixed = False, None

    def step(inverse: Inverse, residual: FloatMatrix) -> FloatMatrix:
        """(C^T C)^-1 = A_SS^-1 (I + K K^T)^-1 A_SS^-1, K = A_SS^-1 A[S, T]."""
        inner = inverse(residual)
        if mixed is not None:
            inner = inner - kernel @ scipy.linalg.cho_solve(mixed, kernel.T @ inner)
        return inverse(inner)

    def error(inverse: Inverse, residual: FloatMatrix) -> FloatMatrix:
        """|C (C^T C)^-1 R| <= |R| / lambda_min(A_SS), since C^T C = A_SS (I + K K^T) A_SS."""
        norms = lengths(residual) * (inverse.largest * (1 + 2.0**-30))
        return np.broadcast_to(norms, (d, residual.shape[1]))

    def rational(chosen: NDArray[np.intp]) -> list[Any]:
        wide, inner, part = whole(basis), whole(system.gram), right[:, chosen]
        scale = flint.fmpq(2) ** (part.exponent - matrix.exponent)
        normal = wide.transpose() * wide
        solution = normal.solve(wide.transpose() * whole(part))
        solution = flint.fmpq_mat(wide) * flint.fmpq_mat(normal).solve(flint.fmpq_mat(inner) * solution)
        return [value * scale for value in solution.entries()]

    shape = d, right.shape[1]
    problem = Problem(
        right=right[columns],
        step_bits=system.step_bits,
        expand=lambda step: basis @ step,
        image=lambda weights: basis.T @ weights,
        step=step,
        error=error,
        rational=rational if d <= EXACT_SIZE else None,
    )
    if consistent:  # and float64 can take the steps
        return refined(problem, itertools.chain([first], better), shape, exponent=exponent)
    return by_rationals(problem, np.zeros(shape), np.ones(shape, dtype=bool), exponent)


def _kernel(system: System, inverse: Inverse, others: FloatMatrix) -> FloatMatrix:
    """K = A_SS^-1 A[S, T] in float64, corrected once."""
    kernel = inverse(others)
    matrix = system.floats()
    return kernel + inverse(others - matrix @ kernel)


def _spans(
    matrix: Digits, right: Digits, columns: NDArray[np.intp], rest: NDArray[np.intp], kernel: FloatMatrix
) -> bool:
    """Whether H lies in A's range, once A's rank is proven to be |S|.

    Raises:
        UndecidedError: no proof within the budget.
    """
    if not len(rest):
        return True
    whole_numbers = np.rint(kernel)
    if np.abs(whole_numbers).max() < 2**20:
        digits = Digits.of(whole_numbers.astype(np.int64), matrix.bits)
        if not (matrix[:, columns] @ digits - matrix[:, rest]).any():
            return not (digits.T @ right[columns] - right[rest]).any()
    both = [left + other for left, other in zip(whole(matrix).tolist(), whole(right).tolist(), strict=True)]
    if _rank_at_most(flint.fmpz_mat(both), len(columns)):
        return True
    if not _rank_at_most(whole(matrix), len(columns)):
        raise UndecidedError
    return False


def _rank_at_most(matrix: Any, rank: int) -> bool:
    """Whether every minor of order rank + 1 is zero: it is modulo primes whose product exceeds Hadamard's bound.

    Raises:
        UndecidedError: that would take too long.
    """
    norms = sorted(sum(int(value) ** 2 for value in row).bit_length() / 2 for row in matrix.tolist())
    n_primes = math.ceil(sum(norms[-rank - 1 :])) // 62 + 1
    if matrix.nrows() > ELIMINATION_SIZE or n_primes * matrix.nrows() * matrix.ncols() * (rank + 1) > BUDGET:
        raise UndecidedError
    return all(flint.nmod_mat(matrix, prime).rank() <= rank for prime in itertools.islice(_primes(), n_primes))


def _primes() -> Iterator[int]:
    """Primes between 2^62 and 2^63, from above."""
    return (number for number in range(2**63 - 1, 2**62, -2) if flint.fmpz(number).is_prime())
