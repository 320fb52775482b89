"""One run of a comparison, from dealt rows to its record."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from pydantic import Field

from analytic.learner import AnalyticLearner, ClientRows
from analytic.pipeline import Pipeline
from analytic.row_format import FloatMatrix
from analytic_secagg.datasets import Dataset
from analytic_secagg.in_process import Cost, FederatedRun, run_federation
from analytic_secagg.learners import ChosenLearner
from analytic_secagg.modes import Mode
from secagg import Layout, PartyId
from simulations.compare.dropouts import Dropouts
from simulations.compare.evaluated import EvaluationRecord, RegressionEvaluationRecord, judged
from simulations.compare.memory import forget_peak, peak_rss_bytes
from simulations.compare.personal import LocalSplit, personal_scores
from simulations.compare.reference import Float64Deviation, Reference, References, accuracy, largest_deviation, r2
from simulations.data.partitions import Indices
from simulations.report.document import Count, Natural, NotNegative, Part, Record, Sha256


class ChoiceRecord(Record, title="choice"):
    """A ridge chosen by cross-validation over everybody's training rows."""

    ridge: NotNegative
    """The one that was taken."""
    ridges: tuple[NotNegative, ...]
    """Those that were tried, ascending."""
    error: tuple[NotNegative, ...]
    """For each, the mean validation error of a row: squared residuals of all targets, or parts of wrong classes."""
    standard_error: tuple[NotNegative, ...]
    """Of that mean, from how folds differ."""
    folds: Count
    """How many there were."""
    criterion: str
    """What an error is: squares or classes."""
    rule: str
    """Which ridge is taken: least, or one-standard-error."""

    @classmethod
    def of(cls, learner: Any, model: Any) -> ChoiceRecord | None:
        """What a learner that chooses has chosen; None of others."""
        selection = learner.selection if isinstance(learner, Pipeline) else None
        if selection is None:
            return None
        path = model.path
        return cls(
            ridge=path.choice,
            ridges=path.values,
            error=path.mean,
            standard_error=path.standard_error,
            folds=selection.n_folds,
            criterion=selection.criterion,
            rule=selection.rule,
        )


