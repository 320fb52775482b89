"""Certified transforms: the exact solution of A Omega W W^T + gamma Omega = C W^T, every entry rounded once.

A Z of shape (d_F, c) with A Z S + gamma Z = C, S = W^T W, gives the solution Omega = Z W^T: multiply by W^T. W is of
float64 numbers, so S is exact in digits, and so is the residual R = C - A Z S - gamma Z of a Z of digits. Eigenvectors
in float64 only find the next correction of Z.

The operator S (x) A + gamma I is symmetric. S is a Gram exactly, so its eigenvalues lie between 0 and its trace; with
proven lower bounds a of A's eigenvalues and s of S's (``analytic.certified.verified``) the operator's are at least

    sigma = gamma + a s where a > 0,   gamma + a tr(S) where not.

Nobody needs to believe that A is a Gram: rounding alone makes a slightly negative. Z is wrong by |R|_F / sigma in the
Frobenius norm at most, and column j of Omega by that times |w_j|, row j of W. Z is refined until no entry's interval
holds two roundings.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from analytic.certified import LOWEST, UNIT, FloatVector, UndecidedError, lengths, verified
from analytic.digits import INFLATE, Digits
from analytic.row_format import FloatMatrix

BLOCK_ROWS = 128
"""Rows of Omega whose digits are in memory at a time."""


def transform(
    gram: Digits,
    cross: Digits,
    weights: Digits,
    gamma: tuple[float, int],
    *,
    step: Callable[[FloatMatrix], FloatMatrix],
    smallest: float,
) -> FloatMatrix:
    """Omega, each entry the nearest multiple of 2^(e - 53), ties to even, with e the least of all |entries| < 2^e.

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
    """Sigma of the module's text.

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
        least = verified(lifted)
        if least > 0:
            lost = 4 * UNIT * float(np.abs(lifted.diagonal()).max()) if added else 0.0
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
