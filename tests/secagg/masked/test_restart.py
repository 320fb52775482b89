"""A party is killed (SIGKILL) at every step, restarted from its store, and the sum comes out exact."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from secagg.errors import SnapshotError
from secagg.masked.client import MaskedClient
from secagg.masked.states import AUTHENTICATED_CLIENT

WORKER_PATH = Path(__file__).with_name("restart_worker.py")
_spec = importlib.util.spec_from_file_location("restart_worker", WORKER_PATH)
assert _spec is not None
assert _spec.loader is not None
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)

STEPS = len(AUTHENTICATED_CLIENT) + 1
VICTIM = 2
WHEN = pytest.mark.parametrize("when", ["before", "after"])


class KilledError(Exception):
    """The process is gone."""


class Process:
    """A worker that is started again when it dies."""

    def __init__(self, role: str, store: Path, kill: str) -> None:
        self.role, self.store, self.deaths = role, store, 0
        self._start(kill)

    def _start(self, kill: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER_PATH), self.role, str(self.store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "KILL": kill},
        )

    def ask(self, request: bytes) -> bytes | None:
        try:
            return self._ask(request)
        except KilledError:
            assert self._process.wait() == -9
            self.close()
            self.deaths += 1
            self._start("never:0")
            raise

    def _ask(self, request: bytes) -> bytes | None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise KilledError from error
        head = self._process.stdout.read(4)
        if len(head) < 4:
            raise KilledError
        size = int.from_bytes(head, "big")
        if size == worker.ERROR:
            size = int.from_bytes(self._process.stdout.read(4), "big")
            raise AssertionError(self._process.stdout.read(size).decode())
        return None if size == worker.NONE else self._process.stdout.read(size)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()


def sized(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


def local_client(party: int) -> MaskedClient:
    return worker.CONFIG.client(party, worker.vector(party), identity=worker.IDENTITIES[party])


@WHEN
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_killed_client_comes_back_and_is_in_the_sum(tmp_path: Path, when: str, step: int) -> None:
    victim = Process(str(VICTIM), tmp_path / "client", f"{when}:{step}")
    clients = {party: local_client(party) for party in worker.CLIENTS if party != VICTIM}
    server = worker.CONFIG.server()
    requests: dict[int, bytes] = dict.fromkeys(worker.CLIENTS, b"")
    while requests:
        for party, request in requests.items():
            if party == VICTIM:
                try:
                    answer = victim.ask(sized(request))
                except KilledError:
                    answer = victim.ask(sized(request))
                assert victim.ask(sized(request)) == answer, "a repeated request must get the same bytes"
            else:
                answer = clients[party].receive(request) if request else clients[party].start()
            server.receive(party, answer)
        requests = dict(server.close_round())
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.survivors == worker.CLIENTS
    assert server.result.total.tobytes() == sum(map(worker.vector, worker.CLIENTS)).tobytes()


class RemoteServer:
    """The server in a process that dies once; the driver asks again, as a network would."""

    def __init__(self, store: Path, kill: str) -> None:
        self.process = Process("server", store, kill)

    def receive(self, party: int, message: bytes) -> None:
        request = b"r" + party.to_bytes(4, "big") + sized(message)
        try:
            assert self.process.ask(request) == b"taken"
        except KilledError:
            assert self.process.ask(request) in (b"taken", b"RepeatedMessageError")

    def close_round(self, before: bytes) -> bytes:
        try:
            return self.process.ask(b"c") or b""
        except KilledError:
            stored = self.process.ask(b"q") or b""
            return stored if stored != before else self.process.ask(b"c") or b""


@WHEN
@pytest.mark.parametrize("save", range(1, 5 * STEPS + STEPS + 1, 4))
def test_a_killed_server_comes_back_with_every_message(tmp_path: Path, when: str, save: int) -> None:
    """Five receives and a close in each of five rounds: kills are spread over all of them."""
    server = RemoteServer(tmp_path / "server", f"{when}:{save}")
    clients = {party: local_client(party) for party in worker.CLIENTS}
    answers = {party: client.start() for party, client in clients.items()}
    requests = b"Q"
    while True:
        for party, answer in answers.items():
            server.receive(party, answer)
        requests = server.close_round(requests)
        if requests[:1] == b"R":
            break
        answers = {party: clients[party].receive(message) for party, message in parse(requests[1:]).items()}
    server.process.close()
    assert server.process.deaths == 1
    total = np.frombuffer(requests[1:], dtype=np.int64)
    assert total.tobytes() == sum(map(worker.vector, worker.CLIENTS)).tobytes()


def parse(data: bytes) -> dict[int, bytes]:
    messages = {}
    while data:
        party, size = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
        messages[party], data = data[8 : 8 + size], data[8 + size :]
    return messages


def test_a_snapshot_opens_for_its_owner_only() -> None:
    client = local_client(1)
    client.start()
    config, identity = worker.CONFIG, worker.IDENTITIES
    snapshot = config.snapshot_client(client, worker.KEY)
    assert client._own.masking.secret not in snapshot
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        config.restore_client(1, worker.vector(1), snapshot, b"x" * 32, identity=identity[1])
    with pytest.raises(SnapshotError, match="another party"):
        config.restore_client(2, worker.vector(2), snapshot, worker.KEY, identity=identity[2])
    changed = snapshot[:-1] + bytes([snapshot[-1] ^ 1])
    with pytest.raises(SnapshotError, match="changed bytes"):
        config.restore_client(1, worker.vector(1), changed, worker.KEY, identity=identity[1])
    with pytest.raises(SnapshotError, match="another party, session"):
        config.restore_server(snapshot)
