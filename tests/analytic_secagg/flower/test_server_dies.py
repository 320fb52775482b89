"""The ServerApp is killed at each save of its state, over real processes, and the next run goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from loopback_deployment import ENVIRONMENT, Deployment
from reliability.harness import is_right, renew_budget
from reliability.stepping import counted

from analytic_secagg.site.site_file import SiteFile

EPSILON = 2.0
PRIVACY = f'\n[privacy]\nepsilon = {2 * EPSILON}\nledger = "privacy.ledger"\n'
CASES = {
    "masked": {"mode": "masked"},
    "committee": {"mode": "committee"},
    "masked, noise": {"mode": "masked", "epsilon": EPSILON},
    "committee, noise": {"mode": "committee", "epsilon": EPSILON},
}


class KilledServerApps:
    """One deployment, whose ServerApps count their steps."""

    def __init__(self, deployment: Deployment, settings: dict[str, Any]) -> None:
        self.deployment, self._settings, self.trial = deployment, settings, deployment.trial
        self._server = deployment.folder / "server"

    def run(self, *, dies: bool = False) -> list[str]:
        """A run to its end; its steps, or those at which one ServerApp after the other was killed.

        Args:
            dies: whether each is killed, at the first save at which none was before, and another run is submitted.
        """
        for party in self._charged:
            renew_budget(self.trial, party)
        steps, died, fault = (self._server / name for name in ("steps", "died", "fault"))
        steps.write_text("")
        died.write_text("")
        runs = list[str]()
        if dies:
            fault.write_text("each kill")
            while not (found := died.read_text().splitlines()) or not found[-1].startswith("before saving ended"):
                runs.append(self._submit())
                self.deployment.wait(
                    lambda: len(died.read_text().splitlines()) > len(found), f"a death after {found}", every=0.1
                )
                print(f"{len(found) + 1}: died {died.read_text().splitlines()[-1]}", flush=True)
            fault.unlink()
        runs.append(self._submit())
        assert self.deployment.wait_status(runs[-1]) == "finished:completed", self.deployment.progress(runs[0])[-9:]
        (output,) = (run for run in runs if (self.deployment.output(run) / "summary.json").exists())
        settings = {name.replace("_", "-"): value for name, value in self._settings.items()}
        own = {name: value for name, value in self._app().items() if name not in settings}
        assert is_right(self.deployment.output(output), self.trial, own | settings, self.trial.rows)
        for party in self._charged:
            ledger = SiteFile.read(self.trial.site(party) / "site.toml").ledger
            assert ledger is not None
            assert len(ledger.releases) == 2, "paid once"
        return (died if dies else steps).read_text().splitlines()

    @property
    def _charged(self) -> list[int]:
        return list(self.trial.rows) if "epsilon" in self._settings else []

    def _submit(self) -> str:
        return self.deployment.submit(**self._settings, join_seconds=300.0, round_seconds=300.0)

    def _app(self) -> dict[str, Any]:
        from analytic_secagg.flower.trial import app_settings

        return app_settings(self.deployment.folder / "app")


@contextmanager
def killed_server_apps(folder: Path, case: str) -> Iterator[KilledServerApps]:
    """A deployment of five sites, two of them helpers, with a budget each where there is noise."""
    environment = counted(folder / "server", ENVIRONMENT["PYTHONPATH"])
    deployment = Deployment(folder, n_sites=5, n_helpers=2, dataset="breast_cancer", environment=environment)
    try:
        if "epsilon" in CASES[case]:
            for party in deployment.trial.rows:
                file = deployment.trial.site(party) / "site.toml"
                file.write_text(file.read_text() + PRIVACY)
        deployment.start_superlink()
        deployment.register(deployment.sites)
        for site in deployment.sites:
            deployment.start_supernode(site)
        deployment.wait_online(deployment.sites)
        yield KilledServerApps(deployment, dict(CASES[case]))
    finally:
        deployment.close()


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_goes_on_although_its_serverapp_dies_at_every_save(tmp_path: Path, case: str) -> None:
    """Right before and right after each, one death after the other in one run; each next one goes on."""
    with killed_server_apps(tmp_path / "trial", case) as of:
        saves = [step for step in of.run() if "saving" in step]
        died = of.run(dies=True)
        assert set(saves[:-1]) <= set(died), "after the last one the run has ended"
        print(f"{case}: {len(died)} deaths", flush=True)


@pytest.mark.slow  # Flower counts the SuperNode that died as there for a minute
def test_a_supernode_that_is_started_again_within_a_minute_is_patient(tmp_path: Path) -> None:
    """And its executor ends with it."""
    deployment = Deployment(tmp_path / "trial", n_sites=4, n_helpers=0, dataset="iris")
    try:
        deployment.start_superlink()
        deployment.register(["site-1"])
        deployment.start_supernode("site-1")
        deployment.wait_online(["site-1"])
        (executor, *_) = deployment.processes.find("site-1", "analytic_secagg.flower.superexec")
        (supernode,) = deployment.processes.find("site-1", "analytic_secagg.flower.supernode")
        os.kill(supernode, signal.SIGKILL)
        deployment.wait(lambda: executor not in deployment.processes.find("site-1", "superexec"), "the executor's end")
        deployment.wait(lambda: deployment.processes.exit_code("site-1"), "the SuperNode's end")
        deployment.start_supernode("site-1")
        deployment.wait(lambda: "still counts the process before" in deployment.processes.log("site-1"), "the reason")
        deployment.wait_online(["site-1"])
    finally:
        deployment.close()
