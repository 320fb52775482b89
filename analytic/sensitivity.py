"""Sensitivities of sums of statistics to one record or client, in exact integers, and the noise that they need.

Everything is counted in lattice units: features in 2^-f, the Gram matrix in 2^-2f. Norms are those of ``row_map``,
which hold for integers.

Noise has the shape of a Gaussian orthogonal ensemble: variance v on the Gram's diagonal, v / 2 off it. Since
|x x^T|_F = |x|^2 counts every off-diagonal entry twice, the upper triangle of one row then costs |x|^4 / 2v exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from analytic.counts import CountSpec
from analytic.errors import SpecificationError
from analytic.row_map import JointClip, MeanSpec
from analytic.statistics import StatisticsSpec
from analytic.whole_numbers import settle_whole_numbers

Adjacency = Literal["add-remove", "replace-one"]
ADJACENCIES: tuple[Adjacency, ...] = ("add-remove", "replace-one")

Unit = Literal["record", "client"]
UNITS: tuple[Unit, ...] = ("record", "client")

WITHHELD, DIAGONAL, OFF_DIAGONAL, CROSS = 0, 1, 2, 3
"""Noise levels of a vector of statistics. The count is withheld: a public zero, which costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseScales:
    """Variances of a release in squared lattice units, and what they really cost.

    Args:
        variances: by noise level, from 1 on. Of statistics: the Gram's diagonal (even, so that half of it is a whole
            number too), off the diagonal, the cross-correlation.
        rho: the exact cost, at most what was asked for.
    """

    variances: tuple[int, ...]
    rho: Fraction

    @property
    def has_gram(self) -> bool:
        """Whether they are of statistics."""
        return len(self.variances) > 1

    @property
    def gram_sigma(self) -> float:
        """Standard deviation on the Gram's diagonal."""
        return math.sqrt(self.variances[0])

    @property
    def cross_sigma(self) -> float:
        """Standard deviation on the cross-correlation."""
        return math.sqrt(self.variances[-1])


