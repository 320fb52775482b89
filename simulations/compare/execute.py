"""The execution of a run: deal its rows, train, compare with the pooled model where a law says what it is, test."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from math import isfinite
from typing import Any

import numpy as np

from analytic.pipeline import Pipeline
from analytic.row_format import FloatMatrix
from analytic.row_map import CLIPPED_CONTRIBUTION, CLIPPED_ROWS
from analytic_secagg.datasets import Dataset
from analytic_secagg.in_process import Cost, FederatedRun, run_federation
from analytic_secagg.learners import DEFAULT_ALPHAS, find_learner
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg import PartyId
from secagg.dp import Release
from secagg.dp.errors import MissingExtraError
from simulations.compare.build import bounded, build, has_intercept, n_sums, plan, stated
from simulations.compare.deal import Deal
from simulations.compare.dpsgd import METHODS
from simulations.compare.evaluated import judged
from simulations.compare.memory import forget_peak, peak_rss_bytes
from simulations.compare.personal import personal_scores
from simulations.compare.record import ChoiceRecord, RunRecord
from simulations.compare.reference import Float64Ridges, Reference, References, accuracy, largest_deviation, r2
from simulations.compare.run import Run
from simulations.compare.second_opinions import second_opinions


class Pooled:
    """Pooled models and float64 ridges of a data set, kept from one run of a learner to the next.

    Args:
        dataset: whose training rows are pooled.
        federated_float64: whether to find out how far federations in float64 end from the pooled model.
    """

    def __init__(self, dataset: Dataset, *, federated_float64: bool = True) -> None:
        self.dataset, self.federated_float64 = dataset, federated_float64
        self._float64: dict[tuple[float | None, bool], Float64Ridges] = {}
        self._last: tuple[Any, References] | None = None

    def of(self, run: Run, dataset: Dataset) -> References:
        """Return what a run's learner is compared with; ``dataset`` says which formats cover all rows."""
        names = ("learner", "options", "ridge", "ri_gamma", "format", "target_format", "agreement")
        key = [getattr(run, name) for name in names]
        if self._last is None or self._last[0] != key:
            float64 = run.ridge, has_intercept(run, dataset)
            if float64 not in self._float64:
                self._float64[float64] = Float64Ridges(self.dataset, ridge=run.ridge, intercept=float64[1])
            learner_for = partial(build, run, dataset)
            self._last = (
                key,
                References(self.dataset, lambda holders: learner_for(max_clients=holders), self._float64[float64]),
            )
        return self._last[1]


