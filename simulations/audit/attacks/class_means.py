"""The mean row of every class that a client holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.reading import IntMatrix, Reading
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class ClassMeans:
    """The columns of H are the sums of each class's rows; divided by the class's count they are its means."""

    name: str = "class_means"
    title: str = "The average row of each class of a client"
    explanation: str = (
        "Each column of H is the sum of the rows of one class. Success: the sum of a class that the client holds, "
        "every number exact. Chance: less than naming one row out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntMatrix | None:
        """The class sums, shape (d, c)."""
        vector = view.read(target)
        return None if vector is None else Reading.of(view.sums[-1].layout, vector).cross

    def score(self, guess: IntMatrix | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial for each class of the client."""
        held = np.unique(truth.labels)
        hits = sum(
            guess is not None and np.array_equal(guess[:, label], truth.rows[truth.labels == label].sum(axis=0))
            for label in held
        )
        return Score(hits=hits, trials=len(held), chance=1 / truth.pool_size)
