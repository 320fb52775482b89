"""Whether a row was used, from all sums of a learner that asks for many of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.attacks.membership import membership_scores
from simulations.audit.evaluate import Score, paired
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ManySums:
    """Adds up the membership evidence of the first sums: each is about another layer of the same rows.

    Everything that a client does with a row is public, so the adversary runs the client's code on one candidate; the
    Gram of one row is its outer product, and any column of that is the row of that layer, up to a factor.

    Args:
        learner: the public learner.
        candidates: the candidates' inputs, one client's rows with one row each, in the order of the side information.
        public: inputs of rows that nobody used.
        n_sums: how many of the sums are used.
    """

    learner: AnalyticLearner[Any]
    candidates: tuple[ClientRows, ...]
    public: tuple[ClientRows, ...]
    n_sums: int
    name: str = "many_sums"
    title: str = "Whether a given row was used, when a learner asks for many sums (DeepAFL)"
    explanation: str = (
        "A deep learner asks for several sums, each about another layer of the same rows, and the trace that a row "
        "leaves in each adds up. Success: of a row that was used and one that was not, the right one. Chance: one half."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Floats | None:
        """A score for each candidate."""
        total = np.zeros(len(self.candidates))
        for one in view.sums[: self.n_sums]:
            vector = one.read_rest() if target is None else one.read_upload(target)
            if vector is None:
                return None
            reading = Reading.of(one.layout, vector)
            unit = max(1.0, float(np.sqrt(np.abs(reading.gram.diagonal()).max())))
            total += np.maximum(
                membership_scores(
                    reading.gram / unit**2,
                    self._layer(one.model, self.candidates) / unit,
                    self._layer(one.model, self.public) / unit,
                    reading.count,
                ),
                -1e6,
            )
        return total

    def score(self, guess: Floats | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Pairs of a row that was used and one that was not."""
        scores = np.zeros(len(truth.is_member)) if guess is None else guess
        return paired(list(scores[truth.is_member]), list(scores[~truth.is_member]), rng)

    def _layer(self, model: Any, rows: tuple[ClientRows, ...]) -> Floats:
        return np.array([_row_of(self.learner.client_statistics(model, row).gram) for row in rows])


def _row_of(gram: NDArray[np.int64]) -> Floats:
    """The row whose outer product this is, up to its sign."""
    place = int(np.argmax(gram.diagonal()))
    length = np.sqrt(float(gram[place, place]))
    return np.asarray(gram[place] / length if length else gram[place].astype(np.float64))