class Sensitivity(Protocol):
    """Sensitivity of a sum to one unit of privacy, as the cost of noise against it."""

    def scales(self, rho: Fraction, *, gram_share: float) -> NoiseScales:
        """The least noise that costs at most ``rho``, ``gram_share`` of it spent on the Gram where there is one.

        Raises:
            SpecificationError: a budget that is not positive, or a share that leaves a part without budget.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedSum:
    """One sum of a learner whose rows are bounded, as who prices its noise sees it.

    Args:
        label: what it is, for people.
        sensitivity: what it protects.
        levels: the noise level of each entry of its vector.
        fraction_bits: f of the rows' lattice.
        preparatory: whether its total only places the rows of the sums to come.
        weight: its part of the budget beside the other sums' weights.
        given: whether clients are given its total though no sum follows. What follows from every other sum but the last
            they are given as well: the next one needs it.
    """

    label: str
    sensitivity: Sensitivity
    levels: NDArray[np.uint8]
    fraction_bits: int
    preparatory: bool = False
    weight: Fraction = Fraction(1)
    given: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSensitivity:
    """One row (x, y) with |x|^2 <= L^2 and |y|^2 <= T^2, all in lattice units; neither L nor T need be whole.

    add-remove: the change is (x x^T, x y^T) itself, of norms |x|^2 and |x| |y|.

    replace-one: with c = x . x', |x x^T - x' x'^T|^2 = 2 L^4 - 2 c^2 and
    |x y^T - x' y'^T|^2 = 2 L^2 T^2 - 2 c (y . y'). The worst pair has y . y' = T^2 (the same class) and a c below
    zero: it trades Gram for cross-correlation, so the cost is more than the twofold of add-remove that
    "sqrt 2 times the noise" would pay for. Where features *and* targets have no negative entries neither inner
    product can be negative, and c = 0 is the worst.

    Args:
        squared_features: L^2.
        squared_targets: T^2; 1 for one-hot labels.
        adjacency: what a neighbouring data set is.
        nonnegative: neither features nor targets have negative entries.
    """

    squared_features: int
    squared_targets: int = 1
    adjacency: Adjacency = "add-remove"
    nonnegative: bool = False

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "squared_features", "squared_targets")
        check_adjacency(self.adjacency)
        if self.squared_features < 1 or self.squared_targets < 1:
            raise SpecificationError(
                f"squared norms in lattice units are at least 1, not {self.squared_features} and "
                f"{self.squared_targets}; give the format more fraction bits"
            )

    def rho(self, gram_variance: int, cross_variance: int) -> Fraction:
        """The exact zCDP cost with these variances (on the Gram's diagonal; half of it off it)."""
        x2, y2 = self.squared_features, self.squared_targets
        if self.adjacency == "add-remove":
            return Fraction(x2**2, 2 * gram_variance) + Fraction(x2 * y2, 2 * cross_variance)
        # 2 (L^4 - c^2) / 2 v_G + 2 (L^2 T^2 + c T^2) / 2 v_H for c in [0, L^2], with -c in place of c
        best = Fraction(y2 * gram_variance, 2 * cross_variance)
        c = Fraction(0) if self.nonnegative else min(best, Fraction(x2))
        return (x2**2 - c**2) / gram_variance + (x2 * y2 + c * y2) / cross_variance

    def scales(self, rho: Fraction, *, gram_share: float) -> NoiseScales:
        """The least noise for ``rho``, divided as ``gram_share`` divides an add-remove budget."""
        shape = record_shape(self.squared_features, self.squared_targets, gram_share)
        return scales_for(self, rho, cross_to_gram=shape)


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

    def scales(self, rho: Fraction, *, gram_share: float) -> NoiseScales:
        """The least noise for ``rho``; the joint clip's weight already divides it, whatever ``gram_share``."""
        return scales_for(self, rho, cross_to_gram=Fraction(1, self.clip.cross_weight**2))


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSensitivity:
    """A vector of which all entries get the same noise.

    Args:
        squared: the squared Euclidean sensitivity in lattice units, exact.
    """

    squared: int

    def rho(self, variance: int) -> Fraction:
        """The exact zCDP cost of one release with this variance at every entry."""
        return Fraction(self.squared, 2 * variance)

    def scales(self, rho: Fraction, *, gram_share: float) -> NoiseScales:
        """The least variance for ``rho``, at every entry: there is no Gram to share with."""
        if rho <= 0:
            raise SpecificationError("a release needs a budget above 0")
        variance = math.ceil(self.squared / (2 * rho))
        return NoiseScales(variances=(variance,), rho=self.rho(variance))


def mean_sensitivity(spec: MeanSpec, adjacency: Adjacency, *, nonnegative: bool = False) -> VectorSensitivity:
    """Return the sensitivity of that sum to one record or client.

    add-remove of a record: |(x, L // 3)|; of a client (its vector becomes zero): S. replace-one: two rows of the ball
    are at most 2 L apart, or sqrt 2 L without negative entries, and the count stays; two clients are at most 2 S apart.

    Args:
        spec: the sum.
        adjacency: what a neighbouring data set is.
        nonnegative: rows have no negative entries.
    """
    check_adjacency(adjacency)
    replaced = adjacency == "replace-one"
    if spec.client_limit is not None:
        return VectorSensitivity(squared=(4 if replaced else 1) * spec.client_limit**2)
    if replaced:
        return VectorSensitivity(squared=(2 if nonnegative else 4) * spec.limit**2)
    return VectorSensitivity(squared=spec.limit**2 + spec.count_units**2)


def gradient_sensitivity(feature_norm: int, residual_norm: int, adjacency: Adjacency) -> VectorSensitivity:
    """Return the sensitivity of X^T R to one record, for rows up to L and residuals up to T: L T, or twice that.

    Args:
        feature_norm: L in lattice units.
        residual_norm: T in lattice units.
        adjacency: what a neighbouring data set is; a replaced row and residual may both point the other way.
    """
    check_adjacency(adjacency)
    times = 4 if adjacency == "replace-one" else 1
    return VectorSensitivity(squared=times * (feature_norm * residual_norm) ** 2)


def scales_for(
    sensitivity: RecordSensitivity | ClientSensitivity, rho: Fraction, *, cross_to_gram: Fraction
) -> NoiseScales:
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
    return NoiseScales(variances=(gram, gram // 2, cross), rho=sensitivity.rho(gram, cross))


def record_shape(squared_features: int, squared_targets: int, gram_share: float) -> Fraction:
    """The shape that spends ``gram_share`` of an add-remove budget on the Gram matrix: L^-2 T^2 f / (1 - f).

    Raises:
        SpecificationError: a share that leaves one of the two without budget.
    """
    if not 0 < gram_share < 1:
        raise SpecificationError(f"the Gram's part of the budget must be above 0 and below 1, not {gram_share}")
    share = Fraction(gram_share)
    return Fraction(squared_targets, squared_features) * share / (1 - share)


def noise_levels(spec: StatisticsSpec | CountSpec) -> NDArray[np.uint8]:
    """The noise level of each entry of ``spec.to_vector``: the Gram's triangle by rows, cross-correlation, count.

    Sums of targets have none: nothing here bounds what one person moves them by. Two values of one group meet in no
    row, so these counts are public zeros.

    Raises:
        SpecificationError: the sum holds sums of targets.
    """
    if isinstance(spec, CountSpec):
        d, c, of_group = spec.n_cells, spec.n_classes, spec.n_values
    elif spec.target_sums:
        raise SpecificationError("noise covers no sums of targets; leave them out of a noisy sum, target_sums=False")
    else:
        d, c, of_group = spec.n_features, spec.n_targets, 1
    triangle = d * (d + 1) // 2
    levels = np.full(triangle + d * c + 1, OFF_DIAGONAL, dtype=np.uint8)
    for row in range(d):
        start = row * d - row * (row - 1) // 2
        levels[start : start + of_group - row % of_group] = WITHHELD
        levels[start] = DIAGONAL
    levels[triangle:] = CROSS
    levels[-1] = WITHHELD
    return levels


def check_adjacency(adjacency: str) -> None:
    """Refuse what is no notion of neighbouring data sets."""
    if adjacency not in ADJACENCIES:
        raise SpecificationError(f"an adjacency is one of {', '.join(ADJACENCIES)}, not {adjacency!r}")
