"""Conversions between zero-concentrated or Gaussian differential privacy and (epsilon, delta).

dp-accounting and Opacus have similar conversions (``compare`` calls them for comparison). This module needs neither,
has the inverse conversion to rho, and takes the best of all real Rényi orders instead of the best of a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from secagg.dp.errors import PrivacyError

MAX_EPSILON = 64.0
"""Largest accepted epsilon; probabilities then differ by a factor of up to 10^27."""

_BISECTIONS = 80


def check_epsilon_delta(epsilon: float, delta: float) -> None:
    """Refuse an (epsilon, delta) out of range.

    Raises:
        PrivacyError: epsilon or delta is out of range.
    """
    if not (math.isfinite(epsilon) and 0 < epsilon <= MAX_EPSILON):
        raise PrivacyError(f"epsilon must be above 0 and at most {MAX_EPSILON:g}, not {epsilon}; 0.5 to 8 is usual")
    check_delta(delta)


def check_delta(delta: float) -> None:
    """Refuse a delta out of range.

    Raises:
        PrivacyError: delta is out of range.
    """
    if not (math.isfinite(delta) and 1e-30 <= delta < 0.5):
        raise PrivacyError(
            f"delta must be at least 1e-30 and below 0.5, not {delta}; take less than one over the number of records"
        )


def large_delta(delta: float, n: int, unit: str = "record", *, is_bound: bool = False) -> str:
    """Return a warning where a delta is not below one over the number of those it protects; empty where it is.

    A mechanism that publishes each record with probability delta, and nothing else, is (0, delta)-DP.

    Args:
        delta: the delta of a promise.
        n: how many records, or clients, there are.
        unit: which of the two.
        is_bound: whether n only bounds their number, which is below it.

    >>> large_delta(1e-5, 1000)
    ''
    >>> large_delta(0.1, 120).split(":")[0]
    'delta 0.1 is too large for 120 records'
    """
    if delta * n < 1.0 or (is_bound and delta * n == 1.0):
        return ""
    return (
        f"delta {delta:g} is too large for {n} {unit}s: it must be below 1/{n}, since a mechanism that publishes "
        f"{delta * n:.3g} of them as they are keeps such a promise; take {0.1 / n:.0e} or less"
    )


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return the delta for which every rho-zCDP mechanism is (epsilon, delta)-DP (Canonne, Kamath and Steinke 2020).

    delta = min over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) (1 - 1/alpha)^alpha. Its
    logarithm is convex in the relevant range; the value is a valid bound at any alpha.
    """
    if rho <= 0:
        return 0.0
    # the derivative of the logarithm is (2 alpha - 1) rho - epsilon + log(1 - 1/alpha)
    low, high = 1.0 + 1e-9, (epsilon + 1.0) / (2.0 * rho) + 2.0
    for _ in range(_BISECTIONS):
        alpha = (low + high) / 2.0
        if (2.0 * alpha - 1.0) * rho - epsilon + math.log1p(-1.0 / alpha) < 0:
            low = alpha
        else:
            high = alpha
    exponent = (high - 1.0) * (high * rho - epsilon) + high * math.log1p(-1.0 / high) - math.log(high - 1.0)
    return min(1.0, math.exp(min(exponent, 0.0)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon of this conversion for rho-zCDP at ``delta``, the upper end of a bisection."""
    _check(rho, delta)
    low, high = 0.0, 1.0
    if zcdp_delta(rho, low) <= delta:
        return low
    while zcdp_delta(rho, high) > delta:
        low, high = _doubled(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP is (epsilon, delta)-DP by this conversion."""
    return _largest_rho(zcdp_delta, epsilon, delta)


def gdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho = mu^2 / 2 for which a Gaussian mechanism is (epsilon, delta)-DP."""
    return _largest_rho(lambda rho, epsilon: gdp_delta(math.sqrt(2.0 * rho), epsilon), epsilon, delta)


def _largest_rho(delta_of: Callable[[float, float], float], epsilon: float, delta: float) -> float:
    """Return the lower end of a bisection."""
    check_epsilon_delta(epsilon, delta)
    low, high = 0.0, epsilon + 1.0  # at rho = epsilon the mean of the loss alone is epsilon
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if delta_of(middle, epsilon) <= delta else (low, middle)
    return low


def gdp_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta of a Gaussian mechanism with sensitivity / sigma = mu (Balle and Wang 2018, Theorem 8)."""
    if mu <= 0:
        return 0.0
    first = _normal_cdf(mu / 2.0 - epsilon / mu)
    return max(0.0, first - math.exp(epsilon + _log_normal_cdf(-mu / 2.0 - epsilon / mu)))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon at which ``gdp_delta`` is ``delta``, to a thousandth; 0 if delta is large enough without."""
    _check(mu, delta)
    low, high = 0.0, 1.0
    while gdp_delta(mu, high) > delta:
        low, high = _doubled(high)
    while high - low > 1e-3 and gdp_delta(mu, low) > delta:
        middle = (low + high) / 2.0
        low, high = (middle, high) if gdp_delta(mu, middle) > delta else (low, middle)
    return low


def _check(loss: float, delta: float) -> None:
    """Refuse a loss or delta that is not finite or out of range."""
    if not (math.isfinite(loss) and loss >= 0 and 0 < delta <= 1):
        raise PrivacyError(f"epsilon is of a finite loss >= 0 and a delta above 0, up to 1, not {loss} and {delta}")


def _doubled(high: float) -> tuple[float, float]:
    """Return the next interval of a search for epsilon."""
    if high >= 2**20:
        raise PrivacyError("no epsilon below 2^20 gives this delta: there is next to no noise")
    return high, 2.0 * high


def _normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _log_normal_cdf(x: float) -> float:
    if x > -30.0:
        return math.log(_normal_cdf(x))
    # Mills' ratio: Phi(x) < phi(x) / |x|, and above it by less than a factor 1 - 1/x^2. Below -30 that is 0.1 %.
    return -x * x / 2.0 - math.log(-x) - 0.5 * math.log(2.0 * math.pi) + math.log1p(-1.0 / (x * x))
