"""Privacy accounting: the cost of several noisy releases together, including all deviations from the ideal noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from secagg.dp.conversions import (
    MAX_EPSILON,
    check_delta,
    check_epsilon_delta,
    gdp_delta,
    gdp_rho,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from secagg.dp.errors import PrivacyError
from secagg.dp.noise import CoordinateNoise, DistributedNoise

RESERVE = 1e-6
"""Part of delta (and of epsilon) reserved for deviations from the ideal noise; the actual deviations are checked."""

ROUNDING_RESERVE = 2e-5
"""Reserve for the Gaussian curve, which compares lattice noise with rounded continuous noise."""

MAX_LOG_RATIO = 1e-9
"""Largest Lambda that fits in the reserve; shares of two lattice units stay far below it."""

UNITS = ("record", "client")
ADJACENCIES = ("add-remove", "replace-one")

REACH_SIGMAS = 15
"""Range, in standard deviations, of the comparison with a continuous Gaussian; the mass beyond is 2 exp(-112)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Privacy cost of one release.

    Args:
        label: name of the released quantity.
        unit: unit of privacy: ``record`` or ``client``.
        adjacency: neighbouring relation: ``add-remove`` or ``replace-one``.
        rho: zCDP cost with independent discrete Gaussian noise of the stated variances, exact.
        log_ratio: Lambda, the largest |log| of the ratio between the law of the honest shares' sum and that noise.
        tail_mass: total variation distance that the sampler's truncated tail adds.
        rounding: largest |log| of the ratio between discrete Gaussians and rounded continuous ones.

    Raises:
        PrivacyError: a field is out of range.

    >>> Release(label="Gram", unit="record", adjacency="add-remove", rho=Fraction(1, 8)).rho
    Fraction(1, 8)
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
        """Return the privacy cost of a release with this noise.

        Args:
            label: name of the released quantity.
            rho: zCDP cost for the sensitivity and the *total* variances of ``noise``.
            noise: the noise of the release.
            unit: ``record`` or ``client``.
            adjacency: ``add-remove`` or ``replace-one``.
        """
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
    """The (epsilon, delta) guarantee of several releases together.

    Args:
        epsilon: the smaller of two proven values: from the exact curve of the composed Gaussian mechanism including the
            rounding to a lattice, and ``epsilon_zcdp``.
        delta: the delta, all deviations included.
        rho: sum of the releases' rho, exact.
        epsilon_zcdp: from zCDP composition and the conversion of Canonne, Kamath and Steinke 2020 at the same delta; 6
            to 10 % larger if the noise is many lattice units wide.
        releases: number of releases.

    >>> release = Release(label="Gram", unit="record", adjacency="add-remove", rho=Fraction(1, 8))
    >>> round(guarantee([release, release], delta=1e-5).epsilon, 2)
    2.94
    """

    epsilon: float
    delta: float
    rho: Fraction
    epsilon_zcdp: float
    releases: int


def guarantee(releases: Sequence[Release], delta: float) -> PrivacyGuarantee:
    """Return the guarantee of several releases together at ``delta``, also if they were chosen adaptively.

    With Z the ideal outputs and Y the real ones, P_Y <= e^Lambda P_Z + T for every event, and back. So if Z is
    (e, d)-DP, Y is (e + 2 Lambda, e^Lambda d + (1 + e^(e + 2 Lambda)) T)-DP.

    Args:
        releases: privacy costs, all for one unit and one adjacency.
        delta: at least 1e-30 and below 0.5.

    Raises:
        PrivacyError: ``delta`` is out of range, units or adjacencies differ, or the deviations are not negligible.
    """
    check_delta(delta)
    kinds = sorted({f"{release.unit}, {release.adjacency}" for release in releases})
    if len(kinds) > 1:
        raise PrivacyError(
            f"releases add up when their privacy costs are for one unit and one adjacency, not for {'; '.join(kinds)}: "
            "compute them for one, or state a guarantee for each"
        )
    ratio, tail = math.fsum(r.log_ratio for r in releases), math.fsum(r.tail_mass for r in releases)
    rho = sum((release.rho for release in releases), Fraction(0))
    if ratio > MAX_LOG_RATIO:
        raise PrivacyError(
            f"the honest shares' sum is no discrete Gaussian: probabilities are off by a factor of e^{ratio:.2g}. The "
            "shares are too few lattice units wide; give rows more fraction bits, or let fewer clients share the noise"
        )
    by_zcdp = _zcdp_epsilon(rho, ratio, tail, delta)
    if by_zcdp == math.inf:
        raise PrivacyError(
            f"the sampler's cut tail would no longer be negligible in delta {delta:g}, at so large an epsilon; such a "
            "release protects nobody: use more noise"
        )
    return PrivacyGuarantee(
        epsilon=min(by_zcdp, _tight_epsilon(releases, delta)),
        delta=delta,
        rho=rho,
        epsilon_zcdp=by_zcdp,
        releases=len(releases),
    )


