"""Engines in one process: each brings a run's messages to the sites of a trial by its own code, and may lose sites.

An engine's clock stands still while a site works and jumps while nobody does, so that no run depends on how busy the
machine is. ``threads`` is also an example of the least that an engine is: see docs/how-to/embed.md.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analytic_secagg.server.exchange import NoReply, Transport
from analytic_secagg.server.server_file import SERVER_VARIABLE, ServerFile
from analytic_secagg.server.training import train
from analytic_secagg.site.errors import Refusal
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import opened, signed
from analytic_secagg.site.site_file import SITES_VARIABLE, SiteFile
from analytic_secagg.trial import Trial

HANG_SECONDS = 600.0
"""After so long a test is stuck, however slow the machine is."""

RUN = "run-1"
"""The folder of every run beside the server's models."""

Fate = Callable[[int, str, int], str]
"""(site, kind, how many messages of the kind came) -> how the site's process ends.

``before`` or ``after`` its work it is killed, and started again at once; ``gone``: it does not answer ever after.
"""


Said = bytes | Refusal
"""A site's answer."""


class KilledError(ConnectionError):
    """A site's process was killed and is started again."""


class GoneError(Exception):
    """A site's process is gone for good."""


class Sites:
    """The sites of a trial, as an engine's own code finds them: in the place of ``message_handler.handle_message``.

    Args:
        trial: whose.
        fate: how their processes end.
        tell: changes what sites receive.
        deliveries: how often each message is delivered; all answers must be the same.
    """

    def __init__(
        self,
        trial: Trial,
        *,
        fate: Fate = lambda site, kind, number: "",
        tell: Callable[[int, str, bytes], bytes] = lambda site, kind, content: content,
        deliveries: int = 1,
    ) -> None:
        self.files = {party: trial.site(party) / "site.toml" for party in trial.rows}
        self._server = ServerFile.read(trial.folder / "server" / "server.toml").identity
        self.gone: set[int] = set()
        self.said: list[tuple[int, str, Said]] = []
        self._fate, self._tell, self._deliveries = fate, tell, deliveries
        self._came: Counter[tuple[int, str]] = Counter()

    def handle_message(
        self, read_file: Callable[[], SiteFile], kind: str, read_content: Callable[[], bytes]
    ) -> bytes | Refusal:
        site = int(read_file().state.parent.name.removeprefix("site-"))
        self._came[site, kind] += 1
        fate = "gone" if site in self.gone else self._fate(site, kind, self._came[site, kind])
        if fate == "gone":
            self.gone.add(site)
            raise GoneError
        if fate == "before":
            raise KilledError
        content = self._tell(site, kind, opened(self._server.public, kind, read_content()))
        content = signed(self._server, kind, content)
        answers = {handle_message(read_file, kind, partial(bytes, content)) for _ in range(self._deliveries)}
        (said,) = answers
        self.said.append((site, kind, said))
        if fate == "after":
            raise KilledError
        return said


