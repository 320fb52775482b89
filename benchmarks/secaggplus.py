"""Flower's own SecAgg+ over nodes of this process, as a peer of the secure mean: its workflow and mod, unchanged."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flwr.compat.common.recorddict_compat as compat
import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import secaggplus_mod
from flwr.common import Code, FitIns, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from numpy.typing import NDArray

from analytic_secagg.flower.rehearsal import NODE_GONE, InProcessGrid

Arrays = Sequence[NDArray[Any]]

APP_FAILED = 2
"""Flower's code for an app that raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecAggPlusRound:
    """One round of Flower's.

    Args:
        mean: of the nodes' arrays; None where Flower halted.
        client_seconds: CPU seconds of each node, all its messages together.
        server_seconds: CPU seconds of the rest.
        bytes_up: bytes of one masked vector.
    """

    mean: list[NDArray[Any]] | None
    client_seconds: Mapping[int, float]
    server_seconds: float
    bytes_up: int


@dataclass
class _Strategy:
    """What Flower's workflow asks of a strategy."""

    nodes: Iterable[int]
    mean: list[NDArray[Any]] | None = None

    def configure_fit(self, number: int, parameters: Any, manager: Any) -> list[Any]:
        """Ask every node."""
        return [(type("Proxy", (), {"node_id": node})(), FitIns(parameters, {})) for node in self.nodes]

    def aggregate_fit(self, number: int, results: Any, failures: Any) -> Any:
        """Take the mean, which each result holds."""
        self.mean = parameters_to_ndarrays(results[0][1].parameters)
        return results[0][1].parameters, {}


@dataclass
class _Nodes:
    """The nodes' side, and its cost."""

    updates: Mapping[int, Arrays]
    weights: Mapping[int, int]
    is_gone: Callable[[int, str], bool]
    states: dict[int, RecordDict] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    bytes_up: int = 0

    def answer(self, message: Message) -> Message:
        """Run Flower's mod around a training that has ended already."""
        node = message.metadata.dst_node_id
        stage = str(message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        if self.is_gone(node, stage):
            return Message(Error(code=NODE_GONE, reason="gone"), reply_to=message)
        arrived = copy.copy(message)
        arrived.content = copy.deepcopy(message.content)
        trained = ndarrays_to_parameters(list(self.updates[node]))
        result = FitRes(Status(Code.OK, ""), trained, self.weights[node], {})
        record = compat.fitres_to_recorddict(result, keep_input=True)
        context = Context(1, node, {}, self.states.setdefault(node, RecordDict()), {})
        started = time.process_time()
        try:
            reply = secaggplus_mod(arrived, context, lambda asked, _: Message(record, reply_to=asked))
        except Exception as error:  # what Flower's executor makes an error reply of, too
            return Message(Error(code=APP_FAILED, reason=str(error)), reply_to=message)
        self.seconds[node] = self.seconds.get(node, 0.0) + time.process_time() - started
        sent = reply.content.config_records[RECORD_KEY_CONFIGS].get(Key.MASKED_PARAMETERS)
        if isinstance(sent, list):
            self.bytes_up = sum(len(part) for part in sent if isinstance(part, bytes))
        return reply


class _Grid(InProcessGrid):
    def __init__(self, nodes: _Nodes) -> None:
        super().__init__({node: {} for node in nodes.updates})
        self._nodes = nodes

    def _deliver(self, message: Message) -> Message:
        return self._nodes.answer(message)


def flowers_round(
    updates: Mapping[int, Arrays],
    weights: Mapping[int, int],
    *,
    max_weight: float = 1000.0,
    threshold: float = 0.7,
    is_gone: Callable[[int, str], bool] = lambda node, stage: False,
) -> SecAggPlusRound:
    """Run one round with Flower's defaults on the complete graph.

    Args:
        updates: each node's arrays.
        weights: each node's number of examples.
        max_weight: as Flower's workflow takes it.
        threshold: part of the shares that opens a secret.
        is_gone: whether a node is lost at a stage of Flower's.
    """
    nodes, strategy = _Nodes(updates, weights, is_gone), _Strategy(list(updates))
    context: Any = LegacyContext(Context(1, 1, {}, RecordDict(), {}), strategy=strategy)  # type: ignore[arg-type]
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    start = ndarrays_to_parameters([np.zeros_like(array) for array in next(iter(updates.values()))])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)
    started = time.process_time()
    SecAggPlusWorkflow(1.0, threshold, max_weight=max_weight)(_Grid(nodes), context)
    seconds = time.process_time() - started - sum(nodes.seconds.values())
    return SecAggPlusRound(
        mean=strategy.mean, client_seconds=nodes.seconds, server_seconds=seconds, bytes_up=nodes.bytes_up
    )
