"""Lower bounds of epsilon: they hold for mechanisms whose epsilon is known, and they bite where it is exceeded."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from federation.datasets import Dataset, bundled
from simulations.audit.noisy_totals import lattice_p_value, noise_evidence
from simulations.audit.one_run import epsilon_lower_bound, guess_canaries, noise_p_value, one_run_p_value
from simulations.audit.population import Population


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


def test_noise_that_is_too_small_is_seen() -> None:
    noise = np.random.default_rng(1).normal(size=30_000)
    assert noise_p_value(noise, 1.0) > 1e-4
    assert noise_p_value(0.95 * noise, 1.0) < 1e-6


def test_float32_noise_has_no_low_bits() -> None:
    rng = np.random.default_rng(2)
    assert lattice_p_value(rng.integers(-(2**40), 2**40, 10_000)) > 1e-4
    assert lattice_p_value((rng.normal(size=10_000).astype(np.float32) * np.float32(2**40)).astype(np.int64)) < 1e-6


def evidence_of(data: Dataset, epsilons: tuple[float, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    population = Population.of(data, rng)
    found = list(noise_evidence(population, epsilons, rng))
    assert [one.name for one in found] == ["honest"] * len(epsilons) + ["halved", "missing_shares", "float_noise"]
    for one in found:
        assert one.as_expected, (one.title, one.words)
        assert one.fault or one.lower_bound <= one.epsilon
    assert found[-1].lattice_p_value < 1e-6
    assert found[-3].noise_ratio == pytest.approx(0.25, abs=0.02)
    assert found[-2].noise_ratio == pytest.approx(0.9, abs=0.05)


def test_noise_stands_and_every_planted_fault_of_noise_is_caught() -> None:
    evidence_of(bundled("digits"), (8.0,), 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_noise_stands_for_every_epsilon(name: str) -> None:
    for seed in range(3):
        evidence_of(bundled(name), (0.5, 1.0, 4.0, 8.0), seed)
