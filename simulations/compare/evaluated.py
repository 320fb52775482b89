"""A run's model judged through one more sum, over the run's mode, by clients that hold the test rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from analytic.evaluation import Evaluation, evaluation_of
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic.statistics import LABELS
from analytic_secagg.datasets import Dataset
from analytic_secagg.in_process import run_federation
from analytic_secagg.modes import Mode
from secagg import PartyId
from simulations.report.columns import NONE, Column, human_bytes, percent, yes_or_no
from simulations.report.document import Count, Natural, NotNegative, Part, Record


def _least(parts: Sequence[float | None]) -> str:
    known = [one for one in parts if one is not None]
    return percent(min(known)) if known else NONE


def _most(distances: Sequence[float | None]) -> str:
    known = [one for one in distances if one is not None]
    return f"{max(known):.1e}" if known else NONE


def _each(figures: Sequence[float | None]) -> str:
    return ", ".join(NONE if one is None else f"{one:.4g}" for one in figures)


Interval = Annotated[tuple[Part, ...], Field(min_length=2, max_length=2)]
"""Lower and upper bound at 95 %."""


def between(interval: Sequence[float]) -> str:
    """``92.1% to 95.0%``."""
    return f"{interval[0]:.1%} to {interval[1]:.1%}"


class EvaluationRecord(Record, title="evaluation"):
    """Evaluation of a model by one sum over clients' test rows; null where a class has no rows."""

    rows: Annotated[Natural, Column(heading="rows")]
    """Test rows of the clients whose vectors are in the sum."""
    accuracy: Annotated[Part | None, Column(heading="accuracy", text=percent)]
    """Part of them that is classified correctly; of several classes a row, part of their known labels."""
    accuracy_interval: Annotated[Interval | None, Column(heading="at 95 %", text=between)]
    """Wilson's interval of it at 95 %, for rows that do not depend on each other."""
    recall: Annotated[tuple[Part | None, ...], Column(heading="least\nrecall", text=_least)]
    """Of each class's rows the part that was found."""
    recall_interval: tuple[Interval | None, ...]
    """Wilson's interval of each."""
    precision: tuple[Part | None, ...]
    """Of the rows that were taken for a class the part that was right."""
    precision_interval: tuple[Interval | None, ...]
    """Wilson's interval of each."""
    auc: Annotated[tuple[Part | None, ...], Column(heading="least\nAUC", text=_least)]
    """Area under the ROC curve of each class against the rest, of binned scores."""
    auc_within: Annotated[tuple[Part | None, ...], Column(heading="AUCs\nwithin", text=_most)]
    """How far the area of the scores themselves can be from it."""
    auc_interval: tuple[Interval | None, ...]
    """DeLong's interval of each area at 95 %, wider by that distance."""
    calibration_error: Annotated[NotNegative | None, Column(heading="calibration\nerror", text=percent)]
    """Mean distance of the chosen class's score, cut to 0 and 1, from the accuracy, over its bins; of several classes a
    row, of each known label's score from the part of the rows that are of the class."""
    bytes_up_per_client: Annotated[Count, Column(heading="up per\nclient", text=human_bytes)]
    """Bytes that a client sends for it; the most of any client."""
    bitwise_equal_to_pooled: Annotated[bool, Column(heading="equal to\npooled?", text=yes_or_no)]
    """Whether the counts are those of the survivors' pooled rows."""


class RegressionEvaluationRecord(Record, title="evaluation of real targets"):
    """Evaluation of a model of real targets by one sum over clients' test rows, target by target."""

    rows: Annotated[Natural, Column(heading="rows")]
    """Test rows of the clients whose vectors are in the sum."""
    r2: Annotated[tuple[float | None, ...], Column(heading="R2", text=_each)]
    """1 - squared residuals / squares around the mean; null for a target without spread."""
    mae: Annotated[tuple[NotNegative | None, ...], Column(heading="MAE", text=_each)]
    """Mean absolute residual."""
    rmse: Annotated[tuple[NotNegative | None, ...], Column(heading="RMSE", text=_each)]
    """Root of the mean squared residual."""
    bytes_up_per_client: Annotated[Count, Column(heading="up per\nclient", text=human_bytes)]
    """Bytes that a client sends for it; the most of any client."""
    bitwise_equal_to_pooled: Annotated[bool, Column(heading="equal to\npooled?", text=yes_or_no)]
    """Whether the sums are those of the survivors' pooled rows."""


def judged(
    dataset: Dataset,
    learner: AnalyticLearner[Any],
    model: Any,
    *,
    clients: tuple[PartyId, ...],
    mode: Mode,
    dropouts: Callable[[], Mapping[PartyId, int]],
) -> EvaluationRecord | RegressionEvaluationRecord:
    """Deal the test rows evenly and evaluate a complete model over a mode.

    Args:
        dataset: its test rows.
        learner: the closed form.
        model: what is judged.
        clients: the cohort.
        mode: how the sum is made.
        dropouts: who vanishes from it, and after how many messages.
    """
    evaluation = _evaluation(dataset, learner, model)
    dealt = np.array_split(np.arange(len(dataset.x_test)), len(clients))
    rows = {
        party: ClientRows(dataset.x_test[own], dataset.y_test[own]) for party, own in zip(clients, dealt, strict=True)
    }
    run = run_federation(evaluation, rows, mode, dropouts=lambda number: dropouts())
    report = run.model
    assert report is not None
    (survivors,) = run.survivors
    pooled = fit_pooled(evaluation, ClientRows.pool([rows[party] for party in survivors]))
    sums: dict[str, Any] = {
        **report.figures,
        "bytes_up_per_client": max(run.costs[party].bytes_up for party in survivors),
        "bitwise_equal_to_pooled": evaluation.weights_bytes(report) == evaluation.weights_bytes(pooled),
    }
    return (RegressionEvaluationRecord if dataset.is_regression else EvaluationRecord)(**sums)


def _evaluation(dataset: Dataset, learner: AnalyticLearner[Any], model: Any) -> Evaluation[Any]:
    """The sum that judges a model; a format of real targets covers all rows."""
    targets = np.concatenate([dataset.y_train, dataset.y_test])
    covering = RowFormat.covering(targets, bits=22) if dataset.is_regression else LABELS
    return evaluation_of(
        learner,
        model,
        n_targets=dataset.n_classes,
        target_format=covering,
        max_rows=len(dataset.x_test),
        several=dataset.is_multilabel,
    )
