"""A finished run as exposures: its own totals and model, read from its folder, beside the rows that one owner has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from analytic.learner import AnalyticLearner
from analytic.model_files import load_model
from analytic.row_format import RowFormat
from analytic_secagg.datasets import Dataset
from analytic_secagg.dossier_run import MODEL, SUMMARY, TOTALS
from analytic_secagg.errors import UsageError
from analytic_secagg.federation import Federation, Step, SumRecord
from analytic_secagg.modes import Mode, find_mode
from analytic_secagg.privacy import is_bounded
from analytic_secagg.totals import differences, totals_from_bytes
from secagg import PlainSum, SumResult, new_session_id
from simulations.audit.attack import NotTriedError, Target
from simulations.audit.columns import Column
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.population import EnteringRows, Indices, Population
from simulations.audit.view import FIRST_CLASS, SumView
from simulations.audit.workbench import Bench, Cohort
from simulations.report.document import Natural, Record, Sha256

ONE_COHORT = "attacks that compare cohorts of other composition: a finished run has one cohort"


class RunRecord(Record, title="run"):
    """The finished run that an audit is about."""

    mode: str
    """The mode of its sums."""
    survivors: Natural
    """Clients in its last total."""
    weights_sha256: Sha256
    """Digest of its model's weights, as its summary has it."""
    totals_sha256: Sha256
    """Digest of the file of its totals."""


class _Replayed(Federation[Any]):
    """A federation that keeps each sum with the total that it takes."""

    def __init__(self, learner: AnalyticLearner[Any], **options: Any) -> None:
        super().__init__(learner, **options)
        self.replayed = list[tuple[Step[Any], SumResult]]()

    def take(self, result: SumResult) -> SumRecord:
        """Take a sum's total."""
        if (step := self.next_sum) is not None:
            self.replayed.append((step, result))
        return super().take(result)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FinishedRun:
    """A run as its folder holds it.

    Args:
        learner: the closed form, as its model's file states it.
        model: the complete model.
        sums: each sum with its total, in order.
        mode: of its sums.
        record: what a report says of it.
    """

    learner: AnalyticLearner[Any]
    model: Any = field(repr=False)
    sums: tuple[tuple[Step[Any], SumResult], ...] = field(repr=False)
    mode: Mode
    record: RunRecord

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a run's folder, and make sure that its totals give its model.

        Raises:
            UsageError: it is no folder of a finished run, or its totals give another model.
            FederationError, analytic.errors.AnalyticError: a file of it cannot be read.
        """
        try:
            mode = find_mode(str(json.loads((folder / SUMMARY).read_bytes())["mode"]))
            totals = (folder / TOTALS).read_bytes()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{folder} must be the folder of a finished run, with {MODEL}, {TOTALS} and {SUMMARY} "
                f"({type(error).__name__})"
            ) from error
        saved, results = load_model(folder / MODEL), totals_from_bytes(totals, source=str(folder / TOTALS))
        replayed = _Replayed(saved.learner, release=None, sum_fits=True)
        if differences(saved, results, replayed):
            raise UsageError(f"the totals of {folder} do not give the model in it: files were mixed up")
        record = RunRecord(
            mode=mode.name,
            survivors=len(results[-1].survivors),
            weights_sha256=hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest(),
            totals_sha256=hashlib.sha256(totals).hexdigest(),
        )
        return cls(learner=saved.learner, model=saved.model, sums=tuple(replayed.replayed), mode=mode, record=record)

    def columns(self, own: Dataset, feature_format: RowFormat, rng: np.random.Generator) -> Iterator[RunColumn]:
        """Yield its totals that have a Gram, all of them together, and its model.

        Args:
            own: an owner's rows that are in the run (training) and rows that nobody used (test): half of these are the
                rows that an attacker takes for used ones by mistake, half are public.
            feature_format: of the features.
            rng: tosses the attackers' coins.
        """
        population, members = _population(own)
        sums, bench = list[SumView](), None

        def column(of: Bench, title: str, seen: Exposure) -> RunColumn:
            own = of.named(title)
            return RunColumn(kind=seen.kind, bench=own, clients=of.clients, title=title, seen=seen, members=members)

        for step, result in self.sums:
            names = {segment.name for segment in step.layout.segments}
            if not ({"gram", "cross"} <= names or FIRST_CLASS in names):
                continue
            bench = Bench(
                learner=self.learner,
                model=step.model,
                spec=step.spec,
                population=population,
                entering=EnteringRows.of(self.learner, step.model, population),
                feature_format=feature_format,
                rows_per_client=max(2, len(own.x_train)),
                rng=rng,
                clients=len(result.survivors),
            )
            sums.append(_seen(step, result))
            kind = Kind.NOISY_TOTAL if is_bounded(self.learner) else Kind.TOTAL
            yield column(bench, f"total {len(sums)} of the run", self._exposure(kind, (sums[-1],)))
        if bench is None:
            raise UsageError(f"no sum of this run has a Gram and a cross-correlation ({self.learner.name})")
        if len(sums) > 1:
            yield column(bench, "all totals of the run", self._exposure(Kind.TOTALS, tuple(sums)))
        yield column(bench, "model of the run", replace(self._exposure(Kind.MODEL, ()), model=self.model))

    def _exposure(self, kind: Kind, sums: tuple[SumView, ...]) -> Exposure:
        return Exposure(kind=kind, sums=sums, learner=self.learner)


def _seen(step: Step[Any], result: SumResult) -> SumView:
    protocol = PlainSum(layout=step.layout, clients=result.survivors, session_id=new_session_id())
    return SumView(protocol=protocol, model=step.model, result=result)


def with_others(own: Dataset) -> Dataset:
    """Return the owner's rows and half of the others for training, the other half for testing.

    Raises:
        UsageError: there are too few.
    """
    half = len(own.x_test) // 2
    if min(len(own.x_train), half) < 1:
        raise UsageError("an audit of a run needs rows that are in it (x_train) and two or more that are not (x_test)")
    return replace(
        own,
        x_train=np.concatenate([own.x_train, own.x_test[:half]]),
        y_train=np.concatenate([own.y_train, own.y_test[:half]]),
        x_test=own.x_test[half:],
        y_test=own.y_test[half:],
    )


def _population(own: Dataset) -> tuple[Population, Indices]:
    """Return the owner's rows and as many others as candidates, the remaining ones as public rows."""
    dataset = with_others(own)
    every = np.arange(len(dataset.x_train))
    population = Population(dataset=dataset, candidates=every, public=np.arange(len(dataset.x_test)))
    return population, every[: len(own.x_train)]


@dataclass(frozen=True, kw_only=True, eq=False)
class RunColumn(Column):
    """One exposure of a finished run; there is no other cohort of it.

    Args:
        title: what reports call it.
        seen: the exposure.
        members: the owner's rows that are in the run.
    """

    title: str
    seen: Exposure
    members: Indices = field(repr=False)
    is_repeatable: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """What reports call it."""
        return self.title

    @property
    def rows(self) -> int:
        """Rows in an exact total; where noise hides their number, the owner's own."""
        reading = self.seen.reading if self.kind is Kind.TOTAL else None
        return len(self.members) if reading is None else max(0, reading.count)

    @cached_property
    def standard(self) -> Target:
        """The exposure, what may be known, and what the owner knows of the truth: its own rows."""
        vector = self.bench.vector(self.members)
        return self.seen, self.bench.known(), self.bench.truth(self.members, vector)

    def cohort(self) -> Cohort:
        """Refuse: rows of other cohorts are in no total of a finished run.

        Raises:
            NotTriedError: always.
        """
        raise NotTriedError(ONE_COHORT)
