"""One party of a masked sum in a process of its own, which kills itself on command. Driven by test_restart.py.

Frames on standard input and output: 4 bytes length, then pickle-free bytes. An answer of length 0xffffffff is an error.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.durable import DurableClient, DurableServer, FileStore
from secagg.errors import SecureSumError
from secagg.primitives.identity import IdentityKey

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("counts", 20, 10**6)])
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
CONFIG = MaskedSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=b"restarted session",
    threshold=4,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
)
KEY = b"k" * 32
NONE, ERROR = 0xFFFFFFFE, 0xFFFFFFFF


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) * party


def read_exactly(n_bytes: int) -> bytes:
    data = sys.stdin.buffer.read(n_bytes)
    if len(data) < n_bytes:
        sys.exit(0)
    return data


def write(answer: bytes | None) -> None:
    size = NONE if answer is None else len(answer)
    sys.stdout.buffer.write(size.to_bytes(4, "big") + (answer or b""))
    sys.stdout.buffer.flush()


class KillingStore(FileStore):
    """Dies right before or right after the save of a given number."""

    saves = 0

    def save(self, record: bytes) -> None:
        when, number = os.environ.get("KILL", "never:0").split(":")
        KillingStore.saves += 1
        if when == "before" and KillingStore.saves == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        super().save(record)
        if when == "after" and KillingStore.saves == int(number):
            os.kill(os.getpid(), signal.SIGKILL)


def be_client(party: int, store: FileStore) -> None:
    entropy = InsecureSeededEntropy(int.from_bytes(os.urandom(8), "big"))  # another stream after every restart
    identity = IDENTITIES[party]
    client = DurableClient(
        store,
        KEY,
        fresh=lambda: CONFIG.client(party, vector(party), entropy=entropy, identity=identity),
        restore=lambda s: CONFIG.restore_client(party, vector(party), s, KEY, entropy=entropy, identity=identity),
        snapshot=lambda session: CONFIG.snapshot_client(session, KEY),
    )
    while True:
        message = read_exactly(int.from_bytes(read_exactly(4), "big"))
        try:
            write(client.start() if not message else client.receive(message))
        except SecureSumError as error:
            sys.stdout.buffer.write(ERROR.to_bytes(4, "big"))
            write(str(error).encode())


def be_server(store: FileStore) -> None:
    server = DurableServer(store, fresh=CONFIG.server, restore=CONFIG.restore_server, snapshot=CONFIG.snapshot_server)
    while True:
        command = read_exactly(1)
        if command == b"r":
            party = int.from_bytes(read_exactly(4), "big")
            message = read_exactly(int.from_bytes(read_exactly(4), "big"))
            try:
                server.receive(party, message)
                write(b"taken")
            except SecureSumError as error:
                write(type(error).__name__.encode())
        elif command == b"q":  # what did the last closed round send? For a driver that lost the answer.
            write_requests(server)
        else:
            server.close_round()
            write_requests(server)


def write_requests(server: DurableServer) -> None:
    if server.result is not None:
        write(b"R" + server.result.total.tobytes())
        return
    parts = [
        party.to_bytes(4, "big") + len(message).to_bytes(4, "big") + message
        for party, message in server.requests.items()
    ]
    write(b"Q" + b"".join(parts))


if __name__ == "__main__":
    role, path = sys.argv[1], Path(sys.argv[2])
    if role == "server":
        be_server(KillingStore(path))
    else:
        be_client(int(role), KillingStore(path))
