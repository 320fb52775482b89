"""Membership of a row by the released model alone, which fits the rows that it was made of better."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from simulations.audit.attack import MembershipAttack
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Known

Floats = NDArray[np.float64]

REFERENCES = 6
"""Models of public rows that tell how hard a row is to fit for whoever never saw it."""

PART_OF_PUBLIC = 0.7
"""Of the public rows that each of them is fitted to."""


class ModelMembership(MembershipAttack):
    """Compares the squared error of a row under the released model with that under models of public rows.

    This is the likelihood ratio attack of Carlini et al. (S&P 2022), section V, in its offline form, with the logarithm
    of the squared error as the statistic and the same learner for the reference models.
    """

    name = "model_membership"
    title = "Whether a given row was used, by the model alone"
    explanation = (
        "Somebody who has the released model and one row compares how well the model fits the row with how well models "
        "of other rows of the same kind do. Success: of a row that was used and one that was not, the right one. "
        "Chance: one half."
    )
    sees = frozenset({Kind.MODEL})

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> Floats:
        """Return a score for each candidate."""
        assert seen.learner is not None
        error = _log_errors(seen.learner, seen.model, known.candidates)
        others = list[Floats]()
        for _ in range(REFERENCES):
            some = rng.permutation(len(known.public))[: max(1, int(PART_OF_PUBLIC * len(known.public)))]
            try:
                model = fit_pooled(seen.learner, known.public.taken(some))
            except AnalyticError:  # public rows of too few classes, or too few of them: the error alone is the score
                continue
            others.append(_log_errors(seen.learner, model, known.candidates))
        return np.asarray(np.mean(others, axis=0) - error if others else -error)


def _log_errors(learner: AnalyticLearner[Any], model: Any, rows: ClientRows) -> Floats:
    """Return the logarithm of each row's squared distance between scores and one-hot target."""
    scores = learner.decision_function(model, rows.features)
    targets = np.eye(scores.shape[1])[rows.targets.astype(np.intp)]
    return np.asarray(np.log(np.maximum(((scores - targets) ** 2).sum(axis=1), 1e-12)))


ATTACK = ModelMembership()
