"""Intervals, powers and areas against numbers from tables, against other estimators and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.examples import examples

from simulations.audit.evaluate import ALPHA, POWER, Area, Score, area_under_roc, clopper_pearson, paired


def test_intervals_are_those_of_the_tables() -> None:
    assert clopper_pearson(0, 10) == (0.0, pytest.approx(0.30850, abs=1e-5))
    assert clopper_pearson(5, 10) == (pytest.approx(0.18709, abs=1e-5), pytest.approx(0.81291, abs=1e-5))
    assert clopper_pearson(10, 10) == (pytest.approx(0.69150, abs=1e-5), 1.0)


@examples(4)
@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_intervals_cover_as_often_as_they_say(trials: int, rate: float) -> None:
    hits = np.arange(trials + 1)
    covers = [low <= rate <= high for low, high in (clopper_pearson(int(k), trials) for k in hits)]
    assert stats.binom.pmf(hits, trials, rate)[covers].sum() >= 0.95 - 1e-9


@pytest.mark.parametrize(
    ("hits", "trials", "chance", "leaked"),
    [(40, 40, 0.5, True), (400, 600, 0.5, True), (20, 40, 0.5, False), (5, 5, 0.5, False), (0, 0, 0.5, False)],
)
def test_what_is_won_beyond_doubt(hits: int, trials: int, chance: float, leaked: bool) -> None:
    assert Score(hits=hits, trials=trials, chance=chance).leaked is leaked


@examples(4)
@given(st.integers(1, 200), st.floats(0.001, 0.6), st.sampled_from([1e-3, 1e-5, ALPHA]))
def test_the_power_is_what_it_says(trials: int, chance: float, alpha: float) -> None:
    smallest = Score(hits=0, trials=trials, chance=chance).smallest_noticed(alpha)
    called = [k for k in range(trials + 1) if Score(hits=k, trials=trials, chance=chance).p_value < alpha]
    if smallest is None:
        assert called == []
        return
    assert stats.binom.sf(called[0] - 1, trials, smallest) == pytest.approx(POWER, abs=1e-6)


def test_roc_of_scores_counted_by_hand() -> None:
    members, others = [3.0, 2.0, 2.0, 0.0], [2.0, 1.0, 0.0, -1.0]
    assert area_under_roc(members, others) == (4 + 3.5 + 3.5 + 1.5) / 16


def test_an_interval_of_an_area_holds_it_and_is_no_point_where_all_rows_are_told_apart() -> None:
    rng = np.random.default_rng(0)
    members, others = rng.normal(0.7, 1, 40).round(1), rng.normal(0, 1, 60).round(1)
    area = Area.of(list(members), list(others))
    assert area.value == pytest.approx(((members[:, None] > others) + 0.5 * (members[:, None] == others)).mean())
    assert 0 < area.low < area.value < area.high < 1
    certain = Area.of([1.0] * 40, [0.0] * 60)
    assert (certain.value, certain.high) == (1.0, 1.0)
    assert 0.9 < certain.low < 1.0


@pytest.mark.statistical
def test_an_area_is_in_its_interval_as_often_as_it_says() -> None:
    """Null: normal scores one deviation apart, area 0.760. 400 intervals of 40 rows against 40.

    Rejected below 360: Binomial(400, 0.95) is below it with probability 2e-5; seed 0.
    """
    rng, truth = np.random.default_rng(0), stats.norm.cdf(1 / np.sqrt(2))
    areas = [Area.of(list(rng.normal(1, 1, 40)), list(rng.normal(0, 1, 40))) for _ in range(400)]
    assert sum(area.low <= truth <= area.high for area in areas) >= 360


def test_the_tenth_that_lies_farthest_has_an_area_of_its_own() -> None:
    one = Score(hits=1, trials=2, chance=0.5, outlying=((2.0, 3.0), (1.0,)))
    assert one.worst_tenth == Area.of([2.0, 3.0], [1.0])
    assert Score(hits=1, trials=2, chance=0.5, outlying=((2.0, 3.0), ())).worst_tenth is None
    other = Score(hits=0, trials=2, chance=0.5, outlying=((), (5.0,)))
    assert Score.pooled([one, other]).worst_tenth == Area.of([2.0, 3.0], [1.0, 5.0])


def test_pairs_toss_ties() -> None:
    rng = np.random.default_rng(0)
    score = paired([0.0] * 4000, [0.0] * 5000, rng)
    assert (score.trials, score.chance) == (4000, 0.5)
    assert 1800 < score.hits < 2200
    assert paired([1.0] * 10, [0.0] * 3, rng).hits == 3


def test_pooling_adds_up() -> None:
    pooled = Score.pooled([Score(hits=1, trials=2, chance=0.5), Score(hits=0, trials=6, chance=0.1)])
    assert (pooled.hits, pooled.trials, pooled.chance) == (1, 8, pytest.approx(0.2))
    assert Score.pooled([]).trials == 0
    errors = Score.pooled(Score(hits=0, trials=1, chance=0.5, error=error) for error in (0.1, 0.3))
    assert (errors.error, errors.blind_error) == (pytest.approx(0.2), None)


def test_a_score_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="0 <= hits <= trials"):
        Score(hits=3, trials=2, chance=0.5)
