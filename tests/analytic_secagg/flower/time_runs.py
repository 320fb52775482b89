"""Time runs under Flower's commands and ours.

``PYTHONPATH=.:tests python tests/analytic_secagg/flower/time_runs.py`` prints a line for each run.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from loopback_deployment import FLOWERS_OWN, WARM, Deployment, assert_exact

N_SITES = 5


def cpu_seconds(deployment: Deployment) -> float:
    """What all its processes have used, those that ended too."""
    ticks = 0
    for pid in [pid for name in ("superlink", *deployment.sites) for pid in deployment.processes.find(name)]:
        ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def time_runs(command: str, folder: Path) -> None:
    """Print one line a run, from ``flwr run`` until all sites were told of the end."""
    deployment = Deployment(folder, n_sites=N_SITES, n_helpers=2)
    try:
        deployment.start_superlink(command=command)
        deployment.register(deployment.sites)
        for site in deployment.sites:
            deployment.start_supernode(site, command=command)
        deployment.wait_online(deployment.sites)
        for mode in ("masked", "committee"):
            began, used = time.monotonic(), cpu_seconds(deployment)
            run = deployment.submit(mode=mode, dropout=0.2, join_seconds=300.0, round_seconds=300.0)
            deployment.wait_told(run)
            seconds, used = time.monotonic() - began, cpu_seconds(deployment) - used
            rounds = [line for line in deployment.progress(run) if line["event"] == "round closes"]
            n_messages = sum(line["expected"] for line in rounds)
            print(
                f"{command.split()[-1]:22} {mode:10} {seconds:6.1f} s, {used:5.1f} CPU s, {len(rounds)} exchanges,"
                f" {n_messages} messages, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
            assert deployment.wait_status(run) == "finished:completed"
            assert_exact(deployment.trial, deployment.output(run), survivors=list(deployment.trial.rows))
    finally:
        deployment.close()


if __name__ == "__main__":
    for name in (FLOWERS_OWN, WARM):
        with tempfile.TemporaryDirectory() as parent:
            time_runs(name, Path(parent) / "trial")
