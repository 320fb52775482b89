"""A deployment on loopback: SuperLink, SuperNodes and an operator's commands as processes, with TLS and node keys."""

from __future__ import annotations

import json
import os
import shlex
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from child_processes import Processes, WayOut, addresses, command_line, reserve_port, wait_until
from support.rehearsed import assert_pooled

from analytic_secagg.datasets import bundled
from analytic_secagg.flower.trial import make_trial
from analytic_secagg.trial import Trial

WARM, FLOWERS_OWN = f"{sys.executable} -m analytic_secagg.flower.", "flower-"
"""How the commands begin that start a SuperLink or SuperNode."""

OPERATOR = """\
import json, os, sys
from flwr.cli.app import app

for line in sys.stdin:
    if os.fork() == 0:
        os.dup2(os.open("answer.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        sys.argv = ["flwr", *json.loads(line)]
        sys.exit(app())
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
"""Reads Flower's command once, which takes seconds, and becomes it for every line of words."""

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]

ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "PATH": f"{BIN}:{os.environ['PATH']}",
}


class Deployment:
    """One SuperLink and the SuperNodes of a trial's folder.

    Args:
        folder: a new folder for all of it.
        n_sites: clients, each with a SuperNode of its own.
        n_helpers: how many of them are helpers too.
        superlink: its name among the operator's connections.
        dataset: whose rows the sites have.
        environment: of all processes, beside what they need anyway.
    """

    def __init__(
        self,
        folder: Path,
        *,
        n_sites: int,
        n_helpers: int,
        superlink: str = "trial",
        dataset: str = "digits",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.folder, self.superlink, self.port = folder, superlink, reserve_port()
        self.address = f"127.0.0.1:{self.port}"
        self.trial = make_trial(folder, bundled(dataset), n_sites=n_sites, n_helpers=n_helpers, address=self.address)
        self.sites = [f"site-{party}" for party in self.trial.rows]
        self.way_out = WayOut()
        self.processes = Processes(folder, ENVIRONMENT | self.way_out.environment | dict(environment or {}))
        self.addresses_seen: set[str] = set()
        self.tokens_seen = False
        self._node_ids: dict[str, str] = {}
        self._operator: subprocess.Popen[str] | None = None

    def start_superlink(self, flags: str = "", *, command: str = WARM) -> None:
        self.start(
            "superlink",
            f"{command}superlink --host 127.0.0.1 --port {self.port} --enable-supernode-auth "
            "--disable-runtime-dependency-installation "
            f"--ssl-ca-certfile tls/ca.crt --ssl-certfile tls/server.crt --ssl-keyfile tls/server.key {flags}",
            {"ANALYTIC_SECAGG_SERVER": str(self.folder / "server" / "server.toml")},
        )
        self.wait(self._is_healthy, "the SuperLink's /health")

    def register(self, sites: Sequence[str]) -> None:
        """Make the sites' node keys known."""
        for site in sites:
            public = str(self.folder / site / "node.pub")
            answer = self.flwr("supernode", "register", public, self.superlink, "--name", site)
            self._node_ids[site] = str(answer["node-id"])

    def unregister(self, site: str) -> None:
        self.flwr("supernode", "unregister", self._node_ids[site], self.superlink)

    def start_supernode(
        self,
        site: str,
        *,
        name: str = "",
        key: str = "",
        flags: str = "",
        config: str = "",
        extra: Mapping[str, str] | None = None,
        command: str = WARM,
    ) -> int:
        """A SuperNode of a site, under another name or with another key or node-config; the port of its runtime API."""
        port, config = reserve_port(), config or f'site="{self.folder}/{site}/site.toml"'
        self.start(
            name or site,
            f"{command}supernode --superlink {self.address} --root-certificates tls/ca.crt "
            f"--auth-supernode-private-key {key or site + '/node'} --host 127.0.0.1 --port {port} "
            f"--node-config '{config}' {flags}",
            extra,
        )
        return port

    def start(self, name: str, command: str, extra: Mapping[str, str] | None = None) -> None:
        self.processes.start(name, shlex.split(command), extra)

    def submit(self, *flags: str, app: str = "app", **settings: object) -> str:
        """Start a run and return its id."""
        pairs = {name.replace("_", "-"): value for name, value in settings.items()}
        texts = [f"{name}={json.dumps(value)}" for name, value in pairs.items()]  # as TOML has them too
        answer = self.flwr("run", app, self.superlink, "-c", " ".join(texts), *flags)
        assert "run-id" in answer, answer
        return str(answer["run-id"])

    def status(self, run: str) -> str:
        return str(self.flwr("list", "--run-id", run, self.superlink)["runs"][0]["status"])

    def wait(self, ready: Any, what: str, **options: Any) -> Any:
        """Wait, and note meanwhile with whom the processes speak and whether a command line names a token."""

        def look() -> Any:
            pids = self.processes.find_all()
            self.addresses_seen |= addresses(pids)
            self.tokens_seen = self.tokens_seen or any("--token" in command_line(pid) for pid in pids)
            return ready()

        return wait_until(look, what, **options)

    def wait_online(self, sites: Sequence[str]) -> None:
        for site in sites:
            self.wait(lambda site=site: "SuperNode ID:" in self.processes.log(site), f"{site} online")

    def wait_party(self, run: str, **line: object) -> None:
        """Until the ServerApp notes that a party sent what these values say."""
        self._wait_line(run, {"event": "party", **line})

    def wait_ended(self, run: str) -> str:
        """The status of a run that told its nodes so or gave up. Asking Flower all the time would slow the run down."""
        self.wait_told(run)
        return self.wait_status(run)

    def wait_told(self, run: str) -> None:
        """Until the nodes were told of the end, or the run gave up."""
        self._wait_line(run, {"event": "round closes", "round": "END"}, {"event": "failed"})

    def _wait_line(self, run: str, *wanted: Mapping[str, object]) -> None:
        def is_there() -> bool:
            return any(line.items() <= found.items() for found in self.progress(run) for line in wanted)

        try:
            self.wait(is_there, f"{wanted} in the progress of run {run}")
        except AssertionError as error:
            error.add_note(self.flwr_text("log", run, self.superlink, "--show").stdout)
            raise

    def wait_status(self, run: str) -> str:
        def finished() -> str:
            status = self.status(run)
            return status if status.startswith("finished") else ""

        return str(self.wait(finished, f"the end of run {run}", every=1.0))

    def close(self) -> None:
        if self._operator is not None:
            self._operator.communicate()
        self.processes.close()
        self.way_out.close()

    def output(self, run: str) -> Path:
        return self.folder / "server" / "models" / f"run-{run}"

    def progress(self, run: str) -> list[dict[str, Any]]:
        path = self.output(run) / "progress.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def summary(self, run: str) -> dict[str, Any]:
        return dict(json.loads((self.output(run) / "summary.json").read_text()))

    def flwr(self, *words: str) -> Any:
        """What one of the operator's commands answers."""
        if self._operator is None:
            self._operator = subprocess.Popen(
                [sys.executable, "-c", OPERATOR],
                env=self.processes.environment("operator"),
                cwd=self.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._operator.stdin is not None
        assert self._operator.stdout is not None
        self._operator.stdin.write(json.dumps([*words, "--format", "json"]) + "\n")
        self._operator.stdin.flush()
        code = self._operator.stdout.readline().strip()
        said = (self.folder / "answer.txt").read_text()
        try:
            return json.loads(said)
        except json.JSONDecodeError:
            raise AssertionError(f"flwr {words[0]}: code {code}\n{said}") from None

    def flwr_text(self, *words: str, home: str = "operator") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "flwr", *words],
            env=self.processes.environment(home),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=900,
        )

    def _is_healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "tls" / "ca.crt"))
        try:
            with urllib.request.urlopen(f"https://{self.address}/health", context=context, timeout=60) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def assert_exact(trial: Trial, output: Path, survivors: Sequence[int]) -> None:
    """The model a run left is that of the survivors' pooled rows, and certified."""
    assert_pooled(output, trial.rows, survivors)
    summary = json.loads((output / "summary.json").read_text())
    assert set(map(tuple, summary["survivors"])) == {tuple(survivors)}
    assert (summary["certified"], summary["uncertified"]) == (True, [])
