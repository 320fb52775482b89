"""Rows of anybody, by a feature map that is crafted and the same for all clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic_secagg.modes import Mode
from simulations.audit.attack import Attack, Expectation, Outcome, RebuiltRows, Unit, attacked, score_rows
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.workbench import Bench

BINS = 64
"""Columns that the crafted map adds, each of which is one in a narrow band of a projection and zero elsewhere."""


class CraftedFeatures(Attack):
    """Adds columns that are one for hardly any row ("Robbing the Fed", Fowl et al., ICLR 2022, for sums of Grams)."""

    name = "crafted_features"
    title = "Rows of anybody, if the feature map is crafted"
    explanation = (
        f"Whoever proposes the feature map adds {BINS} columns to it, the same for everybody, each of which is one in "
        "a narrow band of a random projection. In the total's Gram the line of a band with one row in it is that row. "
        "Success: a row of the total and its label, every number exact. Chance: less than naming one row of the "
        "pool. It shows what is at stake if sites take a map that nobody agreed on; other lines audit the agreed one."
    )
    needs = Knowledge.PUBLIC_ROWS
    unit = Unit.ROW

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that it is about totals, and that it wins where nobody looks at the map."""
        return Expectation.LEAKS if mode is None else None

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the total of one cohort of the bench's size."""
        cohort = bench.cohort(bench.clients)
        n_rows = sum(map(len, cohort.values()))
        crafted = _with_bands(bench, n_rows)
        total = crafted.total(cohort)
        truth = crafted.truth(np.concatenate(list(cohort.values())), total.released().total)
        return Outcome(score=attacked(self, Exposure.of((total,)), crafted.known(), truth, bench.rng))

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> RebuiltRows | None:
        """Return the row of each band that holds one."""
        reading = seen.reading
        if reading is None:
            return None
        one = int(reading.gram[-BINS:, -BINS:].diagonal().max()) ** 0.5 if reading.count else 0
        bands = np.arange(len(reading.gram) - BINS, len(reading.gram))
        unit = int(np.gcd.reduce(reading.cross[bands].ravel())) or 1
        alone = [band for band in bands if one and int(reading.gram[band, band]) == unit * unit]
        rows = np.array([reading.gram[band] // unit for band in alone], dtype=np.int64).reshape(-1, len(reading.gram))
        labels = np.array([int(np.argmax(reading.cross[band])) for band in alone], dtype=np.int64)
        return RebuiltRows(rows=rows, labels=labels, certified=False)

    def score(self, guess: RebuiltRows | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Score a trial for each row of the total."""
        return score_rows(guess, truth, rng)


def _with_bands(bench: Bench, n_rows: int) -> Bench:
    """Return a bench of the same rows with bands beside their columns, each of which expects one row of so many."""
    data = bench.population.dataset
    direction = bench.rng.normal(size=data.n_features)
    place = np.asarray(data.x_test[bench.population.public], dtype=np.float64) @ direction
    step = 1.0 / n_rows
    starts = bench.rng.permutation(max(BINS, n_rows))[:BINS] * step
    low, high = np.quantile(place, np.minimum(starts, 1.0)), np.quantile(place, np.minimum(starts + step, 1.0))

    def mapped(rows: NDArray[np.generic]) -> NDArray[np.float64]:
        at = np.asarray(rows, dtype=np.float64) @ direction
        return np.hstack([rows, ((at[:, None] >= low) & (at[:, None] < high)).astype(np.float64)])

    crafted = replace(data, x_train=mapped(data.x_train), x_test=mapped(data.x_test))
    learner = AFL(
        n_features=crafted.n_features,
        n_targets=data.n_classes,
        feature_format=bench.feature_format,
        max_rows=len(bench.population.candidates),
    )
    return Bench.of(
        learner,
        replace(bench.population, dataset=crafted),
        feature_format=bench.feature_format,
        rows_per_client=bench.rows_per_client,
        rng=bench.rng,
        clients=bench.clients,
        entropy=bench.entropy,
    )


ATTACK = CraftedFeatures()
