"""The mean of bounded rows from one sum: the centre that makes noisy statistics worth more.

Noise is sized for the longest row, and most of a raw feature row is what all rows have in common, which a classifier
needs least. A twentieth of the budget buys the mean; rows that are centred and brought back to the ball's surface then
spend the rest on what tells them apart. (On digits at epsilon 1 that was worth five points.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.row_format import FloatMatrix, RowFormat
from analytic.row_map import SHRINK, sum_of_squares
from analytic.statistics import IntVector
from analytic.whole_numbers import settle_whole_numbers

COUNT_WEIGHT = 3
"""A row counts with a third of the largest norm, so that its count takes a tenth of the sum's budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpec:
    """The public shape of the sum: the rows' entries, then L // 3 for each row.

    Args:
        n_features: d.
        limit: L, the largest norm of a row in lattice units.
        row_format: the lattice.
        max_rows: largest number of rows that all clients together may hold.
        client_limit: S, largest norm of one client's whole vector; None bounds rows only.

    Raises:
        SpecificationError: a lattice too coarse for the count, or a bound below one unit.
    """

    n_features: int
    limit: int
    row_format: RowFormat
    max_rows: int
    client_limit: int | None = None

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "limit", "max_rows")
        if self.client_limit is not None:
            settle_whole_numbers(self, "client_limit")
        if min(self.n_features, self.max_rows) < 1 or self.limit < COUNT_WEIGHT:
            raise SpecificationError(
                f"a mean needs features, rows and a norm of at least {COUNT_WEIGHT} units, not {self.n_features}, "
                f"{self.max_rows} and {self.limit}"
            )
        if self.client_limit is not None and self.client_limit < 1:
            raise SpecificationError(f"a client's bound is at least one unit, not {self.client_limit}")

    def check_total(self, total: IntVector, survivors: int) -> None:
        """Refuse nothing: the sum is made for noise."""

    @property
    def count_units(self) -> int:
        """What one row adds to the last entry."""
        return self.limit // COUNT_WEIGHT

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        return (
            ("rows", self.n_features, self.max_rows * self.limit),
            ("count", 1, self.max_rows * self.count_units),
        )

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most."""
        return (max_rows * self.limit, max_rows * self.count_units)

    def sum_of(self, rows: FloatMatrix) -> IntVector:
        """One client's vector from rows that were clipped onto the lattice; scaled down if it is beyond S.

        Raises:
            InvalidRowsError: another number of columns, or too many rows.
        """
        if rows.ndim != 2 or rows.shape[1] != self.n_features or len(rows) > self.max_rows:
            raise InvalidRowsError(
                f"the sum takes at most {self.max_rows} rows of {self.n_features} features, not {rows.shape}"
            )
        units = np.trunc(np.ldexp(rows, self.row_format.fraction_bits)).astype(np.int64)
        vector = np.append(units.sum(axis=0), len(rows) * self.count_units)
        return self._within(vector)

    def _within(self, vector: IntVector) -> IntVector:
        squared = sum_of_squares(vector)
        if self.client_limit is None or squared <= self.client_limit**2:
            return vector
        factor = math.sqrt(Fraction(self.client_limit**2, squared)) * SHRINK
        clipped: IntVector = np.trunc(vector * factor).astype(np.int64)
        assert sum_of_squares(clipped) <= self.client_limit**2
        return clipped

    def to_vector(self, statistics: IntVector) -> IntVector:
        """The vector itself."""
        return statistics

    def from_vector(self, vector: IntVector) -> IntVector:
        """The vector itself, noise and all."""
        if vector.dtype != np.int64 or vector.shape != (self.n_features + 1,):
            raise InvalidRowsError(
                f"a sum for a mean is int64 of shape ({self.n_features + 1},), not {vector.dtype} of {vector.shape}"
            )
        return vector

    def mean(self, total: IntVector) -> FloatMatrix:
        """The noisy mean row, shape (1, d), in the features' own units; within the ball, as every mean is."""
        rows = max(1.0, float(total[-1]) / self.count_units)
        mean = np.ldexp(total[:-1].astype(np.float64), -self.row_format.fraction_bits)[None, :] / rows
        longest = math.ldexp(self.limit, -self.row_format.fraction_bits)
        length = float(np.sqrt(np.square(mean).sum()))
        within: FloatMatrix = mean if length <= longest else mean * (longest / length)
        return within
