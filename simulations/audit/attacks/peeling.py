"""Rows that are alone in a feature, one after the other; and rows of anybody, by features that are crafted for that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic_secagg.modes import Mode
from simulations.audit.attack import (
    ANY_SUM,
    Attack,
    Expectation,
    Limit,
    ReadingAttack,
    RebuiltRows,
    Unit,
    on_a_total,
    score_rows,
)
from simulations.audit.attacks.rows import class_by_class
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.view import IntMatrix, Reading
from simulations.audit.workbench import Bench

BINS = 64
"""Columns that the crafted map adds, each of which is one in a narrow band of a projection and zero elsewhere."""


def peel(reading: Reading) -> RebuiltRows:
    """All rows that come off, certified if nothing is left.

    For features x >= 0: (sum_c H_vc)^2 = G_vv says that only one row has anything in feature v. That row is then column
    v of G divided by its entry; once it is known it is taken off, and others become alone. Where features have signs it
    is no proof that a row is alone, and a good guess all the same.
    """
    gram, cross = reading.gram.copy(), reading.cross.copy()
    rows, labels = [], []
    while (found := _first_alone(gram, cross)) is not None:
        row, label = found
        gram -= np.outer(row, row)
        cross[:, label] -= row
        rows.append(row)
        labels.append(label)
    return RebuiltRows(
        rows=np.array(rows, dtype=np.int64).reshape(len(rows), len(gram)),
        labels=np.array(labels, dtype=np.int64),
        certified=bool(rows) and not gram.any() and not cross.any(),
    )


def _first_alone(gram: IntMatrix, cross: IntMatrix) -> tuple[IntMatrix, int] | None:
    sums, is_signed = cross.sum(axis=1), bool((cross < 0).any())
    alone = (sums != 0) & (np.abs(sums) < 2**31) & (sums * sums == gram.diagonal())
    for feature in np.flatnonzero(alone):
        entry, row = int(sums[feature]), gram[:, feature]
        if (row % entry).any() or np.count_nonzero(cross[feature]) != 1:
            continue
        row = row // entry
        label = int(np.argmax(np.abs(cross[feature])))
        fits = is_signed or ((row >= 0).all() and (row <= cross[:, label]).all())
        if fits and (row * row <= gram.diagonal()).all():
            return row, label
    return None


class CraftedFeatures(Attack):
    """Adds columns that are one for hardly any row ("Robbing the Fed", Fowl et al., ICLR 2022, for sums of Grams)."""

    name = "crafted_features"
    title = "Rows of anybody, if the feature map is crafted"
    explanation = (
        f"Whoever proposes the feature map adds {BINS} columns to it, the same for everybody, each of which is one in "
        "a narrow band of a random projection. A row that has a band to itself comes off, as by peeling. "
        "Success: a row of the total and its label, every number exact. Chance: less than naming one row of the "
        "pool. It shows what is at stake if sites take a map that nobody agreed on; other lines audit the agreed one."
    )
    needs = Knowledge.PUBLIC_ROWS
    unit = Unit.ROW

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that it is about totals, and that it wins where nobody looks at the map."""
        return Expectation.LEAKS if mode is None else None

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the total of one cohort of the bench's size."""
        return on_a_total(self, _with_bands(bench), bench.clients)

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> RebuiltRows | None:
        """Return the rows that come off, those in a band of their own first."""
        return None if seen.reading is None else peel(seen.reading)

    def score(self, guess: RebuiltRows | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Score a trial for each row of the total."""
        return score_rows(guess, truth, rng)


def _with_bands(bench: Bench) -> Bench:
    """Return a bench of the same rows with bands beside their columns, each of which expects one row of a total."""
    data, n_rows = bench.population.dataset, bench.clients * bench.rows_per_client
    direction = bench.rng.normal(size=data.n_features)
    place = np.asarray(data.x_test[bench.population.public], dtype=np.float64) @ direction
    step = 1.0 / n_rows
    starts = bench.rng.permutation(max(BINS, n_rows))[:BINS] * step
    entry = 2.0 ** (bench.feature_format.integer_bits - 1)  # which the agreed format holds
    low, high = np.quantile(place, np.minimum(starts, 1.0)), np.quantile(place, np.minimum(starts + step, 1.0))

    def mapped(rows: NDArray[np.generic]) -> NDArray[np.float64]:
        at = np.asarray(rows, dtype=np.float64) @ direction
        return np.hstack([rows, entry * ((at[:, None] >= low) & (at[:, None] < high))])

    crafted = replace(data, x_train=mapped(data.x_train), x_test=mapped(data.x_test))
    learner = AFL(
        n_features=crafted.n_features,
        n_targets=data.n_classes,
        feature_format=bench.feature_format,
        max_rows=len(bench.population.candidates),
    )
    return bench.under(learner, crafted)


CRAFTED_FEATURES = CraftedFeatures()


class _Peeling(ReadingAttack):
    def control(self, bench: Bench, trials: int) -> Score | None:
        """Peel a total under a crafted map, which has rows to come off."""
        return CRAFTED_FEATURES.play(bench, None, trials)


PEELING = _Peeling(
    name="peeling",
    title="Rows that are alone in a feature, one after the other",
    explanation=(
        "Where only one row has anything in a feature, that feature's column of the Gram matrix is the row. Taken off, "
        "it uncovers the next. SAFLe's buckets make many rows alone. Success: a row and its label, every number exact. "
        "Chance: less than naming one row of the pool."
    ),
    read=lambda reading, rows: class_by_class(peel, reading),
    scored=score_rows,
    sees=ANY_SUM,
    unit=Unit.ROW,
    limit=Limit.REBUILT_ROWS,
    sure=False,  # even in the clear it needs features that are mostly zero
)
