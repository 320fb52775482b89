"""Intervals, powers and verdicts against numbers from tables and against brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.examples import examples

from simulations.audit.evaluate import (
    ALPHA,
    POWER,
    Score,
    Verdict,
    area_under_roc,
    clopper_pearson,
    epsilon_lower_bound,
    guess_canaries,
    one_run_p_value,
    paired,
    roc_curve,
    roc_point,
)


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
    ("hits", "trials", "chance", "verdict"),
    [
        (40, 40, 0.5, Verdict.RECOVERED),
        (60, 60, 0.01, Verdict.RECOVERED),
        (400, 600, 0.5, Verdict.LEAKS),
        (20, 40, 0.5, Verdict.NO_EVIDENCE),
        (5, 5, 0.5, Verdict.TOO_FEW),
        (0, 0, 0.5, Verdict.DOES_NOT_APPLY),
        (0, 40, 0.01, Verdict.NO_EVIDENCE),
    ],
)
def test_verdicts(hits: int, trials: int, chance: float, verdict: Verdict) -> None:
    assert Score(hits=hits, trials=trials, chance=chance).verdict is verdict


def test_no_verdict_says_safe() -> None:
    assert not any(word in verdict.value for verdict in Verdict for word in ("safe", "secure", "private"))


@examples(4)
@given(st.integers(1, 200), st.floats(0.001, 0.6))
def test_the_power_is_what_it_says(trials: int, chance: float) -> None:
    smallest = Score(hits=0, trials=trials, chance=chance).smallest_noticed
    called = [k for k in range(trials + 1) if Score(hits=k, trials=trials, chance=chance).p_value < ALPHA]
    if smallest is None:
        assert called == []
        return
    assert stats.binom.sf(called[0] - 1, trials, smallest) == pytest.approx(POWER, abs=1e-6)


def test_roc_of_scores_counted_by_hand() -> None:
    members, others = [3.0, 2.0, 2.0, 0.0], [2.0, 1.0, 0.0, -1.0]
    assert area_under_roc(members, others) == (4 + 3.5 + 3.5 + 1.5) / 16
    point = roc_point(members, others, 0.01)
    assert (point.rate, point.low) == (0.25, clopper_pearson(1, 4)[0])
    assert roc_point(members, others, 0.25).rate == 0.75
    false, true = roc_curve(members, others)
    assert list(zip(false, true, strict=True)) == [
        (0.0, 0.0), (0.0, 0.25), (0.25, 0.75), (0.5, 0.75), (0.75, 1.0), (1.0, 1.0),
    ]  # fmt: skip


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


def test_a_score_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="0 <= hits <= trials"):
        Score(hits=3, trials=2, chance=0.5)


# Lower bounds of epsilon: they hold for mechanisms whose epsilon is known, and bite where it is exceeded


def test_a_pure_mechanism_gives_the_binomial_tail() -> None:
    p = one_run_p_value(canaries=100, guesses=100, correct=75, epsilon=1.0)
    assert p == pytest.approx(stats.binom.sf(74, 100, math.e / (1 + math.e)))


def test_delta_weakens_the_bound_and_more_right_guesses_strengthen_it() -> None:
    def bound(correct: int, delta: float) -> float:
        return epsilon_lower_bound(canaries=1000, guesses=100, correct=correct, delta=delta)

    assert bound(90, 0.0) > bound(90, 1e-5) > bound(90, 1e-3)
    assert bound(100, 1e-5) > bound(90, 1e-5) > bound(70, 1e-5)
    assert bound(50, 0.0) == 0.0


def test_all_right_guesses_give_the_closed_form() -> None:
    """(e^eps / (1 + e^eps))^r = 0.05 solved for eps."""
    q = 0.05 ** (1 / 100)
    bound = epsilon_lower_bound(canaries=100, guesses=100, correct=100)
    assert bound == pytest.approx(math.log(q / (1 - q)), abs=2e-4)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomised_response_stays_below_its_epsilon(epsilon: float) -> None:
    """Null: bits flipped with probability 1 / (1 + e^eps). 100 runs of 200 bits; P(bound > eps) <= 0.05 a run.

    Rejected if more than 18 of 100 exceed it: Binomial(100, 0.05) does with probability 5e-7; seed 0.
    The twin flips half as often and must exceed it in nearly all runs of 2000 bits.
    """
    rng = np.random.default_rng(0)
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [epsilon_lower_bound(canaries=200, guesses=200, correct=int(rng.binomial(200, keep))) for _ in range(100)]
    assert sum(bound > epsilon for bound in bounds) <= 18
    assert max(bounds) > 0.0
    better = 1 - (1 - keep) / 2
    twin = [epsilon_lower_bound(canaries=2000, guesses=2000, correct=int(rng.binomial(2000, better))) for _ in range(9)]
    assert min(twin) > epsilon


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 0 <= correct"):
        one_run_p_value(canaries=10, guesses=5, correct=6, epsilon=1.0)


def test_guesses_are_the_most_telling_ones() -> None:
    scores = np.array([5.0, -5.0, 0.1, -0.1])
    assert guess_canaries(scores, np.array([True, False, False, True]), 2) == 2
    assert guess_canaries(scores, np.array([True, False, False, True]), 4) == 2
