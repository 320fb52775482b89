"""What public totals prove about the entries of the rows to come, so that formats need not be guessed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytic.integer_maps import FixedMatrix, IntMatrix, quadratic_forms

FloatVector = NDArray[np.float64]

ROOM = 32
"""A format holds at least this many times the root mean square of a column, however few rows were in the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBounds:
    """What the totals so far prove about the entries of the next rows, public like them.

    Args:
        features: largest |entry| of each column of Phi_t, shape (d_Phi,).
        hidden: largest |entry| of F_t; for the blocks still to come where these are fed by Phi_0.
        residuals: largest |entry| of R_t.
    """

    features: FloatVector
    hidden: tuple[float, ...] = ()
    residuals: float = 0.0

    def __post_init__(self) -> None:
        self.features.setflags(write=False)

    def to_bytes(self) -> bytes:
        """One byte string for one value."""
        return self.features.tobytes() + np.array([self.residuals, *self.hidden]).tobytes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedRows:
    """What a total proves about each of its rows. Integers decide, and a bound is rounded upward once at the end.

    Args:
        gram: sum of q q^T over the quantised rows q, shape (d, d), in units of 2^-2f.
        count: number of rows.
        fraction_bits: f; a row differs from its quantised one by less than 2^-f in each entry.
    """

    gram: IntMatrix
    count: int
    fraction_bits: int

    def largest_entries(self) -> FloatVector:
        """A bound on |x_j| for every column j and every row x in the total: sqrt(G_jj) and the unit."""
        squares = np.diagonal(self.gram).tolist()
        return np.array([upward(self._root(square) + 1, -self.fraction_bits) for square in squares])

    def largest_products(self, matrix: FixedMatrix) -> FloatVector:
        """A bound on |x . m_j| for every column m_j of ``matrix`` and every row x in the total.

        (q . m)^2 <= m^T G m, to which come 2^-f |m|_1 for quantising and the bias of m.
        """
        squares, exponent = quadratic_forms(self.gram, matrix), -self.fraction_bits - matrix.fraction_bits
        more = matrix.sums + (np.abs(matrix.bias_units) << self.fraction_bits)
        pairs = zip(squares, more.tolist(), strict=True)
        return np.array([upward(self._root(square) + added, exponent) for square, added in pairs])

    def _root(self, square: int) -> int:
        """The square root, with room, rounded up."""
        square = max(0, square)
        if 0 < self.count < ROOM**2:
            square = -(-square * ROOM**2 // self.count)
        return math.isqrt(square - 1) + 1 if square else 0


def upward(units: int, exponent: int) -> float:
    """The least float64 that is at least units 2^exponent."""
    nearest = float(units)
    return math.ldexp(nearest if int(nearest) >= units else math.nextafter(nearest, math.inf), exponent)
