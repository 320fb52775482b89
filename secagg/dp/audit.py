"""Statistical test of the noise in a total against the claimed noise: evidence, not proof.

If the exact sum is known (a test with synthetic vectors, a simulation), total minus sum contains thousands of
independent draws, and is far more informative than an attack on the released model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from secagg.dp.errors import PrivacyError
from secagg.dp.noise import WITHHELD, CoordinateNoise
from secagg.layout import IntVector


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseAudit:
    """Result of ``audit_noise``.

    Args:
        variance_ratio: observed over claimed variance, pooled over all coordinates.
        interval: confidence interval of that ratio, with error probability ``alpha`` on each side.
        alpha: probability of a false alarm.
        sigma_shift: mean of the residual in standard deviations; masks that do not cancel shift it.
        withheld_are_zero: whether all coordinates without noise are zero.
        repeats: largest number of equal values among the noisy coordinates.
    """

    variance_ratio: float
    interval: tuple[float, float]
    alpha: float
    sigma_shift: float
    withheld_are_zero: bool
    repeats: int

    @property
    def too_little(self) -> bool:
        """True if there is significantly less noise than claimed."""
        return self.interval[1] < 1.0

    @property
    def too_much(self) -> bool:
        """True if there is significantly more noise than claimed, which costs accuracy."""
        return self.interval[0] > 1.0


def audit_noise(residual: IntVector, claimed: CoordinateNoise, *, alpha: float = 1e-6) -> NoiseAudit:
    """Test a residual, a total minus the exact sum, against the claimed noise.

    Under the claim the sum of residual^2 / variance over D coordinates has mean at least D and is a chi-square of D
    degrees up to the lattice; its quantiles are those of Wilson and Hilferty (1931), good to four digits from
    D = 100 on. Ten percent of the shares missing shift it by 0.07 sqrt(D) of its standard deviations, so that
    D = 20000 finds them nearly always at alpha = 1e-6.

    Args:
        residual: int64 of shape (claimed.size,).
        claimed: the claimed noise.
        alpha: probability of a false alarm, above 0 and below 0.5.

    Raises:
        PrivacyError: the size differs, there are fewer than 100 noisy coordinates, or ``alpha`` is out of range.
    """
    if residual.shape != (claimed.size,) or claimed.dimension < 100 or not 0 < alpha < 0.5:
        raise PrivacyError(
            f"an audit needs a residual of {claimed.size} coordinates, at least 100 of them noisy, and an alpha above "
            f"0 and below 0.5, not {residual.shape}, {claimed.dimension} and {alpha}"
        )
    variances = np.array([0.0, *(float(v) for v in claimed.variances)])[claimed.levels]
    noisy = claimed.levels != WITHHELD
    standardised = residual[noisy] / np.sqrt(variances[noisy])
    degrees = len(standardised)
    pooled = float(np.mean(standardised**2))
    return NoiseAudit(
        variance_ratio=pooled,
        interval=(pooled / _chi_square_ratio(degrees, 1.0 - alpha), pooled / _chi_square_ratio(degrees, alpha)),
        alpha=alpha,
        sigma_shift=float(standardised.mean()) * math.sqrt(degrees),
        withheld_are_zero=not residual[~noisy].any(),
        repeats=int(np.unique(residual[noisy], return_counts=True)[1].max()),
    )


def _chi_square_ratio(degrees: int, probability: float) -> float:
    """Return the quantile of a chi-square distribution divided by its degrees of freedom."""
    spread = 2.0 / (9.0 * degrees)
    return (1.0 - spread + NormalDist().inv_cdf(probability) * math.sqrt(spread)) ** 3
