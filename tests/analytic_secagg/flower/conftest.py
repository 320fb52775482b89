"""Trials with all that Flower needs."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from analytic_secagg.datasets import bundled
from analytic_secagg.flower.trial import make_trial
from analytic_secagg.trial import Trial

if find_spec("flwr") is not None:
    with warnings.catch_warnings():  # what Flower imports warns of its own future; that is no fault of a test
        warnings.simplefilter("ignore")
        import flwr.clientapp
        import flwr.serverapp  # noqa: F401


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return make_trial(tmp_path / "trial", bundled("digits"), n_sites=5, n_helpers=2, address="127.0.0.1:8000")