def calibrate(epsilon: float, delta: float, *, releases: int = 1, by_zcdp: bool = False) -> Fraction:
    """Return the rho that each of ``releases`` equal releases may cost within (epsilon, delta).

    A part of both is reserved for deviations from the ideal noise; ``guarantee`` checks that they fit. On the Gaussian
    curve this needs noise of some thousand lattice units, with zCDP of a few units.

    Args:
        epsilon: total epsilon, above 0 and at most 64.
        delta: total delta, at least 1e-30 and below 0.5.
        releases: number of releases that share the budget.
        by_zcdp: use the zCDP conversion instead of the Gaussian curve.

    Raises:
        PrivacyError: a parameter is out of range.

    >>> float(calibrate(1.0, 1e-5)) < float(calibrate(2.0, 1e-5))
    True
    """
    check_epsilon_delta(epsilon, delta)
    if releases < 1:
        raise PrivacyError(f"a budget is for at least one release, not {releases}")
    most, reserve = (zcdp_rho, RESERVE) if by_zcdp else (gdp_rho, ROUNDING_RESERVE)
    return Fraction(most(epsilon * (1.0 - reserve), delta * (1.0 - 3.0 * reserve))) / releases


def check_unit_and_adjacency(unit: str, adjacency: str) -> None:
    """Refuse an unknown unit of privacy or neighbouring relation.

    Raises:
        PrivacyError: one of them is unknown.
    """
    if unit not in UNITS or adjacency not in ADJACENCIES:
        raise PrivacyError(
            f"a unit is one of {', '.join(UNITS)} and an adjacency one of {', '.join(ADJACENCIES)}, not {unit!r} and "
            f"{adjacency!r}"
        )


def rounding_log_ratio(variance: int) -> float:
    """Return the largest |log| of the ratio of a rounded N(0, v) to N_Z(0, v) at integers within ``REACH_SIGMAS``.

    With U uniform on [-1/2, 1/2] the ratio at k is E exp(-(2 k U + U^2) / 2v) up to the laws' constants. It is at
    least exp(-1 / 24v) (Jensen) and at most exp(k^2 / 24 v^2) (U is sub-Gaussian with its variance 1/12); the
    constants differ by less than 3 exp(-2 pi^2 v) (Poisson summation).
    """
    return REACH_SIGMAS**2 / (24.0 * variance) + 3.0 * math.exp(-2.0 * math.pi**2 * float(variance))


def _tight_epsilon(releases: Sequence[Release], delta: float) -> float:
    """Return the smallest epsilon at which the composed rounded Gaussians and all deviations stay within ``delta``.

    A continuous Gaussian's curve is exact, rounding is post-processing, and integer shifts commute with it.
    """
    mu = math.sqrt(2.0 * _up(sum((release.rho for release in releases), Fraction(0))))
    ratio = math.fsum(release.log_ratio + release.rounding for release in releases)
    tail = 2.0 * math.fsum(release.tail_mass for release in releases)
    if ratio > 1.0:  # of a coarse lattice: this curve then proves next to nothing
        return math.inf

    return _smallest_epsilon(lambda epsilon: gdp_delta(mu, epsilon), 0.0, MAX_EPSILON, ratio, tail, delta)


def _zcdp_epsilon(rho: Fraction, ratio: float, tail: float, delta: float) -> float:
    """Return the smallest epsilon of zCDP's conversion at which all deviations stay within ``delta``."""
    start = zcdp_epsilon(_up(rho), delta)
    return _smallest_epsilon(lambda epsilon: zcdp_delta(_up(rho), epsilon), start, start + 1.0, ratio, tail, delta)


def _smallest_epsilon(
    curve: Callable[[float], float], start: float, most: float, ratio: float, tail: float, delta: float
) -> float:
    """Return the smallest epsilon at which a curve and the deviations from it stay within ``delta``.

    Infinite where none does: a tail counts e^epsilon times.

    Args:
        curve: delta of an epsilon, of the ideal noise.
        start: where the search begins; the curve alone is not below ``delta`` before it.
        most: where it ends.
        ratio: Lambda.
        tail: T, the tail's mass.
        delta: what may be reached.
    """

    def total(epsilon: float) -> float:
        return math.exp(ratio) * curve(epsilon) + (1.0 + math.exp(epsilon + 2.0 * ratio)) * tail

    low, high = start, start
    while total(high) > delta:
        low, high = high, high + 0.25
        if high > most:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if total(middle) > delta else (low, middle)
    return high + 2.0 * ratio


def _up(rho: Fraction) -> float:
    """Return the next larger float64."""
    return math.nextafter(float(rho), math.inf)
