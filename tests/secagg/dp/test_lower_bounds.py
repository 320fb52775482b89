"""Attacks on the mechanism as it runs: what they prove about epsilon from below must stay below the claim.

Low lower bounds are normal and no measure of the privacy there is. The twins lack most of their noise: an attack that
does not refute *their* claim could not have refuted anything.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

from secagg import Layout, PlainSum, run_in_memory
from secagg.dp import DistributedNoise, NoisySum, Release, calibrate, guarantee
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom

DELTA = 1e-5
CLIENTS = (1, 2, 3, 4)
SENSITIVITY = 10_000
CONFIDENCE = 1e-6
"""Probability with which a valid claim is called refuted, for each bound."""


def claimed(epsilon: float) -> tuple[CoordinateNoise, float]:
    """Noise for a change of norm 10 000 in one of 32 coordinates, and the guarantee that it really has."""
    rho = calibrate(epsilon, DELTA)
    variance = math.ceil(SENSITIVITY**2 / (2 * rho))
    noise = CoordinateNoise(levels=np.ones(32, dtype=np.uint8), variances=(variance,))
    spent = SENSITIVITY**2 / (2 * variance * rho) * rho
    bill = Release.of("audit", spent, _shared(noise), unit="record", adjacency="add-remove")
    return noise, guarantee([bill], DELTA).epsilon


def _shared(noise: CoordinateNoise) -> DistributedNoise:
    return DistributedNoise(total=noise, min_noise_shares=len(CLIENTS))


def totals(noise: CoordinateNoise, contribution: int, n: int, seed: int) -> np.ndarray:
    """The first coordinate of ``n`` independent sums in which client 1 gives ``contribution``.

    A vector has 32 coordinates and noise is independent in each: one session is 32 of these sums.
    """
    layout = Layout.of([("x", 32, 10**6)])
    shared = _shared(noise)
    room = with_headroom(layout, len(CLIENTS), shared)
    plain = PlainSum(layout=room, clients=CLIENTS, session_id=bytes(16), min_survivors=len(CLIENTS))
    protocol = NoisySum(protocol=plain, layout=layout, noise=shared, noise_entropy=np.random.default_rng(seed).bytes)
    vectors = {party: np.full(32, contribution if party == 1 else 5, dtype=np.int64) for party in CLIENTS}
    return np.concatenate([run_in_memory(protocol, vectors).result.total for _ in range(n // 32)])


def two_world_bound(noise: CoordinateNoise, n: int, seed: int) -> float:
    """Jagielski et al. 2020: the error rates of a threshold, bounded by Clopper and Pearson, bound epsilon.

    Half of the sums choose the threshold, the other half measure it.
    """
    without, with_it = totals(noise, 0, n, seed), totals(noise, SENSITIVITY, n, seed + 1)
    half = len(without) // 2
    candidates = np.quantile(with_it[:half], np.linspace(0.05, 0.95, 19))
    best = max(candidates, key=lambda t: _log_ratio(without[:half] >= t, with_it[:half] >= t))
    return _log_ratio(without[half:] >= best, with_it[half:] >= best)


def _log_ratio(false: np.ndarray, true: np.ndarray) -> float:
    """Log of (TPR - delta) / FPR at the ends of one-sided intervals of ``CONFIDENCE`` / 2 each."""
    n = len(false)
    upper = float(beta.ppf(1 - CONFIDENCE / 2, int(false.sum()) + 1, n - int(false.sum()))) if false.sum() < n else 1.0
    lower = float(beta.ppf(CONFIDENCE / 2, int(true.sum()), n - int(true.sum()) + 1)) if true.sum() else 0.0
    return math.log(max(lower - DELTA, 1e-300) / upper)


def one_run_bound(noise: CoordinateNoise, n_canaries: int, seed: int) -> float:
    """Steinke, Nasr and Jagielski 2023, for delta next to 0: from one run with many canaries, each in by a coin.

    Every guess of an (epsilon, 0)-DP release is right with probability at most e^eps / (1 + e^eps), so the number of
    right guesses is stochastically below that binomial. Coordinates serve as canaries: each has its own record.
    """
    rng = np.random.default_rng(seed)
    present = rng.integers(0, 2, n_canaries).astype(bool)
    seen = np.where(present, totals(noise, SENSITIVITY, n_canaries, seed), totals(noise, 0, n_canaries, seed + 1))
    score = seen - 15 - SENSITIVITY / 2
    sure = np.argsort(-np.abs(score))[: n_canaries // 4]
    right = int(np.count_nonzero((score > 0)[sure] == present[sure]))
    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = 1 / (1 + math.exp(-middle))
        low, high = (middle, high) if binom.sf(right - 1, len(sure), chance) < CONFIDENCE else (low, middle)
    return low


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_attack_proves_more_than_the_claim(epsilon: float) -> None:
    """n = 12800 sums a world, 3200 canaries, seed 11."""
    noise, claim = claimed(epsilon)
    assert claim <= epsilon
    assert two_world_bound(noise, 12_800, 11) <= claim
    assert one_run_bound(noise, 3_200, 11) <= claim


@pytest.mark.statistical
def test_the_attacks_refute_a_claim_without_noise_behind_it() -> None:
    """A twin with a sixth of the standard deviation: both attacks show that epsilon 1 cannot be true."""
    noise, claim = claimed(1.0)
    short = CoordinateNoise(levels=noise.levels, variances=(noise.variances[0] // 36,))
    assert two_world_bound(short, 12_800, 12) > claim
    assert one_run_bound(short, 3_200, 12) > claim


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0, 8.0])
def test_no_attack_proves_more_for_any_seed(epsilon: float, seed: int) -> None:
    noise, claim = claimed(epsilon)
    assert two_world_bound(noise, 64_000, 2 * seed) <= claim
    assert one_run_bound(noise, 6_400, 2 * seed) <= claim
