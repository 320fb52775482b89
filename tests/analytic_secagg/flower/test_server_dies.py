"""The ServerApp is killed at each save of its state, over real processes, and the next run goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'analytic-secagg[flower]'")

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

    def run(self, number: int = 0) -> tuple[list[str], str]:
        """A run whose ServerApp is killed at a step, and the next one of its settings; the steps, and the folder."""
        for party in self.trial.rows if "epsilon" in self._settings else ():
            renew_budget(self.trial, party)
        (self._server / "steps").write_text("")
        fault = self._server / "fault"
        if number:
            fault.write_text(f"{number} kill")
        waits = {"join_seconds": 300.0, "round_seconds": 300.0}
        runs = [self.deployment.submit(**self._settings, **waits)]
        if number:
            self.deployment.wait(lambda: not fault.exists(), f"the death of the ServerApp at step {number}", every=0.1)
            runs.append(self.deployment.submit(**self._settings, **waits))
        assert self.deployment.wait_status(runs[-1]) == "finished:completed", self.deployment.progress(runs[0])[-9:]
        (output,) = (run for run in runs if (self.deployment.output(run) / "summary.json").exists())
        settings = {name.replace("_", "-"): value for name, value in self._settings.items()}
        own = {name: value for name, value in self._app().items() if name not in settings}
        assert is_right(self.deployment.output(output), self.trial, own | settings, self.trial.rows)
        for party in self.trial.rows if "epsilon" in self._settings else ():
            ledger = SiteFile.read(self.trial.site(party) / "site.toml").ledger
            assert ledger is not None
            assert len(ledger.releases) == 2, "paid once"
        return (self._server / "steps").read_text().splitlines(), output

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


def dies_at(of: KilledServerApps, numbers: Sequence[int], steps: Sequence[str]) -> None:
    for number in numbers:
        of.run(number)
        print(f"died at {number} of {len(steps)}, {steps[number - 1]}", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_next_run_goes_on_at_whatever_save_the_serverapp_died(tmp_path: Path, case: str) -> None:
    """``FLOWER_STEPS`` takes every so many of them alone."""
    with killed_server_apps(tmp_path / "trial", case) as of:
        steps, _ = of.run()
        saves = [number for number, step in enumerate(steps, start=1) if "saving" in step]
        dies_at(of, saves[: -1 : int(os.environ.get("FLOWER_STEPS", "1"))], steps)


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
