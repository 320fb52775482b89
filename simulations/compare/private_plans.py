"""From (epsilon, delta) to a learner whose every sum has its noise and its bill."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from analytic.learner import AnalyticLearner
from analytic.private_afl import GramNoise, PrivateAFL
from analytic.private_deepafl import PrivateDeepAFL
from analytic.private_mean import MeanSensitivity
from analytic.row_format import RowFormat
from analytic.sensitivity import (
    ADJACENCIES,
    Adjacency,
    ClientSensitivity,
    JointClip,
    NoiseScales,
    RecordSensitivity,
    RowClip,
    Sensitivity,
    noise_levels,
    record_shape,
    scales_for,
)
from analytic.statistics import StatisticsSpec
from federation.errors import UsageError
from secagg.dp import CoordinateNoise, calibrate

Unit = Literal["record", "client"]
UNITS: tuple[Unit, ...] = ("record", "client")

BOUND = 1.0
"""Rows are normalised, so the clip bound is a matter of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyTerms:
    """What is promised, to whom, and how the budget is divided; all of it public.

    Args:
        delta: of every guarantee.
        unit: who is protected: one record, or one client with all its records.
        adjacency: what a neighbouring data set is.
        gram_share: part of the statistics' budget that goes to the Gram matrix.
        mean_share: part of the whole budget that buys the rows' mean first; 0 leaves rows where they are.
        fraction_bits: lattice of rows.
        client_rows: for client level: how many rows a client is expected to hold, which sizes its clip. Public.
        n_layers: T of a deep learner; None for the linear one.
        d_phi: columns of its Phi_t.
        d_f: columns of its F_t.
        ridge: what every solve adds to the noise's own ridge.

    Raises:
        UsageError: a parameter out of range.
    """

    delta: float = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    gram_share: float = 0.3
    mean_share: float = 0.05
    fraction_bits: int = 16
    client_rows: int = 1
    n_layers: int | None = None
    d_phi: int = 64
    d_f: int = 64
    ridge: float = 0.01

    def __post_init__(self) -> None:
        if self.unit not in UNITS or self.adjacency not in ADJACENCIES:
            raise UsageError(
                f"a unit is one of {', '.join(UNITS)} and an adjacency one of {', '.join(ADJACENCIES)}, not "
                f"{self.unit!r} and {self.adjacency!r}"
            )
        if not 0 < self.gram_share < 1 or not 0 <= self.mean_share < 1:
            raise UsageError(
                f"the Gram's part of the budget lies between 0 and 1 and the mean's is 0 to below 1, not "
                f"{self.gram_share} and {self.mean_share}"
            )
        if min(self.client_rows, self.d_phi, self.d_f) < 1 or (self.n_layers is not None and self.n_layers < 0):
            raise UsageError("rows of a client and the widths are at least 1, layers at least 0")
        if self.unit == "client" and self.n_layers is not None:
            raise UsageError("a deep learner's layers are bounded by record only; take --unit record for it")

    @property
    def n_releases(self) -> int:
        """How many sums a run releases."""
        if self.n_layers is not None:
            return 2 * self.n_layers + 1
        return 2 if self.mean_share else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What everybody knows about the data.

    Args:
        n_features: columns of a row.
        n_classes: labels are 0 to n_classes - 1.
        max_rows: largest number of rows of all clients.
        nonnegative: no feature has a negative entry.
    """

    n_features: int
    n_classes: int
    max_rows: int
    nonnegative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedNoise:
    """One release: its noise and its exact zCDP cost."""

    label: str
    noise: CoordinateNoise
    rho: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A learner and the noise of each of its sums, in order; no noise at all for the exact one.

    ``sigma_gram`` and ``sigma_cross`` are those of the last release, in the clipped features' own units.
    """

    learner: AnalyticLearner[Any]
    releases: tuple[PricedNoise, ...]
    sigma_gram: float = 0.0
    sigma_cross: float = 0.0

    @property
    def rho(self) -> Fraction:
        """What all releases cost together."""
        return sum((release.rho for release in self.releases), Fraction(0))


def exact_plan(terms: PrivacyTerms, shape: Shape) -> Plan:
    """The same learner on exact totals: what privacy costs is measured against it."""
    if terms.n_layers is not None:
        return Plan(learner=_deep(terms, shape, GramNoise(), GramNoise()), releases=())
    return Plan(learner=_linear(terms, shape, GramNoise()), releases=())


def private_plan(terms: PrivacyTerms, shape: Shape, epsilon: float, shares: int | None) -> Plan:
    """The learner with noise for (epsilon, terms.delta).

    Args:
        terms: the promise.
        shape: the data's public shape.
        epsilon: of all releases together.
        shares: how many clients' shares make a total's noise; None when the server adds it.
    """
    if terms.n_layers is not None:
        return _deep_plan(terms, shape, epsilon, shares)
    return _linear_plan(terms, shape, epsilon, shares)


