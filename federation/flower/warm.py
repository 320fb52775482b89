"""What keeps Flower's processes warm and awake: forks of one that has read everything, and pauses that follow messages.

Flower starts an interpreter for every message, which reads Flower's libraries and this one anew: most of what a message
costs. A ``Nursery`` has read them, and has seen no message; it waits and forks for each. As before every message has a
process of its own that ends with it: nothing is left for the next, and what is random comes from the system, which a
fork does not repeat. An app's token goes through a pipe instead of a command line that every account of the host reads.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from types import ModuleType

from federation.site.errors import DeploymentError

SHORTEST_SECONDS = 0.1
GROWTH = 1.2
"""A pause is at most a tenth of a second and a fifth of the time since the last message."""

SECONDS_OF_THE_DEAD = 5.0
"""A process that has ended stays listed no longer."""


class Pace:
    """Pauses that are short after a message came, and grow to those that Flower asks for while none comes."""

    def __init__(self) -> None:
        self._seconds = SHORTEST_SECONDS

    def wake(self) -> None:
        """Note that a message came."""
        self._seconds = SHORTEST_SECONDS

    def sleep(self, seconds: float) -> None:
        """Wait, so long at most; below a second it is for an answer to a message that came."""
        if seconds < 1:
            self.wake()
        pause = min(seconds, self._seconds)
        self._seconds = pause * GROWTH
        time.sleep(pause)


class Nursery:
    """A process without threads or past, which forks; it ends with the one that made it.

    Args:
        commands: by name, what a fork becomes; another name is a program to execute.
    """

    def __init__(self, commands: Mapping[str, Callable[[], int | None]]) -> None:
        self._commands = commands
        orders, self._orders = multiprocessing.Pipe(duplex=False)
        if os.fork() == 0:
            self._orders.close()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            sys.exit(self._serve(orders))
        orders.close()

    def start(self, words: Sequence[str], *, quiet: bool) -> None:
        """Run a command in a process of its own; ``quiet`` throws away what it prints."""
        self._orders.send((list(words), quiet))

    def _serve(self, orders: Connection) -> int | None:
        gc.freeze()
        while True:
            while not orders.poll(SECONDS_OF_THE_DEAD):
                _forget_the_dead()
            try:
                words, quiet = orders.recv()
            except EOFError:
                return 0
            _forget_the_dead()
            if _fork() == 0:
                orders.close()
                return self._become(words, quiet)

    def _become(self, words: list[str], quiet: bool) -> int | None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        if words[0] not in self._commands:
            return subprocess.call(words)  # noqa: S603  Flower's own words
        sys.argv = words
        return self._commands[words[0]]()


def _forget_the_dead() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            """Forget a child that has ended."""


def _fork() -> int:
    """Fork as soon as the system has room for a further process."""
    while True:
        try:
            return os.fork()
        except OSError:
            time.sleep(1.0)


def replace(module: ModuleType, **names: object) -> None:
    """Let a module of Flower's find something else under names that it uses.

    Raises:
        DeploymentError: it uses no such name.
    """
    for name, new in names.items():
        if not hasattr(module, name):
            raise DeploymentError(
                f"{module.__name__} of this version of Flower uses no {name}; "
                "install flwr>=1.41,<1.43, or run Flower's own command"
            )
        setattr(module, name, new)
