"""A party is killed (SIGKILL), restarted from its store, and the sum is exact.

The contract of restarts kills every party, the server among them, at each save, without a process.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parent / "crashes"))

import party
from party import ERROR, NONE, SUMS, vector


class KilledError(Exception):
    """The process is gone."""


class Victim:
    """A session in a process that is killed at one of its saves, and started again; each answer is asked for twice.

    Args:
        role: its mode and its number: ``masked/2``.
        store: where it keeps its session.
        kill: ``before`` or ``after``, a colon, and the number of the save at which it dies.
    """

    def __init__(self, role: str, store: Path, kill: str) -> None:
        self.role, self.store, self.deaths = role, store, 0
        self._start(kill)

    def _start(self, kill: str) -> None:
        self._process: Any = subprocess.Popen(
            [sys.executable, party.__file__, self.role, str(self.store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "KILL": kill},
        )

    def start(self) -> bytes | None:
        return self.receive(b"")

    def receive(self, request: bytes) -> bytes | None:
        try:
            answer = self._ask(request)
        except KilledError:
            answer = self._ask(request)
        assert self._ask(request) == answer, "a repeated request must get the same bytes"
        return answer

    def _ask(self, request: bytes) -> bytes | None:
        """The answer; ``KilledError`` if it died instead, and then it runs again."""
        head = b""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(len(request).to_bytes(4, "big") + request)
            self._process.stdin.flush()
            head = self._process.stdout.read(4)
        if len(head) < 4:
            assert self._process.wait() == -9
            self.close()
            self.deaths += 1
            self._start("never:0")
            raise KilledError
        size = int.from_bytes(head, "big")
        if size == ERROR:
            size = int.from_bytes(self._process.stdout.read(4), "big")
            raise AssertionError(self._process.stdout.read(size).decode())
        return None if size == NONE else self._process.stdout.read(size)

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()


QUICK = [("masked", 2, 2), ("masked", 2, 4), ("committee", 2, 1), ("committee", 11, 1)]
LONG = [pytest.param("masked", 2, save, marks=pytest.mark.slow) for save in (1, 3, 5)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("mode", "number", "save"), [*QUICK, *LONG])
def test_a_killed_client_or_helper_comes_back_and_says_the_same(
    tmp_path: Path, when: str, mode: str, number: int, save: int
) -> None:
    parties, victim = SUMS[mode], Victim(f"{mode}/{number}", tmp_path / "party", f"{when}:{save}")
    sessions: dict[int, Any] = {one: parties.client(one, vector(one)) for one in parties.clients}
    sessions |= {one: parties.helper(one) for one in parties.helpers} | {number: victim}
    server, answers = parties.server(), {one: sessions[one].start() for one in parties.clients}
    while answers:
        for one, answer in answers.items():
            server.receive(one, answer)
        answers = {one: sessions[one].receive(request) for one, request in server.close_round().items()}
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.survivors == parties.clients
    assert server.result.total.tobytes() == sum(map(vector, parties.clients)).tobytes()
