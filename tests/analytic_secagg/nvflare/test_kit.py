"""What a start-up kit lets a server and its jobs do once its owner closed it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from flare_deployment import BIN
from nvflare.apis.fl_context import FLContext, FLContextManager
from nvflare.apis.workspace import Workspace
from nvflare.fuel.f3.cellnet.core_cell import Message as CellMessage
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.cellnet.net_agent import NetAgent
from nvflare.fuel.sec.audit import AuditService
from nvflare.private.admin_defs import Message
from nvflare.private.defs import SysCommandTopic, new_cell_message
from nvflare.private.fed.app.client.client_train import create_admin_agent
from nvflare.private.fed.app.fl_conf import FLClientStarterConfiger
from nvflare.private.fed.client.admin_commands import AdminCommands
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors
from support.commands import nvflare as main

from analytic_secagg.nvflare.kit import close_kit
from analytic_secagg.site.errors import SiteFileError


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trial = tmp_path_factory.mktemp("kits") / "trial"
    assert main(["trial", str(trial), "--clients", "4"]) == 0
    provision = [BIN / "nvflare", "provision", "-p", "project.yml", "-w", "kits", "--force"]
    subprocess.run(provision, cwd=trial, capture_output=True, check=True, timeout=900)
    return trial / "kits" / "trial" / "prod_00"


def test_a_trial_is_provisioned_and_its_kits_are_closed(kits: Path) -> None:
    allowed, rights = {}, {}
    for name in ("localhost", "site-1"):
        for _ in range(2):
            assert main(["kit", str(kits / name)]) == 0
        resources = json.loads((kits / name / "local" / "resources.json").read_text())
        allowed[name] = resources["class_allow_list"]
        assert not resources["allow_log_streaming"]
        assert not [one["id"] for one in resources["components"] if "log" in one["id"]]
        lead = json.loads((kits / name / "local" / "authorization.json").read_text())["permissions"]["lead"]
        rights[name] = {right for right, whom in lead.items() if whom != "none"}
    assert allowed == {
        "localhost": ["analytic_secagg.nvflare.controller.SumController"],
        "site-1": ["analytic_secagg.nvflare.executor.SumExecutor"],
    }
    assert rights["site-1"] == {"submit_job", "view"}
    assert rights["localhost"] == {"submit_job", "view", "manage_job", "download_job", "operate"}


@pytest.mark.parametrize(
    ("path", "before", "after", "reason"),
    [
        ("local/resources.json.default", None, "[]", "of version 2.9 writes it"),
        ("local/resources.json.default", None, '{"components": [{}]}', "of version 2.9 writes it"),
        ("startup/fed_client.json", None, None, "must be a start-up kit of a site or the server"),
        ("startup/fed_client.json", "{", '{"require_signed_jobs": false,', "must take signed jobs alone"),
        ("startup/rootCA.pem", None, None, "must take signed jobs alone"),
        ("local/authorization.json", None, "{}", r"authorization\.json is not what this command writes: its owner"),
    ],
)
def test_a_kit_of_another_shape_is_refused_and_an_owner_s_edits_stay(
    path: str, before: str | None, after: str | None, reason: str, kits: Path, tmp_path: Path
) -> None:
    kit = shutil.copytree(kits / "site-2", tmp_path / "kit")
    file = kit / path
    if after is None:
        file.unlink()
    else:
        file.write_text(after if before is None else file.read_text().replace(before, after, 1))
    files = {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()}
    with pytest.raises(SiteFileError, match=reason):
        close_kit(kit)
    assert {path: path.read_bytes() for path in kit.rglob("*") if path.is_file()} == files


PROCESSORS = tuple(ClientRequestProcessors.request_processors)


class Client:
    """What NVFlare's own client makes of a kit: its configuration and the agent that answers its server's requests."""

    def __init__(self, kit: Path) -> None:
        ClientRequestProcessors.request_processors[:] = PROCESSORS  # as in a process of its own
        workspace = Workspace(root_dir=str(kit), site_name=kit.name, config_folder="config")
        words = ["secure_train=true", f"uid={kit.name}", "org=trial", "config_folder=config"]
        config = FLClientStarterConfiger(workspace, Namespace(job_id=None, workspace=str(kit)), words)
        config.configure()
        self.cell = self
        self.topics = set(create_admin_agent(config.base_deployer.req_processors, self, self).processors)

    def told(self, topic: str, body: str) -> object:
        """What the client answers to a message that does not say that the host's policy is to be asked."""
        return self._answer(new_cell_message({}, Message(topic, body))).payload.body

    def register_request_cb(self, channel: str, topic: str, cb: Callable[[CellMessage], CellMessage]) -> None:
        self._answer = cb

    def new_context(self) -> FLContext:
        return FLContextManager(identity_name="site").new_context()

    def diagnostics(self) -> dict[str, Callable[[CellMessage], CellMessage | None]]:
        """What a cell of this process answers below requests."""
        taken: dict[str, Callable[[CellMessage], CellMessage | None]] = {}
        cell = SimpleNamespace(register_request_cb=lambda channel, topic, cb: taken.update({topic: cb}))
        NetAgent(cell)
        return taken

    def set_agent(self, agent: object) -> None:
        """Nothing; nor the next two."""

    def set_client_engine(self, engine: object) -> None: ...

    def fire_event(self, event: str, context: FLContext) -> None: ...


@pytest.fixture
def audited(tmp_path: Path) -> Iterator[None]:
    AuditService.close()
    AuditService.initialize(str(tmp_path / "audit"))
    yield
    AuditService.close()


def test_a_server_that_lies_reads_files_where_a_kit_is_open_alone(
    kits: Path, audited: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClientRequestProcessors, "request_processors", [])
    monkeypatch.setattr(AdminCommands, "commands", list(AdminCommands.commands))
    for name in [name for name in vars(NetAgent) if name.startswith("_do_")]:
        monkeypatch.setattr(NetAgent, name, vars(NetAgent)[name])
    key = kits.parents[2] / "site-3" / "identity.key"
    commands = [f"{command} {key}" for command in ("cat", "head", "tail", "grep -i ''", "ls")]
    kit = shutil.copytree(kits / "site-3", tmp_path / "site-3")
    client = Client(kit)
    for command in commands:
        assert {key.read_text().strip(), str(key)} & {str(client.told(SysCommandTopic.SHELL, command)).strip()}
    about_the_host = client.diagnostics()["process_info"](CellMessage())
    assert about_the_host is not None
    assert str(os.getpid()) in str(about_the_host.payload)
    assert AdminCommands.get_command("show_errors") is not None
    close_kit(kit)
    client = Client(kit)
    refused = [answer(CellMessage()) for answer in client.diagnostics().values()]
    assert len(refused) > 20
    codes = {one and (one.get_header(MessageHeaderKey.RETURN_CODE), one.payload) for one in refused}
    assert codes == {(ReturnCode.INVALID_REQUEST, None)}
    kept = {command.get_command_name() for command in AdminCommands.commands}
    assert kept == {"check_status", "abort", "abort_task", "shutdown"}
    assert {client.told(SysCommandTopic.SHELL, command) for command in commands} == {"invalid_request"}
    assert client.topics == {
        *("train.deploy", "train.start_job", "train.abort", "train.abort_task", "train.delete_run"),
        *("train.check_status", "train.notify_job_status"),
        *("scheduler.check_resource", "scheduler.cancel_resource"),
    }
