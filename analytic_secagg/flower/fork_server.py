"""Fork server and back-off for Flower's processes: forks of one that has read everything, pauses that follow messages.

Flower starts an interpreter for every message, which reads Flower's libraries and this one anew: most of what a message
costs. A ``ForkServer`` has read them, and has seen no message; it waits and forks for each. As before every message has
a process of its own that ends with it: nothing is left for the next, and what is random comes from the system, which a
fork does not repeat. An app's token goes through a pipe instead of a command line that every account of the host reads.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from analytic_secagg.site.json_log import JsonLines

LOG = logging.getLogger("analytic_secagg.flower")

SHORTEST_SECONDS = 0.1
GROWTH = 1.1
"""A pause is at most a tenth of a second and a tenth of the time since the last message."""

SECONDS_OF_THE_DEAD = 5.0
"""A process that has ended stays listed, and unmentioned, no longer."""

PARENT_VARIABLE = "ANALYTIC_SECAGG_EXECUTOR_OF"
"""The environment variable that says to an executor which process started it."""

RESTART_SECONDS = 2.0
"""Between the end of an executor and the start of the next; whoever ends both ends them within it."""


class Backoff:
    """Pauses that are short after a message came, and grow to those that Flower asks for while none comes.

    Args:
        answer_seconds: Flower asks for pauses up to this only while it waits for the answer to a message that came.
    """

    def __init__(self, *, answer_seconds: float = 0.0) -> None:
        self._answer_seconds, self._seconds = answer_seconds, SHORTEST_SECONDS

    def wake(self) -> None:
        """Note that a message came."""
        self._seconds = SHORTEST_SECONDS

    def sleep(self, seconds: float) -> None:
        """Wait, so long at most."""
        if seconds <= self._answer_seconds:
            self.wake()
        pause = min(seconds, self._seconds)
        self._seconds = pause * GROWTH
        time.sleep(pause)


class ForkServer:
    """A process without threads or past, which forks; it exits with its parent.

    Args:
        commands: by name, what a fork becomes.
        again: the words of a program that serves orders (``serve``) in place of a fork server that has ended; the
            number of the file that they come from is added.
    """

    def __init__(self, commands: Mapping[str, Callable[[], int | None]], again: Sequence[str]) -> None:
        self._again = again
        orders, self._orders = multiprocessing.Pipe()
        self._first = os.fork()
        if self._first == 0:
            self._orders.close()
            sys.exit(serve(commands, orders))
        orders.close()

    def start(self, words: Sequence[str], *, quiet: bool, task: int) -> None:
        """Run a command in a process of its own; ``quiet`` throws away what it prints, ``task`` is for the log."""
        while not self._is_begun((list(words), quiet, task)):
            LOG.warning("the process that forks for messages has ended; another is started in its place")
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self._first, os.WNOHANG)
            orders, self._orders = multiprocessing.Pipe()
            subprocess.Popen([*self._again, str(orders.fileno())], pass_fds=[orders.fileno()])  # noqa: S603  our own
            orders.close()

    def _is_begun(self, order: tuple[list[str], bool, int]) -> bool:
        """Return whether the fork server forked for an order; one that ends before it says so has maybe not."""
        try:
            self._orders.send(order)
            return bool(self._orders.recv())
        except (EOFError, OSError):
            return False


def serve(commands: Mapping[str, Callable[[], int | None]], orders: Connection) -> int | None:
    """Fork for each order, say so to who gave it, and log which forks ended badly, until nobody can give any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    tasks: dict[int, tuple[str, int]] = {}
    while True:
        while not orders.poll(SECONDS_OF_THE_DEAD):
            _bury(tasks)
        try:
            words, quiet, task = orders.recv()
        except EOFError:
            return 0
        _bury(tasks)
        if (process := _fork()) == 0:
            orders.close()
            return _become(commands, words, quiet)
        tasks[process] = words[0], task
        orders.send(True)


def _become(commands: Mapping[str, Callable[[], int | None]], words: list[str], quiet: bool) -> int | None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if quiet:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
    sys.argv = words
    return commands[words[0]]()


def _bury(tasks: dict[int, tuple[str, int]]) -> None:
    """Forget the forks that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            command, task = tasks.pop(ended[0])
            if code := os.waitstatus_to_exitcode(ended[1]):
                LOG.error("%s of task %d, process %d, ended with exit code %d", command, task, ended[0], code)


def _fork() -> int:
    """Fork as soon as the system has room for a further process."""
    while True:
        try:
            return os.fork()
        except OSError:
            time.sleep(1.0)


def start_executor(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start the warm executor in place of Flower's, and again whenever it ends.

    Args:
        words: Flower's own command.
        options: of ``subprocess.Popen``.
    """
    assert words[0] == "flower-superexec", f"nothing starts {words[0]}"
    environment = (options.pop("env", None) or os.environ) | {PARENT_VARIABLE: str(os.getpid())}
    command = [sys.executable, "-m", "analytic_secagg.flower.superexec", *words[1:]]
    return start_again(command, env=environment, **options)


def end_with_parent() -> None:
    """End this process once the one that started it as its executor has died: there is nobody to work for."""
    parent = int(os.environ.get(PARENT_VARIABLE, "0"))

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    if parent:
        threading.Thread(target=watch, daemon=True).start()


def start_again(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program, and again whenever it ends while this process lives."""
    first = subprocess.Popen(command, **options)  # noqa: S603  the words are ours and Flower's own

    def watch() -> None:
        process = first
        while True:
            code = process.wait()
            time.sleep(RESTART_SECONDS)
            LOG.error("the executor, process %d, ended with exit code %d; it is started again", process.pid, code)
            try:
                process = subprocess.Popen(command, **options)  # noqa: S603  as above
            except OSError:  # the system has no room for it now; the next turn finds the same one ended
                LOG.exception("the executor was not started")

    threading.Thread(target=watch, daemon=True).start()
    return first


def log_as_json() -> None:
    """Write what this package logs of its processes to the standard error, a line of JSON each."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    LOG.addHandler(handler)
    LOG.propagate = False
