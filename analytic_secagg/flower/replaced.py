"""Every symbol of Flower that this package replaces, and with what; flwr>=1.41,<1.43 uses them all.

Flower starts an interpreter for each message and looks for messages every three seconds. Without these a masked run of
five sites takes over twice as long as its users wait (docs/explanation/performance.md). Nothing else here depends on
Flower's insides: who runs Flower's own commands gets the same sums, later.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from analytic_secagg.site.errors import DeploymentError

AGAIN_SECONDS = 0.05
"""A message is listed before its content is there, and who asks too early asks again: after this, then twice this."""

NOT_ACTIVATED = 2004
"""Flower's code of a key that it does not know, or of which it counts another process as there."""

ACTIVATE_SECONDS = 5.0

Sleep = Callable[[float], None]


def in_superlink(start_executor: Callable[..., Any]) -> None:
    """Let a SuperLink start this executor in place of Flower's."""
    popen = SimpleNamespace(Popen=start_executor, TimeoutExpired=subprocess.TimeoutExpired)
    replace("flwr.superlink.cli.flower_superlink", subprocess=popen)


def in_supernode(start_executor: Callable[..., Any], sleep: Sleep) -> None:
    """Let a SuperNode start this executor in place of Flower's, and pause like this between looks for a message."""
    popen = SimpleNamespace(Popen=start_executor)
    replace("flwr.supernode.start_client_internal", time=SimpleNamespace(sleep=sleep), subprocess=popen)


def in_activation(seconds: float, log: logging.Logger) -> None:
    """Let a SuperNode ask again for so long where the SuperLink does not take its key, and say why.

    A SuperNode that died counts as there until the SuperLink misses its heartbeats, for up to a minute, and until then
    the one that is started in its place is refused. Versions of Flower with another client do as they did.
    """
    try:
        client = import_module("flwr.supernode.fleet_http_client").FleetHttpClient
        activate, refused = client.ActivateNode, import_module("httpx").HTTPStatusError
    except (ModuleNotFoundError, AttributeError):
        return

    def ask_again(of: Any, request: Any) -> Any:
        ends = time.monotonic() + seconds
        while True:
            try:
                return activate(of, request)
            except refused as error:
                if str(NOT_ACTIVATED) not in error.response.text or time.monotonic() > ends:
                    raise
            log.warning(
                "the SuperLink does not take this node's key: it still counts the process before, for up to a minute, "
                "or the operator did not register the key; asking again every %g seconds",
                ACTIVATE_SECONDS,
            )
            time.sleep(ACTIVATE_SECONDS)

    client.ActivateNode = ask_again


def in_executor(executor: object, sleep: Sleep) -> None:
    """Let Flower's executor command run this executor, and pause like this between looks for a task."""
    replace(
        "flwr.supercore.superexec.run_superexec",
        time=SimpleNamespace(sleep=sleep),
        get_executor=lambda *_, **__: executor,
    )


def in_launches(start: Callable[..., None]) -> None:
    """Let Flower's executor of processes begin each of them by ``start``, in place of ``Popen``."""
    popen = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
    replace("flwr.supercore.superexec.executor.subprocess_executor", subprocess=popen)


def in_apps() -> None:
    """Let apps wait for a message's content no longer than it takes."""
    inflatable = import_module("flwr.supercore.inflatable.inflatable_utils")
    inflate = partial(inflatable.pull_and_inflate_object_from_tree, initial_backoff=AGAIN_SECONDS)
    replace("flwr.supernode.runtime.run_clientapp", pull_and_inflate_object_from_tree=inflate)
    replace(
        "flwr.superlink.grid.http_grid", pull_objects=partial(inflatable.pull_objects, initial_backoff=AGAIN_SECONDS)
    )


def replace(module: str, **names: object) -> None:
    """Let a module of Flower's find something else under names that it uses.

    Raises:
        DeploymentError: it uses no such name.
    """
    found = import_module(module)
    for name, new in names.items():
        if not hasattr(found, name):
            raise DeploymentError(
                f"{module} of this version of Flower uses no {name}; "
                "install flwr>=1.41,<1.43, or run Flower's own command"
            )
        setattr(found, name, new)
