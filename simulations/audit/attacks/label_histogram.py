"""How many rows of each class a client holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import multinomial

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class LabelHistogram:
    """H^T G^+ H = Y^T Y = diag(n_c), exactly, as long as the rows are linearly independent."""

    name: str = "label_histogram"
    title: str = "How many rows of each class a client holds"
    explanation: str = (
        "From the two matrices that a closed form needs (G and H), one product gives the number of rows of every "
        "class. Success: all classes of a client right. Chance: the likeliest histogram, guessed by somebody who knows "
        "how many rows there are."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """The histogram; None where the numbers cannot be one."""
        vector = view.read(target)
        return None if vector is None else Reading.of(view.sums[-1].layout, vector).class_counts()

    def score(self, guess: NDArray[np.int64] | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        counts = np.bincount(truth.labels, minlength=truth.n_classes)
        hit = guess is not None and np.array_equal(guess, counts)
        return Score(hits=int(hit), trials=1, chance=_likeliest(len(truth.labels), truth.n_classes))


def _likeliest(n_rows: int, n_classes: int) -> float:
    """The probability of the likeliest histogram of classes that are equally frequent: an even one."""
    even = np.full(n_classes, n_rows // n_classes)
    even[: n_rows % n_classes] += 1
    return float(multinomial.pmf(even, n_rows, np.full(n_classes, 1 / n_classes)))
