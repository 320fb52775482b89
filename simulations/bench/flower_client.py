"""Flower's SecAgg+ client, driven through its own client mod as its workflow drives it.

Functions import what they need of Flower, which is an extra.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from simulations.bench.measure import Timed

MEASURED = 1
"""The node whose work is measured; its neighbours are 2, 3, ..."""

SHARE_BYTES = 80
"""About what one of Flower's shares of a 32-byte secret takes; a holder only stores it."""


def flower_client(n_entries: int, n_neighbours: int) -> Timed:
    """CPU seconds of one client in one sum, nobody dropping out, with Flower's default quantisation."""
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, generate_key_pairs, public_key_to_bytes
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower's runtime does
    vector = np.linspace(-1.0, 1.0, n_entries)
    pairs = {node: generate_key_pairs() for node in range(MEASURED + 1, MEASURED + 1 + n_neighbours)}
    keys = {
        str(node): [public_key_to_bytes(generate_key_pairs()[1]), public_key_to_bytes(public)]
        for node, (_, public) in pairs.items()
    }

    def run_once() -> float:
        client = _Client(vector)
        setup = client.ask(_setup(n_neighbours + 1))
        own = {str(MEASURED): [setup[Key.PUBLIC_KEY_1], setup[Key.PUBLIC_KEY_2]]}
        client.ask({Key.STAGE: Stage.SHARE_KEYS, **own, **keys})
        boxes = [
            _sealed_shares(node, private, bytes_to_public_key(setup[Key.PUBLIC_KEY_2]))
            for node, (private, _) in pairs.items()
        ]
        client.ask({Key.STAGE: Stage.COLLECT_MASKED_VECTORS, Key.CIPHERTEXT_LIST: boxes, Key.SOURCE_LIST: list(pairs)})
        everybody = [MEASURED, *pairs]
        client.ask({Key.STAGE: Stage.UNMASK, Key.ACTIVE_NODE_ID_LIST: everybody, Key.DEAD_NODE_ID_LIST: []})
        return client.seconds

    return run_once


class _Client:
    """A node with the mod in front of an app that hands over its vector."""

    def __init__(self, vector: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        from flwr.app import Context, RecordDict
        from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

        self._context = Context(run_id=1, node_id=MEASURED, node_config={}, state=RecordDict(), run_config={})
        self._trained = FitRes(
            status=Status(code=Code.OK, message=""),
            parameters=ndarrays_to_parameters([vector]),
            num_examples=1,
            metrics={},
        )
        self.seconds = 0.0

    def ask(self, configs: dict[str, Any]) -> Any:
        """The mod's answer; its CPU seconds go to ``seconds``."""
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.client.mod import secaggplus_mod
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
        from flwr.compat.common import recorddict_compat

        content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(configs)})
        message = Message(content, dst_node_id=MEASURED, message_type="train")
        trained = recorddict_compat.fitres_to_recorddict(self._trained, keep_input=True)
        reply = Message(trained, reply_to=message)
        started = time.process_time()
        answer = secaggplus_mod(message, self._context, lambda *_: reply)
        self.seconds += time.process_time() - started
        return answer.content.config_records[RECORD_KEY_CONFIGS]


def _setup(holders: int) -> dict[str, Any]:
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage

    return {
        Key.STAGE: Stage.SETUP,
        Key.SAMPLE_NUMBER: holders,
        Key.SHARE_NUMBER: holders,
        Key.THRESHOLD: 2 * holders // 3 + 1,
        Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: 1 << 22,
        Key.MOD_RANGE: 1 << 32,
        Key.MAX_WEIGHT: 1000.0,
    }


def _sealed_shares(node: int, private: Any, recipient: Any) -> bytes:
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

    plaintext = share_keys_plaintext_concat(node, MEASURED, bytes(SHARE_BYTES), bytes(SHARE_BYTES))
    return bytes(encrypt(generate_shared_key(private, recipient), plaintext))
