"""Facts of learners that are weighted, agreed on or chosen: the one place of a comparison that asks for their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.agreeing import Agreed, settled
from analytic.choosing import Chosen
from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import FloatMatrix
from analytic.weighted import Weighted


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solved:
    """Weights of rows and units of a solve, for a float64 ridge beside it.

    Args:
        weights: what each row counts, shape (n,).
        units: sizes of the columns that its penalty is stated in; None where columns are taken as they are.
    """

    weights: FloatMatrix
    units: tuple[float, ...] | None


def sums_of_agreement(learner: AnalyticLearner[Any]) -> int:
    """Return the number of sums that agree on columns, before the learner's own."""
    agreed = _unweighted(learner)
    return agreed.agreement.n_sums if isinstance(agreed, Agreed) else 0


def solved(learner: AnalyticLearner[Any], model: Any, rows: ClientRows) -> Solved:
    """Return how a complete model counted rows, and in which units its penalty is."""
    agreed, found, weights = learner, model, np.ones(len(rows))
    if isinstance(learner, Weighted):
        agreed, found = learner.learner, model.model
        weights = learner.weights_of(model, rows) / learner.denominator
    return Solved(weights=weights, units=agreed.units(found) if isinstance(agreed, Agreed) else None)


def choosing(learner: AnalyticLearner[Any]) -> Chosen | None:
    """Return what chooses the ridge; None where it was stated."""
    inner = _unweighted(learner)
    if isinstance(inner, Agreed):
        inner = inner.learner
    return inner if isinstance(inner, Chosen) else None


def personal(learner: AnalyticLearner[Any], model: Any) -> tuple[AnalyticLearner[Any], Any]:
    """Return the learner and model that a client personalises: the closed form itself, unless its rows have weights."""
    return (learner, model) if isinstance(learner, Weighted) else settled(learner, model)


def coarse_columns(learner: AnalyticLearner[Any], rows: ClientRows) -> tuple[int, ...] | None:
    """Return the columns that the first total of all rows says are hardly held; None where nothing is agreed on."""
    agreed = _unweighted(learner)
    if not isinstance(agreed, Agreed):
        return None
    model = agreed.init()
    total = agreed.client_statistics(model, rows)
    return tuple(place for place, few in enumerate(agreed.update(model, total, 1).coarse) if few)


def _unweighted(learner: AnalyticLearner[Any]) -> AnalyticLearner[Any]:
    return learner.learner if isinstance(learner, Weighted) else learner
