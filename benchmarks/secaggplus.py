"""Flower's own SecAgg+ over nodes of this process, as a peer of the secure mean: its workflow and mod, unchanged."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flwr.compat.common.recorddict_compat as compat
import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    secaggplus_mod,
)
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Status,
    bytes_to_ndarray,
    ndarray_to_bytes,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.constant import ErrorCode
from flwr.common.secure_aggregation.crypto.shamir import create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key
from flwr.common.secure_aggregation.ndarrays_arithmetic import parameters_addition, parameters_mod
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, RECORD_KEY_STATE, Key, Stage
from flwr.common.secure_aggregation.secaggplus_utils import (
    pseudo_rand_gen,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from flwr.server.compat.legacy_context import LegacyContext
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.server.workflow.constant import MAIN_CONFIGS_RECORD, MAIN_PARAMS_RECORD
from flwr.server.workflow.constant import Key as WorkflowKey
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, bytes_to_public_key
from numpy.typing import NDArray

from analytic_secagg.flower.rehearsal import InProcessGrid

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
    all_seconds: float = 0.0
    bytes_up: int = 0

    def answer(self, message: Message) -> Message:
        """Run Flower's mod around a training that has ended already."""
        node = message.metadata.dst_node_id
        stage = str(message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE])
        if self.is_gone(node, stage):
            return Message(Error(code=ErrorCode.NODE_UNAVAILABLE, reason="gone"), reply_to=message)
        arrived = copy.copy(message)
        arrived.content = copy.deepcopy(message.content)
        record = self._result(node, self.updates[node] if stage == Stage.COLLECT_MASKED_VECTORS else ())
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

    def _result(self, node: int, trained: Arrays) -> RecordDict:
        result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters(list(trained)), self.weights[node], {})
        return compat.fitres_to_recorddict(result, keep_input=True)


FIRST, SECOND = 1, 2
"""The node whose cost is measured; and the one that takes its pairwise masks off."""


