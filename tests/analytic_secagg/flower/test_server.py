"""The ServerApp by itself: how a run ends for whoever reads Flower's log."""

from __future__ import annotations

import logging

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from flwr.app import Context, RecordDict
from support.rehearsed import run_config

from analytic_secagg.flower.rehearsal import InProcessGrid
from analytic_secagg.flower.server import RunFailedError, app
from analytic_secagg.server.server_file import SERVER_VARIABLE
from analytic_secagg.trial import Trial

LOG = logging.getLogger("flwr")


def test_a_refused_total_ends_in_its_reason_and_no_traceback(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As Flower logs what an app raises; a fault of ours keeps its traceback."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            arrays = {name: archive[name][:6] for name in archive}
        np.savez(path, **arrays)
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    sites = {1000 + party: {"site": str(trial.folder / f"site-{party}" / "site.toml")} for party in trial.rows}
    context = Context(run_id=7, node_id=0, node_config={}, state=RecordDict(), run_config=run_config())
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with pytest.raises(RunFailedError) as failed:
        app(InProcessGrid(sites), context)
    LOG.error("%s raised an exception", "ServerApp", exc_info=failed.value)
    assert "ReleaseRefusedError: class rows: " in caplog.text
    assert "rank: the total has rank" in caplog.text
    assert "Traceback" not in caplog.text
    monkeypatch.setattr("analytic_secagg.flower.server.train", lambda *args, **names: 1 / 0)
    with pytest.raises(ZeroDivisionError) as fault:
        app(InProcessGrid(sites), context)
    LOG.error("%s raised an exception", "ServerApp", exc_info=fault.value)
    assert "Traceback" in caplog.text
