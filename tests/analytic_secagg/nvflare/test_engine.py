"""The executor as NVFlare calls it, tasks under NVFlare's own manager, and what is said of clients that are lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.impl.wf_comm_server import WFCommServer
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from support.rehearsed import by_server, proposal, run_config

from analytic_secagg.nvflare.controller import SumController
from analytic_secagg.nvflare.executor import SITE_VARIABLE, SumExecutor
from analytic_secagg.nvflare.wire import TaskTransport, answer_of, node_of, pack, unpack
from analytic_secagg.server.exchange import NoReply
from analytic_secagg.server.server_file import SERVER_VARIABLE
from analytic_secagg.site.errors import Refusal, RunSettingsError, UnreachableError, WireError
from analytic_secagg.site.messages import INVITE, STEP, read_messages, write_proposal
from analytic_secagg.site.site_file import SITES_VARIABLE
from analytic_secagg.trial import Trial


class Engine:
    """Of NVFlare's server: who the job's clients are, and contexts."""

    def __init__(self, *names: str) -> None:
        self.clients = [Client(name, name) for name in names]
        self._contexts = FLContextManager(engine=self, identity_name="server", job_id="job")

    def get_clients(self) -> list[Client]:
        return self.clients

    def fire_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Nobody listens."""

    def new_context(self) -> FLContext:
        return self._contexts.new_context()


def running(*names: str, **settings: Any) -> tuple[SumController, WFCommServer, FLContext, Engine]:
    """A controller under NVFlare's own manager of tasks."""
    engine, controller, manager = Engine(*names), SumController(settings), WFCommServer()
    controller.set_communicator(manager)
    manager._engine = engine
    return controller, manager, engine.new_context(), engine


def executed(name: str, kind: str, content: bytes) -> Shareable:
    context = FLContextManager(identity_name=name).new_context()
    return SumExecutor().execute(kind, pack(content), context, Signal())


def test_a_site_answers_or_says_a_bland_code(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own file, which the environment names; without one, with no more than that it cannot answer."""
    proposed = proposal()
    content = by_server(trial, INVITE, write_proposal(proposed))
    monkeypatch.delenv(SITES_VARIABLE, raising=False)
    monkeypatch.delenv(SITE_VARIABLE, raising=False)
    assert answer_of(executed("site-2", INVITE, content)) == NoReply.refused(Refusal.FAILED)
    monkeypatch.setenv(SITES_VARIABLE, str(trial.folder))
    session, said = read_messages(unpack(executed("site-2", INVITE, content)))
    assert (session, list(said)) == (proposed.session, [2])
    monkeypatch.setenv(SITE_VARIABLE, str(trial.folder / "site-3" / "site.toml"))
    assert list(read_messages(unpack(executed("any", INVITE, content)))[1]) == [3]
    assert answer_of(executed("any", INVITE, b"")) == NoReply.refused(Refusal.BAD_MESSAGE)


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (pack(b"said"), b"said"),
        (Shareable({"content": "no bytes"}), b""),
        (Shareable(), b""),
        ({"content": b"said"}, NoReply("its answer is no shareable")),
        (pack(Refusal.DECLINED), NoReply.refused(Refusal.DECLINED)),
        (Shareable({"refusal": "words of a node"}), NoReply("it refuses with an unknown code")),
        (
            make_reply(ReturnCode.EXECUTION_EXCEPTION),
            NoReply("its executor failed; that client's own log says why"),
        ),
        (make_reply("words of a node"), NoReply("its NVFlare client could not run the task")),
    ],
)
def test_what_a_client_answers(result: object, answer: bytes | NoReply) -> None:
    assert answer_of(result) == answer
    with pytest.raises(WireError, match="same version"):
        unpack(Shareable())


def test_tasks_go_to_their_clients_and_end_at_their_deadline() -> None:
    """One client answers; one fetches its task and is late, so that its answer is for nobody; one is gone."""
    controller, manager, context, engine = running("a", "b")
    transport = TaskTransport(controller, context)
    one, two = node_of("a"), node_of("b")
    assert transport.nodes() == [one, two]
    told = {one: b"x", two: b"y", node_of("c"): b"z"}
    tickets = {node: ticket for ticket, node in transport.send(STEP, told, seconds=0.1, number=1).items()}
    assert tickets.keys() == {one, two}, "who is not there gets nothing"
    fetched = [manager.process_task_request(client, engine.new_context()) for client in engine.clients]
    assert [(kind, unpack(data)) for kind, _, data in fetched] == [(STEP, b"x"), (STEP, b"y")]
    submit(manager, engine, 0, fetched[0], b"answer")
    assert [transport.receive(tickets[one]), transport.receive(tickets[two])] == [b"answer", None]
    time.sleep(1.1)
    manager.check_tasks()
    submit(manager, engine, 1, fetched[1], b"late")
    assert [transport.receive(tickets[one]), transport.receive(tickets[two])] == [
        None,
        NoReply("no answer before the deadline"),
    ]
    again = [ticket for _ in range(2) for ticket in transport.send(STEP, {two: b"z"}, seconds=60, number=2)]
    controller.cancel_all_tasks(fl_ctx=context)
    manager.check_tasks()
    assert [transport.receive(ticket) for ticket in again] == [NoReply("its task was cancelled")] * 2
    assert [transport.name(node) for node in (one, 7)] == ["a", "7"], "as NVFlare's own logs"


def submit(manager: WFCommServer, engine: Engine, place: int, fetched: Any, content: bytes) -> None:
    kind, identifier, _ = fetched
    manager.process_submission(engine.clients[place], kind, identifier, pack(content), engine.new_context())


def test_an_aborted_job_ends_while_it_waits(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    controller, _, context, _ = running(**run_config())
    context.set_prop(FLContextKey.WORKFLOW, "run")
    aborted = Signal()
    aborted.trigger(True)
    with pytest.raises(UnreachableError, match="the job was aborted"):
        controller.control_flow(aborted, context)
    assert (trial.folder / "server" / "models" / "run-job" / "progress.jsonl").exists()


@pytest.mark.parametrize("name", ["/elsewhere", "../up", "{WORKSPACE}", "a b"])
def test_no_job_says_where_its_totals_are_written(name: str, trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVFlare takes any text as a workflow's name, and an absolute path would leave the server's own folder."""
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    controller, _, context, _ = running()
    context.set_prop(FLContextKey.WORKFLOW, name)
    with pytest.raises(RunSettingsError, match="a run is called by letters, digits, _ and -, not"):
        controller.control_flow(Signal(), context)
    assert not (trial.folder / "server" / "models").exists()