def execute(
    run: Run, dataset: Dataset, known: Pooled | None = None, *, tick: Callable[[], None] = lambda: None
) -> RunRecord:
    """Train a run's learner and record what came of it. Equal runs have equal records, but for times and memory.

    Args:
        run: what is trained, and how.
        dataset: its rows; where the run draws its own split, all of them.
        known: pooled models and float64 ridges of the data set that earlier runs needed.
        tick: called after each step: a client's contribution, or a round.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    run = stated(run, dataset)
    deal = Deal.of(run, dataset)
    if run.is_baseline:
        found = METHODS[run.learner].results(run, deal, dataset.n_classes, tick)
    else:
        wanted = known is None or known.federated_float64
        pooled = (
            known if known is not None and known.dataset is deal.data else Pooled(deal.data, federated_float64=wanted)
        )
        found = _ClosedForm(run, dataset, deal, pooled.of(run, dataset), federated_float64=wanted).results(tick)
    return RunRecord(**{name: getattr(run, name) for name in Run.model_fields}, **found)


class _ClosedForm:
    """A run's closed form with its rows.

    Args:
        run: what is trained, and over which sums.
        dataset: says the sizes.
        deal: the rows.
        pooled: pooled models and float64 ridges.
        federated_float64: whether to say how far federations in float64 end from them.
    """

    def __init__(self, run: Run, dataset: Dataset, deal: Deal, pooled: References, *, federated_float64: bool) -> None:
        self.run, self.mode, self.deal, self.pooled = run, run.mode_of_sums(), deal, pooled
        self.federated_float64 = federated_float64
        self.entry, self.n_sums = find_learner(run.learner), n_sums(run, dataset)
        self.learner: Any = build(run, dataset)
        self.privacy: PrivacyPlan | None = None
        self.form: PrivateForm | None = None
        if run.trust is not None and run.target_epsilon is None:  # exact totals, solved like noisy ones
            self.learner = bounded(run, dataset).with_noise([0.0] * self.n_sums, None)
        elif run.trust is not None:
            self.privacy = plan(run, dataset)
            self.form = self.privacy.apply(self.learner)
        self.solving: Any = self.form.learner if self.form else self.learner

    def results(self, tick: Callable[[], None]) -> dict[str, Any]:
        """Federate and compare; the results of a record, by field."""
        clients = {party: self.deal.rows(rows) for party, rows in self.parts.items()}
        forget_peak()
        started = time.perf_counter()
        federation = run_federation(
            self.learner,
            clients,
            self.mode,
            in_series=self.in_series,
            dropouts=self._dropouts,
            tick=tick,
            privacy=self.privacy,
        )
        wall_seconds, peak = time.perf_counter() - started, peak_rss_bytes()
        data, model = self.deal.data, federation.model
        reference = None
        if self.run.is_exact:
            reference = self.pooled.of(self.parts, federation.survivors)
        personal_results, proofless = self._personal(federation, reference)
        uncertified = (*federation.uncertified, *proofless)
        weights = self.solving.weights_bytes(model)
        return {
            "survivors": min(len(took_part) for took_part in federation.survivors),
            "sums": len(federation.survivors),
            **self._quality("test", self.solving.decision_function(model, data.x_test)),
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
            "certified": not uncertified,
            "uncertified": uncertified,
            "server_seconds": federation.server_seconds,
            "wall_seconds": wall_seconds,
            "peak_rss_bytes": peak,
            "choice": self._choice(model),
            "explanation": self._explanation(federation),
            **({} if reference is None else self._beside_pooled(federation, reference, weights)),
            **self._promise(),
            **self._clipped(clients),
            **personal_results,
            **self._evaluation(federation),
            **self._client_costs(federation),
            **self._helper_costs(federation),
        }

    @property
    def parts(self) -> Mapping[PartyId, Any]:
        """The rows that enter sums."""
        return self.deal.parts if self.entry.personalise is None else self.deal.split.train

    @property
    def in_series(self) -> bool:
        """Whether sums carry each other's set-up: where there are several, the mode can, and no client comes back."""
        several = self.run.is_exact and self.n_sums > 1
        return several and self.mode.make_series is not None and not self.run.dropout_anew

    def _dropouts(self, number: int) -> Mapping[PartyId, int]:
        dropouts, clients = self.run.dropouts, self.run.parties
        if self.run.dropout_stage == "first":
            return dict.fromkeys(dropouts.lost(clients, number), 0)
        last = number == self.n_sums - 1
        return dropouts.draw(self.mode, clients, number, in_series=self.in_series, last=last)

    def _quality(self, of: str, scores: FloatMatrix) -> dict[str, Any]:
        """Accuracy or R2 on the test rows, under the names that a record has for them."""
        targets = self.deal.data.y_test
        if not self.deal.data.is_regression:
            return {f"{of}_accuracy": accuracy(scores, targets)}
        found = r2(scores, targets)
        return {f"{of}_r2": found if isfinite(found) else None}

    def _beside_pooled(self, federation: FederatedRun[Any], reference: Reference, weights: bytes) -> dict[str, Any]:
        """Compare the model with the pooled one, and with float64 ridges that share no code with it."""
        off, federated = None, {}
        if self.federated_float64:
            float64 = self.pooled.float64_deviation(self.parts, federation.survivors)
            federated = {
                "float64_gram_sum_max_abs_weight_deviation": float64.gram_sum,
                "float64_solved_weights_max_abs_weight_deviation": float64.solved_weights,
            }
        if self.entry.linear_weights is not None:
            own = self.entry.linear_weights(self.learner, federation.model)
            off = float(np.abs(own - reference.float64_weights).max())
        return {
            "bitwise_equal_to_pooled": weights == reference.weights_bytes,
            "max_abs_weight_deviation": largest_deviation(weights, reference.weights_bytes),
            **self._quality("float64_ridge_test", reference.float64_scores(self.deal.data.x_test)),
            "float64_ridge_max_abs_weight_deviation": off if off is not None and isfinite(off) else None,
            **federated,
        }

    def _promise(self) -> dict[str, Any]:
        """Return the promise of the noise, and its scales."""
        form = self.form
        if form is None:
            return {}
        given = form.guarantee
        return {
            "epsilon": given.epsilon,
            "rho": float(given.rho),
            "epsilon_zcdp": given.epsilon_zcdp,
            "sigma_gram": form.sigma_gram,
            "sigma_cross": form.sigma_cross,
            "second_opinions": opinions(form.releases, form.plan.delta),
        }

    def _clipped(self, clients: Mapping[PartyId, Any]) -> dict[str, Any]:
        if self.run.is_exact:
            return {}
        kept = (CLIPPED_ROWS, CLIPPED_CONTRIBUTION)
        return {"clipped": sum(int(rows.memory.get(key, 0)) for rows in clients.values() for key in kept)}

    def _choice(self, model: Any) -> ChoiceRecord | None:
        """Return how the ridge was chosen; None where it was stated."""
        selection = self.solving.selection if isinstance(self.solving, Pipeline) else None
        if selection is None:
            return None
        path = model.path
        return ChoiceRecord(
            ridge=path.choice,
            ridges=path.values,
            error=path.mean,
            standard_error=path.standard_error,
            folds=selection.n_folds,
            criterion=selection.criterion,
            rule=selection.rule,
        )

    def _explanation(self, federation: FederatedRun[Any]) -> str | None:
        if not self.run.explain:
            return None
        return self.mode.explain(federation.largest_layout, self.run.parties) or "(says nothing of itself)"

    def _personal(
        self, federation: FederatedRun[Any], reference: Reference | None
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the results of personal models, and their arrays that are not certified."""
        if self.entry.personalise is None:
            return {}, ()
        split, judged_by = self.deal.split, self.run.parties if reference is None else federation.survivors[-1]
        model = federation.model
        scores = personal_scores(
            self.solving,
            self.entry.personalise,
            self.run.options.get("alphas", DEFAULT_ALPHAS),
            model=model,
            pooled_model=model if reference is None else reference.model,
            clients=((self.deal.rows(split.train[party]), self.deal.rows(split.test[party])) for party in judged_by),
        )
        kind = "r2" if self.deal.data.is_regression else "accuracy"
        found: dict[str, Any] = {
            f"local_test_{kind}": scores.of_global,
            f"personalised_test_{kind}": scores.of_personal,
        }
        if reference is not None:
            found["personalised_bitwise_equal_to_pooled"] = scores.bitwise_equal_to_pooled
        return found, scores.uncertified

    def _evaluation(self, federation: FederatedRun[Any]) -> dict[str, Any]:
        if not self.run.evaluate:
            return {}
        clients, number = self.run.parties, len(federation.survivors)
        evaluation = judged(
            self.deal.data,
            self.solving,
            federation.model,
            clients=clients,
            mode=self.mode,
            dropouts=lambda: self.run.dropouts.draw(self.mode, clients, number, in_series=False, last=True),
        )
        return {"evaluation": evaluation}

    def _client_costs(self, federation: FederatedRun[Any]) -> dict[str, Any]:
        clients = [federation.costs[party] for party in sorted(set().union(*federation.survivors))]
        return {
            "messages_per_client": max(cost.messages_up for cost in clients),
            "vector_messages_per_client": max(cost.vector_messages for cost in clients),
            "messages_per_sum": tuple(
                max(federation.costs[party].messages_by_sum[number] for party in took_part)
                for number, took_part in enumerate(federation.survivors)
            ),
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


@lru_cache(maxsize=32)
def opinions(releases: tuple[Release, ...], delta: float) -> dict[str, float]:
    """Return other accountants' epsilon by their names; none where the extra is not installed."""
    try:
        return second_opinions(releases, delta)
    except MissingExtraError:
        return {}
