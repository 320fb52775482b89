"""Two-world test of noisy runs: honest noise comes near its claim from below, and planted faults are refuted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.faulty_noise import Spoil, spoiled_noise

from analytic.afl import AFL
from analytic.learner import AnalyticLearner
from analytic.logistic import Logistic
from analytic.row_format import RowFormat
from analytic_secagg.privacy import PrivacyPlan
from secagg import InsecureSeededEntropy, IntVector, PartyId
from secagg.dp import DistributedNoise
from simulations.audit.two_worlds import Outcome, TwoWorlds, _Scores, two_worlds

PLAN = PrivacyPlan(epsilon=8.0, min_noise_shares=4, colluders=1)
SIZES: dict[str, Any] = {"n_features": 6, "n_targets": 3, "max_rows": 40}
TOY = AFL(**SIZES, feature_format=RowFormat(integer_bits=1, fraction_bits=16))
ROUNDS = Logistic(**SIZES, feature_format=RowFormat(integer_bits=1, fraction_bits=16), n_rounds=2)


def found(
    learner: AnalyticLearner[Any], plan: PrivacyPlan, runs: int, spoil: Callable[..., Spoil] | None = None
) -> TwoWorlds:
    with spoiled_noise(spoil):
        return two_worlds(learner, plan, np.random.default_rng(1), runs=runs)


@pytest.mark.parametrize(("learner", "runs"), [(TOY, 100), (ROUNDS, 60)], ids=["two sums", "rounds"])
def test_honest_noise_is_not_refuted_and_comes_to_half_of_its_claim(learner: AnalyticLearner[Any], runs: int) -> None:
    result = found(learner, PLAN, runs)
    assert result.outcome is Outcome.CONSISTENT
    assert 4 <= result.lower_bound <= 8


@pytest.mark.slow
def test_a_thousand_runs_come_to_seven_of_a_claimed_eight() -> None:
    """25 CPU seconds."""
    result = found(TOY, PLAN, 1000)
    assert 7 <= result.lower_bound <= 8
    assert abs(result.bounds[0].mu - result.bounds[0].exact_mu) < 5 * result.bounds[0].mu_error


@pytest.mark.parametrize(
    ("plan", "least"),
    [
        (replace(PLAN, adjacency="replace-one"), 1.4),
        (replace(PLAN, unit="client", client_rows=2), 1.6),
        (replace(PLAN, unit="client", client_rows=2, adjacency="replace-one"), 1.666 / 2**0.5),  # Grams: never opposite
        (replace(PLAN, nonnegative=True, mean_share=0.0), 1.6),
    ],
    ids=["replaced record", "client", "replaced client", "no signs, no mean"],
)
def test_the_canary_of_each_promise_moves_totals_as_much_as_the_noise_is_for(plan: PrivacyPlan, least: float) -> None:
    """The length of what it adds is the mu of the claim: 1.666 at epsilon 8 and delta 1e-5."""
    result = found(TOY, plan, 40)
    assert result.outcome is not Outcome.REFUTED
    assert least < result.bounds[0].exact_mu <= 1.667


def _halved(noise: DistributedNoise, number: int) -> Spoil:
    """Noise of half the scale."""
    thin = replace(noise.share, variances=tuple(variance // 4 for variance in noise.share.variances))
    return lambda party, vector, session: vector + thin.draw()


def _float32(noise: DistributedNoise, number: int) -> Spoil:
    """Enough of it (2 % more scale), so that only its low bits give it away: float32 has 24 bits."""
    rng = np.random.default_rng(0)
    sigma = 1.02 * np.sqrt(np.array([0.0, *map(float, noise.share.variances)]))[noise.share.levels]
    return lambda party, vector, session: (
        vector + (rng.standard_normal(len(sigma), dtype=np.float32) * sigma.astype(np.float32)).astype(np.int64)
    )


def _kept(noise: DistributedNoise, number: int) -> Spoil:
    """One of the clients draws its noise once for all runs."""
    share = noise.share.draw(InsecureSeededEntropy(number))
    return lambda party, vector, session: vector + (share if party == 1 else noise.share.draw())


def _twice(noise: DistributedNoise, number: int) -> Spoil:
    """Every client uses each of its draws in two sums one after the other: a difference of the two has no noise."""
    left = DRAWN_TWICE.setdefault(number, {})

    def sent(party: PartyId, vector: IntVector, session: bytes) -> IntVector:
        if party not in left:
            left[party] = noise.share.draw()
            return vector + left[party]
        return vector + left.pop(party)

    return sent


DRAWN_TWICE = dict[int, dict[PartyId, IntVector]]()


def _alike(noise: DistributedNoise, number: int) -> Spoil:
    """All clients of a sum draw the same: a colluder knows everybody's noise."""
    drawn = dict[bytes, IntVector]()

    def sent(party: PartyId, vector: IntVector, session: bytes) -> IntVector:
        return vector + drawn.setdefault(session, noise.share.draw())

    return sent


