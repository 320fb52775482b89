"""Whether the noise that a total really holds is the noise that was promised: evidence, not proof.

Where the exact sum is known (a rehearsal on made-up vectors, a simulation), total minus sum holds thousands of
independent draws at once, and so tells far more than any attack on the released model.
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
    """What the residual says about the claim.

    Args:
        variance_ratio: realised over claimed variance, pooled over all coordinates.
        interval: two-sided confidence interval of that ratio, each side missing with probability ``alpha``.
        alpha: probability with which an honest session is called short of noise.
        sigma_shift: mean of the residual in its standard deviations: masks that do not cancel shift it.
        withheld_are_zero: whether what is not released is zero.
        repeats: largest number of times that one value came up among coordinates where that is (next to) impossible.
    """

    variance_ratio: float
    interval: tuple[float, float]
    alpha: float
    sigma_shift: float
    withheld_are_zero: bool
    repeats: int

    @property
    def too_little(self) -> bool:
        """Whether the claim of at least this much noise is refuted."""
        return self.interval[1] < 1.0

    @property
    def too_much(self) -> bool:
        """Whether there is clearly more noise than claimed: safe, but somebody pays in accuracy."""
        return self.interval[0] > 1.0


def audit_noise(residual: IntVector, claimed: CoordinateNoise, *, alpha: float = 1e-6) -> NoiseAudit:
    """Compare a total minus its exact sum with the claimed noise.

    Under the claim the sum of residual^2 / variance over D coordinates has mean at least D and is a chi-square of D
    degrees up to the lattice; its quantiles are those of Wilson and Hilferty (1931), good to four digits from
    D = 100 on. Ten percent of the shares missing shift it by 0.07 sqrt(D) of its standard deviations, so that
    D = 20000 finds them nearly always at alpha = 1e-6.

    Raises:
        PrivacyError: another size than the noise, fewer than 100 coordinates, or an alpha out of range.
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
    """The quantile of a chi-square divided by its degrees of freedom."""
    spread = 2.0 / (9.0 * degrees)
    return (1.0 - spread + NormalDist().inv_cdf(probability) * math.sqrt(spread)) ** 3
