"""What a series of noisy releases costs together, with every deviation from the ideal law on the bill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from secagg.dp.conversions import (
    MAX_EPSILON,
    check_delta,
    check_epsilon_delta,
    gdp_delta,
    gdp_rho,
    zcdp_epsilon,
    zcdp_rho,
)
from secagg.dp.errors import PrivacyError
from secagg.dp.noise import CoordinateNoise, DistributedNoise

RESERVE = 1e-6
"""Part of delta (and of epsilon) kept for deviations from the ideal law; what they really take is checked."""

ROUNDING_RESERVE = 2e-5
"""The same on the Gaussian curve, where noise on a lattice is compared with continuous noise that is rounded to it."""

MAX_LOG_RATIO = 1e-9
"""Shares of two lattice units stay far below it. A larger Lambda would not fit in the reserve."""

UNITS = ("record", "client")
ADJACENCIES = ("add-remove", "replace-one")

REACH_SIGMAS = 15
"""How far out the law of a sum is compared with a continuous one: the mass beyond, 2 exp(-112), is below a tail's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What one release costs.

    Args:
        label: what was released, for people.
        unit: whom its price is about: ``record`` or ``client``.
        adjacency: what neighbours its price is about: ``add-remove`` or ``replace-one``.
        rho: its zCDP cost if the noise were independent discrete Gaussians of the stated variances, exact.
        log_ratio: Lambda, how far the law of the honest shares' sum is from that, as the log of a ratio.
        tail_mass: total variation that the sampler's cut tail adds.
        rounding: how far these discrete Gaussians are from rounded continuous ones, as the log of a ratio.
    """

    label: str
    unit: str
    adjacency: str
    rho: Fraction
    log_ratio: float = 0.0
    tail_mass: float = 0.0
    rounding: float = 0.0

    def __post_init__(self) -> None:
        check_unit_and_adjacency(self.unit, self.adjacency)
        if self.rho <= 0 or min(self.log_ratio, self.tail_mass, self.rounding) < 0:
            raise PrivacyError("a release costs a rho above 0, and its slacks are at least 0")

    @classmethod
    def of(
        cls, label: str, rho: Fraction, noise: DistributedNoise | CoordinateNoise, *, unit: str, adjacency: str
    ) -> Release:
        """The bill of a release whose sensitivity against ``noise`` (its *total* variances) costs ``rho``."""
        total = noise.total if isinstance(noise, DistributedNoise) else noise
        pairs = zip(total.variances, total.counts, strict=True)
        return cls(
            label=label,
            unit=unit,
            adjacency=adjacency,
            rho=rho,
            log_ratio=noise.log_ratio if isinstance(noise, DistributedNoise) else 0.0,
            tail_mass=noise.tail_mass,
            rounding=math.fsum(count * rounding_log_ratio(variance) for variance, count in pairs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyGuarantee:
    """What several releases together promise about one unit under one adjacency.

    Args:
        epsilon: the stated value, the smaller of two that are proven: by the exact curve of the composed Gaussian
            mechanism, with what rounding to a lattice adds, and ``epsilon_zcdp``.
        delta: its delta, all slacks included.
        rho: the sum of the releases' rho, exact.
        epsilon_zcdp: by zCDP composition and the conversion of Canonne, Kamath and Steinke 2020 at the same delta: 6 to
            10 % more where noise is many lattice units wide.
        releases: how many releases this is about.
    """

    epsilon: float
    delta: float
    rho: Fraction
    epsilon_zcdp: float
    releases: int


def guarantee(releases: Sequence[Release], delta: float) -> PrivacyGuarantee:
    """What these releases promise together at ``delta``, adaptively chosen or not.

    With Z the ideal outputs and Y the real ones, P_Y <= e^Lambda P_Z + T for every event, and back. So if Z is
    (e, d)-DP, Y is (e + 2 Lambda, e^Lambda d + (1 + e^(e + 2 Lambda)) T)-DP.

    Raises:
        PrivacyError: a delta out of range, releases priced for different units or adjacencies, or slacks that are no
            longer negligible in it.
    """
    check_delta(delta)
    kinds = sorted({f"{release.unit}, {release.adjacency}" for release in releases})
    if len(kinds) > 1:
        raise PrivacyError(
            f"releases add up when they are priced for one unit and one adjacency, not for {'; '.join(kinds)}: price "
            "them anew, or state a guarantee for each"
        )
    ratio, tail = math.fsum(r.log_ratio for r in releases), math.fsum(r.tail_mass for r in releases)
    rho = sum((release.rho for release in releases), Fraction(0))
    if ratio > MAX_LOG_RATIO:
        raise PrivacyError(
            f"the honest shares' sum is no discrete Gaussian: probabilities are off by a factor of e^{ratio:.2g}. The "
            "shares are too few lattice units wide; give rows more fraction bits, or let fewer clients share the noise"
        )
    ideal = zcdp_epsilon(_up(rho), delta * (1.0 - 2.0 * RESERVE))
    by_zcdp = ideal + 2.0 * ratio
    if tail and math.log(tail) + by_zcdp + 1.0 > math.log(RESERVE * delta):
        raise PrivacyError(
            f"at epsilon {by_zcdp:.3g} the sampler's cut tail would no longer be negligible in delta {delta:g}; "
            "such a release protects nobody: use more noise"
        )
    return PrivacyGuarantee(
        epsilon=min(by_zcdp, _tight_epsilon(releases, delta)),
        delta=delta,
        rho=rho,
        epsilon_zcdp=by_zcdp,
        releases=len(releases),
    )


def calibrate(epsilon: float, delta: float, *, releases: int = 1, by_zcdp: bool = False) -> Fraction:
    """The rho that each of ``releases`` equal releases may cost so that all of them keep (epsilon, delta).

    A part of both is kept for deviations from the ideal law; ``guarantee`` then checks that they fit in it. On the
    Gaussian curve they do where noise is some thousand lattice units wide; by zCDP they do from a few units on.

    Args:
        epsilon, delta: the promise.
        releases: how many share it.
        by_zcdp: take the conversion of zCDP instead of the Gaussian curve.

    Raises:
        PrivacyError: an epsilon or delta out of range, or fewer than one release.
    """
    check_epsilon_delta(epsilon, delta)
    if releases < 1:
        raise PrivacyError(f"a budget is for at least one release, not {releases}")
    most, reserve = (zcdp_rho, RESERVE) if by_zcdp else (gdp_rho, ROUNDING_RESERVE)
    return Fraction(most(epsilon * (1.0 - reserve), delta * (1.0 - 3.0 * reserve))) / releases


def check_unit_and_adjacency(unit: str, adjacency: str) -> None:
    """Refuse what is no unit of privacy or no notion of neighbouring data sets.

    Raises:
        PrivacyError: what they may be.
    """
    if unit not in UNITS or adjacency not in ADJACENCIES:
        raise PrivacyError(
            f"a unit is one of {', '.join(UNITS)} and an adjacency one of {', '.join(ADJACENCIES)}, not {unit!r} and "
            f"{adjacency!r}"
        )


def rounding_log_ratio(variance: int) -> float:
    """Largest |log| of the ratio of a rounded N(0, v) to N_Z(0, v) at any integer within ``REACH_SIGMAS``.

    With U uniform on [-1/2, 1/2] the ratio at k is E exp(-(2 k U + U^2) / 2v) up to the laws' constants. It is at
    least exp(-1 / 24v) (Jensen) and at most exp(k^2 / 24 v^2) (U is sub-Gaussian with its variance 1/12); the
    constants differ by less than 3 exp(-2 pi^2 v) (Poisson summation).
    """
    return REACH_SIGMAS**2 / (24.0 * variance) + 3.0 * math.exp(-2.0 * math.pi**2 * float(variance))


def _tight_epsilon(releases: Sequence[Release], delta: float) -> float:
    """The smallest epsilon at which the composed rounded Gaussians' delta and all slacks stay within ``delta``.

    A continuous Gaussian's curve is exact, rounding is post-processing, and integer shifts commute with it.
    """
    mu = math.sqrt(2.0 * _up(sum((release.rho for release in releases), Fraction(0))))
    ratio = math.fsum(release.log_ratio + release.rounding for release in releases)
    tail = 2.0 * math.fsum(release.tail_mass for release in releases)
    if ratio > 1.0:  # of a coarse lattice: this curve then proves next to nothing
        return math.inf

    def total(epsilon: float) -> float:
        return math.exp(ratio) * gdp_delta(mu, epsilon) + (1.0 + math.exp(epsilon + 2.0 * ratio)) * tail

    low, high = 0.0, 0.0
    while total(high) > delta:
        low, high = high, high + 0.25
        if high > MAX_EPSILON:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if total(middle) > delta else (low, middle)
    return high + 2.0 * ratio


def _up(rho: Fraction) -> float:
    """The next float64 that is not below."""
    return math.nextafter(float(rho), math.inf)