def _bare(quiet: int) -> Callable[[DistributedNoise, int], Spoil]:
    """No noise on the sum of one number."""

    def spoil(noise: DistributedNoise, number: int) -> Spoil:
        return lambda party, vector, session: vector if number == quiet else vector + noise.share.draw()

    return spoil


@pytest.mark.parametrize(
    ("spoil", "learner", "runs"),
    [
        (_halved, TOY, 40),
        (_bare(0), TOY, 40),
        (_bare(1), TOY, 40),
        (_bare(3), ROUNDS, 40),
        (_float32, TOY, 40),
        (_kept, TOY, 40),
        (_twice, TOY, 60),
        (_alike, TOY, 40),
    ],
    ids=[
        "half the scale", "no noise on the mean", "none on the statistics", "none in a round", "float32", "kept",
        "used twice", "all alike",
    ],
)  # fmt: skip
def test_less_noise_than_claimed_is_refuted(
    spoil: Callable[[DistributedNoise, int], Spoil], learner: AnalyticLearner[Any], runs: int
) -> None:
    result = found(learner, PLAN, runs, spoil=spoil)
    assert result.outcome is Outcome.REFUTED, result


def test_a_missing_share_is_refuted() -> None:
    """An honest cohort's noise is a third less without the share of one of three who count."""

    def spoil(noise: DistributedNoise, number: int) -> Spoil:
        return lambda party, vector, session: vector if party == 4 else vector + noise.share.draw()

    assert found(TOY, PLAN, 80, spoil=spoil).outcome is Outcome.REFUTED


def test_claims_that_hold_are_refuted_as_rarely_as_is_said() -> None:
    """Scores drawn from the exact law of a tight claim, at 70 % confidence: 30 % of refutations at most, and many."""
    rng, runs, refuted = np.random.default_rng(0), 200, 0
    for _ in range(20):
        is_in = rng.random(runs) < 0.5
        squared = np.tile([0.05, 0.95], (runs, 1)) * 1.66597**2
        ratios = np.sqrt(squared) * rng.standard_normal((runs, 2)) + np.where(is_in[:, None], 0.5, -0.5) * squared
        made = _Scores(is_in=is_in, ratios=ratios, squared=squared, honest=rng.random((runs, 5)) < 0.6)
        refuted += max(bound.best for bound in made.bounds(["mean", "statistics"], 1e-5, 0.7)) > 8.0
    assert 1 <= refuted <= 13  # Binomial(20, 0.3) is above 13 with probability 3e-4; the seed is fixed


def test_too_few_runs_decide_nothing() -> None:
    """A claim of 1 moves totals by a quarter of a standard deviation."""
    result = found(TOY, replace(PLAN, epsilon=1.0), 40)
    assert result.outcome in (Outcome.NOT_DECIDED, Outcome.CONSISTENT)
    assert result.bounds[0].fit < 0.5


@pytest.mark.parametrize(
    ("plan", "runs"), [(replace(PLAN, min_noise_shares=None), 100), (PLAN, 39)], ids=["central", "39 runs"]
)
def test_what_cannot_be_tested_is_refused(plan: PrivacyPlan, runs: int) -> None:
    with pytest.raises(ValueError, match="at least 40 runs"):
        found(TOY, plan, runs)
