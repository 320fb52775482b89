"""A lower bound of epsilon from one run: Steinke, Nasr and Jagielski, NeurIPS 2023."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

LARGEST_EPSILON = 64.0


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """How likely an (epsilon, delta)-DP mechanism lets that many guesses about canaries be right, at most.

    Each of ``canaries`` rows was put in or left out by a fair coin; ``guesses`` of them are guessed, the rest passed
    over. The number of right guesses is dominated by Binomial(guesses, e^eps / (1 + e^eps)), plus what delta adds
    (theorem 5.2 of the paper).
    """
    if not (0 <= correct <= guesses <= canaries and epsilon >= 0.0 and 0.0 <= delta < 1.0):
        raise ValueError("needs 0 <= correct <= guesses <= canaries, epsilon >= 0 and 0 <= delta < 1")
    if correct == 0:
        return 1.0
    chance = 1.0 / (1.0 + math.exp(-epsilon))
    beta = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0.0:
        return beta
    distances = np.arange(1, correct + 1)
    alpha = float((np.cumsum(stats.binom.pmf(correct - distances, guesses, chance)) / distances).max())
    return min(1.0, beta + alpha * delta * 2 * canaries)


def epsilon_lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The largest epsilon that these guesses refute at this confidence; 0 if they refute none."""

    def refuted(epsilon: float) -> bool:
        p = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return p < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guess_canaries(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int) -> int:
    """Right guesses when the ``guesses / 2`` highest scores are called in and as many lowest out."""
    half = guesses // 2
    order = np.argsort(scores)
    return int(included[order[len(order) - half :]].sum() + (~included[order[:half]]).sum())


def noise_p_value(noise: NDArray[np.float64], sigma: float) -> float:
    """How likely independent normal noise of this scale has as little energy as seen: small where shares are missing.

    Args:
        noise: a release less the exact sum, which only a simulation knows; each entry divided by its relative scale.
        sigma: the scale that was promised.
    """
    energy = float((np.asarray(noise, dtype=np.float64) ** 2).sum()) / sigma**2
    return float(stats.chi2.cdf(energy, len(noise)))
