"""A small workbench for attacks: 300 rows of digits, 8 of them a client."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from analytic.afl import AFL
from analytic.row_format import RowFormat
from analytic_secagg.datasets import bundled
from secagg import InsecureSeededEntropy
from simulations.audit.population import Population
from simulations.audit.workbench import Bench


@lru_cache(maxsize=1)
def _first() -> Bench:
    rng, digits = np.random.default_rng(0), bundled("digits")
    population = Population.of(digits, rng)
    population = replace(population, candidates=population.candidates[:300], public=population.public[:200])
    form = RowFormat.covering(digits.x_train)
    learner = AFL(n_features=64, n_targets=10, feature_format=form, max_rows=400, max_clients=50)
    return Bench.of(learner, population, feature_format=form, rows_per_client=8, rng=rng)


def small_bench(seed: int) -> Bench:
    """Return the bench whose rows are dealt, and whose masks are drawn, from a seed."""
    return replace(_first(), rng=np.random.default_rng(seed), entropy=InsecureSeededEntropy(seed, "attack tests"))
