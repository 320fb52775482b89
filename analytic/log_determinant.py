"""The logarithm of an exact determinant, rounded once: the same bits on every machine.

With X an approximate inverse of A's triangular factor the product P = X A X^T, which is exact (``analytic.digits``),
is nearly diagonal. Let P = D^(1/2) (I + E) D^(1/2) with P's diagonal D, so that E's is zero. Since |tr E^k| <= |E|_F^k
from k = 2 on,

    log det A = log(det D / det X^2) - |E|_F^2 / 2 + r,    |r| <= |E|_F^3 / (3 (1 - |E|_F)),

and det D and det X are products of a few hundred numbers that are known exactly. X is improved until the interval of
log det A holds one rounding only. The logarithm of a rational other than 1 is transcendental (Lindemann), so that none
is a tie; where no X is good enough the determinant itself is computed, in integers.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray
from scipy.linalg import lapack

from analytic.certified import Inverse, System, UndecidedError, inverses, proven, whole
from analytic.digits import INFLATE, Digits
from analytic.solve import one_blas_thread

FRACTION_BITS = 40
"""What logarithms are multiples of is 2^-40."""
LOST = 2.0**-20
"""Covers, relatively, the rounding of |E|_F^2, up to 2^30 squares."""


def log_determinant(matrix: Digits, over: Fraction = Fraction(1)) -> float:
    """Return the multiple of 2^-40 that is nearest to log(det A / over).

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
    inner, _ = lapack.dtrtri(np.asfortranarray(np.tril(inverse.factor)), lower=1)
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
