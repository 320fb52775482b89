"""The comparison: all runs that were asked for, each closed form against its pooled model, as one report."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from analytic.errors import AnalyticError
from analytic.learner import ClientRows
from analytic.pipeline import Pipeline
from analytic.row_format import RowFormat
from analytic_secagg.datasets import Dataset
from analytic_secagg.doubts import of_origin
from analytic_secagg.errors import FederationError
from analytic_secagg.learners import find_learner
from analytic_secagg.site.offsets import proposed_offset
from secagg.errors import SecureSumError
from simulations.compare.build import build, check, feature_format_of, has_intercept
from simulations.compare.execute import Pooled, execute
from simulations.compare.frontier import with_unbeaten
from simulations.compare.privacy import Budgets, budgets, statement
from simulations.compare.record import RunRecord
from simulations.compare.run import Run
from simulations.compare.tuning import Task
from simulations.processes import processes
from simulations.report.document import DatasetRecord, Natural, NotNegative, Record, computed, versions


class Comparison(Record, title="Report of analytic-secagg compare"):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/compare"] = Field(default="analytic-secagg/compare", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[9] = 9
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    versions: dict[str, str] = Field(
        default_factory=versions, json_schema_extra={"required": ["python", "analytic-secagg", "numpy"]}
    )
    """Versions of Python and of the packages that decide the numbers."""
    dataset: DatasetRecord
    """The rows, the same in all runs."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    coarse_columns: Mapping[str, NotNegative]
    """Columns of features, by name or by number from 0 as text, of which the format keeps less than 8 bits, with their
    largest absolute entry: below one unit the whole column is taken for zeros. Where columns are agreed on, those most
    of whose entries keep less than 8 bits beside the largest. Learners that scale rows themselves (deepafl,
    safle) do not feel it."""
    offsets: Mapping[str, float]
    """Of those columns, by the same names, numbers that --offset would take off where values are large beside their
    deviation."""
    unused_labels: Natural
    """Labels below the largest that no row has: each costs a column of every sum. 0 for real targets."""
    notes: tuple[str, ...] = ()
    """What was chosen or guessed of own rows: which are kept for testing, what columns are."""
    doubts: tuple[str, ...] = ()
    """What targets may have been meant as, where they are taken otherwise (classes, real numbers), and test rows that
    test nothing."""
    runs: tuple[RunRecord, ...] = Field(min_length=1)
    """One entry for each model that was trained, in one flat table: closed forms over every mode, exact and under
    noise, and gradient methods, for comparison only. Models that were trained to choose settings are not in it."""

    @computed
    def all_bitwise_equal_to_pooled(self) -> bool:
        """Whether bitwise_equal_to_pooled is false in no run, and personalised_bitwise_equal_to_pooled in none."""
        return all(run.equal_to_pooled for run in self.runs)

    @computed
    def statement(self) -> Mapping[str, tuple[str, ...]]:
        """Meaning and assumptions of the numbers under noise, in sentences, by learner, cohort and partition; empty
        without --epsilon.
        """
        return {one.title: tuple(statement(one, self.dataset)) for one in self.private}

    def to_frame(self) -> Any:
        """Return ``runs`` as a data frame of pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        frames = importlib.import_module("pandas")
        return frames.DataFrame([run.model_dump() for run in self.runs])

    @property
    def exact(self) -> tuple[RunRecord, ...]:
        """The closed forms of exact totals, each of which must equal its pooled model."""
        return tuple(run for run in self.runs if run.is_exact)

    @property
    def baselines(self) -> tuple[RunRecord, ...]:
        """The gradient methods without a budget."""
        return tuple(run for run in self.runs if run.is_baseline and run.trust is None)

    @property
    def private(self) -> tuple[Budgets, ...]:
        """The runs under noise, one entry for each learner, cohort and partition."""
        return tuple(budgets(self.runs))

    @property
    def learners(self) -> Mapping[str, RunRecord]:
        """The learners of exact runs by name, each with its first run."""
        return _first_by(self.exact, lambda run: run.label)

    @property
    def quality_name(self) -> str:
        """Name of the measure of a model: accuracy, or R2 of real targets."""
        return "accuracy" if self.runs[0].target_format is None else "R2"

    @property
    def hashes(self) -> dict[str, set[str]]:
        """The different weights that each learner ended with, as hashes by its name."""
        found: dict[str, set[str]] = {}
        for run in self.exact:
            found.setdefault(run.label, set()).add(str(run.weights_sha256))
        return found

    @property
    def explanations(self) -> Mapping[str, str]:
        """Explanations of the largest sums, by learner, mode and cohort."""
        explained = (run for run in self.runs if run.explanation)
        found = _first_by(explained, lambda run: f"{run.label}, {run.mode}, {run.clients} clients")
        return {whose: str(run.explanation) for whose, run in found.items()}

    def among_runs(self, what: str) -> tuple[Any, ...]:
        """The different values of one field of the exact runs, in their order."""
        return tuple(dict.fromkeys(getattr(run, what) for run in self.exact))


def _first_by(runs: Iterable[RunRecord], name: Callable[[RunRecord], str]) -> dict[str, RunRecord]:
    found: dict[str, RunRecord] = {}
    for run in runs:
        found.setdefault(name(run), run)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Callbacks of a progress bar.

    Args:
        start: called with a run's title and how many steps it will take at most.
        tick: called after each step: a client's contribution, or a baseline's round.
    """

    start: Callable[[str, int], None] = lambda title, steps: None
    tick: Callable[[], None] = lambda: None


