"""A trial's parties as processes of this host: they are started, killed, started again, and asked for runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from analytic_secagg.certificates import Authority
from analytic_secagg.errors import UsageError
from analytic_secagg.local.server import PORT
from analytic_secagg.server.run_settings import template_settings
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.key_files import write_new
from analytic_secagg.trial import Trial

SERVER = "server"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_PATIENCE_SECONDS = 20.0


class LocalDeployment:
    """The server and every site of a trial, each a process with a log of its own; all end with this one.

    It may be opened again over the same folder, also after a crash: certificates are made anew, all else is as it was.

    Args:
        trial: the parties' files; its folder gets ``tls`` folders and logs.
        pace_seconds: the server waits so long before each exchange, for people who watch.

    Raises:
        DeploymentError: the server does not start, or another deployment is open over this folder.
    """

    def __init__(self, trial: Trial, *, pace_seconds: float = 0.0) -> None:
        self.trial = trial
        self.hosts = sorted(path.parent.name for path in trial.folder.glob("*-*/site.toml"))
        """The names of all but the server."""
        self._pace_seconds = pace_seconds
        self._malicious: set[str] = set()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._order = ""
        """The order that has not ended yet."""
        self._lock = _locked(trial.folder)
        try:
            _write_tls(trial.folder, self.hosts)
            (trial.folder / SERVER / PORT).unlink(missing_ok=True)  # of another deployment's
            self._port = self._start_server()
            for host in self.hosts:
                self.start(host)
        except BaseException:
            self.close()
            raise

    def start(self, host: str, *, malicious: bool = False) -> None:
        """Start a party's process, in the place of one that runs.

        The server is started with the command that it had before, and is given the order that has not ended: it goes
        on with its run.

        Args:
            host: whose.
            malicious: whether a helper sends wrong sums.

        Raises:
            UsageError: there is no such party.
            DeploymentError: the server does not start; another process may listen at its port.
        """
        self.kill(host)
        if host in self._processes:
            self._end(host)
        if host == SERVER:
            self._start_server()
            self._send(self._order)
            return
        (self._malicious.add if malicious else self._malicious.discard)(host)
        self._start(host, f"analytic_secagg.local.{'malicious_helper' if malicious else 'node'}", self._port)

    def kill(self, host: str) -> None:
        """End a party's process as a power cut would.

        Raises:
            UsageError: there is no such party.
        """
        if host not in (SERVER, *self.hosts):
            raise UsageError(f"there is no {host}; it is one of {', '.join(self.hosts)}")
        if host in self._processes:
            self._processes[host].kill()
            if host != SERVER:  # whoever waits for a run reads the server's output to its end
                self._end(host)

    def process(self, name: str) -> int | None:
        """The number of a party's process; None if it does not run."""
        process = self._processes.get(name)
        return process.pid if process is not None and process.poll() is None else None

    def is_malicious(self, host: str) -> bool:
        """Return whether a helper was started as a malicious one."""
        return host in self._malicious

    def log(self, name: str) -> Path:
        """Return the file of a party's own log."""
        return self.trial.folder / f"{name}.log"

    def order(self, run: str, **settings: Any) -> None:
        """Ask the server for a run over whoever runs now.

        Args:
            run: its name, of a folder beside the server's models.
            settings: see ``RunSettings``; what is not said is as in the app's template.
        """
        nodes = sum(self.process(host) is not None for host in self.hosts)
        said = (
            template_settings() | {"nodes": nodes} | {name.replace("_", "-"): value for name, value in settings.items()}
        )
        self._order = json.dumps({"run": run, "settings": said}) + "\n"
        self._send(self._order)

    def wait(self) -> tuple[str, str] | None:
        """Wait for the end of the run that was ordered: why it failed (a kind and a reason), None if it did not.

        Raises:
            DeploymentError: the server is gone; ``start`` lets it go on.
        """
        server = self._processes.get(SERVER)
        assert server is None or server.stdout is not None, "it is a pipe"
        if server is None or server.stdout is None or not (line := server.stdout.readline()):
            raise DeploymentError(
                f"the server ended during the run; read {self.log(SERVER)}, and start it again: it goes on"
            )
        self._order = ""
        error = json.loads(line)["error"]
        return None if error is None else (error[0], error[1])

    def output(self, run: str) -> Path:
        """Return the folder of a run's results."""
        return self.trial.folder / SERVER / "models" / run

    def close(self) -> None:
        """Let all processes end; kill who does not."""
        for process in self._processes.values():
            if process.stdin is not None:
                with suppress(BrokenPipeError):  # what was written to a process that was gone
                    process.stdin.close()
        for name, process in list(self._processes.items()):
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)
            process.kill()
            self._end(name)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close."""
        self.close()

    def _start_server(self) -> str:
        """Start the server's process; return its port."""
        server = self._start(SERVER, "analytic_secagg.local.server", str(self._pace_seconds))
        assert server.stdout is not None, "it is a pipe"
        port = server.stdout.readline().strip()
        if not port:
            raise DeploymentError(f"the server must print its port and did not; read {self.log(SERVER)}")
        return port

    def _send(self, order: str) -> None:
        server = self._processes.get(SERVER)
        if server is not None and server.stdin is not None:
            with suppress(BrokenPipeError):  # wait() tells that it is gone
                server.stdin.write(order)
                server.stdin.flush()

    def _start(self, name: str, module: str, argument: str) -> subprocess.Popen[str]:
        with self.log(name).open("a") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603  (our own modules and folders)
                self._command(name, module, argument),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if name == SERVER else subprocess.DEVNULL,
                stderr=log,
                env=os.environ | ONE_THREAD,
                text=True,
                start_new_session=True,  # Ctrl-C is for the parent, which closes them in order
            )
        return self._processes[name]

    def _command(self, name: str, module: str, argument: str) -> list[str]:
        return [sys.executable, "-m", module, str(self.trial.folder / name), argument]

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was written to a process that was gone
                    stream.close()


def _locked(folder: Path) -> int:
    """Return a descriptor that keeps other deployments out of this folder until it is closed, by a crash too.

    Raises:
        DeploymentError: another one is open over it.
    """
    import fcntl  # POSIX only

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise DeploymentError(
            f"a deployment must be alone in its folder, and another one is open over {folder}: end that one first"
        ) from error
    return descriptor


def _write_tls(folder: Path, hosts: list[str]) -> None:
    """Each party's certificate, by an authority that nobody has afterwards; a node's names its number.

    Those of an earlier deployment over the same folder are replaced: nobody has their authority any more.
    """
    authority = Authority()
    for name in (SERVER, *hosts):
        of = ("localhost", "127.0.0.1") if name == SERVER else (name.rpartition("-")[2],)
        certificate, key = authority.issue(*of)
        tls = folder / name / "tls"
        shutil.rmtree(tls, ignore_errors=True)
        tls.mkdir(mode=0o700)
        (tls / "ca.crt").write_bytes(authority.certificate)
        (tls / "own.crt").write_bytes(certificate)
        write_new(tls / "own.key", key)
