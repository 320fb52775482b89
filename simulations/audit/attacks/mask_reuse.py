"""What changed at a client between two sums, if its masks did not change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Picture, Score
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class MaskReuse:
    """Between two sums the target adds one row. Equal masks cancel in the difference of its uploads: x x^T is left."""

    name: str = "mask_reuse"
    title: str = "The row that a client added between two sums"
    explanation: str = (
        "The same client sends two messages and has one more row the second time. If a mask were ever used twice, the "
        "difference of the messages would be that row. Success: the row, every number exact. Chance: naming one row "
        "out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """The row, if the difference of the uploads is one row's statistics."""
        before, after = view.read(target, number=0), view.read(target, number=1)
        if target is None or before is None or after is None:
            return None
        change = Reading.of(view.sums[0].layout, after - before)
        columns = np.flatnonzero(change.cross.any(axis=0))
        if len(columns) != 1:
            return None
        row: NDArray[np.int64] = change.cross[:, columns[0]]
        return row if np.array_equal(np.outer(row, row), change.gram) else None

    def score(self, guess: NDArray[np.int64] | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client; the added row is its last one."""
        exact = guess is not None and np.array_equal(guess, truth.rows[-1])
        picture = Picture(true=truth.rows[-1], rebuilt=guess, exact=exact)
        return Score(hits=int(exact), trials=1, chance=1 / truth.pool_size, pictures=(picture,))