def _linear_plan(terms: PrivacyTerms, shape: Shape, epsilon: float, shares: int | None) -> Plan:
    total = calibrate(epsilon, terms.delta)
    exact = _linear(terms, shape, GramNoise())
    releases = []
    if terms.mean_share:
        releases.append(_mean_release(exact, terms, shape, total * Fraction(terms.mean_share)))
    scales = _scales(
        _sensitivity(exact, terms, shape), total * (1 - Fraction(terms.mean_share)), exact.clip.limit, terms
    )
    releases.append(_statistics_release("statistics", exact.spec, scales))
    return Plan(
        learner=_linear(terms, shape, GramNoise(sigma=scales.gram_sigma, shares=shares)),
        releases=tuple(releases),
        sigma_gram=math.ldexp(scales.gram_sigma, -2 * terms.fraction_bits),
        sigma_cross=math.ldexp(scales.cross_sigma, -terms.fraction_bits),
    )


def _deep_plan(terms: PrivacyTerms, shape: Shape, epsilon: float, shares: int | None) -> Plan:
    each = calibrate(epsilon, terms.delta, releases=terms.n_releases)
    exact = _deep(terms, shape, GramNoise(), GramNoise())
    of_labels, of_residuals = exact.sensitivities(adjacency=terms.adjacency)
    limit = exact.row_clip.limit
    labels = _scales(of_labels, each, limit, terms)
    residuals = scales_for(
        of_residuals, each, cross_to_gram=record_shape(limit, of_residuals.target_norm, terms.gram_share)
    )
    specs = (exact.classifier_spec, exact.block_spec)
    releases = [
        _statistics_release(f"sum {number}", specs[number % 2], (labels, residuals)[number % 2])
        for number in range(terms.n_releases)
    ]
    noises = (GramNoise(sigma=scales.gram_sigma, shares=shares) for scales in (labels, residuals))
    return Plan(
        learner=_deep(terms, shape, *noises),
        releases=tuple(releases),
        sigma_gram=math.ldexp(labels.gram_sigma, -2 * terms.fraction_bits),
        sigma_cross=math.ldexp(labels.cross_sigma, -terms.fraction_bits),
    )


def _linear(terms: PrivacyTerms, shape: Shape, noise: GramNoise) -> PrivateAFL:
    row_format = RowFormat(integer_bits=1, fraction_bits=terms.fraction_bits, signed=not shape.nonnegative)
    clip = RowClip(bound=BOUND, row_format=row_format, normalise=True)
    return PrivateAFL(
        n_given=shape.n_features,
        n_targets=shape.n_classes,
        clip=clip,
        max_rows=shape.max_rows,
        centred=terms.mean_share > 0,
        noise=noise,
        client_bounds=_client_bounds(terms, clip.limit) if terms.unit == "client" else None,
        ridge=terms.ridge,
    )


def _deep(terms: PrivacyTerms, shape: Shape, classifier: GramNoise, block: GramNoise) -> PrivateDeepAFL:
    return PrivateDeepAFL(
        n_given=shape.n_features,
        n_targets=shape.n_classes,
        max_rows=shape.max_rows,
        n_layers=terms.n_layers or 0,
        d_phi=terms.d_phi,
        d_f=terms.d_f,
        fraction_bits=terms.fraction_bits,
        classifier_noise=classifier,
        block_noise=block,
        ridge=terms.ridge,
    )


def _client_bounds(terms: PrivacyTerms, limit: int) -> tuple[int, JointClip]:
    """Bounds for ``client_rows`` rows of norm L: their sum if they all agree, their statistics if they hardly do.

    Raw rows mostly point the same way, so the sum for the mean gets m L. Centred rows do not: their statistics grow
    with sqrt(m), and get twice that.
    """
    m = terms.client_rows
    weight = max(1, round(limit * math.sqrt((1.0 - terms.gram_share) / terms.gram_share)))
    one_row = math.isqrt(limit**4 + (weight * limit) ** 2)
    reach = min(2.0 * math.sqrt(m), m) if terms.mean_share else float(m)
    return math.floor(m * limit * 1.0541), JointClip(limit=math.floor(reach * one_row), cross_weight=weight)


def _sensitivity(learner: PrivateAFL, terms: PrivacyTerms, shape: Shape) -> Sensitivity:
    if learner.client_bounds is not None:
        return ClientSensitivity(clip=learner.client_bounds[1], adjacency=terms.adjacency)
    nonnegative = shape.nonnegative and not learner.centred
    return RecordSensitivity(feature_norm=learner.clip.limit, adjacency=terms.adjacency, nonnegative=nonnegative)


def _scales(sensitivity: Sensitivity, rho: Fraction, limit: int, terms: PrivacyTerms) -> NoiseScales:
    if isinstance(sensitivity, ClientSensitivity):
        shape = Fraction(1, sensitivity.clip.cross_weight**2)
    else:
        shape = record_shape(limit, 1, terms.gram_share)
    return scales_for(sensitivity, rho, cross_to_gram=shape)


def _statistics_release(label: str, spec: StatisticsSpec, scales: NoiseScales) -> PricedNoise:
    noise = CoordinateNoise(levels=noise_levels(spec), variances=scales.variances)
    return PricedNoise(label=label, noise=noise, rho=scales.rho)


def _mean_release(learner: PrivateAFL, terms: PrivacyTerms, shape: Shape, rho: Fraction) -> PricedNoise:
    spec = learner.mean_spec
    sensitivity = MeanSensitivity(spec=spec, adjacency=terms.adjacency, nonnegative=shape.nonnegative)
    variance = sensitivity.variance_for(rho)
    noise = CoordinateNoise(levels=spec.noise_levels(), variances=(variance,))
    return PricedNoise(label="mean", noise=noise, rho=sensitivity.rho(variance))
