"""Another client's statistics, from a total that clients receive."""

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
class OwnPart:
    """FedHiP hands every client the total; a client takes its own part off. Of two clients, that leaves the other."""

    name: str = "own_part"
    title: str = "The other client, when clients receive the total (FedHiP)"
    explanation: str = (
        "FedHiP gives every client the total. A client that subtracts its own part knows the sum of all others; in a "
        "cohort of two that is the other client. Success: every number exact. Chance: less than naming one row out of "
        "the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The total less everything that the coalition put in."""
        return view.sums[-1].read_rest()

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a cohort."""
        return score_vector(guess, truth)
