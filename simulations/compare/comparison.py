"""The comparison: every learner, mode, partition and cohort asked for, each run against its pooled model."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, WithJsonSchema

from analytic.learner import AnalyticLearner, ClientRows
from analytic.pipeline import Pipeline
from analytic.row_format import RowFormat
from analytic.scaling import Agreement, agreed_format
from analytic.statistics import LABELS, bits_of_squares
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import CROSS_VALIDATED, ChosenLearner, LearnerSettings
from analytic_secagg.modes import Mode
from secagg import PartyId
from simulations.compare.baselines import Baseline, BaselineRecord
from simulations.compare.dropouts import NO_DROPOUTS, Dropouts
from simulations.compare.frontier import FrontierPoint, frontier
from simulations.compare.personal import split_locally
from simulations.compare.private import PrivateComparison, PrivateSettings, compare_private
from simulations.compare.reference import Float64Ridges, References
from simulations.compare.rows import Row, rows
from simulations.compare.runs import Case, Deal, RunRecord
from simulations.data.partitions import Partition
from simulations.report.document import DatasetRecord, FormatName, Natural, NotNegative, Record, computed, versions

TARGET_BITS = 22
"""Bits of a target format that covers all rows, as far as so many squares add up exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """What to compare; every combination of learner, partition, cohort and mode is one run.

    Args:
        learners: the closed forms, each with its own options.
        modes: how their sums are made.
        n_clients: cohort sizes.
        partitions: ways to deal the training rows.
        baselines: gradient methods on the same rows, for each partition and cohort.
        feature_format: fixed-point format of features, or how their columns, and real targets, are agreed on by sums;
            None looks at all training rows, for simulations only.
        target_format: the same of real targets.
        ridge: penalty of the solve, or ``cv`` for one that each run chooses.
        ri_gamma: what each client adds to its Gram's diagonal.
        dropouts: who vanishes.
        seed: draws partitions, each client's own test rows, and the order in which baselines train.
        evaluate: judge each model through one more sum, over clients that hold the test rows.
        explain: keep what each mode says about its guarantees and costs.
        private: accuracies by privacy budget to find beside the runs.

    Raises:
        UsageError: nothing to compare, or a number out of range.
    """

    learners: tuple[ChosenLearner, ...]
    modes: tuple[Mode, ...]
    n_clients: tuple[int, ...] = (20,)
    partitions: tuple[Partition, ...]
    baselines: tuple[Baseline, ...] = ()
    feature_format: RowFormat | Agreement | None = None
    target_format: RowFormat | None = None
    ridge: float | Literal["cv"] = 0.0
    ri_gamma: float = 0.0
    dropouts: Dropouts = NO_DROPOUTS
    seed: int = 0
    evaluate: bool = False
    explain: bool = False
    private: tuple[PrivateSettings, ...] = ()

    def __post_init__(self) -> None:
        if not (self.learners and self.modes and self.n_clients and self.partitions):
            raise UsageError("a comparison needs at least one learner, one mode, one number of clients, one partition")
        if min(self.n_clients) < 1 or self.seed < 0:
            raise UsageError(
                f"clients must be at least 1 and a seed at least 0, not {min(self.n_clients)}, {self.seed}"
            )
        for n_clients in self.n_clients:
            for mode in self.modes:
                self.dropouts.check(mode, parties(n_clients))
        for baseline in self.baselines:
            _ = baseline.settings(self.seed)

    @property
    def n_runs(self) -> int:
        """How many runs this asks for, those of baselines included; a private comparison counts as one."""
        each = len(self.learners) * len(self.modes) + len(self.baselines)
        return len(self.n_clients) * len(self.partitions) * each + len(self.private)

    @property
    def agreement(self) -> Agreement | None:
        """How columns are agreed on; None where they are taken as they are."""
        return self.feature_format if isinstance(self.feature_format, Agreement) else None

    def format_for(self, dataset: Dataset) -> RowFormat:
        """The format of features: set, or one that covers all training rows; that of columns which are agreed on."""
        if isinstance(self.feature_format, Agreement):
            return agreed_format(len(dataset.x_train))
        return self.feature_format or RowFormat.covering(dataset.x_train)

    def target_format_for(self, dataset: Dataset) -> RowFormat:
        """The format of real targets, set or covering all training rows; ``LABELS`` of classes.

        Raises:
            UsageError: a target format for class labels, or baselines or budgets for real targets.
        """
        if not dataset.is_regression:
            if self.target_format is not None:
                raise UsageError(
                    f"--target-format is for real targets, and {dataset.name} has class labels; leave it out"
                )
            if dataset.is_multilabel and (self.baselines or self.private):
                raise UsageError(
                    f"--baselines and --epsilon are for one class a row, and {dataset.name} has several: its baselines "
                    "are softmax heads, and a row's sensitivity is bounded for one class; leave them out"
                )
            return LABELS
        if self.baselines or self.private:
            raise UsageError(
                f"--baselines and --epsilon are for class labels, and {dataset.name} has real targets; leave them out"
            )
        if self.agreement:
            if self.target_format is not None:
                raise UsageError(f"--format {self.agreement} agrees on targets too; leave --target-format out")
            return agreed_format(len(dataset.y_train))
        bits = min(TARGET_BITS, bits_of_squares(len(dataset.y_train)))
        return self.target_format or RowFormat.covering(dataset.y_train, bits=bits)

    def has_intercept(self, chosen: ChosenLearner, dataset: Dataset) -> bool:
        """Whether a float64 ridge beside a learner has an intercept: as the learner has, see ``LearnerSettings``."""
        default = dataset.is_regression or self.agreement is Agreement.STANDARDISED
        return bool(chosen.options.get("intercept", default))


Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""Written as it came: 1 does not become 1.0."""


class Comparison(Record, title="Report of python -m simulations compare"):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/compare"] = Field(default="analytic-secagg/compare", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[8] = 8
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    versions: dict[str, str] = Field(
        default_factory=versions, json_schema_extra={"required": ["python", "analytic-secagg", "numpy"]}
    )
    """Versions of Python and of the packages that decide the numbers."""
    dataset: DatasetRecord
    """The rows, the same in all runs."""
    learner_options: Mapping[str, Mapping[str, str | Number | bool | tuple[Number, ...]]]
    """For each learner (and each size of it that --sweep gave) the parameters of its own that were set; others have
    their defaults."""
    format: FormatName
    """Fixed-point format of the features."""
    target_format: FormatName | None
    """Fixed-point format of real targets; null for class labels."""
    agreement: str | None
    """How columns, and real targets, were made alike by sums before: agreed (each scaled by a power of two), or
    standardised; null where they were taken as they are."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    coarse_columns: Mapping[str, NotNegative]
    """Columns of features, by name or by number from 0 as text, of which the format keeps less than 8 bits, with their
    largest absolute entry: below one unit the whole column is taken for zeros. Where columns are agreed on, those most
    of whose entries keep less than 8 bits beside the largest. Learners that scale rows themselves (deepafl,
    safle) do not feel it."""
    unused_labels: Natural
    """Labels below the largest that no row has: each costs a column of every sum. 0 for real targets."""
    ridge: NotNegative
    """Penalty of the solve, in the features' own units squared; 0 too where each run chose its own, see choice."""
    ri_gamma: NotNegative
    """What each client added to its Gram's diagonal."""
    dropout_rate: Annotated[float, Field(ge=0, lt=1)]
    """Part of each cohort that vanished before its vector was sent."""
    dropout_anew: bool
    """Whether every sum lost other clients (inconsistent participation) or all the same ones."""
    seed: Natural
    """Seed of partitions, dropouts, clients' own test rows and baselines."""
    runs: tuple[RunRecord, ...] = Field(min_length=1)
    """One entry a run: every learner, partition, cohort and mode."""
    baselines: tuple[BaselineRecord, ...]
    """Gradient methods on the same rows, for comparison only: one entry for each, partition and cohort. No bitwise law
    holds for them."""
    private: tuple[PrivateComparison, ...]
    """Accuracy by privacy budget, one entry for each learner that has a private form, cohort and partition; empty
    without --epsilon."""
    explanations: tuple[tuple[str, str], ...] = Field(default=(), exclude=True)
    """(Which learner, mode and cohort; what its protocol says about its largest sum)."""

    @computed
    def all_bitwise_equal_to_pooled(self) -> bool:
        """Whether bitwise_equal_to_pooled is true in every run, and personalised_bitwise_equal_to_pooled in none
        false.
        """
        return all(run.equal_to_pooled for run in self.runs)

    @computed
    def rows(self) -> tuple[Row, ...]:
        """Every model that was trained, in one flat table: exact runs, baselines, and each repetition under noise."""
        return tuple(rows(self.runs, self.baselines, self.private, seed=self.seed))

    @computed
    def frontier(self) -> tuple[FrontierPoint, ...]:
        """What every run, baseline and noisy closed form reached for what it cost a client, and which nothing beats."""
        return tuple(frontier(self.rows))

    def to_frame(self) -> Any:
        """Return ``rows`` as a data frame of pandas.

        Raises:
            ImportError: pandas is not installed.
        """
        frames = importlib.import_module("pandas")
        return frames.DataFrame([row.model_dump() for row in self.rows], columns=list(Row.model_fields))

    @property
    def quality_name(self) -> str:
        """What says how good a model is: accuracy, or R2 of real targets."""
        return "accuracy" if self.target_format is None else "R2"

    @property
    def hashes(self) -> dict[str, set[str]]:
        """The different weights that each learner ended with, as hashes by its name."""
        found: dict[str, set[str]] = {}
        for run in self.runs:
            found.setdefault(run.learner, set()).add(run.weights_sha256)
        return found

    def among_runs(self, what: str) -> tuple[Any, ...]:
        """The different values of one field of the runs, in their order."""
        return tuple(dict.fromkeys(getattr(run, what) for run in self.runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a comparison tells a progress bar.

    Args:
        start: called with a run's label and how many steps it will take at most.
        tick: called after each step: a client's contribution, or a baseline's round.
    """

    start: Callable[[str, int], None] = lambda label, steps: None
    tick: Callable[[], None] = lambda: None


def compare(dataset: Dataset, settings: CompareSettings, progress: Progress | None = None) -> Comparison:
    """Run every combination and check each against the pooled model of its survivors.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    progress = progress or Progress()
    target_format = settings.target_format_for(dataset)
    feature_format, deals = settings.format_for(dataset), list(_deals(dataset, settings))
    # Wrong settings of any learner or baseline are refused here, before hours of work for another one.
    factories = [
        _learner_factory(dataset, settings, chosen, feature_format, target_format) for chosen in settings.learners
    ]
    cases = [
        list(_cases(dataset, settings, chosen, learner_for, deals))
        for chosen, learner_for in zip(settings.learners, factories, strict=True)
    ]
    baselines = tuple(_baselines(dataset, settings, deals, progress))
    ridge = None if settings.ridge == CROSS_VALIDATED else settings.ridge
    float64 = {one: Float64Ridges(dataset, ridge=ridge, intercept=one) for one in (False, True)}
    runs: list[RunRecord] = []
    explanations: dict[str, str] = {}
    for chosen, own_cases, learner_for in zip(settings.learners, cases, factories, strict=True):
        references = References(dataset, learner_for, float64[settings.has_intercept(chosen, dataset)])
        for case in own_cases:
            progress.start(case.label, len(case.deal.clients) * case.n_sums)
            record, layout = case.run(references, progress.tick)
            runs.append(record)
            key = f"{record.learner}, {record.mode}, {record.clients} clients"
            if settings.explain and key not in explanations:
                explanations[key] = case.mode.explain(layout, case.deal.clients) or "(says nothing of itself)"
    return Comparison(
        dataset=DatasetRecord.of(dataset),
        learner_options={learner.name: learner.options for learner in settings.learners},
        format=str(feature_format),
        target_format=str(target_format) if dataset.is_regression else None,
        format_chosen_from_rows=settings.feature_format is None,
        agreement=settings.agreement,
        coarse_columns={
            dataset.column(place): float(np.abs(dataset.x_train[:, place]).max())
            for place in _coarse(dataset, feature_format, factories[0](1))
        },
        unused_labels=dataset.unused_labels,
        ridge=0.0 if settings.ridge == CROSS_VALIDATED else settings.ridge,
        ri_gamma=settings.ri_gamma,
        dropout_rate=settings.dropouts.rate,
        dropout_anew=settings.dropouts.anew,
        seed=settings.seed,
        runs=tuple(runs),
        baselines=baselines,
        explanations=tuple(explanations.items()),
        private=tuple(_private(dataset, settings, progress)),
    )


def _coarse(dataset: Dataset, feature_format: RowFormat, learner: AnalyticLearner[Any]) -> tuple[int, ...]:
    """Columns that the format hardly holds; where columns are agreed on, what the first total of all rows says."""
    scaler = learner.scaler if isinstance(learner, Pipeline) else None
    if not isinstance(learner, Pipeline) or scaler is None:
        return feature_format.coarse_columns(dataset.x_train)
    total = scaler.client_statistics(None, ClientRows(dataset.x_train, dataset.y_train), learner.head)
    return tuple(place for place, few in enumerate(scaler.update(None, total, learner.head).coarse) if few)


def parties(n_clients: int) -> tuple[PartyId, ...]:
    """The numbers of a cohort's clients: 1 to n."""
    return tuple(range(1, n_clients + 1))


def _deals(dataset: Dataset, settings: CompareSettings) -> Iterator[Deal]:
    """Each cohort's rows, dealt with a generator that depends on nothing but the seed, its size and the partition."""
    for n_clients in settings.n_clients:
        for partition in settings.partitions:
            rng = np.random.default_rng([settings.seed, n_clients, *partition.name.encode()])
            dealt = partition.deal(dataset.strata, n_clients, rng)
            parts = dict(zip(parties(n_clients), dealt, strict=True))
            yield Deal(partition=partition.name, parts=parts, split=split_locally(parts, settings.seed))


def _cases(
    dataset: Dataset,
    settings: CompareSettings,
    chosen: ChosenLearner,
    learner_for: Callable[[int], AnalyticLearner[Any]],
    deals: list[Deal],
) -> Iterator[Case]:
    for deal in deals:
        learner = learner_for(len(deal.clients))
        for mode in settings.modes:
            yield Case(
                dataset=dataset,
                chosen=chosen,
                learner=learner,
                deal=deal,
                mode=mode,
                dropouts=settings.dropouts,
                evaluates=settings.evaluate,
            )


def _baselines(
    dataset: Dataset, settings: CompareSettings, deals: list[Deal], progress: Progress
) -> Iterator[BaselineRecord]:
    """Every baseline on every deal, with the rows of the clients that are in a closed form's first sum."""
    for baseline in settings.baselines:
        for deal in deals:
            lost = frozenset(settings.dropouts.lost(deal.clients))
            stay = [rows for party, rows in deal.parts.items() if party not in lost]
            rounds = baseline.settings(settings.seed).rounds
            progress.start(f"{baseline.name} (baseline), {len(deal.clients)} clients, {deal.partition}", rounds)
            yield baseline.run(
                dataset,
                [dataset.training.taken(rows) for rows in stay],
                n_clients=len(deal.clients),
                partition=deal.partition,
                seed=settings.seed,
                tick=progress.tick,
            )


def _private(dataset: Dataset, settings: CompareSettings, progress: Progress) -> Iterator[PrivateComparison]:
    for one in settings.private:
        progress.start(f"privacy budgets of {one.title}", one.n_runs)
        yield compare_private(dataset, one, progress.tick)


def _learner_factory(
    dataset: Dataset,
    settings: CompareSettings,
    chosen: ChosenLearner,
    feature_format: RowFormat,
    target_format: RowFormat,
) -> Callable[[int], AnalyticLearner[Any]]:
    """What makes the learner for a number of clients."""

    def learner_for(max_clients: int) -> AnalyticLearner[Any]:
        return chosen.entry.build(
            LearnerSettings(
                n_features=dataset.n_features,
                n_classes=dataset.n_classes,
                feature_format=feature_format,
                max_rows=len(dataset.x_train),
                max_clients=max_clients,
                ridge=settings.ridge,
                ri_gamma=settings.ri_gamma,
                target_format=target_format,
                options=chosen.options,
                agreement=settings.agreement,
            )
        )

    return learner_for
