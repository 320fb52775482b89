"""An attack of another package: it reads how many rows there are, which is the last number of a vector."""

from __future__ import annotations

import numpy as np

from simulations.audit.attack import ExposureAttack
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth


class LastNumber(ExposureAttack[int | None]):
    """It guesses from what the adversary sees; ``score`` alone sees the truth."""

    name = "last_number"
    title = "The number of rows, as it is sent"
    explanation = "Reads the last number of a vector. Success: the number of rows. Chance: any number of rows."
    sees = frozenset({Kind.MESSAGE, Kind.TOTAL, Kind.NOISY_TOTAL, Kind.MODEL})
    needs = Knowledge.NOTHING

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> int | None:
        """Return the last number; None where nothing can be read."""
        vector = seen.read()
        return None if vector is None else int(vector[-1])

    def score(self, guess: int | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Return one trial, and how often a blind guess is right."""
        return Score(hits=int(guess == len(truth.rows)), trials=1, chance=1 / truth.row_counts)


ATTACK = LastNumber()
