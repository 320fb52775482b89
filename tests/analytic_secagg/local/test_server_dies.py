"""The server's process is killed at each step that it records, and started again with the same command."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic_secagg.datasets import bundled
from analytic_secagg.local.command import DemoOptions, make_trial
from analytic_secagg.local.deployment import SERVER, LocalDeployment
from analytic_secagg.server.run_store import FILE
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.totals import read_totals
from analytic_secagg.trial import Trial, fitted_settings
from secagg import PartyId
from secagg.dp import Ledger

N_SITES = 5
EPSILON = 2.0
KILLED = Path(__file__).with_name("killed_server.py")

MODES = pytest.mark.parametrize("mode", ["masked", "committee"])
NOISE = pytest.mark.parametrize("epsilon", [0.0, EPSILON], ids=["exact", "noisy"])


class KillableDeployment(LocalDeployment):
    """A deployment whose server writes down its steps and is killed at one of them."""

    def _start(self, name: str, module: str, argument: str) -> subprocess.Popen[str]:
        if name != SERVER:
            return super()._start(name, module, argument)
        with pytest.MonkeyPatch.context() as patch:
            start = subprocess.Popen
            patch.setattr(subprocess, "Popen", lambda command, **options: start(_killable(command), **options))
            return super()._start(name, module, argument)


def _killable(command: list[str]) -> list[str]:
    """The same command, of the server that counts its steps."""
    return [command[0], str(KILLED), *command[3:]]


class Runs:
    """Runs over one deployment, each of rows that nobody has seen, and what became of their sites.

    Args:
        deployment: its processes.
        mode: of the runs.
        epsilon: of the noise of each; 0 for exact totals.
    """

    def __init__(self, deployment: LocalDeployment, mode: str, epsilon: float) -> None:
        self.deployment, self.trial = deployment, deployment.trial
        self._settings = {"mode": mode, "epsilon": epsilon, "round_seconds": 60.0, "join_seconds": 60.0}
        self._settings |= {
            name.replace("-", "_"): value for name, value in fitted_settings(bundled("breast_cancer"), N_SITES).items()
        }
        self._mode, self._is_noisy, self._number = mode, bool(epsilon), 0
        self._rng = np.random.default_rng(7)
        self.rows: dict[PartyId, ClientRows] = {}

    @property
    def name(self) -> str:
        return f"run-{self._number}"

    def begin(self) -> None:
        """Give every site rows of its own making, and order a run."""
        self._number += 1
        for party, dealt in self.trial.rows.items():
            shaken = dealt.features * self._rng.uniform(0.5, 1.0, dealt.features.shape)
            self.rows[party] = ClientRows(shaken, dealt.targets)
            self.trial.give_rows(party, self.rows[party])
            renew_budget(self.trial, party)
        self._before = self._counted()
        self.deployment.order(self.name, **self._settings)

    def end(self) -> tuple[str, str] | None:
        """Wait for the run's end, and start the server again each time that it died; how it failed."""
        while True:
            try:
                return self.deployment.wait()
            except DeploymentError:
                self.deployment.start(SERVER)

    def check(self, survivors: tuple[PartyId, ...] = (1, 2, 3, 4, 5)) -> None:
        """The total is that of the survivors' pooled rows, and every site paid for it once."""
        folder = self.deployment.output(self.name)
        totals, saved = read_totals(folder / "totals.safetensors"), load_model(folder / "model.safetensors")
        assert [total.survivors for total in totals] == [survivors] * len(totals)
        assert len(totals) == (2 if self._is_noisy else 1)
        if not self._is_noisy:
            pooled = fit_pooled(saved.learner, ClientRows.pool([self.rows[party] for party in survivors]))
            assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)
        for host, (n_totals, n_charges, n_sessions, _) in self._counted().items():
            before = self._before[host]
            if host.startswith("site-") and int(host[5:]) not in survivors:
                continue
            assert n_totals - before[0] == (len(totals) if self._has_part(host) else 0), "each total once"
            assert n_charges - before[1] == (2 if host.startswith("site-") and self._is_noisy else 0), "paid once"
            assert n_sessions - before[2] == (len(totals) if self._has_part(host) else 0), "the same sessions"
        with closing(sqlite3.connect(folder / FILE)) as state:
            assert {name for (name,) in state.execute("SELECT name FROM records")} == {"run", "ended"}

    def _has_part(self, host: str) -> bool:
        return host.startswith("site-") or self._mode == "committee"

    def _counted(self) -> dict[str, tuple[int, int, int, int]]:
        """Of each site the totals in its query log, the charges of its ledger, its sessions, and its vectors."""
        counted = {}
        for host in self.deployment.hosts:
            file = SiteFile.read(self.trial.folder / host / "site.toml")
            charges = 0 if file.ledger is None else len(file.ledger.releases)
            path = file.state / "sessions.sqlite"
            if not path.exists():
                counted[host] = (0, charges, 0, 0)
                continue
            n_totals, _ = Site(file).count_totals()
            with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as state:
                ((n_sessions,),) = state.execute("SELECT count(*) FROM sessions")
                ((n_vectors,),) = state.execute("SELECT count(*) FROM vectors")
            counted[host] = (n_totals, charges, n_sessions, n_vectors)
        return counted

    def die_at(self, number: int) -> None:
        """Let the server die at its step of this number in the next run."""
        (self.trial.folder / SERVER / "steps").write_text("")
        (self.trial.folder / SERVER / "kill").write_text(str(number))

    @property
    def steps(self) -> list[str]:
        return (self.trial.folder / SERVER / "steps").read_text().splitlines()


@contextmanager
def runs(folder: Path, mode: str, epsilon: float) -> Iterator[Runs]:
    """A deployment of five sites and four helpers, as the demonstration makes it."""
    options = DemoOptions(sites=N_SITES, dataset="breast_cancer", epsilon=epsilon, pace=0.0, port=0, no_browser=True)
    trial = make_trial(folder / "trial", bundled("breast_cancer"), options)
    with KillableDeployment(trial) as deployment:
        yield Runs(deployment, mode, epsilon)


def renew_budget(trial: Trial, party: PartyId) -> None:
    """Begin a ledger for rows that nobody has seen."""
    site = SiteFile.read(trial.site(party) / "site.toml")
    if site.privacy is not None and site.budget is not None:
        site.privacy.ledger.unlink()
        Ledger.create(site.privacy.ledger, site.budget)


def recorded(of: Runs) -> list[str]:
    """The steps of a run that nothing happens to."""
    of.die_at(0)
    of.begin()
    assert of.end() is None
    of.check()
    return of.steps


def survives(of: Runs, number: int) -> str:
    """Return at which step the server died; its run ended as if it had not."""
    of.die_at(number)
    of.begin()
    assert of.end() is None
    of.check()
    return of.steps[number - 1]


@MODES
@NOISE
def test_a_run_survives_its_server(tmp_path: Path, mode: str, epsilon: float) -> None:
    """At a few steps: while vectors come, and when the total is there and nobody has it yet."""
    with runs(tmp_path, mode, epsilon) as of:
        steps = recorded(of)
        chosen = [steps.index("round closes INVITATION"), steps.index("before saving session sum total 0")]
        for place in chosen:
            survives(of, place + 1)


@pytest.mark.slow
@MODES
@NOISE
def test_a_run_survives_its_server_at_every_step(tmp_path: Path, mode: str, epsilon: float) -> None:
    with runs(tmp_path, mode, epsilon) as of:
        for number, _ in enumerate(recorded(of), start=1):
            died = survives(of, number)
            print(f"died at {number}: {died}", flush=True)
