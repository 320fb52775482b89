"""A finished run is audited by its own totals and model, and a folder whose files do not belong together is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.model_files import save_model
from analytic.row_format import RowFormat
from analytic_secagg import federate
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.federation import Federation
from analytic_secagg.totals import totals_to_bytes
from secagg import SumResult
from simulations.audit.audit import audit
from simulations.audit.catalogue import choose_attacks
from simulations.audit.decide import Outcome, Verdict
from simulations.audit.finished_run import FinishedRun
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings


def run_of(data: Dataset, folder: Path, n_clients: int, n_rows: int) -> Path:
    """Write what a server leaves of a run over the first rows of each client; return the folder."""
    learner = AFL(
        n_features=64, n_targets=10, feature_format=RowFormat(integer_bits=5, fraction_bits=11), max_rows=2000
    )
    parts = [data.training.taken(np.arange(k * n_rows, (k + 1) * n_rows)) for k in range(n_clients)]
    federation = Federation(learner, release=None, sum_fits=True)
    step = federation.next_sum
    assert step is not None
    result = SumResult(
        total=np.sum([step.vector(rows) for rows in parts], axis=0), survivors=(*range(1, n_clients + 1),)
    )
    federation.take(result)
    folder.mkdir()
    save_model(folder / "model.safetensors", learner, federation.model)
    (folder / "totals.safetensors").write_bytes(totals_to_bytes([result]))
    (folder / "summary.json").write_text(json.dumps({"mode": "masked"}))
    return folder


def own(data: Dataset, n_rows: int) -> Dataset:
    """The first client's rows, beside rows that nobody used."""
    return replace(data, x_train=data.x_train[:n_rows], y_train=data.y_train[:n_rows])


def audited(data: Dataset, folder: Path, *attacks: str) -> Audit:
    settings = AuditSettings(attacks=choose_attacks(attacks), limits=(("membership", None),))
    return audit(data, settings, run=FinishedRun.read(folder))


def test_a_run_of_many_rows_passes_and_one_of_few_gives_the_owners_rows_back(digits: Dataset, tmp_path: Path) -> None:
    many = audited(own(digits, 100), run_of(digits, tmp_path / "many", 10, 100), "lattice_rows", "membership")
    assert many.decision is Verdict.PASSED
    assert many.run is not None
    assert (many.run.survivors, many.settings.clients) == (10, 10)
    totals = [one for one in many.exposures if one.kind == "total"]
    assert [(one.name, one.rows) for one in totals] == [("total 1 of the run", 1000)]
    few = audited(own(digits, 12), run_of(digits, tmp_path / "few", 3, 12), "lattice_rows")
    assert few.decision is Verdict.FAILED
    found = few.result("lattice_rows", "total 1 of the run")
    assert found is not None
    assert (found.outcome, found.hits, found.trials) == (Outcome.OVER, 12, 12)


def test_files_of_two_runs_are_refused(digits: Dataset, tmp_path: Path) -> None:
    one, other = run_of(digits, tmp_path / "one", 3, 40), run_of(digits, tmp_path / "other", 4, 40)
    (one / "totals.safetensors").write_bytes((other / "totals.safetensors").read_bytes())
    with pytest.raises(UsageError, match="do not give the model in it"):
        FinishedRun.read(one)
    (other / "summary.json").unlink()
    with pytest.raises(UsageError, match="must be the folder of a finished run"):
        FinishedRun.read(other)


def test_the_model_is_the_one_of_a_federation(digits: Dataset, tmp_path: Path) -> None:
    run = FinishedRun.read(run_of(digits, tmp_path / "run", 3, 40))
    parts = {str(k): digits.training.taken(np.arange(40 * k, 40 * k + 40)) for k in range(3)}
    model = federate(parts, run.learner, "masked").model
    assert run.learner.weights_bytes(model) == run.learner.weights_bytes(run.model)
