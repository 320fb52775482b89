"""The benchmark of memory goes through a whole federation: its model is that of the pooled rows, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = "--modes masked --features 12 --classes 3 --rows 20 --clients 3 --solve"


def test_each_party_is_measured_and_the_model_is_that_of_the_pooled_rows() -> None:
    command = [sys.executable, "-m", "benchmarks.memory", *SMALL.split()]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for stage in ("client | rows to vector", "client | messages", "server | messages", "server | total to model"):
        assert f"| masked | {stage} |" in said
    assert "the pooled rows' own" in said
    assert "NOT" not in said
