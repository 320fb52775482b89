"""Trials in a folder of their own; the modules beside this file that start real processes are importable."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import pytest

from federation.datasets import bundled
from federation.flower.trial import make_trial
from federation.trial import Trial

sys.path += [str(Path(__file__).parent / engine) for engine in ("flower", "nvflare")]

with warnings.catch_warnings(), contextlib.suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")  # what Flower imports warns of its own future; that is no fault of a test
    import flwr.clientapp
    import flwr.serverapp  # noqa: F401


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return make_trial(tmp_path / "trial", bundled("digits"), n_sites=5, n_helpers=2, address="127.0.0.1:8000")
