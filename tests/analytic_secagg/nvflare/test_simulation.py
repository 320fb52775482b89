"""A job in NVFlare's simulator, whose server and clients are processes of their own: the bits of the pooled rows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from support.rehearsed import assert_pooled, is_wiped, run_config

from analytic_secagg.datasets import bundled
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
