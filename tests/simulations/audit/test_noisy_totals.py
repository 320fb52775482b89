"""Claims about noise stand where they are true, and every planted fault of noise is caught."""

from __future__ import annotations

import numpy as np
import pytest

from federation.datasets import Dataset, bundled
from simulations.audit.noisy_totals import lattice_p_value, noise_evidence
from simulations.audit.population import Population


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
