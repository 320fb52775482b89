"""Singular systems: an exact rank with its proof, and the solution of minimum norm, correctly rounded.

With S the columns that a pivoted elimination keeps, C = A[:, S] spans A's range, and for H in that range

    W = C Z,   C^T C Z = H_S,

is the solution of least norm. A[S, S] positive definite proves rank >= |S|; an integer kernel N = [-K; I], A N = 0,
proves rank <= |S|. Where the kernel has fractions, elimination modulo primes whose product exceeds every minor does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack

from analytic.certified import (
    EXACT_SIZE,
    Inverse,
    Problem,
    System,
    UndecidedError,
    by_rationals,
    inverses,
    lengths,
    proven,
    refined,
    whole,
)
from analytic.digits import Digits
from analytic.row_format import FloatMatrix

ELIMINATION_SIZE = 1536
"""Largest system that is eliminated modulo a prime."""
BUDGET = 2**38
"""Multiplications modulo primes that a proof of rank may take: some two minutes."""


def rank_guess(matrix: Digits) -> tuple[int, NDArray[np.intp]]:
    """The rank, very likely, and as many columns that are independent, very likely; both are proven later."""
    floats = matrix.floats()
    d, scale = len(floats), np.ldexp(1.0, -(np.frexp(floats.diagonal())[1] // 2))
    floats *= scale
    floats *= scale[:, None]
    _, pivots, rank, _ = lapack.dpstrf(floats.T, lower=1, tol=float(d * d) * 2.0**-53, overwrite_a=1)
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
        right: H.
        columns: S.
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
    mixed = cho_factor(np.eye(len(rest)) + kernel.T @ kernel) if len(rest) else None

    def step(inverse: Inverse, residual: FloatMatrix) -> FloatMatrix:
        """(C^T C)^-1 = A_SS^-1 (I + K K^T)^-1 A_SS^-1, K = A_SS^-1 A[S, T]."""
        inner = inverse(residual)
        if mixed is not None:
            inner = inner - kernel @ cho_solve(mixed, kernel.T @ inner)
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
        expand=lambda step: basis @ step,
        image=lambda weights: basis.T @ weights,
        step=step,
        error=error,
        rational=rational if d <= EXACT_SIZE else None,
    )
    if consistent:
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
