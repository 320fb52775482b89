"""The comparison: one learner over every mode, partition and cohort asked for, each run against its pooled model."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import RowFormat
from secagg import PartyId
from simulations.data import Dataset
from simulations.dropouts import NO_DROPOUTS, Dropouts
from simulations.errors import UsageError
from simulations.federation import Federation, federate
from simulations.learners import LearnerEntry, LearnerSettings, Option
from simulations.memory import forget_peak, peak_rss_bytes
from simulations.modes import Mode
from simulations.partitions import Indices, Partition
from simulations.reference import Reference, References, largest_deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSettings:
    """What to compare; every combination of partition, cohort and mode is one run.

    Args:
        learner: the closed form.
        learner_options: its own parameters by name.
        modes: how its sums are made.
        n_clients: cohort sizes.
        partitions: ways to deal the training rows.
        feature_format: fixed-point format of features; None looks at all training rows, for simulations only.
        ridge: penalty of the solve.
        ri_gamma: what each client adds to its Gram's diagonal.
        dropouts: who vanishes.
        seed: draws partitions.

    Raises:
        UsageError: nothing to compare, or a number out of range.
    """

    learner: LearnerEntry
    learner_options: Mapping[str, Option] = field(default_factory=dict)
    modes: tuple[Mode, ...]
    n_clients: tuple[int, ...] = (20,)
    partitions: tuple[Partition, ...]
    feature_format: RowFormat | None = None
    ridge: float = 0.0
    ri_gamma: float = 0.0
    dropouts: Dropouts = NO_DROPOUTS
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.modes and self.n_clients and self.partitions):
            raise UsageError("a comparison needs at least one mode, one number of clients and one partition")
        if min(self.n_clients) < 1 or self.seed < 0:
            raise UsageError(
                f"clients must be at least 1 and a seed at least 0, not {min(self.n_clients)}, {self.seed}"
            )
        for n_clients in self.n_clients:
            for mode in self.modes:
                self.dropouts.check(mode, parties(n_clients))

    @property
    def n_runs(self) -> int:
        """How many runs this asks for."""
        return len(self.n_clients) * len(self.partitions) * len(self.modes)

    def format_for(self, dataset: Dataset) -> RowFormat:
        """The format of features: the one that was set, or one that covers all training rows."""
        return self.feature_format or RowFormat.covering(dataset.x_train)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a comparison, under the names of the JSON report (docs/reference/compare-json.md says each)."""

    mode: str
    learner: str
    clients: int
    partition: str
    survivors: int
    sums: int
    messages_per_client: int
    heavy_messages_per_client: int
    test_accuracy: float
    weights_sha256: str
    bitwise_equal_to_pooled: bool
    max_abs_weight_deviation: float | None
    float64_ridge_test_accuracy: float
    float64_ridge_max_abs_weight_deviation: float | None
    bytes_up_per_client: int
    bytes_down_per_client: int
    client_seconds: float
    client_statistics_seconds: float
    server_seconds: float
    helpers: int
    helper_bytes_up: int
    helper_bytes_down: int
    helper_seconds: float
    wall_seconds: float
    peak_rss_bytes: int
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All runs, what they ran on, and the format that every client used."""

    settings: CompareSettings
    dataset: Dataset
    feature_format: RowFormat
    runs: tuple[RunRecord, ...]

    @property
    def all_bitwise_equal(self) -> bool:
        """Whether every run gave its pooled model's bytes."""
        return all(run.bitwise_equal_to_pooled for run in self.runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a comparison tells a progress bar.

    Args:
        start: called with a run's label and how many contributions it will make at least.
        tick: called after each contribution.
    """

    start: Callable[[str, int], None] = lambda label, steps: None
    tick: Callable[[], None] = lambda: None


def compare(dataset: Dataset, settings: CompareSettings, progress: Progress | None = None) -> Comparison:
    """Run every combination and check each against the pooled model of its survivors.

    Raises:
        SimulationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    progress = progress or Progress()
    feature_format = settings.format_for(dataset)
    learner_for = _learner_factory(dataset, settings, feature_format)
    references = References(dataset, learner_for, ridge=settings.ridge)
    runs = []
    for partition, parts in _deals(dataset, settings):
        learner = learner_for(len(parts))
        for mode in settings.modes:
            case = _Case(dataset, settings, learner, partition, parts, mode)
            progress.start(case.label, len(parts))
            runs.append(case.run(references, progress.tick))
    return Comparison(settings=settings, dataset=dataset, feature_format=feature_format, runs=tuple(runs))


def parties(n_clients: int) -> tuple[PartyId, ...]:
    """The numbers of a cohort's clients: 1 to n."""
    return tuple(range(1, n_clients + 1))


def accuracy(scores: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Part of the rows whose largest score stands at their label."""
    return float(np.mean(scores.argmax(axis=1) == labels))


@dataclass(frozen=True, slots=True)
class _Case:
    """One run, from dealt rows to its record."""

    dataset: Dataset
    settings: CompareSettings
    learner: AnalyticLearner[Any]
    partition: Partition
    parts: dict[PartyId, Indices]
    mode: Mode

    @property
    def label(self) -> str:
        return f"{self.learner.name} {self.mode.name}, {len(self.parts)} clients, {self.partition.name}"

    def run(self, references: References, tick: Callable[[], None]) -> RunRecord:
        forget_peak()
        started = time.perf_counter()
        federation = federate(
            self.learner,
            {party: self._rows(rows) for party, rows in self.parts.items()},
            self.mode,
            dropouts=lambda number: self.settings.dropouts.draw(self.mode, tuple(self.parts), number),
            tick=tick,
        )
        wall_seconds, peak = time.perf_counter() - started, peak_rss_bytes()
        reference = references.of(self.parts, federation.survivors)
        return self._record(federation, reference, wall_seconds=wall_seconds, peak=peak)

    def _rows(self, rows: Indices) -> ClientRows:
        return ClientRows(self.dataset.x_train[rows], self.dataset.y_train[rows])

    def _record(self, federation: Federation, reference: Reference, *, wall_seconds: float, peak: int) -> RunRecord:
        weights = self.learner.weights_bytes(federation.model)
        clients = [federation.costs[party] for party in set().union(*federation.survivors)]
        helpers = [cost for party, cost in federation.costs.items() if party not in self.parts]
        test, labels = self.dataset.x_test, self.dataset.y_test
        return RunRecord(
            mode=self.mode.name,
            learner=self.learner.name,
            clients=len(self.parts),
            partition=self.partition.name,
            survivors=min(len(took_part) for took_part in federation.survivors),
            sums=len(federation.survivors),
            messages_per_client=max(cost.messages_up for cost in clients),
            heavy_messages_per_client=max(cost.heavy_messages for cost in clients),
            test_accuracy=accuracy(self.learner.decision_function(federation.model, test), labels),
            weights_sha256=hashlib.sha256(weights).hexdigest(),
            bitwise_equal_to_pooled=weights == reference.weights_bytes,
            max_abs_weight_deviation=largest_deviation(weights, reference.weights_bytes),
            float64_ridge_test_accuracy=accuracy(test @ reference.float64_weights, labels),
            float64_ridge_max_abs_weight_deviation=self._ridge_deviation(federation, reference),
            bytes_up_per_client=max(cost.bytes_up for cost in clients),
            bytes_down_per_client=max(cost.bytes_down for cost in clients),
            client_seconds=statistics.fmean(cost.seconds for cost in clients),
            client_statistics_seconds=statistics.fmean(cost.statistics_seconds for cost in clients),
            server_seconds=federation.server_seconds,
            helpers=len(helpers),
            helper_bytes_up=max((cost.bytes_up for cost in helpers), default=0),
            helper_bytes_down=max((cost.bytes_down for cost in helpers), default=0),
            helper_seconds=max((cost.seconds for cost in helpers), default=0.0),
            wall_seconds=wall_seconds,
            peak_rss_bytes=peak,
        )

    def _ridge_deviation(self, federation: Federation, reference: Reference) -> float | None:
        linear_weights = self.settings.learner.linear_weights
        if linear_weights is None:
            return None
        return float(np.abs(linear_weights(federation.model) - reference.float64_weights).max())


def _deals(dataset: Dataset, settings: CompareSettings) -> Iterator[tuple[Partition, dict[PartyId, Indices]]]:
    """Each cohort's rows, dealt with a generator that depends on nothing but the seed, its size and the partition."""
    for n_clients in settings.n_clients:
        for partition in settings.partitions:
            rng = np.random.default_rng([settings.seed, n_clients, *partition.name.encode()])
            dealt = partition.deal(dataset.y_train, n_clients, rng)
            yield partition, dict(zip(parties(n_clients), dealt, strict=True))


def _learner_factory(
    dataset: Dataset, settings: CompareSettings, feature_format: RowFormat
) -> Callable[[int], AnalyticLearner[Any]]:
    """What makes the learner for a number of clients."""

    def learner_for(max_clients: int) -> AnalyticLearner[Any]:
        return settings.learner.build(
            LearnerSettings(
                n_features=dataset.n_features,
                n_classes=dataset.n_classes,
                feature_format=feature_format,
                max_rows=len(dataset.x_train),
                max_clients=max_clients,
                ridge=settings.ridge,
                ri_gamma=settings.ri_gamma,
                options=settings.learner_options,
            )
        )

    return learner_for
