"""NVFlare's own processes on loopback, with TLS: a foreign job, sites that are killed, late and started again."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from flare_deployment import SERVER, FlareDeployment
from support.rehearsed import assert_pooled

KILLED, LATE, HELPER, OPEN = "site-4", "site-5", "site-2", "site-3"
"""The owner of the last forgot to close its kit, which shows what the others are spared."""

FOREIGN_CODE = """\
import os
from pathlib import Path
from nvflare.apis.executor import Executor
from nvflare.apis.shareable import Shareable
Path(os.environ["FLWR_HOME"], "foreign-code-ran").touch()
class Foreign(Executor):
    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        return Shareable()
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[FlareDeployment]:
    with contextlib.closing(FlareDeployment(tmp_path / "trial", n_sites=5)) as running:
        yield running


@pytest.mark.slow  # two minutes of real processes
def test_a_deployment_from_start_to_end(deployment: FlareDeployment) -> None:
    """One deployment for all of it: processes take longer to start than a sum does."""
    _open(deployment, SERVER)
    _open(deployment, OPEN)
    deployment.start_server()
    early = deployment.sites[:-1]
    for site in early:
        deployment.start_site(site)
    deployment.wait_connected(*early)
    _the_server_asks_for_a_certificate(deployment)
    _foreign_code_runs_where_a_kit_is_open_alone(deployment)
    masked = deployment.submit(mode="masked", receipts="server", nodes=4, round_seconds=30.0)
    deployment.wait_said(masked, party=4, sent="SEALED_SHARES")
    deployment.restart_site(KILLED)
    deployment.start_site(LATE)
    ended = deployment.wait_ended(masked)
    assert ended == "FINISHED:ABNORMAL", deployment.processes.log(SERVER)  # so NVFlare notes that a client died
    assert_pooled(deployment.output(masked), deployment.trial.rows, [1, 2, 3])
    deployment.wait_connected(*deployment.sites)
    committee = deployment.submit(mode="committee", receipts="helpers", round_seconds=30.0)
    deployment.wait_said(committee, party=102, sent="SEED_COMPLAINTS")
    deployment.restart_site(HELPER)
    ended = deployment.wait_ended(committee)
    assert ended == "FINISHED:ABNORMAL", deployment.processes.log(SERVER)
    assert_pooled(deployment.output(committee), deployment.trial.rows, [1, 2, 3, 4, 5])


def _the_server_asks_for_a_certificate(deployment: FlareDeployment) -> None:
    """It speaks TLS with a certificate of the project's authority, and only to who shows one too."""
    startup = deployment.kit(LATE) / "startup"

    def heard(*, certificate: bool) -> bytes:
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        if certificate:
            context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with (
            socket.create_connection(("127.0.0.1", deployment.port), timeout=300) as plain,
            context.wrap_socket(plain, server_hostname=SERVER) as secure,
            contextlib.suppress(ssl.SSLError, ConnectionError),
        ):
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return secure.recv(8)
        return b""

    assert [heard(certificate=True), heard(certificate=False)] == [b"HTTP/1.1", b""]


def _open(deployment: FlareDeployment, name: str) -> None:
    """As NVFlare provisions it: whoever leads a project may send code. The server's storage stays in its own folder."""
    local = deployment.kit(name) / "local"
    (local / "authorization.json").unlink()
    if name != SERVER:
        (local / "resources.json").unlink()
        resources = json.loads((local / "resources.json.default").read_text())
        resources["class_allow_list"].append("analytic_secagg.nvflare.")
        (local / "resources.json.default").write_text(json.dumps(resources))


def _foreign_code_runs_where_a_kit_is_open_alone(deployment: FlareDeployment) -> None:
    """A server that lies takes it; a site whose kit is closed does not."""
    job = deployment.folder / "foreign"
    shutil.copytree(deployment.folder / "job", job)
    (job / "app" / "custom").mkdir()
    (job / "app" / "custom" / "foreign_code.py").write_text(FOREIGN_CODE)
    path = job / "app" / "config" / "config_fed_client.json"
    path.write_text(path.read_text().replace("analytic_secagg.nvflare.executor.SumExecutor", "foreign_code.Foreign"))
    meta = json.loads((job / "meta.json").read_text())
    (job / "meta.json").write_text(json.dumps(meta | {"min_clients": 1}))
    server = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())
    server["workflows"][0]["args"]["settings"] |= {"nodes": 1, "round-seconds": 2.0}
    (job / "app" / "config" / "config_fed_server.json").write_text(json.dumps(server))
    assert deployment.wait_ended(deployment.submit(job.name)) == "FINISHED:EXECUTION_EXCEPTION"
    ran = {site for site in deployment.sites if (deployment.processes.home(site) / "foreign-code-ran").exists()}
    assert ran == {OPEN}
