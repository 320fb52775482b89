"""Small workbenches on real digits, the same for all attack tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.row_format import RowFormat
from federation.datasets import Dataset, bundled
from secagg import InsecureSeededEntropy
from simulations.audit.population import Population
from simulations.audit.workbench import Bench


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return bundled("digits")


@pytest.fixture(scope="session")
def bench_of(digits: Dataset) -> Callable[[int], Bench]:
    """A bench by seed: 300 candidates, 8 rows a client, masks from the same seed."""
    rng = np.random.default_rng(0)
    population = Population.of(digits, rng)
    population = replace(population, candidates=population.candidates[:300], public=population.public[:200])
    form = RowFormat.covering(digits.x_train)
    learner = AFL(n_features=64, n_targets=10, feature_format=form, max_rows=400, max_clients=50)
    first = Bench.of(learner, population, feature_format=form, rows_per_client=8, rng=rng)
    return lambda seed: replace(
        first, rng=np.random.default_rng(seed), entropy=InsecureSeededEntropy(seed, "attack tests")
    )


@pytest.fixture
def bench(bench_of: Callable[[int], Bench]) -> Bench:
    return bench_of(1)
