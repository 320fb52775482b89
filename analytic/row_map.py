"""Public rules that bound what a row, or a client, adds to a sum: clip, bring to a norm, centre.

Rows are clipped before they are quantised and quantised toward zero, and the integers' norm is then checked exactly, so
a bound is a fact about integers and not about rounding. Everything is counted in lattice units of 2^-f.

A first sum may buy the mean of bounded rows (``MeanSpec``), the centre that makes noisy statistics worth more. Noise is
sized for the longest row, and most of a raw feature row is what all rows have in common, which a classifier needs
least. A twentieth of the budget buys the mean; rows that are centred and brought back to the ball's surface then spend
the rest on what tells them apart. (On digits at epsilon 1 that was worth five points.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import FloatMatrix, RowFormat, refuse_mask
from analytic.shape_repr import shape_repr
from analytic.statistics import IntVector, Statistics
from analytic.whole_numbers import settle_whole_numbers

SHRINK = 1.0 - 2.0**-40
"""Scaling a row to its bound aims this much lower, so that rounding in float64 cannot carry it beyond."""

BLOCK_ROWS = 256
"""Rows that are scaled at a time: what is made on the way then stays in a processor's cache."""

CLIPPED_ROWS = "clipped rows"
CLIPPED_CONTRIBUTION = "clipped contribution"
"""Key in a client's own memory of what was clipped. It depends on its rows and is never sent."""

COUNT_WEIGHT = 3
"""A row counts with a third of the largest norm, so that its count takes a tenth of the sum's budget."""


class RowsBeyondBoundError(InvalidRowsError):
    """Rows are longer than the norm that noise was calibrated to, and clipping is off.

    Args:
        n_rows: how many.
    """

    def __init__(self, message: str, *, n_rows: int) -> None:
        self.n_rows = n_rows
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClippedRows:
    """Rows on the lattice, none longer than the bound.

    Args:
        rows: real numbers that are multiples of 2^-f, shape (n, d), or (n, d + 1) with a bias feature.
        n_clipped: how many rows were longer than the bound. It depends on the data: show it to its owner only.
    """

    rows: FloatMatrix
    n_clipped: int

    __repr__ = shape_repr


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClip:
    """The public rule that bounds every row's Euclidean norm.

    Args:
        bound: B, chosen without looking at the data.
        row_format: the lattice; it must hold B itself.
        normalise: bring every row but a zero one to the norm B instead of only those beyond.
        clip: shorten rows beyond B; False refuses them.
        bias: b, part of the norm given to a constant last feature: x becomes (x, b B) with |x| at most
            B sqrt(1 - b^2), so that the bias lies inside the ball. 0 for none.

    Raises:
        SpecificationError: a bound that is not positive or does not fit the format, or a bias outside the ball.
    """

    bound: float
    row_format: RowFormat
    normalise: bool = False
    clip: bool = True
    bias: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise SpecificationError(f"a clip bound must be a finite number > 0, not {self.bound}")
        if not 0 <= self.bias < 1:
            raise SpecificationError(
                f"a bias feature must lie inside the ball: its part of the norm is 0 to below 1, not {self.bias}"
            )
        if not 1 <= self.limit <= self.row_format.magnitude:
            raise SpecificationError(
                f"the clip bound {self.bound:g} is {self.limit} units of {self.row_format}, which holds 1 to "
                f"{self.row_format.magnitude}: use a format with more integer or fraction bits"
            )

    @property
    def limit(self) -> int:
        """L, the largest norm of a row in lattice units, rounded down: no released row is longer."""
        return math.floor(Fraction(self.bound) * (1 << self.row_format.fraction_bits))

    def n_features(self, n_given: int) -> int:
        """Columns after the bias feature is added."""
        return n_given + (self.bias > 0)

    def apply(self, features: NDArray[Any]) -> ClippedRows:
        """The rows that enter the sum.

        Raises:
            RowsOutsideFormatError: NaN, infinity, or values the format has no sign for.
            RowsBeyondBoundError: rows beyond the bound while ``clip`` is off.
        """
        rows = self._finite(features)
        whole = math.ldexp(self.limit, -self.row_format.fraction_bits)
        room = whole * math.sqrt(1.0 - self.bias**2) * (SHRINK if self.bias else 1.0)
        blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, len(rows), BLOCK_ROWS)]
        beyond = np.zeros(len(rows), dtype=np.bool_)
        for block in blocks:
            beyond[block] = self._beyond(rows[block], Fraction(room))
        if not self.clip and beyond.any():
            raise RowsBeyondBoundError(
                f"{int(beyond.sum())} of {len(rows)} rows are longer than the clip bound {room:g} that the noise is "
                "made for: scale them by a public factor, or let them be clipped with clip=True",
                n_rows=int(beyond.sum()),
            )
        mapped = np.empty((len(rows), self.n_features(rows.shape[1])))
        for block in blocks:
            part, chosen = rows[block], slice(None) if self.normalise else beyond[block]
            part[chosen] = _scaled_to(part[chosen], room * SHRINK)
            if self.bias:
                part = np.concatenate([part, np.full((len(part), 1), self.bias * whole * SHRINK)], axis=1)
            units = self.row_format.quantise(part)
            self._check(units)
            mapped[block] = self.row_format.dequantise(units)
        return ClippedRows(rows=mapped, n_clipped=int(beyond.sum()))

    def _finite(self, features: NDArray[Any]) -> FloatMatrix:
        refuse_mask(features)
        if features.ndim != 2 or features.dtype.kind not in "biuf":
            raise InvalidRowsError(
                f"features must be a matrix of real numbers, not {features.dtype} of shape {features.shape}"
            )
        rows = np.array(features, dtype=np.float64, order="C")
        if not np.isfinite(rows).all() or (not self.row_format.signed and (rows < 0).any()):
            raise RowsOutsideFormatError(
                f"rows hold NaN, infinity, or negative values that {self.row_format} has no sign for; repair them",
                n_rows=int((~np.isfinite(rows).all(axis=1)).sum()),
                largest=float(np.max(np.abs(rows), where=np.isfinite(rows), initial=0.0)),
            )
        return rows

    def _beyond(self, rows: FloatMatrix, room: Fraction) -> NDArray[np.bool_]:
        """Rows whose integers would be longer than the bound."""
        limit = math.floor(room * (1 << self.row_format.fraction_bits))
        largest = np.abs(rows).max(axis=1, initial=0.0)
        far: NDArray[np.bool_] = largest >= 2.0 * self.bound
        units = np.trunc(np.ldexp(np.where(far[:, None], 0.0, rows), self.row_format.fraction_bits))
        return far | (squared_norms(units) > float(limit) ** 2)

    def _check(self, units: FloatMatrix) -> None:
        longest = float(squared_norms(units).max(initial=0.0))
        if longest > self.limit**2:
            raise AssertionError("a clipped row is longer than the bound")  # what no input can cause


