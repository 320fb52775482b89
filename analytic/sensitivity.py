"""How much one record or one client can move a sum of statistics, in exact integers, and what noise that asks for.

Everything is counted in lattice units: features in 2^-f, the Gram matrix in 2^-2f. Rows are clipped before they
are quantised and quantised toward zero, and the integers' norm is then checked exactly, so the sensitivity is a
fact about integers and not about rounding.

Noise has the shape of a Gaussian orthogonal ensemble: variance v on the Gram's diagonal, v / 2 off it. Since
|x x^T|_F = |x|^2 counts every off-diagonal entry twice, the upper triangle of one row then costs |x|^4 / 2v exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import FloatMatrix, RowFormat, refuse_mask
from analytic.statistics import Statistics, StatisticsSpec
from analytic.whole_numbers import settle_whole_numbers

Adjacency = Literal["add-remove", "replace-one"]
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace-one")

SHRINK = 1.0 - 2.0**-40
"""Scaling a row to its bound aims this much lower, so that rounding in float64 cannot carry it beyond."""

WITHHELD, DIAGONAL, OFF_DIAGONAL, CROSS = 0, 1, 2, 3
"""Noise levels of a vector of statistics. The count is withheld: a public zero, which costs nothing."""


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
        beyond = self._beyond(rows, Fraction(room))
        if not self.clip and beyond.any():
            raise RowsBeyondBoundError(
                f"{int(beyond.sum())} of {len(rows)} rows are longer than the clip bound {room:g} that the noise is "
                "made for: scale them by a public factor, or let them be clipped with clip=True",
                n_rows=int(beyond.sum()),
            )
        chosen = np.ones(len(rows), dtype=np.bool_) if self.normalise else beyond
        rows[chosen] = _scaled_to(rows[chosen], room * SHRINK)
        if self.bias:
            rows = np.concatenate([rows, np.full((len(rows), 1), self.bias * whole * SHRINK)], axis=1)
        units = self.row_format.quantise(rows)
        self._check(units)
        return ClippedRows(rows=self.row_format.dequantise(units), n_clipped=int(beyond.sum()))

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
        )
        assert self.squared_norm(clipped) <= self.limit**2
        return clipped, True

    def squared_norm(self, statistics: Statistics) -> int:
        """|G|_F^2 + w^2 |H|_F^2 in exact integers."""
        return _sum_of_squares(statistics.gram) + self.cross_weight**2 * _sum_of_squares(statistics.cross)


class Sensitivity(Protocol):
    """What one unit of privacy can change in a sum, as the cost of noise against it."""

    def rho(self, gram_variance: int, cross_variance: int) -> Fraction:
        """The exact zCDP cost of a release with these variances (on the Gram's diagonal; half of it off it)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSensitivity:
    """One row (x, y) with |x| <= L and |y| <= T, all in lattice units.

    add-remove: the change is (x x^T, x y^T) itself, of norms |x|^2 and |x| |y|.

    replace-one: with c = x . x', |x x^T - x' x'^T|^2 = 2 L^4 - 2 c^2 and
    |x y^T - x' y'^T|^2 = 2 L^2 T^2 - 2 c (y . y'). The worst pair has y . y' = T^2 (the same class) and a c below
    zero: it trades Gram for cross-correlation, so the cost is more than the twofold of add-remove that
    "sqrt 2 times the noise" would pay for. Where features *and* targets have no negative entries neither inner
    product can be negative, and c = 0 is the worst.

    Args:
        feature_norm: L.
        target_norm: T; 1 for one-hot labels.
        adjacency: what a neighbouring data set is.
        nonnegative: neither features nor targets have negative entries.
    """

    feature_norm: int
    target_norm: int = 1
    adjacency: Adjacency = "add-remove"
    nonnegative: bool = False

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "feature_norm", "target_norm")
        check_adjacency(self.adjacency)
        if self.feature_norm < 1 or self.target_norm < 1:
            raise SpecificationError(
                f"norms in lattice units are at least 1, not {self.feature_norm} and {self.target_norm}; "
                "give the format more fraction bits"
            )

    def rho(self, gram_variance: int, cross_variance: int) -> Fraction:
        """The exact zCDP cost."""
        x2, y2 = self.feature_norm**2, self.target_norm**2
        if self.adjacency == "add-remove":
            return Fraction(x2**2, 2 * gram_variance) + Fraction(x2 * y2, 2 * cross_variance)
        # 2 (L^4 - c^2) / 2 v_G + 2 (L^2 T^2 + c T^2) / 2 v_H for c in [0, L^2], with -c in place of c
        best = Fraction(y2 * gram_variance, 2 * cross_variance)
        c = Fraction(0) if self.nonnegative else min(best, Fraction(x2))
        return (x2**2 - c**2) / gram_variance + (x2 * y2 + c * y2) / cross_variance


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSensitivity:
    """One client's whole contribution under a joint clip.

    add-remove is "zero-out" in a fixed cohort: the client's statistics become zero, its share of noise stays. For
    replace-one the triangle inequality gives 2 S; contributions may point in opposite directions.

    Args:
        clip: the joint clip.
        adjacency: what a neighbouring data set is.
    """

    clip: JointClip
    adjacency: Adjacency = "add-remove"

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)

    def rho(self, gram_variance: int, cross_variance: int) -> Fraction:
        """The exact zCDP cost: all of S where noise is thinnest."""
        weighted = self.clip.cross_weight**2 * cross_variance
        times = 4 if self.adjacency == "replace-one" else 1
        return Fraction(times * self.clip.limit**2, 2 * min(gram_variance, weighted))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScales:
    """Variances of a release in squared lattice units, and what they really cost.

    Args:
        gram_variance: on the diagonal; even, so that half of it is a whole number too.
        cross_variance: of the cross-correlation.
        rho: the exact cost, at most what was asked for.
    """

    gram_variance: int
    cross_variance: int
    rho: Fraction

    @property
    def variances(self) -> tuple[int, int, int]:
        """By noise level: diagonal, off the diagonal, cross-correlation."""
        return self.gram_variance, self.gram_variance // 2, self.cross_variance

    @property
    def gram_sigma(self) -> float:
        """Standard deviation on the Gram's diagonal."""
        return math.sqrt(self.gram_variance)

    @property
    def cross_sigma(self) -> float:
        """Standard deviation on the cross-correlation."""
        return math.sqrt(self.cross_variance)


