"""The other end of ``killable_party.py``: starts it, asks it, and starts it again when it was killed (SIGKILL)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from killable_party import ERROR, NONE


class KilledError(Exception):
    """The process is gone."""


def sized(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


class KilledProcess:
    """A party that is started again when it dies.

    Args:
        role: its mode and its number, or ``server``: ``masked/2``.
        store: where it keeps its session.
        kill: ``before`` or ``after``, a colon, and the number of the save at which it dies.
    """

    def __init__(self, role: str, store: Path, kill: str) -> None:
        self.role, self.store, self.deaths = role, store, 0
        self._start(kill)

    def _start(self, kill: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("party.py")), self.role, str(self.store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "KILL": kill},
        )

    def ask(self, request: bytes) -> bytes | None:
        """The answer; ``KilledError`` if it died instead, and then it runs again."""
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
        if size == ERROR:
            size = int.from_bytes(self._process.stdout.read(4), "big")
            raise AssertionError(self._process.stdout.read(size).decode())
        return None if size == NONE else self._process.stdout.read(size)

    def ask_until_answered(self, request: bytes) -> bytes | None:
        """The answer, asked for again if it died."""
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


class KilledServer:
    """The server in such a process; the driver asks again, as a network would."""

    def __init__(self, mode: str, store: Path, kill: str) -> None:
        self.process = KilledProcess(f"{mode}/server", store, kill)
        self._requests = b"Q"

    def receive(self, party: int, message: bytes) -> None:
        """Bring a message; a server that died may have taken it before."""
        deaths = self.process.deaths
        taken = self.process.ask_until_answered(b"r" + party.to_bytes(4, "big") + sized(message))
        assert taken == b"taken" or (taken == b"RepeatedMessageError" and self.process.deaths > deaths)

    def close_round(self) -> dict[int, bytes]:
        """The requests by party; none once the total stands."""
        try:
            closed = self.process.ask(b"c") or b""
        except KilledError:
            stored = self.process.ask(b"q") or b""
            closed = stored if stored != self._requests else self.process.ask(b"c") or b""
        self._requests = closed
        messages, left = {}, b"" if closed[:1] == b"R" else closed[1:]
        while left:
            party, size = int.from_bytes(left[:4], "big"), int.from_bytes(left[4:8], "big")
            messages[party], left = left[8 : 8 + size], left[8 + size :]
        return messages

    @property
    def total(self) -> bytes:
        """The bytes of the total that the last round closed with."""
        assert self._requests[:1] == b"R"
        return self._requests[1:]
