"""A run in one process: the real apps, the real files of a folder of sites, no network and no Ray.

The sites' ClientApp is called as Flower's executor calls it, one message at a time with nothing kept in between, so a
rehearsal shows what a deployment will do; what it does not show is TLS, node keys and hosts that differ.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid

from analytic_secagg.flower.client import app
from analytic_secagg.flower.server import LOG
from analytic_secagg.flower.wire import GridTransport
from analytic_secagg.server.exchange import NodeId
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import train
from analytic_secagg.site.errors import DeploymentError


class RehearsalClock:
    """Seconds that pass as ever, and at once while somebody sleeps: nobody else works meanwhile."""

    def __init__(self) -> None:
        self._slept = 0.0

    def __call__(self) -> float:
        """The time in seconds, which only goes forward."""
        return time.monotonic() + self._slept

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._slept += seconds


class InProcessGrid(Grid):
    """Nodes that are function calls.

    Args:
        node_configs: each node's own configuration.
    """

    def __init__(self, node_configs: Mapping[NodeId, Mapping[str, str]]) -> None:
        self._configs = node_configs
        self._sent: dict[str, Message] = {}
        self._number = 0
        _pretend_to_be_a_task()

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run."""

    @property
    def run(self) -> Any:
        """Not known here."""
        raise NotImplementedError("a rehearsal has no run of Flower's")

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Deprecated in Flower, and not used."""
        raise NotImplementedError("make a Message instead")

    def get_node_ids(self) -> Iterable[NodeId]:
        """Every node."""
        return list(self._configs)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Keep them; a node works when its answer is pulled."""
        identifiers = []
        for message in messages:
            self._number += 1
            identifier = f"message-{self._number}"
            message.metadata.__dict__["_message_id"] = identifier
            self._sent[identifier] = message
            identifiers.append(identifier)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers of the nodes that these messages went to."""
        return [self._deliver(self._sent.pop(identifier)) for identifier in message_ids if identifier in self._sent]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message:
        node, arrived = message.metadata.dst_node_id, copy.copy(message)
        arrived.content = copy.deepcopy(message.content)
        config: dict[str, Any] = {**self._configs[node]}
        return app(arrived, Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={}))


def rehearse(folder: Path, run_config: Mapping[str, Any]) -> Any:
    """The model of a run over the sites of ``folder`` (``analytic-secagg flower trial`` makes one).

    Raises:
        DeploymentError: the folder holds no sites.
        SecureSumError, AnalyticError: as in a deployment.
    """
    files = sorted(folder.glob("site-*/site.toml"))
    if not files:
        raise DeploymentError(f"{folder} holds no site-1/site.toml; make a folder with the command trial")
    server = ServerFile.read(folder / "server" / "server.toml")
    grid = InProcessGrid({node: {"site": str(file)} for node, file in enumerate(files, start=1001)})
    clock, output = RehearsalClock(), server.output / "rehearsal"
    return train(run_config, server, GridTransport(grid), output, log=LOG, clock=clock, sleep=clock.sleep)


def _pretend_to_be_a_task() -> None:
    """Flower makes messages only inside a task of a run; this is its private way to be in one."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError as error:
        raise DeploymentError("this version of Flower has no rehearsals; install flwr>=1.41,<1.43") from error
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
