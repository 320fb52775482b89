"""How many rows a client holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class RowCount:
    """The rank of G is the number of rows, as long as they are independent; the count in the clear is not even used."""

    name: str = "row_count"
    title: str = "How many rows a client holds"
    explanation: str = (
        "The rank of the Gram matrix is the number of rows, even where that number is not sent. Success: the exact "
        "number. Chance: one of the numbers of rows that clients of this audit may hold, all equally likely."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> int | None:
        """The number of rows."""
        vector = view.read(target)
        return None if vector is None else Reading.of(view.sums[-1].layout, vector).rank

    def score(self, guess: int | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        return Score(hits=int(guess == len(truth.rows)), trials=1, chance=1 / truth.row_counts)
