"""NVFlare's own processes on loopback: simulated, and over TLS with a foreign job and processes that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from child_processes import wait_until
from flare_deployment import ENVIRONMENT, SERVER, FlareDeployment
from reliability.stepping import counted
from support.rehearsed import assert_pooled, is_wiped, run_config

from analytic_secagg.datasets import bundled
from analytic_secagg.nvflare.job import write_job
from analytic_secagg.server.server_file import SERVER_VARIABLE
from analytic_secagg.site.site_file import SITES_VARIABLE
from analytic_secagg.trial import Trial

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


@pytest.mark.slow  # minutes of real processes
def test_the_next_job_goes_on_where_the_one_before_died(deployment: FlareDeployment) -> None:
    """While vectors come, and when the total is there and nobody has it yet; each site sends one vector a sum."""
    server = deployment.folder / "server"
    deployment.start_server(counted(server, ENVIRONMENT["PYTHONPATH"]))
    for site in deployment.sites:
        deployment.start_site(site)
    deployment.wait_connected(*deployment.sites)
    for number, (mode, dies) in enumerate(
        [("masked", "round closes SHARE_DELIVERY"), ("committee", "before saving session sum total 0")]
    ):
        settings = {"mode": mode, "ridge": 0.5 + number, "round_seconds": 60.0}
        whole = deployment.submit(**settings)
        deployment.wait_ended(whole)
        steps = (server / "steps").read_text().splitlines()
        (server / "steps").write_text("")
        number = next(number for number, step in enumerate(steps, start=1) if step.startswith(dies))
        (server / "fault").write_text(f"{number} kill")
        killed = deployment.submit(**settings)
        wait_until(lambda: not (server / "fault").exists(), f"the death at {dies}", seconds=600)
        again = deployment.submit(**settings)
        ended = deployment.wait_ended(again)
        assert not deployment.output(again).exists(), ended
        assert_pooled(deployment.output(killed), deployment.trial.rows, [1, 2, 3, 4, 5])
        print(f"{mode}: died at {dies}; the next job ended as {ended}", flush=True)


ROOT = Path(__file__).resolve().parents[3]


def simulate(trial: Trial, **runs: Mapping[str, Any]) -> str:
    """What the simulator said about a job of these runs."""
    folder = trial.folder
    write_job(folder / "job", runs)
    (folder / "simulation" / "local").mkdir(parents=True)
    policy = {"format_version": 2, "class_allow_list": ["analytic_secagg.nvflare."]}
    (folder / "simulation" / "local" / "resources.json").write_text(json.dumps(policy))
    n_sites = str(len(trial.rows))
    done = subprocess.run(
        [Path(sys.executable).parent / "nvflare", "simulator", "job", "-w", "simulation", "-n", n_sites, "-t", n_sites],
        cwd=folder,
        env=os.environ
        | {
            SERVER_VARIABLE: str(folder / "server" / "server.toml"),
            SITES_VARIABLE: str(folder),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_masked_and_committee_give_the_bits_of_one_process(tmp_path: Path) -> None:
    """One job of two runs; the fourth site's own file forbids the first, whatever the job asks for."""
    sites = Trial.create(tmp_path / "trial", bundled("digits"), n_sites=4, n_helpers=2, are_rows_public=True)
    path = sites.site(4) / "site.toml"
    path.write_text(re.sub("modes = .*", 'modes = ["committee"]', path.read_text()))
    modes = ("masked", "committee")
    said = simulate(sites, **{mode: run_config(mode=mode, dropout=0.25) for mode in modes})
    for mode, survivors in zip(modes, ([1, 2, 3], [1, 2, 3, 4]), strict=True):
        assert_pooled(sites.folder / "server" / "models" / f"{mode}-simulate_job", sites.rows, survivors)
    assert "own file or roster does not allow such a sum" in said
    assert is_wiped(sites)
