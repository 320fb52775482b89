"""A deployment on loopback: SuperLink and SuperNodes as processes of their own, with TLS, ended at teardown."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from simulations.data import bundled
from simulations.flower.trial import Trial

with warnings.catch_warnings():  # what Flower imports warns of its own future; that is no fault of a test
    warnings.simplefilter("ignore")
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parents[3]

N_SITES, N_HELPERS = 5, 2

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], Any], what: str, *, seconds: float, every: float = 0.3) -> Any:
    """The first true answer of ``ready``; a test that waits longer than ``seconds`` fails with ``what``."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := ready():
            return found
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds:g} seconds")


def birth(pid: int) -> str:
    """When a process started; empty once it is gone. Number and birth together name one process for ever."""
    return _status(pid)[21] if _status(pid) else ""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def descendants(pids: set[int]) -> set[tuple[int, str]]:
    """These processes and all that they started, by number and birth."""
    everybody = {int(path.name): _status(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    parents = {pid: int(status[3]) for pid, status in everybody.items() if status}
    family = pids & parents.keys()
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return {(pid, everybody[pid][21]) for pid in family}


def _status(pid: int) -> list[str]:
    """The fields of /proc/pid/stat, the command's name without its brackets; empty for no process."""
    try:
        head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    except OSError:
        return []
    return [str(pid), head.partition("(")[2], *tail.split()]


class Deployment:
    """One SuperLink and the SuperNodes of a trial folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.python_path = str(ROOT)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._left_behind: set[tuple[int, str]] = set()
        self.trial = Trial.create(folder, bundled("digits"), n_sites=N_SITES, n_helpers=N_HELPERS, address=self.address)

    def start_superlink(self) -> None:
        tls = self.folder / "tls"
        self._start(
            "superlink",
            f"flower-superlink --host 127.0.0.1 --port {self.port} --enable-supernode-auth "
            "--disable-runtime-dependency-installation "
            f"--ssl-ca-certfile {tls}/ca.crt --ssl-certfile {tls}/server.crt --ssl-keyfile {tls}/server.key",
            {"ANALYTIC_SECAGG_SERVER": str(self.folder / "server" / "server.toml")},
        )
        wait_until(self._is_healthy, "the SuperLink's /health", seconds=90)

    def register(self, site: str) -> None:
        public = self.folder / site / "node.pub"
        self.flwr("supernode", "register", str(public), "trial", "--name", site, "--format", "json")

    def start_supernode(
        self, site: str, *, name: str = "", key: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> None:
        folder = self.folder / site
        self._start(
            name or site,
            f"flower-supernode --superlink {self.address} --root-certificates {self.folder}/tls/ca.crt "
            f"--auth-supernode-private-key {key or folder / 'node'} --host 127.0.0.1 --port {free_port()} "
            f"--node-config 'site=\"{folder}/site.toml\"'",
            extra or {},
        )

    def wait_online(self, n_nodes: int) -> None:
        wait_until(lambda: self._n_online() >= n_nodes, f"{n_nodes} SuperNodes online", seconds=120, every=1.0)

    def submit(self, **settings: object) -> str:
        """Start a run and return its id."""
        pairs = {name.replace("_", "-"): value for name, value in settings.items()}
        texts = [f'{name}="{value}"' if isinstance(value, str) else f"{name}={value}" for name, value in pairs.items()]
        started = self.flwr("run", str(self.folder / "app"), "trial", "-c", " ".join(texts), "--format", "json")
        return str(started["run-id"])

    def status(self, run: str) -> str:
        return str(self.flwr("list", "--run-id", run, "trial", "--format", "json")["runs"][0]["status"])

    def wait_finished(self, run: str, *, seconds: float = 180) -> str:
        def finished() -> str | None:
            status = self.status(run)
            return status if status.startswith("finished") else None

        return str(wait_until(finished, f"the end of run {run}", seconds=seconds, every=1.0))

    def output(self, run: str) -> Path:
        return self.folder / "server" / "models" / f"run-{run}"

    def progress(self, run: str) -> list[dict[str, Any]]:
        path = self.output(run) / "progress.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def summary(self, run: str) -> dict[str, Any]:
        return dict(json.loads((self.output(run) / "summary.json").read_text()))

    def wait_for(self, ready: Callable[[], Any], what: str) -> None:
        wait_until(ready, what, seconds=120)

    def children(self, name: str, command: str) -> list[int]:
        """The descendants of a process whose command line has ``command`` in it."""
        family = descendants({self.processes[name].pid})
        return [pid for pid, _ in family if command in command_line(pid)]

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name: str) -> None:
        """SIGKILL to a process and its children, at once, as when a host loses power."""
        process = self.processes[name]
        self._left_behind |= descendants({process.pid})
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)

    def flwr(self, *words: str) -> Any:
        environment = self._environment("operator")
        environment["FLWR_HOME"] = str(self.folder / "operator-home")
        done = subprocess.run([BIN / "flwr", *words], env=environment, capture_output=True, text=True, timeout=120)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise AssertionError(f"flwr {words[0]}: code {done.returncode}\n{done.stdout}\n{done.stderr}") from None

    def close(self) -> None:
        """End what was started here, and what that started, by process id."""
        family = descendants({process.pid for process in self.processes.values()}) | self._left_behind
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        ends = time.monotonic() + 20
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0.1, ends - time.monotonic()))
        for pid, born in family:
            if birth(pid) == born:  # else it ended, and its number may be somebody else's by now
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self.processes.values():
            process.wait(timeout=30)

    def _start(self, name: str, command: str, extra: Mapping[str, str]) -> None:
        log = (self.folder / f"{name}.log").open("wb")
        self.processes[name] = subprocess.Popen(
            shlex.split(f"{BIN}/{command}"),
            env=self._environment(name) | dict(extra),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()

    def _environment(self, name: str) -> dict[str, str]:
        home = self.folder / f"{name}-home"
        home.mkdir(exist_ok=True)
        return (
            os.environ
            | QUIET
            | {"FLWR_HOME": str(home), "PYTHONPATH": self.python_path, "PATH": f"{BIN}:{os.environ['PATH']}"}
        )

    def _is_healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.folder / "tls" / "ca.crt"))
        try:
            with urllib.request.urlopen(f"https://{self.address}/health", context=context, timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _n_online(self) -> int:
        nodes = self.flwr("supernode", "list", "trial", "--format", "json")["nodes"]
        return sum(node["status"] == "online" for node in nodes)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    running = Deployment(tmp_path_factory.mktemp("deployment") / "trial")
    try:
        running.start_superlink()
        yield running
    finally:
        running.close()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial.create(
        tmp_path / "trial", bundled("digits"), n_sites=N_SITES, n_helpers=N_HELPERS, address="127.0.0.1:8000"
    )
