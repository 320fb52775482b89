"""A party is killed (SIGKILL), restarted, and the sum comes out exact; test_snapshots.py kills at each save."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

WORKER_PATH = Path(__file__).with_name("restart_worker.py")
_spec = importlib.util.spec_from_file_location("committee_restart_worker", WORKER_PATH)
assert _spec is not None
assert _spec.loader is not None
worker = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(worker)

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
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        head = b""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(request)
            self._process.stdin.flush()
            head = self._process.stdout.read(4)
        if len(head) < 4:
            assert self._process.wait() == -9
            self.close()
            self.deaths += 1
            self._start("never:0")
            raise KilledError
        size = int.from_bytes(head, "big")
        if size == worker.masked.ERROR:
            raise AssertionError(
                self._process.stdout.read(int.from_bytes(self._process.stdout.read(4), "big")).decode()
            )
        return None if size == worker.masked.NONE else self._process.stdout.read(size)

    def ask_until_answered(self, request: bytes) -> bytes | None:
        try:
            return self.ask(request)
        except KilledError:
            return self.ask(request)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()


def sized(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


@WHEN
@pytest.mark.parametrize("role", [2, 11], ids=["client", "helper"])
def test_a_killed_client_or_helper_comes_back_and_says_the_same(tmp_path: Path, role: int, when: str) -> None:
    config, victim = worker.CONFIG, Process(str(role), tmp_path / "store", f"{when}:1")
    sessions = {party: config.client(party, worker.vector(party)) for party in worker.CLIENTS}
    helpers = {party: config.helper(party, pair) for party, pair in worker.HELPERS.items()}
    server = config.server()
    for party, session in sessions.items():
        if party == role:
            message = victim.ask_until_answered(sized(b""))
            assert victim.ask(sized(b"")) == message
        else:
            message = session.start()
        server.receive(party, message)
    for party, request in server.close_round().items():
        if party == role:
            answer = victim.ask_until_answered(sized(request))
            assert victim.ask(sized(request)) == answer, "a repeated request must get the same bytes"
        else:
            answer = helpers[party].receive(request)
        server.receive(party, answer)
    assert server.close_round() == {}
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.total.tobytes() == sum(map(worker.vector, worker.CLIENTS)).tobytes()


@WHEN
@pytest.mark.parametrize("save", [2, 4, 6, 7], ids=["vector", "requests", "masks", "total"])
def test_a_killed_server_comes_back_with_every_message(tmp_path: Path, save: int, when: str) -> None:
    config, process = worker.CONFIG, Process("server", tmp_path / "server", f"{when}:{save}")

    def receive(party: int, message: bytes) -> None:
        taken = process.ask_until_answered(b"r" + party.to_bytes(4, "big") + sized(message))
        assert taken in (b"taken", b"RepeatedMessageError")

    def close_round(before: bytes) -> bytes:
        try:
            return process.ask(b"c") or b""
        except KilledError:
            stored = process.ask(b"q") or b""
            return stored if stored != before else process.ask(b"c") or b""

    for party in worker.CLIENTS:
        receive(party, config.client(party, worker.vector(party)).start())
    requests = close_round(b"Q")
    left = requests[1:]
    while left:
        party, size = int.from_bytes(left[:4], "big"), int.from_bytes(left[4:8], "big")
        receive(party, config.helper(party, worker.HELPERS[party]).receive(left[8 : 8 + size]))
        left = left[8 + size :]
    total = close_round(requests)
    process.close()
    assert process.deaths == 1
    assert total[:1] == b"R"
    expected = sum(map(worker.vector, worker.CLIENTS))
    assert np.frombuffer(total[1:], dtype=np.int64).tobytes() == expected.tobytes()