def scales_for(sensitivity: Sensitivity, rho: Fraction, *, cross_to_gram: Fraction) -> NoiseScales:
    """The least noise of a given shape that costs at most ``rho``.

    Args:
        sensitivity: what it protects.
        rho: the budget of this release.
        cross_to_gram: shape: variance of the cross-correlation over that of the Gram's diagonal.

    Raises:
        SpecificationError: a budget or shape that is not positive.
    """
    if rho <= 0 or cross_to_gram <= 0:
        raise SpecificationError("a release needs a budget above 0 and noise on both statistics")
    fine = 1 << 256  # the cost goes with one over the scale: take it where rounding to integers plays no part
    factor = sensitivity.rho(2 * fine, math.ceil(2 * fine * cross_to_gram)) / rho
    gram = 2 * math.ceil(fine * factor)
    cross = math.ceil(gram * cross_to_gram)
    return NoiseScales(gram_variance=gram, cross_variance=cross, rho=sensitivity.rho(gram, cross))


def record_shape(feature_norm: int, target_norm: int, gram_share: float) -> Fraction:
    """The shape that spends ``gram_share`` of an add-remove budget on the Gram matrix: L^-2 T^2 f / (1 - f).

    Raises:
        SpecificationError: a share that leaves one of the two without budget.
    """
    if not 0 < gram_share < 1:
        raise SpecificationError(f"the Gram's part of the budget must be above 0 and below 1, not {gram_share}")
    share = Fraction(gram_share)
    return Fraction(target_norm**2, feature_norm**2) * share / (1 - share)


def noise_levels(spec: StatisticsSpec) -> NDArray[np.uint8]:
    """The noise level of each entry of ``spec.to_vector``: the Gram's triangle by rows, cross-correlation, count."""
    d, c = spec.n_features, spec.n_targets
    triangle = d * (d + 1) // 2
    levels = np.full(triangle + d * c + 1, OFF_DIAGONAL, dtype=np.uint8)
    rows_before = np.arange(d)
    levels[rows_before * d - rows_before * (rows_before - 1) // 2] = DIAGONAL
    levels[triangle:] = CROSS
    levels[-1] = WITHHELD
    return levels


def without_count(statistics: Statistics) -> Statistics:
    """The statistics with the count withheld: how many rows there are is a fact about people too."""
    return Statistics(gram=statistics.gram, cross=statistics.cross, count=0)


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


def check_adjacency(adjacency: str) -> None:
    """Refuse what is no notion of neighbouring data sets."""
    if adjacency not in ADJACENCIES:
        raise SpecificationError(f"an adjacency is one of {', '.join(ADJACENCIES)}, not {adjacency!r}")


def _scaled_to(rows: FloatMatrix, norm: float) -> FloatMatrix:
    """Rows of this norm in their old directions; rows of zeros stay. No intermediate over- or underflows."""
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    unit = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    lengths = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    scaled: FloatMatrix = np.divide(unit, lengths, out=np.zeros_like(unit), where=lengths > 0) * norm
    return scaled


def _sum_of_squares(matrix: NDArray[np.int64]) -> int:
    return sum(value * value for value in matrix.ravel().tolist())