class Clock:
    """Seconds that pass only while the server sleeps and no site has anything to do."""

    def __init__(self, is_idle: Callable[[], bool]) -> None:
        self._is_idle, self._seconds = is_idle, 0.0

    def __call__(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        wait_until(self._is_idle)
        self._seconds += seconds


def wait_until(ready: Callable[[], object]) -> None:
    ends = time.monotonic() + HANG_SECONDS
    while not ready():
        assert time.monotonic() < ends, "this test hangs"
        time.sleep(0.002)


Engine = Callable[[Trial, Mapping[str, Any], Sites, pytest.MonkeyPatch], None]
"""Carries one run of a trial with these settings."""


def _train(trial: Trial, settings: Mapping[str, Any], transport: Transport, clock: Clock) -> None:
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    train(settings, server, transport, server.output / RUN, clock=clock, sleep=clock.sleep)


# --- threads ------------------------------------------------------------------------------------------------


class ThreadTransport(Transport):
    """Each node is a thread with a queue, and knows nothing but the place of its site's file."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._letters: dict[int, queue.Queue[Any]] = {10 * site: queue.Queue() for site in sites.files}
        self._answers: dict[str, bytes | NoReply] = {}
        self._n_sent = 0

    @contextmanager
    def running(self) -> Iterator[ThreadTransport]:
        threads = [threading.Thread(target=self._live, args=(node,)) for node in self._letters]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            for letters in self._letters.values():
                letters.put(None)
            for thread in threads:
                thread.join(HANG_SECONDS)

    def nodes(self) -> list[int]:
        return list(self._letters)

    def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
        tickets = {f"{self._n_sent + place}": node for place, node in enumerate(contents)}
        self._n_sent += len(tickets)
        for ticket, node in tickets.items():
            self._letters[node].put((ticket, kind, contents[node]))
        return tickets

    def receive(self, ticket: str) -> bytes | NoReply | None:
        return self._answers.pop(ticket, None)

    def is_idle(self) -> bool:
        return all(letters.unfinished_tasks == 0 for letters in self._letters.values())

    def _live(self, node: int) -> None:
        read_file = partial(SiteFile.read, self._sites.files[node // 10])
        while (letter := self._letters[node].get()) is not None:
            ticket, kind, content = letter
            try:
                said = self._sites.handle_message(read_file, kind, partial(bytes, content))
                self._answers[ticket] = NoReply.refused(said) if isinstance(said, Refusal) else said
            except (KilledError, GoneError):
                self._answers[ticket] = NoReply("its process died", may_return=True)
            finally:
                self._letters[node].task_done()


def threads(trial: Trial, settings: Mapping[str, Any], sites: Sites, patch: pytest.MonkeyPatch) -> None:
    with ThreadTransport(sites).running() as transport:
        _train(trial, settings, transport, Clock(transport.is_idle))


# --- Flower -------------------------------------------------------------------------------------------------


def flower(trial: Trial, settings: Mapping[str, Any], sites: Sites, patch: pytest.MonkeyPatch) -> None:
    """Flower's messages, and its ClientApp for each."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    from analytic_secagg.flower import client
    from analytic_secagg.flower.rehearsal import InProcessGrid
    from analytic_secagg.flower.wire import GridTransport

    class Grid(InProcessGrid):
        def _deliver(self, message: Message) -> Message:
            try:
                return super()._deliver(message)
            except (KilledError, GoneError):
                return Message(Error(code=ErrorCode.NODE_UNAVAILABLE, reason="gone"), reply_to=message)

    patch.setattr(client, "handle_message", sites.handle_message)
    grid = Grid({1000 + site: {"site": str(file)} for site, file in sites.files.items()})
    _train(trial, settings, GridTransport(grid), Clock(lambda: True))


# --- NVFlare ------------------------------------------------------------------------------------------------


def nvflare(trial: Trial, settings: Mapping[str, Any], sites: Sites, patch: pytest.MonkeyPatch) -> None:
    """NVFlare's own manager of tasks, which clients fetch. A client that is killed is away for the rest of the job."""
    from nvflare.apis.client import Client
    from nvflare.apis.fl_constant import FLContextKey
    from nvflare.apis.fl_context import FLContext, FLContextManager
    from nvflare.apis.impl.wf_comm_server import WFCommServer
    from nvflare.apis.signal import Signal
    from nvflare.fuel.utils.config_service import ConfigService

    from analytic_secagg.nvflare import controller, executor

    clients = [Client(file.parent.name, file.parent.name) for file in sites.files.values()]
    ends = threading.Event()

    class Server:
        """An engine of NVFlare's, as far as one job needs it."""

        def get_clients(self) -> list[Client]:
            return clients

        def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
            """Nobody listens."""

        def new_context(self) -> FLContext:
            return contexts.new_context()

    contexts = FLContextManager(engine=Server(), identity_name="server", job_id=RUN.partition("-")[2])
    manager = WFCommServer(task_check_period=0.005)
    clock = Clock(lambda: manager.get_num_standing_tasks() == 0)

    def live(client: Client) -> None:
        own = FLContextManager(identity_name=client.name).new_context()
        while not ends.is_set():
            kind, identifier, data = manager.process_task_request(client, contexts.new_context())
            if not kind:
                ends.wait(0.005)
                continue
            try:
                answer = executor.SumExecutor().execute(kind, data, own, Signal())
            except (KilledError, GoneError):
                manager.process_dead_client_report(client.name, contexts.new_context())
                return
            manager.process_submission(client, kind, identifier, answer, contexts.new_context())

    patch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    patch.setenv(SITES_VARIABLE, str(trial.folder))
    patch.setattr(executor, "handle_message", sites.handle_message)
    patch.setattr(controller, "train", partial(train, clock=clock))
    patch.setattr(controller, "time", clock)
    patch.setattr(ConfigService, "get_float_var", lambda name, conf, default: 0.0)  # a dead client is dead at once
    patch.setattr(manager, "_job_policy_violated", lambda: False)  # which asks the job's own file
    job = controller.SumController(dict(settings))
    job.set_communicator(manager)
    context = contexts.new_context()
    manager.initialize_run(context)
    context.set_prop(FLContextKey.WORKFLOW, RUN.partition("-")[0])
    running = [threading.Thread(target=live, args=(client,)) for client in clients]
    for thread in running:
        thread.start()
    try:
        job.control_flow(Signal(), context)
    finally:
        ends.set()
        for thread in running:
            thread.join(HANG_SECONDS)
        manager.finalize_run(context)


# --- processes of one host, here as threads -----------------------------------------------------------------


def local(trial: Trial, settings: Mapping[str, Any], sites: Sites, patch: pytest.MonkeyPatch) -> None:
    """Connections over TLS; a site that is killed connects again."""
    from analytic_secagg.local import deployment, node
    from analytic_secagg.local.server import SocketTransport, server_tls

    if not (trial.folder / "server" / "tls").exists():
        deployment._write_tls(trial.folder, [file.parent.name for file in sites.files.values()])

    patch.setattr(node, "handle_message", sites.handle_message)
    patch.setattr(node, "RETRY_SECONDS", 0.001)
    transport = SocketTransport(server_tls(trial.folder / "server" / "tls"))

    def is_idle() -> bool:
        return not transport._answers._open and set(transport.nodes()) == sites.files.keys() - sites.gone

    def live(folder: Path) -> None:
        try:
            node.main(folder, transport.port)
        except GoneError:
            return

    reading, writing = os.pipe()
    with os.fdopen(reading) as stdin:
        patch.setattr(node, "sys", SimpleNamespace(stdin=stdin, stderr=sys.stderr))
        running = [threading.Thread(target=live, args=(file.parent,)) for file in sites.files.values()]
        for thread in running:
            thread.start()
        try:
            _train(trial, settings, transport, Clock(is_idle))
        finally:
            os.close(writing)
            for thread in running:
                thread.join(HANG_SECONDS)


ENGINES: dict[str, Engine] = {"threads": threads, "flower": flower, "nvflare": nvflare, "local": local}

EXTRAS = {"flower": ("flwr.clientapp", "flwr.serverapp"), "nvflare": ("nvflare",)}
"""The modules of each engine that is an extra."""


def progress(trial: Trial) -> list[dict[str, Any]]:
    """What the server wrote about the run."""
    path = trial.folder / "server" / "models" / RUN / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]
