"""Trials in a folder of their own; the modules that start an engine's real processes are importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from analytic_secagg.datasets import bundled
from analytic_secagg.trial import Trial

sys.path += [str(Path(__file__).parent / engine) for engine in ("flower", "nvflare")]


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial.create(tmp_path / "trial", bundled("digits"), n_sites=5, n_helpers=2, are_rows_public=True)
