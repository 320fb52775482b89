"""A comparison as JSON: the models are the report's schema and its reference page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from simulations.compare.comparison import Comparison
from simulations.compare.private_comparison import PrivateComparison
from simulations.compare.private_report import statement
from simulations.compare.records import BaselineRecord, PrivateRecord, RunRecord
from simulations.report.document import Count, DatasetRecord, FormatName, Natural, NotNegative, Record, versions

Number = Annotated[int | float, WithJsonSchema({"type": "number"})]
"""Written as it came: 1 does not become 1.0."""

Option = str | Number | bool | tuple[Number, ...]


class PrivateReport(Record, title="private"):
    """Accuracy by privacy budget of one learner, cohort and partition."""

    kind: Literal["analytic-secagg/private-compare"] = Field(
        default="analytic-secagg/private-compare", serialization_alias="schema"
    )
    """Says what kind of document this is."""
    schema_version: Literal[2] = 2
    """Raised when a name changes its meaning or goes away."""
    dataset: Mapping[str, Any]
    """Name, digest and number of training rows; all rows are pooled and split anew for each repetition."""
    terms: Mapping[str, Any]
    """The promise and its budget's division: delta, unit, adjacency, shares of the budget, depth and widths, ridge."""
    partition: str
    """How training rows were dealt."""
    seeds: Count
    """Repetitions, each with another split, deal and noise."""
    seed: Natural
    """Seed of the first one."""
    statement: tuple[str, ...]
    """What the numbers mean and rest on, in sentences."""
    records: tuple[PrivateRecord, ...] = Field(min_length=1)
    """One entry for each kind of trust and budget, and one without noise."""


class CompareReport(Record, title="Report of python -m simulations compare"):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/compare"] = Field(default="analytic-secagg/compare", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[3] = 3
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    versions: Annotated[dict[str, str], Field(json_schema_extra={"required": ["python", "analytic-secagg", "numpy"]})]
    """Versions of Python and of the packages that decide the numbers."""
    dataset: DatasetRecord
    """The rows, the same in all runs."""
    learner_options: Mapping[str, Mapping[str, Option]]
    """For each learner the parameters of its own that were set; others have their defaults."""
    format: FormatName
    """Fixed-point format of the features."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    ridge: NotNegative
    """Penalty of the solve, in the features' own units squared."""
    ri_gamma: NotNegative
    """What each client added to its Gram's diagonal."""
    dropout_rate: Annotated[float, Field(ge=0, lt=1)]
    """Part of each cohort that vanished before its vector was sent."""
    dropout_anew: bool
    """Whether every sum lost other clients (inconsistent participation) or all the same ones."""
    seed: Natural
    """Seed of partitions, dropouts, clients' own test rows and baselines."""
    all_bitwise_equal_to_pooled: bool
    """Whether bitwise_equal_to_pooled is true in every run, and personalised_bitwise_equal_to_pooled in none false."""
    runs: tuple[RunRecord, ...] = Field(min_length=1)
    """One entry a run: every learner, partition, cohort and mode."""
    baselines: tuple[BaselineRecord, ...]
    """Gradient methods on the same rows, for comparison only: one entry for each, partition and cohort. No bitwise law
    holds for them."""
    private: tuple[PrivateReport, ...]
    """Accuracy by privacy budget, one entry for each learner that has a private form, cohort and partition; empty
    without --epsilon."""


def report_of(comparison: Comparison) -> CompareReport:
    """Return the report of a comparison."""
    settings = comparison.settings
    return CompareReport(
        versions=versions(),
        dataset=DatasetRecord.of(comparison.dataset),
        learner_options={learner.name: learner.options for learner in settings.learners},
        format=str(comparison.feature_format),
        format_chosen_from_rows=settings.feature_format is None,
        ridge=settings.ridge,
        ri_gamma=settings.ri_gamma,
        dropout_rate=settings.dropouts.rate,
        dropout_anew=settings.dropouts.anew,
        seed=settings.seed,
        all_bitwise_equal_to_pooled=comparison.all_bitwise_equal,
        runs=comparison.runs,
        baselines=comparison.baselines,
        private=tuple(map(private_report_of, comparison.private)),
    )


def private_report_of(one: PrivateComparison) -> PrivateReport:
    """Return the report of one comparison by privacy budget."""
    settings, data = one.settings, one.dataset
    return PrivateReport(
        dataset={"name": data.name, "sha256": data.sha256, "train_rows": len(data.x_train)},
        terms=asdict(settings.terms),
        partition=settings.partition.name,
        seeds=settings.n_seeds,
        seed=settings.seed,
        statement=tuple(statement(one)),
        records=one.records,
    )
