"""Conversions against published values, each other, and their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from secagg.dp import PrivacyError
from secagg.dp.conversions import gdp_delta, gdp_epsilon, large_delta, zcdp_delta, zcdp_epsilon, zcdp_rho

# sigma / sensitivity at delta 1e-5: zCDP with the conversion of CKS 2020, and the exact Gaussian (Balle and Wang 2018)
TABLE = {
    0.1: (33.98, 30.75),
    0.5: (7.667, 7.032),
    1.0: (4.045, 3.731),
    2.0: (2.149, 1.994),
    4.0: (1.158, 1.081),
    8.0: (0.638, 0.600),
}


@pytest.mark.parametrize("epsilon", TABLE)
def test_the_published_noise_levels(epsilon: float) -> None:
    concentrated, exact = TABLE[epsilon]
    assert 1 / math.sqrt(2 * zcdp_rho(epsilon, 1e-5)) == pytest.approx(concentrated, rel=2e-3)
    assert gdp_delta(1 / exact, epsilon * 0.996) > 1e-5 > gdp_delta(1 / exact, epsilon * 1.004)


@examples(4)
@given(st.floats(0.01, 40), st.floats(1e-12, 0.1))
def test_conversions_invert_each_other(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon) <= delta
    assert zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-9)
    assert zcdp_epsilon(rho * 1.0001, delta) > epsilon * (1 - 1e-9)


@examples(2)
@given(st.floats(1e-6, 20), st.floats(1e-12, 0.1))
def test_the_proven_value_is_never_below_the_exact_gaussian(rho: float, delta: float) -> None:
    """A Gaussian mechanism with mu^2 = 2 rho is rho-zCDP; so the conversion must not promise more than is true."""
    assert gdp_delta(math.sqrt(2 * rho), zcdp_epsilon(rho, delta) + 1e-9) <= delta


@given(st.floats(0.001, 5), st.floats(0.0, 30), st.floats(1.0001, 500))
def test_the_conversion_is_below_every_single_alpha(rho: float, epsilon: float, alpha: float) -> None:
    exponent = (alpha - 1) * (alpha * rho - epsilon) + alpha * math.log1p(-1 / alpha) - math.log(alpha - 1)
    if exponent < 0:
        assert zcdp_delta(rho, epsilon) <= math.exp(exponent) * (1 + 1e-6) + 1e-300


@examples(4)
@given(st.floats(0.05, 6), st.floats(0, 12))
def test_the_gaussian_curve_is_its_integral(mu: float, epsilon: float) -> None:
    """Delta is the mass by which N(mu, 1) exceeds e^epsilon N(0, 1), by the midpoint rule."""
    steps, width = 20_000, 24.0 + mu
    x = (np.arange(steps) + 0.5) / steps * width - 12.0
    ours, theirs = (np.exp(-z * z / 2) / math.sqrt(2 * math.pi) for z in (x - mu, x))
    excess = math.fsum(np.maximum(0.0, ours - math.exp(epsilon) * theirs)) * width / steps
    assert gdp_delta(mu, epsilon) == pytest.approx(excess, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, 65])
def test_epsilons_out_of_range_are_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        zcdp_rho(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0, -1e-5, 0.5, 1, math.nan, 1e-40])
def test_deltas_out_of_range_are_refused(delta: float) -> None:
    with pytest.raises(PrivacyError, match="delta"):
        zcdp_rho(1.0, delta)


def test_no_cost_is_no_delta_and_no_epsilon() -> None:
    """What a release with nothing private in it costs."""
    assert zcdp_delta(0.0, 0.0) == gdp_delta(0.0, 0.0) == 0.0
    assert zcdp_epsilon(0.0, 1e-9) == 0.0


def test_next_to_no_noise_has_no_epsilon() -> None:
    """Of rho-zCDP epsilon is about rho + 2 sqrt(rho log(1 / delta)): one million has one below 2^20, 2^20 has none."""
    assert 1.006e6 < zcdp_epsilon(1e6, 1e-5) < 1.007e6 < 2**20
    for rho in (2.0**20, 2.0**21):
        with pytest.raises(PrivacyError, match="next to no noise"):
            zcdp_epsilon(rho, 1e-5)


@pytest.mark.parametrize("epsilon_of", [gdp_epsilon, zcdp_epsilon])
@pytest.mark.parametrize("loss", [math.nan, math.inf, -0.5])
def test_a_loss_that_is_none_has_no_epsilon(epsilon_of: Callable[[float, float], float], loss: float) -> None:
    with pytest.raises(PrivacyError, match="finite loss"):
        epsilon_of(loss, 1e-5)


@pytest.mark.parametrize("epsilon_of", [gdp_epsilon, zcdp_epsilon])
@pytest.mark.parametrize("delta", [math.nan, 0.0, -1e-5, 1.5])
def test_a_delta_that_is_none_has_no_epsilon(epsilon_of: Callable[[float, float], float], delta: float) -> None:
    with pytest.raises(PrivacyError, match="a delta above 0"):
        epsilon_of(0.7, delta)


@pytest.mark.parametrize("epsilon_of", [gdp_epsilon, zcdp_epsilon])
def test_next_to_no_noise_ends_in_an_error(epsilon_of: Callable[[float, float], float]) -> None:
    with pytest.raises(PrivacyError, match="next to no noise"):
        epsilon_of(1e9, 1e-5)


@pytest.mark.parametrize("unit", ["record", "client"])
def test_a_delta_is_too_large_from_one_over_their_number_on(unit: str) -> None:
    """A power of two, so that the product is exact."""
    assert large_delta(2.0**-10, 1024, unit) != ""
    assert large_delta(math.nextafter(2.0**-10, 0.0), 1024, unit) == ""
    said = large_delta(0.1, 120, unit)
    assert f"120 {unit}s" in said
    assert "publishes 12 of them" in said
    suggested = float(said.split("take ")[1].split()[0])
    assert large_delta(suggested, 120, unit) == ""
