"""The bill: composition, slacks, calibration, and what other accountants say."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.extras import needs

from secagg.dp import DistributedNoise, PrivacyError, Release, calibrate, guarantee
from secagg.dp.accountant import _tight_epsilon
from secagg.dp.conversions import gdp_delta
from secagg.dp.discrete_gaussian import TAIL_MASS
from secagg.dp.errors import MissingExtraError
from secagg.dp.noise import CoordinateNoise
from simulations.compare.second_opinions import second_opinions


def release(rho: Fraction, **slacks: float) -> Release:
    return Release(label="test", unit="record", adjacency="add-remove", rho=rho, **slacks)


def bill_of(noise: CoordinateNoise | DistributedNoise) -> Release:
    return Release.of("x", Fraction(1, 10), noise, unit="record", adjacency="add-remove")


@examples(4)
@given(st.floats(0.01, 20), st.floats(1e-10, 0.01), st.integers(1, 12))
def test_calibration_keeps_the_budget_and_wastes_nothing(epsilon: float, delta: float, releases: int) -> None:
    rho = calibrate(epsilon, delta, releases=releases)
    slacks = {"tail_mass": 1e-37, "log_ratio": 1e-11 * epsilon / releases}
    found = guarantee([release(rho, rounding=1e-6 * epsilon / releases, **slacks)] * releases, delta)
    assert epsilon * (1 - 1e-3) < found.epsilon <= epsilon
    assert found.epsilon < found.epsilon_zcdp
    coarse = calibrate(epsilon, delta, releases=releases, by_zcdp=True)
    assert coarse < rho
    of_coarse = guarantee([release(coarse, rounding=1.0, **slacks)] * releases, delta)
    assert epsilon * (1 - 1e-4) < of_coarse.epsilon == of_coarse.epsilon_zcdp <= epsilon
    assert found.rho == rho * releases
    assert found.releases == releases


@examples(4)
@given(st.lists(st.fractions(Fraction(1, 1000), Fraction(1)), min_size=1, max_size=6))
def test_order_does_not_matter_and_more_releases_cost_more(rhos: list[Fraction]) -> None:
    bill = [release(rho) for rho in rhos]
    assert guarantee(bill, 1e-5) == guarantee(bill[::-1], 1e-5)
    assert guarantee([*bill, bill[0]], 1e-5).epsilon > guarantee(bill, 1e-5).epsilon


def test_every_slack_is_on_the_bill() -> None:
    plain = guarantee([release(Fraction(1, 30))], 1e-5)
    assert guarantee([release(Fraction(1, 30), log_ratio=5e-10)], 1e-5).epsilon == pytest.approx(plain.epsilon + 1e-9)
    assert guarantee([release(Fraction(1, 30), rounding=0.01)], 1e-5).epsilon == pytest.approx(
        plain.epsilon + 0.02, abs=0.002
    )
    with pytest.raises(PrivacyError, match="no discrete Gaussian"):
        guarantee([release(Fraction(1, 30), log_ratio=2e-9)], 1e-5)
    assert guarantee([release(Fraction(1, 30), tail_mass=1e-7)], 1e-5).epsilon > plain.epsilon
    with pytest.raises(PrivacyError, match="cut tail"):
        guarantee([release(Fraction(1, 30), tail_mass=1e-5)], 1e-5)


def test_a_bill_reads_its_slacks_from_the_noise() -> None:
    levels = np.array([1] * 10 + [0], dtype=np.uint8)
    noise = CoordinateNoise(levels=levels, variances=(128,))
    bill = bill_of(DistributedNoise(total=noise, min_noise_shares=40, colluders=8))
    assert bill.tail_mass == pytest.approx(10 * 32 * TAIL_MASS)
    assert 0 < bill.log_ratio < 1e-9
    assert bill.rounding == pytest.approx(10 * 225 / 24 / 128)
    central = bill_of(noise)
    assert central.log_ratio == 0
    assert central.tail_mass == pytest.approx(10 * TAIL_MASS)


def test_shares_of_one_unit_are_refused_by_the_bill() -> None:
    """Each is wide enough to exist, and a hundred of them are no discrete Gaussian."""
    noise = CoordinateNoise(levels=np.ones(2720, dtype=np.uint8), variances=(100,))
    bill = bill_of(DistributedNoise(total=noise, min_noise_shares=100))
    with pytest.raises(PrivacyError, match="fraction bits"):
        guarantee([bill], 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "releases"), [(0, 1e-5, 1), (1, 0, 1), (1, 0.9, 1), (1, 1e-5, 0), (99, 1e-5, 1)]
)
def test_budgets_out_of_range_are_refused(epsilon: float, delta: float, releases: int) -> None:
    with pytest.raises(PrivacyError):
        calibrate(epsilon, delta, releases=releases)


def test_releases_cost_something() -> None:
    with pytest.raises(PrivacyError, match="above 0"):
        release(Fraction(0))
    with pytest.raises(PrivacyError, match="slacks"):
        release(Fraction(1), tail_mass=-1.0)


@pytest.mark.parametrize("change", [{"unit": "client"}, {"adjacency": "replace-one"}])
def test_prices_for_different_promises_do_not_add_up(change: dict[str, str]) -> None:
    one = release(Fraction(1, 30))
    with pytest.raises(PrivacyError, match=r"one unit and one adjacency, not for .*record, add-remove"):
        guarantee([one, replace(one, **change)], 1e-5)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="a unit is one of record, client and an adjacency one of add-remove"):
        replace(one, **dict.fromkeys(change, "row"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "releases"), [(0.5, 1), (1.0, 5), (8.0, 1)])
def test_other_accountants_agree(epsilon: float, releases: int) -> None:
    """PLD and PRV are our stated route, RDP that of zCDP: each within its own error of ours."""
    needs("opacus")
    needs("dp_accounting")
    bill = [release(calibrate(epsilon, 1e-5, releases=releases))] * releases
    ours = guarantee(bill, 1e-5)
    theirs = second_opinions(bill, 1e-5)
    assert len(theirs) == 4
    for name, value in theirs.items():
        if "RDP" in name:
            assert value == pytest.approx(ours.epsilon_zcdp, rel=1e-3), name
        else:
            assert value == pytest.approx(ours.epsilon, abs=0.012, rel=1e-3), name


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith(("opacus", "dp_accounting")):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"\.\[dp\]"):
        second_opinions([release(Fraction(1, 30))], 1e-5)
    assert guarantee([release(Fraction(1, 30))], 1e-5).epsilon > 0, "the stated guarantee needs neither"


def test_the_tight_epsilon_is_where_curve_and_slacks_use_up_delta() -> None:
    """By hand, with slacks as large as no bill has them, so that each term shows."""
    slacks = {"log_ratio": 1e-3, "rounding": 2e-3, "tail_mass": 2e-7}
    epsilon = _tight_epsilon([release(Fraction(1, 30), **slacks), release(Fraction(1, 50), **slacks)], 1e-5)
    ratio, tail, mu = 2 * 3e-3, 2 * 4e-7, math.sqrt(2 * (1 / 30 + 1 / 50))
    ideal = epsilon - 2 * ratio
    curve = math.exp(ratio) * gdp_delta(mu, ideal)
    assert curve + (1 + math.exp(ideal + 2 * ratio)) * tail == pytest.approx(1e-5, rel=1e-9)
    assert curve < 0.9e-5


def test_tails_that_eat_up_delta_leave_no_tight_epsilon() -> None:
    """At no epsilon do they fit: the curve's own search ends, and nothing is promised."""
    assert _tight_epsilon([release(Fraction(1, 100), tail_mass=1e-5)], 1e-5) == math.inf
