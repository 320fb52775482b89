"""NVFlare's FedAvg over a secure mean: a controller, an executor for the rounds' messages, and an output filter.

The training script stays as it is. The server must be semi-honest: over NVFlare a mean has no identities yet.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.defs import FilterType

from analytic_secagg.errors import UsageError
from analytic_secagg.mean.client import REFUSALS, MeanClient, forget
from analytic_secagg.mean.server import MeanRound
from analytic_secagg.mean.terms import MeanTerms
from analytic_secagg.nvflare.wire import answer_of, pack
from analytic_secagg.site.errors import Refusal
from secagg import MeanSpec, PartyId

__all__ = ["FilterType", "SecureFedAvg", "SecureMeanExecutor", "SecureMeanFilter"]

TASK = "secure_mean"
"""Task of a round's messages; and the name of what travels in place of a model."""

_STATE = "secure_mean_state"


def terms_of(settings: Mapping[str, Any]) -> MeanTerms:
    """Return the terms of a job's settings, in which tuples are lists."""
    return MeanTerms(**{**settings, "metrics": tuple(settings.get("metrics", ()))})


class SecureFedAvg(FedAvg):  # type: ignore[misc]
    """NVFlare's FedAvg, whose clients' models reach it as one secure mean.

    Args:
        terms: those of ``MeanTerms`` by name, as the clients state them.
        exchange_seconds: deadline of an exchange of keys, shares or unmasking.
        kwargs: FedAvg's own.

    Raises:
        UsageError: a custom aggregator or weights of clients, which need single models.
    """

    def __init__(self, *args: Any, terms: dict[str, Any], exchange_seconds: float = 600.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.aggregator is not None or self.aggregation_weights or self.exclude_vars:
            raise UsageError(
                "a secure mean has no single models: leave out aggregator, aggregation_weights and exclude_vars"
            )
        self.terms, self.exchange_seconds = terms, exchange_seconds
        self._terms, self._exponents = terms_of(terms), tuple[int, ...]()

    def send_model(self, task_name: str = "train", data: Any = None, targets: Any = None, **options: Any) -> None:
        """Set the round's mean up, and send the model with what clients need to mask."""
        names = sorted(getattr(client, "name", client) for client in targets)
        model = {name: np.asarray(array) for name, array in data.params.items()}
        self._model = model
        self._mean = MeanRound(self._terms, model, b"", members=names, exponents=self._exponents)
        everybody = dict(zip([*self._mean.parties, *self._mean.helpers], [*names, *names], strict=False))
        self._names: dict[PartyId, str] = everybody
        deliveries = self._mean.set_up(self._ask)
        requests = {self._names[party]: [party, content] for party, content in deliveries.items()}
        data.meta = {**(data.meta or {}), TASK: {"plan": self._mean.plan, "requests": requests}}
        super().send_model(task_name=task_name, data=data, targets=targets, **options)

    def _aggregate_one_result(self, result: FLModel) -> bool:
        """Add one vector to the sum."""
        sent, name = (result.params or {}).get(TASK), result.meta.get("client_name")
        party = next((party for party in self._mean.parties if self._names[party] == name), None)
        if sent is None or party is None:
            self.warning(f"{name} takes no part in this mean")
            return False
        self._mean.take(party, np.asarray(sent, dtype=np.uint8).tobytes())
        self._received_count += 1
        return True

    def _get_aggregated_result(self) -> FLModel:
        """Unmask the sum, and return the model that the mean makes."""
        mean = self._mean.finish(self._ask)
        spec = self._mean.spec
        if self._terms.carry_scales and isinstance(spec, MeanSpec):
            self._exponents = spec.next_round(mean).exponents
        self.info(f"secure mean: {len(mean.survivors)} clients, weight {mean.weight}; clipped {dict(mean.clipped)}")
        updated = {
            name: (self._model[name] + update).astype(self._model[name].dtype) for name, update in mean.arrays.items()
        }
        return FLModel(
            params={**self._model, **updated},
            params_type=ParamsType.FULL,
            metrics=dict(mean.metrics) or None,
            current_round=self.current_round,
            meta={"nr_aggregated": len(mean.survivors), "current_round": self.current_round},
        )

    def _ask(self, stage: str, plan: bytes, contents: Mapping[PartyId, bytes]) -> Iterator[tuple[PartyId, bytes]]:
        """Exchange messages as tasks (``analytic_secagg.mean.server.Ask``)."""
        answers: queue.SimpleQueue[tuple[PartyId, bytes | None]] = queue.SimpleQueue()
        for party, content in contents.items():
            request = Shareable({"stage": stage, "plan": plan, "party": party, "content": content})
            self.send(self._task(party, request, answers), self.fl_ctx, targets=[self._names[party]])
        n_ended = 0
        while n_ended < len(contents) and not self.abort_signal.triggered:
            try:
                party, answer = answers.get(timeout=1.0)
            except queue.Empty:
                continue
            if answer is None:
                n_ended += 1
            else:
                yield party, answer

    def _task(self, party: PartyId, request: Shareable, answers: queue.SimpleQueue[Any]) -> Task:
        def take(client_task: ClientTask, fl_ctx: FLContext) -> None:
            said = answer_of(client_task.result)
            if isinstance(said, bytes):
                answers.put((party, said))

        def end(task: Task, fl_ctx: FLContext) -> None:
            answers.put((party, None))

        seconds = math.ceil(self.exchange_seconds)
        return Task(name=TASK, data=request, timeout=seconds, result_received_cb=take, task_done_cb=end)


class SecureMeanExecutor(Executor):  # type: ignore[misc]
    """Answers the messages of a round's mean, and notes each model before it is trained.

    Args:
        terms: as the server states them.
        train_task: NVFlare's name of the training.
    """

    def __init__(self, terms: dict[str, Any], train_task: str = "train") -> None:
        super().__init__()
        self.terms, self.train_task = terms, train_task

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one message, or refuse and say why in this client's own log only."""
        state = state_of(fl_ctx)
        try:
            stage, plan, party, content = (shareable[name] for name in ("stage", "plan", "party", "content"))
            return pack(MeanClient(terms_of(self.terms)).answer(stage, plan, party, content, state))
        except REFUSALS as error:
            self.log_error(fl_ctx, f"secure mean: refused: {error}")
            forget(state)
            return pack(Refusal.DECLINED)

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Note the model that arrived, before the training script may change it."""
        if event_type != EventType.BEFORE_TASK_EXECUTION or fl_ctx.get_prop(FLContextKey.TASK_NAME) != self.train_task:
            return
        state = state_of(fl_ctx)
        state.pop("before", None)
        try:
            dxo = from_shareable(fl_ctx.get_prop(FLContextKey.TASK_DATA))
            asked = dxo.meta[TASK]
            party, content = asked["requests"][fl_ctx.get_identity_name()]
            before = {name: np.array(array) for name, array in dxo.data.items()}
            MeanClient(terms_of(self.terms)).check(asked["plan"], party, before, b"", state)
            state["before"], state["content"] = before, content
        except REFUSALS as error:
            self.log_error(fl_ctx, f"secure mean: refused: {error}")
            forget(state)


class SecureMeanFilter(Filter):  # type: ignore[misc]
    """An output filter of the training: the masked update leaves in place of the model, its metrics and its steps.

    Args:
        terms: as the server states them.
    """

    def __init__(self, terms: dict[str, Any]) -> None:
        super().__init__()
        self.terms = terms

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Return a result that holds nothing but one string of bytes, or nothing at all where this client refuses."""
        state, vector = state_of(fl_ctx), dict[str, Any]()
        try:
            before, trained = state.pop("before"), from_shareable(shareable)
            after = {name: np.asarray(array) for name, array in trained.data.items()}
            if trained.data_kind == DataKind.WEIGHT_DIFF:
                after = {name: before[name] + update for name, update in after.items()}
            metrics = dict(trained.meta.get(MetaKey.INITIAL_METRICS) or {})
            weight = trained.meta[MetaKey.NUM_STEPS_CURRENT_ROUND]
            client = MeanClient(terms_of(self.terms))
            sent = client.upload(state.pop("content"), before, {**before, **after}, int(weight), metrics, state)
            vector = {TASK: np.frombuffer(sent, dtype=np.uint8)}
        except REFUSALS as error:
            self.log_error(fl_ctx, f"secure mean: refused: {error}")
            forget(state)
        reply = DXO(DataKind.WEIGHTS, data=vector).to_shareable()
        reply.set_header(AppConstants.CURRENT_ROUND, shareable.get_header(AppConstants.CURRENT_ROUND))
        return reply


def state_of(fl_ctx: FLContext) -> dict[str, Any]:
    """Return what this client's process keeps of the job's means."""
    state = fl_ctx.get_prop(_STATE)
    if state is None:
        state = {}
        fl_ctx.set_prop(_STATE, state, private=True, sticky=True)
    found: dict[str, Any] = state
    return found
