"""Flower's executor, kept warm: ``python -m analytic_secagg.flower.superexec`` has ``flower-superexec``'s flags."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from flwr.supercore.cli import flower_superexec
from flwr.supercore.constant import TASK_TYPE_TO_COMMAND
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult
from flwr.superlink.cli import flwr_serverapp
from flwr.supernode.cli import flwr_clientapp

import analytic_secagg.flower.client
import analytic_secagg.flower.server  # noqa: F401  both are read here, once
from analytic_secagg.flower import replaced
from analytic_secagg.flower.fork_server import Backoff, ForkServer, end_with_parent, log_as_json, serve

SETTLE_SECONDS = 0.05
"""Flower hands out a task a moment before its message is listed, and an app that finds none listed fails."""

COMMANDS = {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}
"""The only programs that are run for a message: Flower's others get their tokens on the command line."""

AGAIN = "import sys; from analytic_secagg.flower.superexec import serve_again; sys.exit(serve_again(int(sys.argv[1])))"


class ForkingExecutor(subprocess_executor.SubprocessExecutor):
    """Flower's executor of processes, whose processes are forks; it asks for tasks of ``COMMANDS`` alone."""

    def __init__(self, forks: ForkServer, backoff: Backoff) -> None:
        self._forks, self._backoff = forks, backoff
        self._task = 0
        replaced.in_launches(self._start)

    def get_eligible_capacity(self, supported_task_types: set[Any], **options: Any) -> tuple[set[Any], set[str]]:
        """Return which tasks can be asked for."""
        known = {one for one in supported_task_types if TASK_TYPE_TO_COMMAND[one] in COMMANDS}
        return known, set()

    def launch(self, spec: ExecutionSpec) -> LaunchResult:
        """Start the process of a task; it ends with the SuperNode or SuperLink, and outlives a killed executor."""
        command = TASK_TYPE_TO_COMMAND[spec.task_type]
        if command not in COMMANDS:
            return LaunchResult.failed(f"this executor runs {' and '.join(COMMANDS)}, not {command}; use Flower's own")
        self._task = spec.task_id
        return super().launch(dataclasses.replace(spec, parent_pid=os.getppid()))

    def _start(self, words: Sequence[str], stdout: int | None = None, stderr: int | None = None) -> None:
        """Run one of Flower's commands, in place of ``Popen``."""
        self._backoff.wake()
        time.sleep(SETTLE_SECONDS)
        self._forks.start(words, quiet=stdout == stderr == subprocess.DEVNULL, task=self._task)


def prepare() -> None:
    """Read what forks need, and let them wait for a message's content no longer than it takes."""
    log_as_json()
    for used_later in ("httpcore", "scipy.linalg", "scipy.sparse"):  # httpx and scipy read them when they are needed
        import_module(used_later)
    replaced.in_apps()


def serve_again(descriptor: int) -> int | None:
    """Serve orders in place of a fork server that has ended."""
    prepare()
    return serve(COMMANDS, Connection(descriptor))


def main() -> None:
    """Run Flower's executor with the flags of this command."""
    prepare()
    backoff = Backoff()
    executor = ForkingExecutor(ForkServer(COMMANDS, [sys.executable, "-c", AGAIN]), backoff)
    replaced.in_executor(executor, backoff.sleep)
    end_with_parent()
    sys.argv[0] = "flower-superexec"
    flower_superexec()


if __name__ == "__main__":
    main()
