"""NVFlare's FedAvg over a secure mean: jobs that differ in four lines, and a simulation with the weighted mean."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install 'analytic-secagg[nvflare]'")

from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from support.page_diffs import applied

from analytic_secagg.errors import UsageError
from analytic_secagg.nvflare.mean import SecureFedAvg, SecureMeanFilter

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "average-with-nvflare.md").read_text(encoding="utf-8")
TRAIN, PLAIN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
(DIFF,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
TERMS: dict[str, Any] = {"max_weight": 100, "metrics": ["loss"]}


def test_the_jobs_differ_in_four_lines() -> None:
    assert len([line for line in applied(PLAIN, DIFF).splitlines() if line not in PLAIN.splitlines()]) == 4


@pytest.mark.slow  # a simulation of five processes
def test_the_job_leaves_the_weighted_mean(tmp_path: Path) -> None:
    """Two rounds over four clients, who add 1 to 4 with weights of 10 to 40: each round adds 3."""
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (tmp_path / "job.py").write_text(applied(PLAIN, DIFF), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "job.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("simulation/server/simulate_job/models/server.npy")
    assert np.abs(np.load(path) - [[7.0, 8.0, 9.0]]).max() < 1e-5
    assert (done.stdout + done.stderr).count("secure mean: 4 clients, weight 100") == 2


def test_what_needs_single_models_is_refused() -> None:
    for options in ({"aggregation_weights": {"site-1": 2.0}}, {"exclude_vars": "bias"}):
        with pytest.raises(UsageError, match="a secure mean has no single models"):
            SecureFedAvg(terms=TERMS, **options)


def test_a_training_that_no_mean_asked_for_leaves_no_model() -> None:
    """Such as a server with plain FedAvg: the filter sends nothing of the result."""
    trained = DXO(DataKind.WEIGHTS, data={"w": np.arange(4.0)}, meta={"loss": 0.25}).to_shareable()
    trained.set_header("current_round", 3)
    left = SecureMeanFilter(terms=TERMS).process(trained, FLContext())
    assert from_shareable(left).data == {}
    assert "loss" not in repr(left)
    assert "w'" not in repr(left)
