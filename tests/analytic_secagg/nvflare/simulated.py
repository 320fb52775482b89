"""A job in NVFlare's simulator over a trial's sites: the server and each client are processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic_secagg.nvflare.job import write_job
from analytic_secagg.server.server_file import SERVER_VARIABLE
from analytic_secagg.site.site_file import SITES_VARIABLE
from analytic_secagg.trial import Trial

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


def output(trial: Trial, run: str) -> Path:
    return trial.folder / "server" / "models" / f"{run}-simulate_job"


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def assert_exact(trial: Trial, folder: Path, survivors: list[int]) -> None:
    """The model that lies there has the bytes of the survivors' pooled rows."""
    saved = load_model(folder / "model.safetensors")
    pooled = fit_pooled(saved.learner, ClientRows.pool([trial.rows[party] for party in survivors]))
    assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)
    assert summary(folder)["survivors"][-1] == survivors
