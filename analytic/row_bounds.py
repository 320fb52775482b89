"""What public totals prove about the entries of the rows to come, so that formats need not be guessed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytic.row_format import FloatMatrix
from analytic.solve import one_blas_thread

FloatVector = NDArray[np.float64]

ROOM = 32.0
"""A format holds at least this many times the root mean square of a column, however few rows were in the total."""

EPSILON = float(np.finfo(np.float64).eps)


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
    """What a total proves about each of its rows.

    Args:
        gram: sum of q q^T over the quantised rows q, shape (d, d).
        count: number of rows.
        unit: 2^-f; a row differs from its quantised one by less than that in each entry.
    """

    gram: FloatMatrix
    count: int
    unit: float

    def largest_entries(self) -> FloatVector:
        """A bound on |x_j| for every column j and every row x in the total: sqrt(G_jj) and the unit."""
        return self._norms() * self._room() + self.unit

    def largest_products(self, matrix: FloatMatrix) -> FloatVector:
        """A bound on |x . m_j| for every column m_j of ``matrix`` and every row x in the total.

        (q . m)^2 <= m^T G m, to which come 4 d eps (|m| . sqrt(diag G))^2 for rounding in float64, here and where
        the rows are computed, and unit |m|_1 for quantising.
        """
        with one_blas_thread():
            squares = np.einsum("ij,ij->j", matrix, self.gram @ matrix)
            sizes = np.abs(matrix)
            rounding = 4.0 * len(matrix) * EPSILON * (self._norms() @ sizes) ** 2
        quantised = np.sqrt(np.maximum(squares, 0.0) + rounding) * self._room()
        bounds: FloatVector = quantised + self.unit * sizes.sum(axis=0)
        return bounds

    def _norms(self) -> FloatVector:
        norms: FloatVector = np.sqrt(np.maximum(np.diagonal(self.gram), 0.0))
        return norms

    def _room(self) -> float:
        return max(1.0, ROOM / math.sqrt(self.count)) if self.count else 1.0
