"""Shares of noise: how much they are together, and how far their law is from the one the proof is about."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import InsecureSeededEntropy, Layout
from secagg.dp import DistributedNoise, PrivacyError
from secagg.dp.accountant import REACH_SIGMAS, rounding_log_ratio
from secagg.dp.noise import CoordinateNoise, convolution_log_ratio
from secagg.errors import ConfigurationError, InvalidVectorError


def noise(*variances: int, levels: tuple[int, ...] = (1, 2, 0, 1)) -> CoordinateNoise:
    return CoordinateNoise(levels=np.array(levels, dtype=np.uint8), variances=variances)


def law(variance: float, reach: int) -> np.ndarray:
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * variance))
    return np.asarray(weights / weights.sum())


@given(st.lists(st.integers(1, 2**80), min_size=2, max_size=2), st.integers(1, 500))
def test_shares_together_have_at_least_the_variance(variances: list[int], n_shares: int) -> None:
    share = noise(*variances).split(n_shares)
    for whole, part in zip(variances, share.variances, strict=True):
        assert whole <= part * n_shares < whole + n_shares


def test_draws_follow_the_levels_and_leave_withheld_coordinates_at_zero() -> None:
    levels = np.array([1] * 3000 + [2] * 3000 + [0] * 50, dtype=np.uint8)
    drawn = CoordinateNoise(levels=levels, variances=(10**4, 10**10)).draw(InsecureSeededEntropy(1))
    # 6 standard deviations of a variance estimate from 3000 draws: 6 sqrt(2 / 3000)
    assert abs(drawn[:3000].var() / 10**4 - 1) < 0.16
    assert abs(drawn[3000:6000].var() / 10**10 - 1) < 0.16
    assert not drawn[6000:].any()


def test_noise_below_one_lattice_unit_is_refused() -> None:
    with pytest.raises(PrivacyError, match=r"below 1.*fraction bits"):
        noise(0, 5)
    with pytest.raises(PrivacyError, match="lattice units"):
        noise(-3, 5)


def test_levels_need_variances() -> None:
    with pytest.raises(PrivacyError, match="level 2 has no variance"):
        noise(5)
    with pytest.raises(PrivacyError, match="uint8"):
        CoordinateNoise(levels=np.zeros(3), variances=(4,))  # type: ignore[arg-type]


@pytest.mark.parametrize(("promised", "colluders"), [(0, 0), (3, 3), (3, 7), (3, -1)])
def test_nobody_left_to_add_noise_is_refused(promised: int, colluders: int) -> None:
    with pytest.raises(PrivacyError, match="at least one honest client"):
        DistributedNoise(total=noise(100, 100), min_noise_shares=promised, colluders=colluders)


@pytest.mark.parametrize(("promised", "colluders"), [(101, 0), (120, 19)])
def test_shares_below_one_lattice_unit_are_refused(promised: int, colluders: int) -> None:
    """Rounded up to one unit each, they would pass for noise that was asked for."""
    with pytest.raises(PrivacyError, match=r"101 shares of noise of 10 lattice units are each below 1.*fewer clients"):
        DistributedNoise(total=noise(100, 10**9), min_noise_shares=promised, colluders=colluders)
    DistributedNoise(total=noise(100, 10**9), min_noise_shares=100)


def test_the_layout_gets_room_for_every_possible_share() -> None:
    layout = Layout.of([("a", 2, 10), ("withheld", 1, 0), ("b", 1, 2**40)])
    distributed = DistributedNoise(total=noise(900, 400), min_noise_shares=4)
    wide = distributed.share.widened(layout, times=6)
    assert [s.bound for s in wide.segments] == [10 + 6 * 14 * 15, 0, 2**40 + 6 * 14 * 15]
    with pytest.raises(PrivacyError, match="4 coordinates"):
        distributed.share.widened(Layout.of([("a", 5, 1)]), times=1)
    with pytest.raises(ConfigurationError, match="int64"):
        noise(2**112, 2**112).widened(Layout.of([("a", 4, 2**62)]), times=1000)


def test_withheld_coordinates_must_be_zero_and_errors_tell_no_values() -> None:
    with pytest.raises(InvalidVectorError, match="1 coordinates") as caught:
        noise(100, 100).check_withheld(np.array([1, 2, 987654321, 4]))
    assert "987654321" not in str(caught.value)
    noise(100, 100).check_withheld(np.array([1, 2, 0, 4]))


@pytest.mark.parametrize(("variance", "n_shares"), [(0.5, 2), (0.7, 2), (0.64, 5), (1.0, 3), (1.5, 8)])
def test_the_bound_on_sums_of_shares_holds_and_is_not_idle(variance: float, n_shares: int) -> None:
    """Exact convolution against N_Z(0, n v), wherever both have mass above 1e-12."""
    reach = 60
    total = law(variance, reach)
    for _ in range(n_shares - 1):
        total = np.convolve(total, law(variance, reach))
    ideal = law(n_shares * variance, reach * n_shares)
    seen = ideal > 1e-12
    largest = float(np.abs(np.log(total[seen] / ideal[seen])).max())
    bound = convolution_log_ratio(variance, n_shares)
    assert largest <= bound
    if n_shares == 2:  # later shares smooth what the first two left, which the bound does not count on
        assert bound < 20 * largest, "or it says nothing"


@pytest.mark.parametrize("variance", [1, 2, 10, 300])
def test_the_bound_on_rounding_holds(variance: int) -> None:
    """Rounded N(0, v) against N_Z(0, v): exact by the error function, within 7 sigma, where doubles still tell."""
    reach = int(7 * math.sqrt(variance))
    x = np.arange(-reach, reach + 1)
    scale = math.sqrt(2 * variance)
    rounded = np.array([(math.erfc((abs(k) - 0.5) / scale) - math.erfc((abs(k) + 0.5) / scale)) / 2 for k in x])
    exact = law(variance, 40 * reach)[39 * reach : 41 * reach + 1]
    largest = float(np.abs(np.log(rounded / exact)).max())
    assert largest <= rounding_log_ratio(variance)
    assert largest >= (7 / REACH_SIGMAS) ** 2 * rounding_log_ratio(variance) / 4


def test_wide_shares_are_as_good_as_one_discrete_gaussian() -> None:
    distributed = DistributedNoise(total=noise(1600 * 100, 1600 * 100), min_noise_shares=110, colluders=10)
    assert distributed.honest == 100
    assert distributed.log_ratio < 1e-60
    assert distributed.share.variances == (1600, 1600)
    assert distributed.realised(105) == (168000, 168000)
    assert distributed.tail_mass < 1e-39


def test_a_level_without_coordinates_draws_nothing() -> None:
    """Its variance is no part of the vector: the same noise, and the same bytes of entropy, as without it."""
    levels = np.array([1, 3, 3, 0], dtype=np.uint8)
    with_idle = CoordinateNoise(levels=levels, variances=(100, 10**9, 400)).draw(InsecureSeededEntropy(1))
    without = CoordinateNoise(levels=np.minimum(levels, 2), variances=(100, 400)).draw(InsecureSeededEntropy(1))
    assert with_idle.tobytes() == without.tobytes()
