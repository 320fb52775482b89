"""An attack of another package: it reads how many rows a client has, which is the last number of its vector."""

from __future__ import annotations

import numpy as np

from secagg import PartyId
from simulations.audit.attack import MessageAttack
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.view import AdversaryView


class LastNumber(MessageAttack[int | None]):
    """It guesses from what the adversary sees; ``score`` alone sees the truth."""

    name = "last_number"
    title = "The number of rows, as it is sent"
    explanation = "Reads the last number of a message. Success: the number of rows. Chance: any number of rows."

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> int | None:
        """Return the last number; None where the message cannot be read."""
        vector = view.read(target)
        return None if vector is None else int(vector[-1])

    def score(self, guess: int | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Return one trial, and how often a blind guess is right."""
        return Score(hits=int(guess == len(truth.rows)), trials=1, chance=1 / truth.row_counts)


ATTACK = LastNumber()