def compare(
    dataset: Dataset,
    tasks: Sequence[Task],
    progress: Progress | None = None,
    *,
    federated_float64: bool = True,
    jobs: int = 1,
) -> Comparison:
    """Execute every run, after settings of the tasks that try some were chosen.

    Args:
        dataset: the rows.
        tasks: the runs.
        progress: what is called as they go on.
        federated_float64: whether to find out how far federations in float64 end from the pooled model.
        jobs: how many runs are trained at the same time, in processes of their own where that is more than one; the
            records are the same but for times and memory.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    for task in tasks:
        for run in (*task.runs, *map(task.runs[0].with_settings, task.trials)):
            check(run, dataset, at_once=jobs)
    executed = partial(
        _executed, dataset, progress or Progress(), Pooled(dataset, federated_float64=federated_float64), jobs
    )
    trials = executed([run for task in tasks for run in task.trial_runs])
    chosen = [task.tuned(record.quality for record in itertools.islice(trials, len(task.trial_runs))) for task in tasks]
    records = executed([run for several, _ in chosen for run in several])
    runs = [next(records).model_copy(update={"tuned": tuned}) for several, tuned in chosen for _ in several]
    first = tasks[0].runs[0]
    coarse = _coarse(dataset, feature_format_of(first, dataset), first)
    offsets = {dataset.column(place): proposed_offset(dataset.x_train[:, place]) for place in coarse}
    return Comparison(
        dataset=DatasetRecord.of(dataset),
        format_chosen_from_rows=first.is_exact and first.format is None and first.agreement is None,
        coarse_columns={dataset.column(place): float(np.abs(dataset.x_train[:, place]).max()) for place in coarse},
        offsets={name: offset for name, offset in offsets.items() if offset is not None},
        unused_labels=dataset.unused_labels,
        notes=dataset.notes,
        doubts=(*dataset.doubts, *_doubts_of_origin(dataset, first)),
        runs=with_unbeaten(runs),
    )


def _executed(
    dataset: Dataset, progress: Progress, pooled: Pooled, jobs: int, runs: Sequence[Run]
) -> Iterator[RunRecord]:
    """Yield the record of each run, in their order."""
    if jobs == 1 or len(runs) < 2:
        for run in runs:
            progress.start(run.title, check(run, dataset))
            with _named(run, of=len(runs)):
                record = execute(run, dataset, pooled, tick=progress.tick)
            yield record
        return
    with processes(min(jobs, len(runs)), _begin_worker, pooled, what="a run") as submit:
        found = [submit(_execute_in_worker, run) for run in runs]
        for run, future in zip(runs, found, strict=True):
            progress.start(run.title, 0)
            with _named(run, of=len(runs)):
                record = future.result()
            yield record


@contextmanager
def _named(run: Run, *, of: int) -> Iterator[None]:
    """Say of which of several runs an error is: what stops one stops the comparison."""
    try:
        yield
    except (FederationError, AnalyticError, SecureSumError) as error:
        if of > 1:
            error.args = (f"{run.title}: {error}; or leave this run out", *error.args[1:])
        raise


_HELD: list[Pooled] = []
"""In a worker: the rows, and the models made from them that further runs are compared with."""


def _begin_worker(pooled: Pooled) -> None:
    _HELD.append(pooled)


def _execute_in_worker(run: Run) -> RunRecord:
    return execute(run, _HELD[0].dataset, _HELD[0])


def _doubts_of_origin(dataset: Dataset, run: Run) -> Iterator[str]:
    """Yield whether a linear learner of labels misses an intercept."""
    is_linear = run.is_exact and "intercept" in find_learner(run.learner).options and not has_intercept(run, dataset)
    if is_linear and dataset.y_train.ndim == 1:
        yield from of_origin(dataset.x_train, dataset.y_train, dataset.n_classes)


def _coarse(dataset: Dataset, feature_format: RowFormat, run: Run) -> tuple[int, ...]:
    """Columns that the format hardly holds; where columns are agreed on, what the first total and all rows say."""
    if not run.is_exact:
        return ()
    learner = build(run, dataset, max_clients=1)
    if not isinstance(learner, Pipeline) or learner.scaler is None:
        return feature_format.coarse_columns(dataset.x_train)
    rows = ClientRows(dataset.x_train, dataset.y_train)
    counts = learner.scaler.client_statistics(None, rows, learner.head)
    found = learner.scaler.update(None, counts, learner.head)
    return learner.coarse_columns(replace(learner.init(), columns=found), rows)
