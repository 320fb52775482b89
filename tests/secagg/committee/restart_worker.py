"""One party of a committee sum in a process of its own, which kills itself on command. Driven by test_restart.py.

The frames, the killing store and the server's loop are those of the masked sum's worker.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np

from secagg import CommitteeSum, Layout
from secagg.durable import DurableClient
from secagg.errors import SecureSumError
from secagg.primitives.agreement import KeyPair

_spec = importlib.util.spec_from_file_location(
    "masked_restart_worker", Path(__file__).resolve().parents[1] / "masked" / "restart_worker.py"
)
assert _spec is not None
assert _spec.loader is not None
masked = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(masked)

CLIENTS = (1, 2, 3)
HELPERS = {11: KeyPair(b"a" * 32), 12: KeyPair(b"b" * 32)}
CONFIG = CommitteeSum(
    layout=Layout.of([("counts", 20, 10**6)]),
    clients=CLIENTS,
    session_id=b"restarted session",
    helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
    min_survivors=2,
)


def vector(party: int) -> np.ndarray:
    return np.arange(CONFIG.layout.size, dtype=np.int64) * party


def durable(party: int, store: masked.KillingStore) -> DurableClient:
    key = masked.KEY
    if party in HELPERS:
        return DurableClient(
            store,
            key,
            fresh=lambda: CONFIG.helper(party, HELPERS[party]),
            restore=lambda snapshot: CONFIG.restore_helper(party, HELPERS[party], snapshot, key),
            snapshot=lambda session: CONFIG.snapshot_helper(session, key),
        )
    return DurableClient(
        store,
        key,
        fresh=lambda: CONFIG.client(party, vector(party)),
        restore=lambda snapshot: CONFIG.restore_client(party, vector(party), snapshot, key),
        snapshot=lambda session: CONFIG.snapshot_client(session, key),
    )


def be_party(session: DurableClient) -> None:
    while True:
        message = masked.read_exactly(int.from_bytes(masked.read_exactly(4), "big"))
        try:
            masked.write(session.receive(message) if message else session.start())
        except SecureSumError as error:
            sys.stdout.buffer.write(masked.ERROR.to_bytes(4, "big"))
            masked.write(str(error).encode())


if __name__ == "__main__":
    role, store = sys.argv[1], masked.KillingStore(Path(sys.argv[2]))
    if role == "server":
        masked.CONFIG = CONFIG
        masked.be_server(store)
    else:
        be_party(durable(int(role), store))