class RunRecord(Record, title="run"):
    """One closed form over one mode, partition and cohort."""

    mode: str
    """How the sums were made: plain, masked, ..."""
    learner: str
    """The closed form: afl, fedhip, deepafl, ..., with the size that --sweep gave it."""
    clients: Count
    """Clients of the cohort."""
    partition: str
    """How training rows were dealt: iid, dirichlet:ALPHA or shards:S."""
    survivors: Count
    """Clients whose vectors are in a sum; the fewest of any sum where they differ."""
    sums: Count
    """Sums that the learner asked for."""
    messages_per_client: Count
    """Messages a client sent over all sums; the most of any client that took part."""
    heavy_messages_per_client: Count
    """Those of them that carry a vector of the learner's size."""
    messages_per_sum: tuple[Count, ...] = Field(min_length=1)
    """Messages of a client in each sum, in order; the most of any client whose vector is in it. Fewer from the second
    on where sums carry each other's set-up."""
    test_accuracy: Part | None
    """Part of the test rows that the federated model classifies correctly; null for real targets."""
    test_r2: float | None
    """R2 of the federated model on the test rows, the mean over targets; null for class labels."""
    weights_sha256: Sha256
    """SHA-256 of everything that the model learned."""
    certified: bool
    """Whether all that was solved is proven to be the exact solution rounded once: the hash is then the same on every
    machine."""
    uncertified: tuple[str, ...]
    """Solved arrays whose bits are this machine's, each by name with how it was solved; personal weights among them.
    Empty where certified is true."""
    bitwise_equal_to_pooled: bool
    """Whether these bytes are those of the same closed form solved on the survivors' pooled rows."""
    max_abs_weight_deviation: NotNegative | None
    """Largest absolute difference of a weight from the pooled model's; 0 when the bytes are equal, null when no number
    says it (weights of another number, or NaN)."""
    float64_ridge_test_accuracy: Part | None
    """Accuracy of an unquantised float64 linear ridge on the same pooled rows (those of the first sum); null for real
    targets."""
    float64_ridge_test_r2: float | None
    """R2 of that ridge, the mean over targets; null for class labels."""
    float64_ridge_max_abs_weight_deviation: NotNegative | None
    """Largest absolute difference of a weight from that ridge's: what fixed-point rows cost. null for learners that are
    no linear map of the features, and where features are so small that float64 cannot hold that ridge's weights."""
    float64_gram_sum_max_abs_weight_deviation: NotNegative
    """Largest absolute difference of a weight from a float64 ridge on the pooled rows' Gram matrix when the clients of
    the first sum send float64 Gram matrices, which are added and solved; 0 where products of rows are exact in
    float64."""
    float64_solved_weights_max_abs_weight_deviation: NotNegative
    """The same when they send solved weights with gamma 1 on the diagonal, as AFL's authors do."""
    local_test_accuracy: Part | None
    """Accuracy of the global model on a fifth of each client's own rows that it kept for testing; mean over clients
    that took part and hold such rows. null for learners without personal models and for real targets."""
    local_test_r2: float | None
    """R2 of the global model on those rows of all such clients together; null for class labels."""
    personalised_test_accuracy: Mapping[str, Part] | None
    """The same for each client's personal model, by alpha as text. null for learners without personal models and for
    real targets."""
    personalised_test_r2: Mapping[str, float] | None
    """R2 of all clients' personal models, each on its own rows, together, by alpha as text; null for class labels."""
    personalised_bitwise_equal_to_pooled: bool | None
    """Whether the personal weights of every client that took part, for every alpha, have the bytes of those that follow
    from the survivors' pooled total. null for learners without personal models."""
    choice: ChoiceRecord | None
    """How the ridge was chosen; null where it was stated."""
    evaluation: EvaluationRecord | RegressionEvaluationRecord | None
    """The model judged through one more sum over clients that hold the test rows; null without --evaluate."""
    bytes_up_per_client: Count
    """Bytes a client sent over all sums, headers included; the most of any client that took part."""
    bytes_down_per_client: Natural
    """Bytes a client received as messages of its sums; the most of any client that took part. The model that clients
    receive between sums and at the end is not in it: it is the same in every mode."""
    client_seconds: NotNegative
    """Time a client computed, its statistics included, over all sums; mean over clients that took part."""
    client_statistics_seconds: NotNegative
    """The part of it that is the learner's and not the mode's; mean over clients that took part."""
    server_seconds: NotNegative
    """Time of the server's sessions and of the solves."""
    helpers: Natural
    """Parties beside clients and server that the mode needs."""
    helper_bytes_up: Natural
    """Bytes a helper sent; the most of any, 0 without helpers."""
    helper_bytes_down: Natural
    """Bytes a helper received; the most of any, 0 without helpers."""
    helper_seconds: NotNegative
    """Time a helper computed; the most of any, 0 without helpers."""
    wall_seconds: NotNegative
    """Time of the whole run in one process, without its reference."""
    peak_rss_bytes: Count
    """Largest resident memory of the process during the run (where the system cannot start anew, up to its end)."""

    @property
    def quality(self) -> float:
        """Accuracy, or R2 of real targets."""
        found = self.test_r2 if self.test_accuracy is None else self.test_accuracy
        return float("nan") if found is None else found

    @property
    def float64_quality(self) -> float:
        """The same of the float64 ridge."""
        found = self.float64_ridge_test_accuracy if self.test_r2 is None else self.float64_ridge_test_r2
        return float("nan") if found is None else found

    @property
    def equal_to_pooled(self) -> bool:
        """Whether global weights, and personal ones and an evaluation where there are some, are the pooled ones."""
        evaluated = self.evaluation is None or self.evaluation.bitwise_equal_to_pooled
        return self.bitwise_equal_to_pooled and self.personalised_bitwise_equal_to_pooled is not False and evaluated


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deal:
    """Who holds which training rows.

    Args:
        partition: the name of the way in which they were dealt.
        parts: rows by party.
        split: the same in two parts, for learners that test personal models on rows of their clients.
    """

    partition: str
    parts: Mapping[PartyId, Indices]
    split: LocalSplit

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort."""
        return tuple(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """One closed form over one mode on one deal of rows.

    Args:
        dataset: the rows.
        chosen: the learner as it was asked for.
        learner: the same, made for this cohort.
        deal: who holds what.
        mode: how sums are made.
        dropouts: who vanishes.
        evaluates: whether the model is judged through a sum of its own.
    """

    dataset: Dataset
    chosen: ChosenLearner
    learner: AnalyticLearner[Any]
    deal: Deal
    mode: Mode
    dropouts: Dropouts
    evaluates: bool = False

    @property
    def label(self) -> str:
        """What a progress bar calls it."""
        return f"{self.chosen.name} {self.mode.name}, {len(self.deal.clients)} clients, {self.deal.partition}"

    @property
    def parts(self) -> Mapping[PartyId, Indices]:
        """The rows that enter sums."""
        return self.deal.parts if self.chosen.entry.personalise is None else self.deal.split.train

    @property
    def n_sums(self) -> int:
        """How many sums the run takes."""
        scaler = self.learner.scaler if isinstance(self.learner, Pipeline) else None
        return self.chosen.n_sums + (scaler.agreement.n_sums if scaler else 0)

    @property
    def in_series(self) -> bool:
        """Whether sums carry each other's set-up: where there are several, the mode can, and no client comes back."""
        return self.n_sums > 1 and self.mode.make_series is not None and not self.dropouts.anew

    def run(self, references: References, tick: Callable[[], None]) -> tuple[RunRecord, Layout]:
        """Federate and compare; the record, and the layout of the largest sum."""
        forget_peak()
        started = time.perf_counter()
        federation = run_federation(
            self.learner,
            {party: self._rows(rows) for party, rows in self.parts.items()},
            self.mode,
            in_series=self.in_series,
            dropouts=self._dropouts,
            tick=tick,
        )
        wall_seconds, peak = time.perf_counter() - started, peak_rss_bytes()
        reference = references.of(self.parts, federation.survivors)
        float64 = references.float64_deviation(self.parts, federation.survivors)
        test = references.float64_scores(reference, self.dataset.x_test)
        record = self._record(federation, reference, float64, test, wall_seconds=wall_seconds, peak=peak)
        return record, federation.largest_layout

    def _dropouts(self, number: int) -> dict[PartyId, int]:
        last = number == self.n_sums - 1
        return self.dropouts.draw(self.mode, self.deal.clients, number, in_series=self.in_series, last=last)

    def _rows(self, rows: Indices) -> ClientRows:
        return self.dataset.training.taken(rows)

    def _record(
        self,
        federation: FederatedRun[Any],
        reference: Reference,
        float64: Float64Deviation,
        float64_scores: FloatMatrix,
        *,
        wall_seconds: float,
        peak: int,
    ) -> RunRecord:
        weights = self.learner.weights_bytes(federation.model)
        personal, proofless = self._personal(federation, reference)
        uncertified = (*federation.uncertified, *proofless)
        scores = self.learner.decision_function(federation.model, self.dataset.x_test)
        return RunRecord(
            mode=self.mode.name,
            learner=self.chosen.name,
            clients=len(self.deal.clients),
            partition=self.deal.partition,
            survivors=min(len(took_part) for took_part in federation.survivors),
            sums=len(federation.survivors),
            **self._quality("test", scores),
            weights_sha256=hashlib.sha256(weights).hexdigest(),
            certified=not uncertified,
            uncertified=uncertified,
            bitwise_equal_to_pooled=weights == reference.weights_bytes,
            max_abs_weight_deviation=largest_deviation(weights, reference.weights_bytes),
            **self._quality("float64_ridge_test", float64_scores),
            float64_ridge_max_abs_weight_deviation=self._ridge_deviation(federation, reference),
            float64_gram_sum_max_abs_weight_deviation=float64.gram_sum,
            float64_solved_weights_max_abs_weight_deviation=float64.solved_weights,
            server_seconds=federation.server_seconds,
            wall_seconds=wall_seconds,
            peak_rss_bytes=peak,
            choice=ChoiceRecord.of(self.learner, federation.model),
            evaluation=self._evaluation(federation),
            **personal,
            **self._client_costs(federation),
            **self._helper_costs(federation),
        )

    def _quality(self, of: str, scores: FloatMatrix) -> dict[str, Any]:
        """Accuracy or R2 on the test rows, under the names that a record has for them."""
        targets = self.dataset.y_test
        if self.dataset.is_regression:
            found = r2(scores, targets)
            return {f"{of}_accuracy": None, f"{of}_r2": found if isfinite(found) else None}
        return {f"{of}_accuracy": accuracy(scores, targets), f"{of}_r2": None}

    def _evaluation(self, federation: FederatedRun[Any]) -> EvaluationRecord | RegressionEvaluationRecord | None:
        if not self.evaluates:
            return None
        clients, number = self.deal.clients, len(federation.survivors)
        return judged(
            self.dataset,
            self.learner,
            federation.model,
            clients=clients,
            mode=self.mode,
            dropouts=lambda: self.dropouts.draw(self.mode, clients, number, in_series=False, last=True),
        )

    def _client_costs(self, federation: FederatedRun[Any]) -> dict[str, Any]:
        clients = [federation.costs[party] for party in set().union(*federation.survivors)]
        return {
            "messages_per_client": max(cost.messages_up for cost in clients),
            "heavy_messages_per_client": max(cost.vector_messages for cost in clients),
            "messages_per_sum": tuple(_messages_per_sum(federation)),
            "bytes_up_per_client": max(cost.bytes_up for cost in clients),
            "bytes_down_per_client": max(cost.bytes_down for cost in clients),
            "client_seconds": statistics.fmean(cost.seconds for cost in clients),
            "client_statistics_seconds": statistics.fmean(cost.statistics_seconds for cost in clients),
        }

    def _helper_costs(self, federation: FederatedRun[Any]) -> dict[str, Any]:
        helpers: list[Cost] = [cost for party, cost in federation.costs.items() if party not in self.deal.parts]
        return {
            "helpers": len(helpers),
            "helper_bytes_up": max((cost.bytes_up for cost in helpers), default=0),
            "helper_bytes_down": max((cost.bytes_down for cost in helpers), default=0),
            "helper_seconds": max((cost.seconds for cost in helpers), default=0.0),
        }

    def _ridge_deviation(self, federation: FederatedRun[Any], reference: Reference) -> float | None:
        linear_weights = self.chosen.entry.linear_weights
        if linear_weights is None:
            return None
        off = float(np.abs(linear_weights(self.learner, federation.model) - reference.float64_weights).max())
        return off if isfinite(off) else None

    def _personal(self, federation: FederatedRun[Any], reference: Reference) -> tuple[dict[str, Any], tuple[str, ...]]:
        """What the record says of personal models, and their arrays that are not certified."""
        kinds = ("r2", "accuracy") if self.dataset.is_regression else ("accuracy", "r2")
        names = [f"{whose}_test_{kind}" for kind in kinds for whose in ("local", "personalised")]
        names.insert(2, "personalised_bitwise_equal_to_pooled")
        personalise = self.chosen.entry.personalise
        if personalise is None:
            return dict.fromkeys(names), ()
        split, took_part = self.deal.split, federation.survivors[-1]
        learner: Any = self.learner
        model, pooled_model = federation.model, reference.model
        scores = personal_scores(
            learner,
            personalise,
            self.chosen.alphas,
            model=model,
            pooled_model=pooled_model,
            clients=((self._rows(split.train[party]), self._rows(split.test[party])) for party in took_part),
        )
        found = scores.of_global, scores.of_personal, scores.bitwise_equal_to_pooled, None, None
        return dict(zip(names, found, strict=True)), scores.uncertified


def _messages_per_sum(federation: FederatedRun[Any]) -> Iterator[int]:
    """For each sum, the most messages of any client whose vector is in it."""
    for number, took_part in enumerate(federation.survivors):
        yield max(federation.costs[party].messages_by_sum[number] for party in took_part)
