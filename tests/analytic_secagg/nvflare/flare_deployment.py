"""A deployment on loopback: NVFlare's server, clients and operator's commands as processes, with provisioned kits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from child_processes import Processes, reserve_port, wait_until

from analytic_secagg.datasets import bundled
from analytic_secagg.nvflare.executor import SITE_VARIABLE
from analytic_secagg.nvflare.job import read_job, write_job
from analytic_secagg.nvflare.kit import close_kit
from analytic_secagg.nvflare.trial import make_trial
from analytic_secagg.server.server_file import SERVER_VARIABLE

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "PATH": f"{BIN}:{os.environ['PATH']}",
}

SERVER, OPERATOR = "localhost", "operator@trial.org"


class FlareDeployment:
    """One server and the clients of a trial's folder, each with its kit.

    Args:
        folder: a new folder for all of it.
        n_sites: clients.
    """

    def __init__(self, folder: Path, *, n_sites: int) -> None:
        self.folder, self.port = folder, reserve_port()
        self.trial = make_trial(folder, bundled("breast_cancer"), n_sites=n_sites, n_helpers=4, port=self.port)
        self.sites = [self.trial.site(party).name for party in self.trial.rows]
        self.processes = Processes(folder, ENVIRONMENT)
        self._command("provision", "-p", "project.yml", "-w", "kits", "--force")
        for name in (SERVER, *self.sites):
            close_kit(self.kit(name))

    def kit(self, name: str) -> Path:
        return self.folder / "kits" / "trial" / "prod_00" / name

    def start_server(self, extra: Mapping[str, str] | None = None) -> None:
        self._start(SERVER, {SERVER_VARIABLE: str(self.folder / "server" / "server.toml"), **(extra or {})})

    def start_site(self, name: str) -> None:
        self._start(name, {SITE_VARIABLE: str(self.folder / name / "site.toml")})

    def restart_site(self, name: str) -> None:
        """Kill all its processes at once, and start it again."""
        self.processes.kill(name)
        wait_until(lambda: self.processes.exit_code(name), f"the end of {name}")
        self.start_site(name)

    def wait_connected(self, *names: str) -> None:
        """Until the server counts exactly these clients as connected."""

        def connected() -> bool:
            done = self._run("--format", "json", "system", "status", "--startup-kit", str(self.kit(OPERATOR)))
            try:
                clients = json.loads(done.stdout)["data"]["clients"]
            except (ValueError, LookupError):
                return False
            return {client["client_name"] for client in clients} == set(names)

        wait_until(connected, f"the connection of {names}", seconds=600)

    def submit(self, job: str = "", **settings: Any) -> str:
        """A job of one run, or one whose folder is there; its number."""
        if not job:
            job = f"job-{len(list(self.folder.glob('job*')))}"
            changes = {name.replace("_", "-"): value for name, value in settings.items()}
            write_job(self.folder / job, {"run": read_job(self.folder / "job") | changes})
        return str(self._command("job", "submit", "-j", job, "--startup-kit", str(self.kit(OPERATOR)))["job_id"])

    def wait_ended(self, job: str, seconds: int = 600) -> str:
        words = ("job", "wait", job, "--timeout", str(seconds), "--startup-kit", str(self.kit(OPERATOR)))
        done = self._run("--format", "json", *words)
        return str(json.loads(done.stdout)["data"]["status"])

    def output(self, job: str) -> Path:
        return self.folder / "server" / "models" / f"run-{job}"

    def wait_said(self, job: str, **wanted: Any) -> None:
        """Until the job's progress has a line with all of this."""

        def said() -> bool:
            path = self.output(job) / "progress.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            return any(wanted.items() <= json.loads(line).items() for line in lines)

        wait_until(said, f"{wanted} in {job}", seconds=600, every=0.1)

    def close(self) -> None:
        self.processes.close()

    def _start(self, name: str, extra: Mapping[str, str]) -> None:
        self.processes.start(name, [str(self.kit(name) / "startup" / "sub_start.sh"), "--once"], extra)

    def _command(self, *words: str) -> dict[str, Any]:
        done = self._run("--format", "json", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads(done.stdout)["data"])

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "nvflare", *words],
            cwd=self.folder,
            env=self.processes.environment("operator"),
            capture_output=True,
            text=True,
            timeout=900,
        )