@dataclass
class _OneOfMany(_Nodes):
    """Node 1 in full, and of the other nodes what it and the server need; all have one update and one weight.

    Each other node makes real keys, opens the share that node 1 gave it, and sends as much as Flower's would. They
    share one personal mask, its shares and one masked vector. Pairwise masks among them cancel and are left out; the
    second node's vector also has all those with node 1, so that the mean is right.
    """

    seed: bytes = field(default_factory=lambda: os.urandom(32))
    keys: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    shares: list[bytes] = field(default_factory=list)
    of_first: dict[int, bytes] = field(default_factory=dict)
    vector: list[bytes] = field(default_factory=list)

    def answer(self, message: Message) -> Message:
        node, configs = message.metadata.dst_node_id, message.content.config_records[RECORD_KEY_CONFIGS]
        stage = str(configs[Key.STAGE])
        if node == FIRST or stage == Stage.SETUP or self.is_gone(node, stage):
            return super().answer(message)
        state = SecAggPlusState(**self.states[node].config_records[RECORD_KEY_STATE])
        answers = {Stage.SHARE_KEYS: self._share, Stage.COLLECT_MASKED_VECTORS: self._mask, Stage.UNMASK: self._unmask}
        content = self._result(node, ())  # Flower's mod leaves no arrays in it either
        content[RECORD_KEY_CONFIGS] = ConfigRecord(answers[stage](node, state, dict(configs)), False)
        return Message(content, reply_to=message)

    def _share(self, node: int, state: Any, configs: Mapping[str, Any]) -> dict[str, Any]:
        """Encrypt a share of each secret for node 1; that of the private key is as random as a true one."""
        self.keys = {int(name): tuple(keys) for name, keys in configs.items() if name != Key.STAGE}
        self.shares = self.shares or create_shares(self.seed, state.threshold, state.share_num)
        share = self.shares[FIRST - 1]
        of_key = share[:4] + os.urandom(len(state.sk1) // 16 * 16 + 16)
        plaintext = share_keys_plaintext_concat(node, FIRST, share, of_key)
        others = [other for other in self.keys if other != node]
        ciphertext = encrypt(self._shared_key(state.sk2, 1), plaintext)
        return {Key.DESTINATION_LIST: others, Key.CIPHERTEXT_LIST: [ciphertext] * len(others)}

    def _mask(self, node: int, state: Any, configs: Mapping[str, Any]) -> dict[str, Any]:
        """Open what node 1 sent, and return the vector under the personal mask."""
        sent = dict(zip(configs[Key.SOURCE_LIST], configs[Key.CIPHERTEXT_LIST], strict=True))[FIRST]
        _, _, self.of_first[node], _ = share_keys_plaintext_separate(decrypt(self._shared_key(state.sk2, 1), sent))
        if not self.vector:
            state.rd_seed, state.threshold = self.seed, 0
            trained, nobody = ndarrays_to_parameters(list(self.updates[node])), ConfigRecord()
            nobody[Key.CIPHERTEXT_LIST], nobody[Key.SOURCE_LIST] = list[bytes](), list[int]()
            said: Any = _collect_masked_vectors(state, nobody, self.weights[node], trained)
            self.vector = said[Key.MASKED_PARAMETERS]
        return {Key.MASKED_PARAMETERS: self._with_pairs(state) if node == SECOND else self.vector}

    def _with_pairs(self, state: Any) -> list[bytes]:
        vector = [bytes_to_ndarray(part) for part in self.vector]
        for node in self.keys:
            if node != FIRST:
                own = SecAggPlusState(**self.states[node].config_records[RECORD_KEY_STATE])
                shapes = [part.shape for part in vector]
                mask = pseudo_rand_gen(self._shared_key(own.sk1, 0), state.mod_range, shapes)
                vector = parameters_mod(parameters_addition(vector, mask), state.mod_range)
        return [ndarray_to_bytes(part) for part in vector]

    def _unmask(self, node: int, state: Any, configs: Mapping[str, Any]) -> dict[str, Any]:
        active = configs[Key.ACTIVE_NODE_ID_LIST]
        shares = [self.of_first[node] if owner == FIRST else self.shares[node - 1] for owner in active]
        return {Key.NODE_ID_LIST: active, Key.SHARE_LIST: shares}

    def _shared_key(self, private: bytes, number: int) -> bytes:
        """Agree on a key with node 1, whose public keys are two."""
        return generate_shared_key(bytes_to_private_key(private), bytes_to_public_key(self.keys[FIRST][number]))


class _Grid(InProcessGrid):
    def __init__(self, nodes: _Nodes) -> None:
        super().__init__({node: {} for node in nodes.updates})
        self._nodes = nodes

    def _deliver(self, message: Message) -> Message:
        started = time.process_time()
        reply = self._nodes.answer(message)
        self._nodes.all_seconds += time.process_time() - started
        return reply


def flowers_round(
    updates: Mapping[int, Arrays],
    weights: Mapping[int, int],
    *,
    max_weight: float = 1000.0,
    threshold: float = 0.7,
    is_gone: Callable[[int, str], bool] = lambda node, stage: False,
    is_one_of_many: bool = False,
) -> SecAggPlusRound:
    """Run one round with Flower's defaults on the complete graph.

    Args:
        updates: each node's arrays.
        weights: each node's number of examples.
        max_weight: as Flower's workflow takes it.
        threshold: part of the shares that opens a secret.
        is_gone: whether a node is lost at a stage of Flower's.
        is_one_of_many: whether node 1 and the server alone do all their work; nodes are 1, 2, ... of one update.
    """
    nodes = (_OneOfMany if is_one_of_many else _Nodes)(updates, weights, is_gone)
    strategy = _Strategy(list(updates))
    context: Any = LegacyContext(Context(1, 1, {}, RecordDict(), {}), strategy=strategy)  # type: ignore[arg-type]
    context.state.config_records[MAIN_CONFIGS_RECORD] = ConfigRecord({WorkflowKey.CURRENT_ROUND: 1})
    start = ndarrays_to_parameters([np.zeros_like(array) for array in next(iter(updates.values()))])
    context.state.array_records[MAIN_PARAMS_RECORD] = compat.parameters_to_arrayrecord(start, True)
    started = time.process_time()
    SecAggPlusWorkflow(1.0, threshold, max_weight=max_weight)(_Grid(nodes), context)
    seconds = time.process_time() - started - nodes.all_seconds
    return SecAggPlusRound(
        mean=strategy.mean, client_seconds=nodes.seconds, server_seconds=seconds, bytes_up=nodes.bytes_up
    )
