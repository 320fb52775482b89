"""Membership of a row by the released model alone, which fits the rows that it was made of better."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

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
        others = _by_references(_Asked.of(seen.learner, known.public, known.candidates))
        return -error if others is None else np.asarray(others - error)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What reference models follow from, the same for every model of a learner; equal by its digest."""

    digest: bytes
    learner: AnalyticLearner[Any] = field(compare=False)
    public: ClientRows = field(compare=False)
    candidates: ClientRows = field(compare=False)

    @classmethod
    def of(cls, learner: AnalyticLearner[Any], public: ClientRows, candidates: ClientRows) -> Self:
        """Return it of a learner and of what the attacker knows."""
        arrays = (array for rows in (public, candidates) for array in (rows.features, rows.targets))
        digests = [hashlib.sha256(np.ascontiguousarray(array).tobytes()).digest() for array in arrays]
        return cls(hashlib.sha256(repr((learner, digests)).encode()).digest(), learner, public, candidates)


@lru_cache(maxsize=1)
def _by_references(asked: _Asked) -> Floats | None:
    """Return each candidate's mean error under models of parts of the public rows; None where none could be fitted."""
    rng, found = np.random.default_rng(0), list[Floats]()
    for _ in range(REFERENCES):
        some = rng.permutation(len(asked.public))[: max(1, int(PART_OF_PUBLIC * len(asked.public)))]
        with suppress(AnalyticError):  # public rows of too few classes, or too few of them
            model = fit_pooled(asked.learner, asked.public.taken(some))
            found.append(_log_errors(asked.learner, model, asked.candidates))
    return np.asarray(np.mean(found, axis=0)) if found else None


def _log_errors(learner: AnalyticLearner[Any], model: Any, rows: ClientRows) -> Floats:
    """Return the logarithm of each row's squared distance between scores and one-hot target."""
    scores = learner.decision_function(model, rows.features)
    targets = np.eye(scores.shape[1])[rows.targets.astype(np.intp)]
    return np.asarray(np.log(np.maximum(((scores - targets) ** 2).sum(axis=1), 1e-12)))


ATTACK = ModelMembership()
