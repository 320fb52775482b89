"""Rows that are alone in a feature, taken off one by one until no more are alone."""

from __future__ import annotations

import numpy as np

from federation.modes import Mode
from secagg import PartyId
from simulations.audit.attack import Expectation, MessageAttack, RebuiltRows, in_the_clear, score_rows
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.reading import IntMatrix, Reading, reading_of
from simulations.audit.view import AdversaryView


class Peeling(MessageAttack[RebuiltRows | None]):
    """For features x >= 0: (sum_c H_vc)^2 = G_vv says that only one row has anything in feature v.

    That row is then column v of G divided by its entry; once it is known it is taken off, and others become alone.
    """

    name = "peeling"
    title = "Rows that are alone in a feature, one after the other"
    explanation = (
        "Where only one row has anything in a feature, that feature's column of the Gram matrix is the row. Taken off, "
        "it uncovers the next. SAFLe's buckets make many rows alone. Success: a row and its label, every number exact. "
        "Chance: naming as many rows of the pool."
    )
    on_totals = True

    def expected(self, mode: Mode | None) -> Expectation | None:
        """As every attack on a message; even in the clear it needs features that are mostly zero."""
        return Expectation.OPEN if mode and in_the_clear(mode) else super().expected(mode)

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> RebuiltRows | None:
        """The rows that came off."""
        reading = reading_of(view, target)
        return None if reading is None else peel(reading)

    def score(self, guess: RebuiltRows | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a row."""
        return score_rows(guess, truth)


def peel(reading: Reading) -> RebuiltRows:
    """All rows that come off, certified if nothing is left."""
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
    sums = cross.sum(axis=1)
    alone = (sums > 0) & (np.abs(sums) < 2**31) & (sums * sums == gram.diagonal())
    for feature in np.flatnonzero(alone):
        entry, row = int(sums[feature]), gram[:, feature]
        if (row < 0).any() or (row % entry).any() or np.count_nonzero(cross[feature]) != 1:
            continue
        row = row // entry
        label = int(np.argmax(cross[feature]))
        if (row * row <= gram.diagonal()).all() and (row <= cross[:, label]).all():
            return row, label
    return None
