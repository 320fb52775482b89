"""Learners from parts: a slot more around a closed form or a pipeline, or another kind of linear learner."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from analytic.pipeline import Pipeline
from analytic.scaling import Scaler
from analytic.selection import RidgeCV
from analytic.weights import Weights


def _with(learner: Any, **slot: Any) -> Pipeline:
    return replace(learner, **slot) if isinstance(learner, Pipeline) else Pipeline(head=learner, **slot)


def weighted(learner: Any, **own: Any) -> Pipeline:
    """The learner of rows that weigh."""
    return _with(learner, weights=Weights(**own))


def scaled(learner: Any, **own: Any) -> Pipeline:
    """The learner of columns that are agreed on."""
    return _with(learner, scaler=Scaler(**own))


def choosing(learner: Any, **own: Any) -> Pipeline:
    """The learner whose penalty is chosen."""
    return _with(learner, selection=RidgeCV(**own))


def of_kind(kind: Any, linear: Any, **own: Any) -> Any:
    """A learner of a kind with another's parameters, and its own."""
    return kind(**{one.name: getattr(linear, one.name) for one in fields(linear)}, **own)
