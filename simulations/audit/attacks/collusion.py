"""One client's vector, from all secrets that a coalition holds together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.attack import score_vector
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.view import AdversaryView, read_integers


@dataclass(frozen=True, slots=True)
class Collusion:
    """Takes off every mask whose seed the coalition can rebuild, whether or not that is all of them."""

    name: str = "collusion"
    title: str = "One client, by a coalition that pools its secrets"
    explanation: str = (
        "The coalition uses every key, share and random number of its members to take the target's message apart, as "
        "far as the protocol's own mathematics allow. Success: every number exact. Chance: less than naming one row "
        "out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The target's vector, or what is left of the masks."""
        one = view.sums[-1]
        opened = None if target is None else one.protocol.opened_by(one.knowledge, target)
        return None if opened is None else read_integers(one.layout, opened.to_bytes())

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a coalition."""
        return score_vector(guess, truth)
