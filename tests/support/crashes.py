"""A sum between durable sessions in one process, any of which dies at a chosen save and comes back from its store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from secagg import ClientSession, ServerSession
from secagg.durable import DurableClient, DurableServer
from secagg.errors import RepeatedMessageError
from support.memory_store import MemoryStore

KEY = bytes(range(32))


class KilledError(Exception):
    """The process is gone."""


@dataclass
class Killer:
    """Counts the saves of all parties and kills at one of them, right before or right after it."""

    when: str = "never"
    number: int = 0
    saves: int = 0
    deaths: int = 0

    def kill(self, when: str) -> None:
        if self.when == when and self.saves == self.number:
            self.deaths += 1
            raise KilledError


class KillableStore(MemoryStore):
    """What survives a process that may be killed right before or right after it stores."""

    def __init__(self, killer: Killer) -> None:
        super().__init__()
        self.killer = killer

    def save(self, record: bytes) -> None:
        self.killer.saves += 1
        self.killer.kill("before")
        super().save(record)
        self.killer.kill("after")


class Process:
    """A client's or helper's durable session that is made again from its store when it dies, and asked again."""

    def __init__(self, killer: Killer, fresh: Callable[[], ClientSession]) -> None:
        self._store = KillableStore(killer)
        self._make = lambda: DurableClient(self._store, KEY, fresh())
        self.session = self._make()

    def restart(self) -> None:
        self.session = self._make()

    def start(self) -> bytes | None:
        return self._ask(lambda: self.session.start())

    def receive(self, message: bytes) -> bytes | None:
        return self._ask(lambda: self.session.receive(message))

    def _ask(self, ask: Callable[[], bytes | None]) -> bytes | None:
        try:
            return ask()
        except KilledError:
            self.restart()
            return ask()


class ServerProcess:
    """The server's."""

    def __init__(self, killer: Killer, fresh: Callable[[], ServerSession]) -> None:
        self._store = KillableStore(killer)
        self._make = lambda: DurableServer(self._store, fresh())
        self.session = self._make()

    def restart(self) -> None:
        self.session = self._make()

    def receive(self, sender: int, message: bytes) -> None:
        try:
            self.session.receive(sender, message)
        except KilledError:
            self.restart()
            try:
                self.session.receive(sender, message)
            except RepeatedMessageError:
                return

    def close_round(self) -> Mapping[int, bytes]:
        before = dict(self.session.requests)
        try:
            return self.session.close_round()
        except KilledError:
            self.restart()
            is_closed = self.session.result is not None or dict(self.session.requests) != before
            return self.session.requests if is_closed else self.session.close_round()


def run(parties: Mapping[int, Process], server: ServerProcess, *, restart_always: bool = False) -> Any:
    """The server's session once the sum stands. Every answer is asked for twice and must be the same bytes."""
    everybody: list[Any] = [*parties.values(), server]

    def crash_all() -> None:
        for process in everybody if restart_always else ():
            process.restart()

    for party, process in parties.items():
        crash_all()
        message = process.start()
        assert process.start() == message
        if message is not None:
            server.receive(party, message)
    while server.session.result is None:
        for party, request in server.close_round().items():
            crash_all()
            answer = parties[party].receive(request)
            crash_all()
            assert parties[party].receive(request) == answer
            assert (answer is None) == (server.session.result is not None)
            if answer is not None:
                server.receive(party, answer)
    crash_all()
    return server.session
