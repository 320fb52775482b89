"""One client's statistics, as the difference of two totals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.scoring import score_vector
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class Differencing:
    """The target was in the first sum and not in the second; everybody else was in both with the same rows."""

    name: str = "differencing"
    title: str = "One client, from two totals that differ by it"
    explanation: str = (
        "Two totals over the same clients and rows, one of them without the target: their difference is the target's "
        "statistics. No mask helps, since both totals are meant to be seen. Success: every number exact. Chance: less "
        "than naming one row out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The first total less the second."""
        first, second = view.sums[0].read_rest(), view.sums[1].read_rest()
        return None if first is None or second is None else first - second

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a pair of totals."""
        return score_vector(guess, truth)
