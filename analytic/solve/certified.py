"""Certified solves: the exact solution of an integer system, every entry rounded once to the nearest float64.

The solution of A W = H is a mathematical object, so its correctly rounded value has the same bits on every processor,
BLAS and number of threads. Float64 only finds it; two things prove it:

- residuals R = H - A W in exact integers (``analytic.solve.digits``), and
- a lower bound of A's smallest eigenvalue from a Cholesky factor that float64 completes (``Inverse``).

Then |W - W*| <= |R| / lambda_min entry by entry, and W is refined until no entry's interval holds two roundings. What
no number of digits decides, an entry that is exactly zero or exactly between two floats, python-flint decides in
rational numbers.

Two more quantities are found the same way: the transform of a residual block (``transform``) and the logarithm of a
determinant (``log_determinant``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from threading import RLock
from typing import Any

import flint
import numpy as np
import scipy
from flint import arb, ctx
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from analytic.solve.digits import INFLATE, Digits, FloatMatrix, bits_beside, rounds_to_high, two_sum
from analytic.triangles import mirrored

FloatVector = NDArray[np.float64]

UNIT = 2.0**-53
LEVELS, SMALL = 40, 64
"""Most improvements of a preconditioner: condition numbers up to some 2^50 a level, and small systems have any."""
LOWEST = -900
"""Units below 2^LOWEST would leave float64."""
MIN_COLUMNS, MAX_COLUMNS, COLUMNS_PART = 16, 128, 24
"""Columns are refined d / 24 at a time, 16 to 128: their digits, some 45 numbers an entry, then take less than what
made the inverse, and products are wide enough for BLAS."""
EXACT_SIZE = 1024
"""Largest system that rational arithmetic decides: some seconds a column."""
BLOCK_ROWS = 128
"""Rows of Omega whose digits are in memory at a time."""
FRACTION_BITS = 40
"""Logarithms are multiples of 2^-40."""
LOST = 2.0**-20
"""Covers, relatively, the rounding of |E|_F^2, up to 2^30 squares."""

_ONE_AT_A_TIME = RLock()
"""The number of BLAS threads belongs to the process: overlapping changes from several threads would undo each other."""


class UndecidedError(Exception):
    """A system or an entry of its solution that cannot be certified within the budget."""


class IndefiniteError(Exception):
    """A matrix that has a negative eigenvalue, proven."""


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """A = G + ridge I, exactly.

    Args:
        gram: G, symmetric.
        ridge: kept apart, so that a ridge of many digits costs the products with G nothing.
    """

    gram: Digits
    ridge: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """(d, d)."""
        return self.gram.shape

    @property
    def step_bits(self) -> int:
        """The width of digits of what G is multiplied by."""
        return bits_beside(self.shape[0], self.gram.bits)

    @property
    def diagonal(self) -> FloatVector:
        """A's diagonal in float64; an entry is zero only where A's is."""
        planes = self.gram.planes.diagonal(axis1=1, axis2=2)[:, None]
        diagonal: FloatVector = Digits(planes, self.gram.bits, self.gram.exponent).floats()[0] + self.ridge
        return diagonal

    def of(self, chosen: NDArray[np.intp]) -> System:
        """The system of some rows and columns."""
        if len(chosen) == self.shape[0]:
            return self
        return System(self.gram[np.ix_(chosen, chosen)], self.ridge)

    def __matmul__(self, right: Digits) -> Digits:
        product = self.gram @ right
        return product + right.times(self.ridge) if self.ridge else product

    def floats(self) -> FloatMatrix:
        """Each entry within 2^-51 of its value, relatively."""
        matrix = self.gram.floats()
        matrix.reshape(-1)[:: self.shape[0] + 1] += self.ridge
        return matrix

    def joined(self) -> Digits:
        """A as one matrix."""
        if not self.ridge:
            return self.gram
        return self.gram + Digits.of(np.eye(self.shape[0]), self.gram.bits).times(self.ridge)


@dataclass(frozen=True, slots=True, eq=False)
class Inverse:
    """A^-1 = X^T B^-1 X approximately, where B = X A X^T is proven positive definite, and so A.

    Let float64 Cholesky of M = fl(B' - s I) run to its end, with B' = B in float64, for an s that a factor of B' itself
    suggests: a quarter of the smallest eigenvalue, or what rounding asks for. M's factor is that of M + E
    exactly, |E_ij| <= c sqrt(m_ii m_jj) with c = g / (1 - g) and g = k u / (1 - k u), k = d + 1 for any order of the
    sums (Demmel, LAPACK Working Note 14, 1989; Higham, Accuracy and Stability, Thm 10.3; Rump, Verification of positive
    definiteness, BIT 46 (2006) 433-452), so lambda_min(M) >= -c tr(M). We take k = 2 d + 16, which covers kernels that
    multiply by a rounded reciprocal of the pivot. Entries of B' are within 4 u of B's, and the subtraction rounds once:

        lambda_min(B) >= s - c tr(M) - 4 u |B'|_F - u max |m_ii| - underflow  =: least.

    The error of a W with residual R is A^-1 R = X^T B^-1 X R, so |e_ij| <= |X e_i| |X R e_j| / least. X is a diagonal
    of powers of two first; where B is too ill-conditioned for float64, the inverse of its factor multiplies X, rounded
    to digits so that X A X^T is exact again (Rump, Inversion of extremely ill-conditioned matrices in floating-point,
    Japan J. Indust. Appl. Math. 26 (2009) 249-277).

    Args:
        outer: X: its diagonal, shape (d,), or all of it, shape (d, d).
        factor: L with L L^T = B nearly, in its lower triangle.
        least: the proven lower bound of B's smallest eigenvalue.
        reciprocal_condition: an estimate for B in the 1-norm.
    """

    outer: FloatMatrix
    factor: FloatMatrix
    least: float
    reciprocal_condition: float

    def __call__(self, right: FloatMatrix) -> FloatMatrix:
        """A^-1 times a matrix, approximately."""
        solution: FloatMatrix
        solution, _ = scipy.linalg.lapack.dpotrs(self.factor, self._times(right), lower=1)
        return self.outer[:, None] * solution if self.outer.ndim == 1 else self.outer.T @ solution

    def error(self, residual: FloatMatrix) -> FloatMatrix:
        """Bounds of |A^-1 R|, entry by entry; R is known within 2^-52 of its entries."""
        size = len(self.outer)
        norms = lengths(self._times(residual))
        if self.outer.ndim == 1:
            heights = self.outer
        else:
            heights = np.linalg.norm(self.outer, axis=0)
            norms = norms + 4 * size * UNIT * np.linalg.norm(self.outer) * lengths(residual)
        bounds: FloatMatrix = heights[:, None] * (norms * (INFLATE / self.least))
        return bounds

    @property
    def largest(self) -> float:
        """A bound of 1 / lambda_min(A): |X|^2 / least."""
        outer = self.outer.max() if self.outer.ndim == 1 else np.linalg.norm(self.outer)
        return float(outer**2 / self.least * INFLATE)

    def _times(self, right: FloatMatrix) -> FloatMatrix:
        return self.outer[:, None] * right if self.outer.ndim == 1 else self.outer @ right


def lengths(matrix: FloatMatrix) -> FloatVector:
    """The 2-norms of columns, without squares that leave float64."""
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    scaled = np.divide(matrix, largest, out=np.zeros_like(matrix), where=largest > 0)
    norms: FloatVector = np.linalg.norm(scaled, axis=0) * largest
    return norms


def inverses(system: System) -> Iterator[Inverse | None]:
    """Approximate inverses with proof, each better than the one before; None for one that float64 could not prove.

    Raises:
        IndefiniteError: a vector v with v^T A v < 0, which is exact.
        UndecidedError: entries so small beside others that float64 would lose them.
    """
    if system.gram.exponent < LOWEST:
        raise UndecidedError
    matrix = system.floats()
    if (matrix.diagonal() <= 0).any():
        raise IndefiniteError
    outer = _powers(matrix.diagonal())
    matrix *= outer
    matrix *= outer[:, None]
    for _ in range(LEVELS if len(matrix) <= SMALL else LEVELS // 10):
        with one_blas_thread():  # the conditioning is reported as it comes
            factor, least, rcond = _factored(matrix)
        if least > 0:
            del matrix  # what refines with this inverse needs the room
            yield Inverse(outer, factor, least, rcond)
        else:
            yield None
            with one_blas_thread():
                _refuse_negative(system, matrix, outer)
                factor = _lifted(matrix)
        inner, _ = scipy.linalg.lapack.dtrtri(np.asfortranarray(np.tril(factor)), lower=1)
        rows = inner * outer if outer.ndim == 1 else inner @ outer
        rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1))[1][:, None])
        digits = Digits.rounded(rows, system.step_bits, 2)
        product = digits @ (system @ digits.T)
        if product.exponent < LOWEST:
            raise UndecidedError
        matrix = product.floats()
        scale = _powers(matrix.diagonal())
        matrix *= scale
        matrix *= scale[:, None]
        outer = scale[:, None] * digits.floats()


def proven(better: Iterator[Inverse | None]) -> Iterator[Inverse]:
    """The inverses that have a proof.

    Raises:
        UndecidedError: no more of them.
    """
    yield from (inverse for inverse in better if inverse is not None)
    raise UndecidedError


def _factored(matrix: FloatMatrix) -> tuple[FloatMatrix, float, float]:
    """A factor of B, a lower bound of its smallest eigenvalue, 0 without proof, and its reciprocal condition.

    A bound uses B up (``verified``).
    """
    factor: FloatMatrix
    factor, failed = scipy.linalg.lapack.dpotrf(np.array(matrix.T, order="F"), lower=1, overwrite_a=1, clean=0)
    if failed:
        return factor, 0.0, 0.0
    norm = max(float(np.abs(rows).sum(axis=1).max()) for rows in np.array_split(matrix, -(-len(matrix) // SMALL)))
    rcond, _ = scipy.linalg.lapack.dpocon(factor, norm, uplo="L")
    return factor, verified(matrix, norm * float(rcond) / 4), float(rcond)


def verified(matrix: FloatMatrix, guess: float = 0.0) -> float:
    """A lower bound of B's smallest eigenvalue, near the guess if that is one; 0 without proof (see ``Inverse``).

    B's own memory takes the factor, above the diagonal. Without proof B is restored from below it; else it is used up.
    """
    d, trace = len(matrix), float(np.trace(matrix))
    k = (2 * d + 16) * UNIT
    c = k / (1 - 2 * k)
    least_shift = 4 * (c + 8 * UNIT) * trace
    norm, diagonal = float(np.linalg.norm(matrix)), matrix.diagonal().copy()
    assert matrix.flags.c_contiguous, "its transpose is what LAPACK overwrites"
    for shift in (guess, least_shift) if guess > least_shift else (least_shift,):
        np.fill_diagonal(matrix, diagonal - shift)
        largest = float(np.abs(matrix.diagonal()).max(initial=0.0))
        lost = c * abs(float(np.trace(matrix))) + 4 * UNIT * norm + UNIT * largest + 2.0**-60
        _, failed = scipy.linalg.lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
        if not failed:
            return max(0.0, (shift - lost * INFLATE) / INFLATE)
        np.fill_diagonal(mirrored(matrix), diagonal)
    return 0.0


def _lifted(matrix: FloatMatrix) -> FloatMatrix:
    """A factor of B + t I for a t that float64 needs."""
    factor: FloatMatrix
    shift = 8 * (len(matrix) + 8) * UNIT * float(np.trace(matrix))
    while True:
        lifted = np.array(matrix, order="F")
        lifted.T.reshape(-1)[:: len(matrix) + 1] += shift
        factor, failed = scipy.linalg.lapack.dpotrf(lifted, lower=1, overwrite_a=1)
        if not failed:
            return factor
        shift *= 8


def _powers(diagonal: FloatVector) -> FloatVector:
    """Powers of two that bring a diagonal near one."""
    powers: FloatVector = np.ldexp(1.0, -(np.frexp(diagonal)[1] // 2))
    return powers


def _refuse_negative(system: System, matrix: FloatMatrix, outer: FloatMatrix) -> None:
    """Raise where v^T A v < 0, exactly, for the v that float64 thinks of."""
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[0, 0])
    if values[0] < 0:
        vector = outer[:, None] * vectors if outer.ndim == 1 else outer.T @ vectors
        digits = Digits.rounded(vector, system.step_bits, 2)
        if (digits.T @ (system @ digits)).floats()[0, 0] < 0:
            raise IndefiniteError


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A system as ``refined`` solves it: W = expand(Z), and R = H - image(expand(Z)).

    Args:
        right: H, the right side.
        step_bits: the width of digits of a step.
        expand: from what is solved for to the weights, exactly.
        image: from weights to what H is compared with, exactly.
        step: an approximate solution Z of a residual.
        error: bounds of the error of W, by its residual.
        rational: the exact solution for some columns, by rows, or None where that takes too long.
    """

    right: Digits
    step_bits: int
    expand: Callable[[Digits], Digits]
    image: Callable[[Digits], Digits]
    step: Callable[[Inverse, FloatMatrix], FloatMatrix]
    error: Callable[[Inverse, FloatMatrix], FloatMatrix]
    rational: Callable[[NDArray[np.intp]], list[Any]] | None


def refined(problem: Problem, better: Iterator[Inverse], shape: tuple[int, int], *, exponent: int) -> FloatMatrix:
    """The solution times 2^exponent, correctly rounded.

    Args:
        problem: what is solved.
        better: approximate inverses, each better than the one before.
        shape: (d, c) of the weights.
        exponent: of the unit of the weights.

    Raises:
        UndecidedError: an entry that only rational arithmetic decides, where that would take too long.
    """
    weights, open_entries = np.zeros(shape), np.zeros(shape, dtype=bool)
    active = np.flatnonzero(problem.right.planes.any(axis=(0, 1)))
    inverse, at_once = next(better), min(max(MIN_COLUMNS, shape[0] // COLUMNS_PART), MAX_COLUMNS)
    for part in np.array_split(active, max(1, -(-len(active) // at_once))):
        inverse = _refine_columns(problem, part, inverse, better, weights, open_entries)
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(weights, exponent)
        open_entries |= np.ldexp(result, -exponent) != weights
    return by_rationals(problem, result, open_entries, exponent)


def _refine_columns(
    problem: Problem,
    active: NDArray[np.intp],
    inverse: Inverse,
    better: Iterator[Inverse],
    weights: FloatMatrix,
    open_entries: NDArray[np.bool_],
) -> Inverse:
    """Fill in these columns of the weights, and what digits leave open; return the inverse that was enough."""
    residual = problem.right[:, active]
    high, low, slack = np.zeros((3, len(weights), len(active)))
    floats, last = residual.floats(), np.inf
    while len(active):
        step = problem.expand(Digits.rounded(problem.step(inverse, floats), problem.step_bits, 2))
        residual = residual - problem.image(step)
        high, low, slack = _added(high, low, slack, step)
        floats = residual.floats()
        error = problem.error(inverse, floats) + slack
        # without a residual the solution is high + low itself, and high is rounded to nearest, ties to even
        undecided = ~(rounds_to_high(high, low, error) | ((slack == 0) & ~residual.planes.any(axis=(0, 1))))
        # an entry that digits do not decide: zero, a tie, or one so small beside its column that it comes to the same
        largest = np.abs(high).max(axis=0)
        hopeless = undecided & (error <= np.maximum(np.abs(high) * 2.0**-104, largest * 2.0**-140))
        hopeless |= undecided & (residual.exponent < LOWEST)
        settled = ~(undecided & ~hopeless).any(axis=0)
        done = active[settled]
        weights[:, done], open_entries[:, done] = high[:, settled], undecided[:, settled]
        worst = float(error.max())
        if worst > last / 64:
            inverse = next(better)
        last = worst
        if settled.any():
            rest = np.flatnonzero(~settled)
            active, residual = active[rest], residual[:, rest]
            high, low, slack, floats = high[:, rest], low[:, rest], slack[:, rest], floats[:, rest]
            last = np.inf
    return inverse


def _added(high: FloatMatrix, low: FloatMatrix, slack: FloatMatrix, step: Digits) -> tuple[FloatMatrix, ...]:
    """A sum of two floats and a bound of what it leaves out, plus an exact matrix."""
    upper, lower, lost = step.parts()
    high, first = two_sum(high, upper)
    low, second = two_sum(low, first)
    low, third = two_sum(low, lower)
    high, low = two_sum(high, low)
    return high, low, (slack + lost + np.abs(second) + np.abs(third)) * INFLATE


def by_rationals(problem: Problem, weights: FloatMatrix, open_entries: NDArray[np.bool_], exponent: int) -> FloatMatrix:
    """Weights whose open entries are the rational solution times 2^exponent, rounded once."""
    columns = np.flatnonzero(open_entries.any(axis=0))
    if not len(columns):
        return weights
    if problem.rational is None:
        raise UndecidedError
    values = problem.rational(columns)
    for row, place in zip(*np.nonzero(open_entries[:, columns]), strict=True):
        value = values[row * len(columns) + place]
        up, down = int(value.p) << max(exponent, 0), int(value.q) << max(-exponent, 0)
        weights[row, columns[place]] = up / down  # Python's division of integers rounds correctly
    return weights


def whole(matrix: Digits) -> Any:
    """A matrix as flint's, in units of its exponent."""
    values, _ = matrix.integers()
    rows, columns = matrix.shape
    return flint.fmpz_mat(rows, columns, values)


def by_minors(matrix: Digits) -> bool:
    """Whether a small matrix is positive definite by its leading minors (Sylvester), where float64 cannot say it."""
    size = matrix.shape[0]
    return size <= SMALL and all(whole(matrix[:k, :k]).det() > 0 for k in range(1, size + 1))


def positive_definite(system: System, right: Digits, better: Iterator[Inverse], *, exponent: int) -> FloatMatrix:
    """The solution of A W = H times 2^exponent, correctly rounded.

    Raises:
        UndecidedError: see ``refined``.
        IndefiniteError: see ``inverses``.
    """

    def rational(columns: NDArray[np.intp]) -> list[Any]:
        matrix, chosen = system.joined(), right[:, columns]
        scale = flint.fmpq(2) ** (chosen.exponent - matrix.exponent)
        return [value * scale for value in whole(matrix).solve(whole(chosen)).entries()]

    problem = Problem(
        right=right,
        step_bits=system.step_bits,
        expand=lambda step: step,
        image=lambda step: system @ step,
        step=lambda inverse, residual: inverse(residual),
        error=lambda inverse, residual: inverse.error(residual),
        rational=rational if system.shape[0] <= EXACT_SIZE else None,
    )
    shape = system.shape[0], right.shape[1]
    try:
        return refined(problem, better, shape, exponent=exponent)
    except UndecidedError:
        if not by_minors(system.joined()):
            raise
    return by_rationals(problem, np.zeros(shape), np.ones(shape, dtype=bool), exponent)


def transform(
    gram: Digits,
    cross: Digits,
    weights: Digits,
    gamma: tuple[float, int],
    *,
    step: Callable[[FloatMatrix], FloatMatrix],
    smallest: float,
) -> FloatMatrix:
    """The exact solution of A Omega W W^T + gamma Omega = C W^T, every entry rounded once.

    A Z of shape (d_F, c) with A Z S + gamma Z = C, S = W^T W, gives the solution Omega = Z W^T: multiply by W^T. W is
    of float64 numbers, so S is exact in digits, and so is the residual R = C - A Z S - gamma Z of a Z of digits.
    Eigenvectors in float64 only find the next correction of Z.

    The operator S (x) A + gamma I is symmetric. S is a Gram exactly, so its eigenvalues lie between 0 and its trace;
    with proven lower bounds a of A's eigenvalues and s of S's (``verified``) the operator's are at least

        sigma = gamma + a s where a > 0,   gamma + a tr(S) where not.

    Nobody needs to believe that A is a Gram: rounding alone makes a slightly negative. Z is wrong by |R|_F / sigma in
    the Frobenius norm at most, and column j of Omega by that times |w_j|, row j of W. Z is refined until no entry's
    interval holds two roundings.

    Each entry is the nearest multiple of 2^(e - 53), ties to even, with e the least of all |entries| < 2^e.

    Args:
        gram: A, shape (d_F, d_F), symmetric, entries below one.
        cross: C, shape (d_F, c), likewise.
        weights: W, shape (d_Phi, c), likewise.
        gamma: a number and the power of two that it is to be multiplied by; at most one.
        step: an approximate solution Z of a residual in place of C.
        smallest: what float64 takes for A's smallest eigenvalue.

    Raises:
        UndecidedError: sigma is not proven to be positive, float64 takes no correction further, or an entry is exactly
            between two multiples (and Z no number of few digits).
    """
    if min(gram.exponent, cross.exponent, weights.exponent) < LOWEST:
        raise UndecidedError
    square, floats = weights.T @ weights, weights.floats()
    sigma = _least_of_operator(gram.floats(), square.floats(), math.ldexp(*gamma), smallest)
    heights = lengths(floats.T)
    found, residual, last = Digits.of(np.zeros(cross.shape), cross.bits), cross, math.inf
    while True:
        rest = residual.floats()
        left = float(lengths(rest.reshape(-1, 1))[0])
        errors = heights * (left / sigma * INFLATE)
        near = float(np.abs(found.floats() @ floats.T).max(initial=0.0)) * 2.0**-53
        if errors.max() <= near * 2.0**-10:
            rounded = _rounded(found, weights, errors)
            if rounded is not None:
                return rounded
        if errors.max() <= near * 2.0**-60 or left > last / 2 or residual.exponent < LOWEST:
            raise UndecidedError
        delta = Digits.rounded(step(rest), cross.bits, 2)
        residual = residual - (gram @ (delta @ square) + delta.times(gamma[0]).shifted(gamma[1]))
        found, last = found + delta, left


def _least_of_operator(gram: FloatMatrix, square: FloatMatrix, gamma: float, smallest: float) -> float:
    """Sigma of ``transform``.

    Raises:
        UndecidedError: it is not positive.
    """
    a, trace = _least_eigenvalue(gram, smallest), float(np.trace(square)) * INFLATE
    product = a * max(0.0, _least_eigenvalue(square, 0.0)) / INFLATE if a > 0 else a * trace * INFLATE
    sigma = (gamma if gamma > 2.0**LOWEST else 0.0) * (1 - 2.0**-40) + product
    if not sigma > 2.0**LOWEST:
        raise UndecidedError
    return sigma / INFLATE


def _least_eigenvalue(matrix: FloatMatrix, guess: float) -> float:
    """A lower bound of the smallest eigenvalue of a matrix whose entries are within 4 u of these."""
    if not matrix.any():
        return 0.0
    d, size = len(matrix), math.frexp(float(np.abs(matrix.diagonal()).max()))[1]
    matrix, below = np.ldexp(matrix, -size), math.ldexp(max(0.0, -guess), -size)  # about one, as ``verified`` wants it
    lift = below + 6 * (2 * d + 24) * UNIT * (float(np.trace(matrix)) + d * below) + 2.0**-56
    for added in (0.0, lift):
        lifted = matrix.copy()
        lifted.reshape(-1)[:: d + 1] += added
        largest = float(np.abs(lifted.diagonal()).max())
        least = verified(lifted)
        if least > 0:
            lost = 4 * UNIT * largest if added else 0.0
            return math.ldexp(least - (added + lost) * INFLATE, size)
    return -math.inf


def _rounded(found: Digits, weights: Digits, errors: FloatVector) -> FloatMatrix | None:
    """Z W^T on its grid; None where an entry within ``errors`` of it, by columns, may be rounded to something else."""
    shape = found.shape[0], weights.shape[0]
    high, low, slack = np.empty((3, *shape))
    for start in range(0, shape[0], BLOCK_ROWS):
        place = slice(start, start + BLOCK_ROWS)
        high[place], low[place], slack[place] = (found[place] @ weights.T).parts()
    slack += errors
    sizes, margins = np.abs(high), (np.abs(low) + slack) * INFLATE
    largest = float(np.where(margins > 0, np.nextafter(sizes + margins, np.inf), sizes).max())
    if not largest:
        return high + 0.0
    exponent = math.frexp(largest)[1]
    if np.where(margins > 0, np.nextafter(sizes - margins, -np.inf), sizes).max() < math.ldexp(0.5, exponent):
        return None  # nobody knows yet which power of two is above the largest entry
    units = np.ldexp(high, 53 - exponent)
    whole = np.rint(units)
    offset = (units - whole) + np.ldexp(low, 53 - exponent)
    more = np.rint(offset)
    decided = np.abs(offset - more) + (np.ldexp(slack, 53 - exponent) * INFLATE + 2.0**-50) < 0.5
    if not (decided | (margins == 0)).all():  # without a margin high is the number itself
        return None
    rounded: FloatMatrix = np.ldexp(whole + more, exponent - 53) + 0.0
    return rounded


def log_determinant(matrix: Digits, over: Fraction = Fraction(1)) -> float:
    """Return the multiple of 2^-40 that is nearest to log(det A / over).

    With X an approximate inverse of A's triangular factor the product P = X A X^T, which is exact, is nearly diagonal.
    Let P = D^(1/2) (I + E) D^(1/2) with P's diagonal D, so that E's is zero. Since |tr E^k| <= |E|_F^k from k = 2 on,

        log det A = log(det D / det X^2) - |E|_F^2 / 2 + r,    |r| <= |E|_F^3 / (3 (1 - |E|_F)),

    and det D and det X are products of a few hundred numbers that are known exactly. X is improved until the interval
    of log det A holds one rounding only. The logarithm of a rational other than 1 is transcendental (Lindemann), so
    that none is a tie; where no X is good enough the determinant itself is computed, in integers.

    Args:
        matrix: A, symmetric and positive definite, shape (d, d).
        over: a number above 0.
    """
    with one_blas_thread():
        try:
            for inverse in proven(inverses(System(matrix))):
                found = _nearest(*_nearly(matrix, inverse), over)
                if found is not None:
                    return found
        except UndecidedError:
            pass
    exact = Fraction(int(whole(matrix).det())) * Fraction(2) ** (matrix.exponent * matrix.shape[0])
    found = _nearest(exact, 0.0, over)
    assert found is not None, "the logarithm of a rational number is no tie"
    return found


def _nearly(matrix: Digits, inverse: Inverse) -> tuple[Fraction, float]:
    """Det D / det X^2, exactly, and |E|_F^2; infinity where that is no number."""
    inner, _ = scipy.linalg.lapack.dtrtri(np.asfortranarray(np.tril(inverse.factor)), lower=1)
    rows = inner * inverse.outer if inverse.outer.ndim == 1 else inner @ inverse.outer
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=1))[1][:, None])
    outer = Digits.rounded(rows, matrix.bits, 2)
    product = outer @ (matrix @ outer.T)
    diagonal, floats = _diagonal(product), product.floats()
    scale = 1.0 / np.sqrt(floats.diagonal())
    floats = scale[:, None] * floats * scale
    np.fill_diagonal(floats, 0.0)
    return diagonal / _diagonal(outer) ** 2, float(np.square(floats).sum())


def _diagonal(matrix: Digits) -> Fraction:
    """The product of a diagonal."""
    planes: NDArray[np.float64] = matrix.planes.diagonal(axis1=1, axis2=2)[:, None]
    values, exponent = Digits(planes, matrix.bits, matrix.exponent).integers()
    return math.prod(values) * Fraction(2) ** (exponent * len(values))


def _nearest(determinant: Fraction, square: float, over: Fraction) -> float | None:
    """The one rounding of log(determinant / over) - square / 2 + r; None where there are several."""
    norm = math.sqrt(square) * INFLATE
    if not norm < 0.5:
        return None
    error = square * LOST + norm**3 / (3 * (1 - norm)) * INFLATE
    ratio = determinant / over
    with ctx.workprec(192):
        value = arb(ratio.numerator).log() - arb(ratio.denominator).log() - arb(square / 2, error)
        whole_units = (value * arb(2) ** FRACTION_BITS + arb(1) / 2).floor().unique_fmpz()
    return None if whole_units is None else math.ldexp(int(whole_units), -FRACTION_BITS)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS and LAPACK on one thread: results then have the same bits whatever the machine's core count.

    One Python thread at a time gets in; the others wait.
    """
    with _ONE_AT_A_TIME, _threadpools().limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _threadpools() -> ThreadpoolController:
    scipy.linalg.blas  # noqa: B018  (scipy loads it when it is first named; a pool that is not loaded is not counted)
    return ThreadpoolController()