def squared_norms(units: FloatMatrix) -> NDArray[np.float64]:
    """Squared row norms of integers carried in float64: exact up to 2^53, and at least 2^53 where they are not.

    Every partial sum of squares up to 2^53 is an integer that float64 holds, in whatever order; and no rounding
    brings one beyond it below. A limit is at most 2^26 units long, so a comparison with its square is exact.
    """
    norms: NDArray[np.float64] = np.square(np.ascontiguousarray(units)).sum(axis=1)
    return norms


@dataclass(frozen=True, slots=True, kw_only=True)
class JointClip:
    """The public rule that bounds one client's whole contribution: |(G, w H)|_F <= S.

    Args:
        limit: S in units of the Gram.
        cross_weight: w, units of the Gram for one unit of the cross-correlation, a whole number.
    """

    limit: int
    cross_weight: int

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "limit", "cross_weight")
        if self.limit < 1 or self.cross_weight < 1:
            raise SpecificationError(
                f"a client's bound and the weight of its cross-correlation are whole numbers >= 1, not {self.limit} "
                f"and {self.cross_weight}"
            )

    def apply(self, statistics: Statistics) -> tuple[Statistics, bool]:
        """The contribution, scaled down and truncated toward zero if it is beyond S; and whether it was."""
        squared = self.squared_norm(statistics)
        if squared <= self.limit**2:
            return statistics, False
        factor = math.sqrt(Fraction(self.limit**2, squared)) * SHRINK
        clipped = Statistics(
            gram=np.trunc(statistics.gram * factor).astype(np.int64),
            cross=np.trunc(statistics.cross * factor).astype(np.int64),
            count=statistics.count,
        )  # what a bound is for has no sums of targets
        assert self.squared_norm(clipped) <= self.limit**2
        return clipped, True

    def squared_norm(self, statistics: Statistics) -> int:
        """|G|_F^2 + w^2 |H|_F^2 in exact integers."""
        return sum_of_squares(statistics.gram) + self.cross_weight**2 * sum_of_squares(statistics.cross)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTerms:
    """Public terms from which a learner makes its row map.

    Args:
        fraction_bits: f of the rows' lattice.
        nonnegative: no feature has a negative entry; a row that has one is then refused.
        centred: whether a first sum may buy the rows' mean.
        client_rows: for privacy of clients, how many rows a client is expected to hold; None for privacy of records.
        gram_share: part of the statistics' budget that goes to the Gram, which weighs a client's joint bound.
    """

    fraction_bits: int = 16
    nonnegative: bool = False
    centred: bool = False
    client_rows: int | None = None
    gram_share: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMap:
    """Row map of a linear learner: rows are clipped to a public norm, and centred first if that is asked for.

    Args:
        clip: the ball and the lattice of rows.
        centred: whether a first sum buys the mean of the clipped rows; rows then enter the second sum centred and
            brought to the norm of the bound again.
        client_bounds: largest norms of a client's whole contributions, for privacy of clients: to the mean, in lattice
            units, and to the statistics. None for privacy of records.
    """

    clip: RowClip
    centred: bool = False
    client_bounds: tuple[int, JointClip] | None = None

    @classmethod
    def of(cls, terms: RowTerms) -> Self:
        """Every row brought to norm 1, which makes the bound a matter of units.

        For clients their contributions are bounded too, for m rows of norm L: by their sum if they all agree, by
        their statistics if they hardly do. Raw rows mostly point the same way, so the sum for the mean gets m L.
        Centred rows do not: their statistics grow with sqrt(m), and get twice that.
        """
        row_format = RowFormat(integer_bits=1, fraction_bits=terms.fraction_bits, signed=not terms.nonnegative)
        clip = RowClip(bound=1.0, row_format=row_format, normalise=True)
        if terms.client_rows is None:
            return cls(clip=clip, centred=terms.centred)
        limit, m, share = clip.limit, terms.client_rows, terms.gram_share
        weight = max(1, round(limit * math.sqrt((1.0 - share) / share)))
        one_row = math.isqrt(limit**4 + (weight * limit) ** 2)
        reach = min(2.0 * math.sqrt(m), m) if terms.centred else float(m)
        joint = JointClip(limit=math.floor(reach * one_row), cross_weight=weight)
        return cls(clip=clip, centred=terms.centred, client_bounds=(math.floor(m * limit * 1.0541), joint))

    @property
    def first(self) -> RowClip:
        """The ball of rows as they are given."""
        return replace(self.clip, bias=0.0) if self.centred else self.clip

    @property
    def last(self) -> RowClip:
        """The ball of rows in the last sum: centred ones have signs, and every one of them the bound's norm."""
        if not self.centred:
            return self.clip
        return replace(self.clip, normalise=True, clip=True, row_format=replace(self.clip.row_format, signed=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountMap:
    """Row map of SAFLe: rows are not clipped, since each has exactly E ones; their number is withheld.

    Args:
        fraction_bits: f of the lattice, in whose units a one is 2^f: noise on it is finer than one row.
    """

    fraction_bits: int = 12

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "fraction_bits")
        if not 0 <= self.fraction_bits <= 12:
            raise SpecificationError(f"counts are on a lattice of 0 to 12 fraction bits, not {self.fraction_bits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMap:
    """Row map of a deep learner: features of norm 1 in every layer, residuals clipped.

    Residuals have no bound of their own, since noise moves the weights that they are left by.

    Args:
        fraction_bits: lattice of every row.
        residual_bound: largest norm of a residual row in a sum.
    """

    fraction_bits: int = 16
    residual_bound: float = 2.0

    def __post_init__(self) -> None:
        _ = self.features, self.residuals

    @property
    def features(self) -> RowClip:
        """The ball of Phi_t and F_t."""
        row_format = RowFormat(integer_bits=1, fraction_bits=self.fraction_bits)
        return RowClip(bound=1.0, row_format=row_format, normalise=True)

    @property
    def residuals(self) -> RowClip:
        """The ball of R_t."""
        integer_bits = max(1, math.frexp(self.residual_bound)[1])
        row_format = RowFormat(integer_bits=integer_bits, fraction_bits=self.fraction_bits)
        return RowClip(bound=self.residual_bound, row_format=row_format)


def check_labels_only(targets: NDArray[Any]) -> None:
    """Refuse target rows where noise covers class labels: a row with k ones is sqrt(k) long, and a label is 1.

    Raises:
        InvalidRowsError: targets of another shape than (n,).
    """
    if targets.ndim != 1:
        raise InvalidRowsError(
            f"a private learner needs class labels of shape (n,), not targets of shape {targets.shape}: its noise "
            "covers target rows of norm 1, and a row of a matrix may be longer. Pass each row's class as an integer"
        )


def refuse_row_map(learner: Any) -> None:
    """Refuse a learner with a row map where rows go through none, or where scaling them in float64 is not enough.

    Raises:
        SpecificationError: it has one.
    """
    if learner.row_map is not None:
        raise SpecificationError(
            f"layers and exact scores have no place for the row map of {learner.name}, which scales rows in float64: "
            "predict with the learner's own decision_function"
        )


def without_count(statistics: Statistics) -> Statistics:
    """The statistics with the count withheld: how many rows there are is a fact about people too."""
    return Statistics(gram=statistics.gram, cross=statistics.cross, count=0)


def normalised(rows: FloatMatrix) -> FloatMatrix:
    """Rows of norm 1; zero rows stay."""
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    found: FloatMatrix = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return found


def _scaled_to(rows: FloatMatrix, norm: float) -> FloatMatrix:
    """Rows of this norm in their old directions; rows of zeros stay. No intermediate over- or underflows."""
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    unit = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    lengths = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    scaled: FloatMatrix = np.divide(unit, lengths, out=np.zeros_like(unit), where=lengths > 0) * norm
    return scaled


def sum_of_squares(matrix: NDArray[np.int64]) -> int:
    """The squared Frobenius norm, in exact integers."""
    return sum(value * value for value in matrix.ravel().tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpec:
    """The public shape of the sum: the rows' entries, then L // 3 for each row.

    Args:
        n_features: d, columns of a row.
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
        """Part of one row in the last entry."""
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
