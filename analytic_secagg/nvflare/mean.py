"""NVFlare's FedAvg over a secure mean: a controller, an executor for the rounds' messages, and an output filter.

The training script stays as it is. With the files of a roster's sites and of its server, named in each host's
environment, messages are signed; without them the server must be semi-honest.
"""

from __future__ import annotations

import json
import math
import os
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
from analytic_secagg.mean.client import REFUSALS, WHO, MeanClient, forget
from analytic_secagg.mean.server import MeanRound
from analytic_secagg.mean.terms import MeanTerms
from analytic_secagg.nvflare.executor import SITE_VARIABLE, site_of_client
from analytic_secagg.nvflare.wire import answer_of, pack
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import Refusal, UnreachableError
from analytic_secagg.site.site_file import SITES_VARIABLE
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
        identities: whether messages are signed: with the server's file that its host's environment names, and the
            clients' own ones.
        kwargs: FedAvg's own.

    Raises:
        UsageError: a custom aggregator or weights of clients, which need single models.
    """

    def __init__(
        self,
        *args: Any,
        terms: dict[str, Any],
        exchange_seconds: float = 600.0,
        identities: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.aggregator is not None or self.aggregation_weights or self.exclude_vars:
            raise UsageError(
                "a secure mean has no single models: leave out aggregator, aggregation_weights and exclude_vars"
            )
        self.terms, self.exchange_seconds, self.identities = terms, exchange_seconds, identities
        self._terms, self._exponents = terms_of(terms), tuple[int, ...]()

    def send_model(self, task_name: str = "train", data: Any = None, targets: Any = None, **options: Any) -> None:
        """Set the round's mean up, and send the model with what clients need to mask."""
        names = sorted(getattr(client, "name", client) for client in targets)
        model = {name: np.asarray(array) for name, array in data.params.items()}
        self._model = model
        server = ServerFile.of_host() if self.identities else None
        self._names: dict[PartyId, str] = {}
        members = names if server is None else self._listed(names)
        self._mean = MeanRound(self._terms, model, b"", members=members, exponents=self._exponents, server=server)
        if server is None:
            self._names = dict(zip([*self._mean.parties, *self._mean.helpers], [*names, *names], strict=False))
        deliveries = self._mean.set_up(self._ask)
        self.info(f"secure mean: {self._mean.spec.explain()}")
        requests = {self._names[party]: [party, content] for party, content in deliveries.items()}
        data.meta = {**(data.meta or {}), TASK: {"plan": self._mean.plan, "requests": requests}}
        super().send_model(task_name=task_name, data=data, targets=targets, **options)

    def _listed(self, names: list[str]) -> list[str]:
        """Ask all clients for their numbers in the roster, and return those of a round's clients.

        What they state is checked by their signatures.

        Raises:
            UnreachableError: none of the round's clients states one.
        """
        everybody = sorted({*names, *(client.name for client in self.engine.get_clients())})
        self._names = dict(enumerate(everybody, 1))
        asked, found, listed = dict(self._names), dict[PartyId, str](), list[PartyId]()
        for party, answer in self._ask(WHO, b"", dict.fromkeys(asked, b"")):
            try:
                said = {str(role): int(number) for role, number in json.loads(answer).items()}
            except (ValueError, TypeError, AttributeError):
                self.warning(f"{asked[party]} states no numbers of a roster")
                continue
            if asked[party] not in names:
                said.pop("client", None)
            found |= dict.fromkeys(said.values(), asked[party])
            listed += [said["client"]] if "client" in said else []
        self._names = found
        if not listed:
            raise UnreachableError("none of the round's clients states its number as a client in the roster")
        return [str(party) for party in sorted({*listed})]

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
        min_change: fewest clients by which two cohorts may differ (``MeanClient``); the filter states the same.
    """

    def __init__(self, terms: dict[str, Any], train_task: str = "train", min_change: int | None = None) -> None:
        super().__init__()
        self.terms, self.train_task, self.min_change = terms, train_task, min_change

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one message, or refuse and say why in this client's own log only."""
        state = state_of(fl_ctx)
        try:
            stage, plan, party, content = (shareable[name] for name in ("stage", "plan", "party", "content"))
            return pack(client_of(self.terms, fl_ctx, self.min_change).answer(stage, plan, party, content, state))
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
            client_of(self.terms, fl_ctx, self.min_change).check(asked["plan"], party, before, b"", state)
            state["before"], state["content"] = before, content
        except REFUSALS as error:
            self.log_error(fl_ctx, f"secure mean: refused: {error}")
            forget(state)


class SecureMeanFilter(Filter):  # type: ignore[misc]
    """An output filter of the training: the masked update leaves in place of the model, its metrics and its steps.

    Args:
        terms: as the server states them.
        min_change: as the executor states it.
    """

    def __init__(self, terms: dict[str, Any], min_change: int | None = None) -> None:
        super().__init__()
        self.terms, self.min_change = terms, min_change

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
            sent = client_of(self.terms, fl_ctx, self.min_change).upload(
                state.pop("content"), before, {**before, **after}, int(weight), metrics, state
            )
            vector = {TASK: np.frombuffer(sent, dtype=np.uint8)}
        except REFUSALS as error:
            self.log_error(fl_ctx, f"secure mean: refused: {error}")
            forget(state)
        reply = DXO(DataKind.WEIGHTS, data=vector).to_shareable()
        reply.set_header(AppConstants.CURRENT_ROUND, shareable.get_header(AppConstants.CURRENT_ROUND))
        return reply


def client_of(terms: Mapping[str, Any], fl_ctx: FLContext, min_change: int | None) -> MeanClient:
    """Return the node of this client: with a site's file where its host's environment names one.

    Raises:
        SiteFileError: the file does not read.
    """
    is_named = SITE_VARIABLE in os.environ or SITES_VARIABLE in os.environ
    site = site_of_client(str(fl_ctx.get_identity_name())) if is_named else None
    return MeanClient(terms_of(terms), site=site, min_change=min_change)


def state_of(fl_ctx: FLContext) -> dict[str, Any]:
    """Return what this client's process keeps of the job's means."""
    state = fl_ctx.get_prop(_STATE)
    if state is None:
        state = {}
        fl_ctx.set_prop(_STATE, state, private=True, sticky=True)
    found: dict[str, Any] = state
    return found
