"""Flower's executor, kept warm: ``python -m federation.flower.superexec`` takes the flags of ``flower-superexec``."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from types import SimpleNamespace

from flwr.supercore.cli import flower_superexec
from flwr.supercore.superexec import run_superexec
from flwr.supercore.superexec.executor import subprocess_executor
from flwr.superlink.cli import flwr_serverapp
from flwr.supernode.cli import flwr_clientapp

import federation.flower.client
import federation.flower.server  # noqa: F401  both are read here, once
from federation.flower.warm import Nursery, Pace, replace

SETTLE_SECONDS = 0.2
"""Flower hands out a task before its message is there, and who asks too early waits a second, then two, then four."""


def start(
    nursery: Nursery, pace: Pace, words: Sequence[str], stdout: int | None = None, stderr: int | None = None
) -> None:
    """Run one of Flower's commands, in place of ``Popen``."""
    pace.wake()
    time.sleep(SETTLE_SECONDS)
    nursery.start(words, quiet=stdout == stderr == subprocess.DEVNULL)


def main() -> None:
    """Run Flower's executor with the flags of this command."""
    import_module("httpcore")  # httpx reads it when a process makes its first client
    nursery, pace = Nursery({"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}), Pace()
    run = partial(start, nursery, pace)
    replace(subprocess_executor, subprocess=SimpleNamespace(Popen=run, DEVNULL=subprocess.DEVNULL))
    replace(run_superexec, time=SimpleNamespace(sleep=pace.sleep))
    sys.argv[0] = "flower-superexec"
    flower_superexec()


if __name__ == "__main__":
    main()
