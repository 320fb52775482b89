"""One party of a sum in a process of its own, which kills itself on command; ``killed_process.py`` is the other end.

Frames on standard input and output: 4 bytes length, then pickle-free bytes. An answer of length NONE is none, one of
length ERROR precedes a frame with the error's text.
"""

from __future__ import annotations

import os
import signal
import sys

from secagg import InOneProcess
from secagg.durable import DurableClient, DurableServer, FileStore
from secagg.errors import SecureSumError

KEY = b"k" * 32
NONE, ERROR = 0xFFFFFFFE, 0xFFFFFFFF


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


def be_party(session: DurableClient) -> None:
    """A client or helper: an empty request starts it."""
    while True:
        message = read_exactly(int.from_bytes(read_exactly(4), "big"))
        try:
            write(session.receive(message) if message else session.start())
        except SecureSumError as error:
            sys.stdout.buffer.write(ERROR.to_bytes(4, "big"))
            write(str(error).encode())


def be_server(parties: InOneProcess, store: FileStore) -> None:
    """The server: ``r`` brings a message, ``c`` closes the round, ``q`` asks what the last closed round sent."""
    server = DurableServer(store, parties.server())
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
        else:
            if command == b"c":
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
