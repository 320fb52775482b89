"""Real targets over real processes: RI, columns agreed on, a ridge chosen, judged and made personal at the sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from loopback_deployment import Deployment, assert_exact

from analytic.agreeing import settled
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from federation.__main__ import main

CLIENTS = (1, 2, 3, 4, 5)
HOLDER = 2
LEARNERS = 'learners = ["fedhip", "agreed-chosen-fedhip", "evaluation-of-targets"]'
PATIENT = {"mode": "masked", "join_seconds": 300.0, "round_seconds": 300.0, "dropout": 0.4, "allow_low_rank": False}


def _results(deployment: Deployment, party: int, pattern: str) -> set[Path]:
    return set((deployment.folder / f"site-{party}" / "results").glob(pattern))


def _run(deployment: Deployment, **settings: object) -> str:
    """A run is exact, and a site makes its own model of what it was given; the run's id."""
    before = _results(deployment, HOLDER, "model-*")
    run = deployment.submit(learner="fedhip", **PATIENT, **settings)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert_exact(deployment.trial, deployment.output(run), survivors=CLIENTS)
    (model,) = _results(deployment, HOLDER, "model-*") - before
    own, site = deployment.folder / f"own-{run}.safetensors", deployment.folder / f"site-{HOLDER}" / "site.toml"
    assert main(["personalise", str(model), str(site), "--alpha", "3", "--output", str(own)]) == 0
    saved = load_model(model)
    learner, found = settled(saved.learner, saved.model)
    (expected,) = learner.personalise(found, deployment.trial.rows[HOLDER], [3.0])
    assert load_model(own).model.weights.tobytes() == expected.weights.tobytes()
    return run


def _is_judged(deployment: Deployment, run: str) -> None:
    """The evaluation is that of the pooled rows, and lies at the site that the roster names."""
    (judged,) = _results(deployment, HOLDER, "evaluation-*")
    report = load_model(judged)
    rows = ClientRows.pool([deployment.trial.test_rows[party] for party in CLIENTS])
    assert report.learner.weights_bytes(report.model) == report.learner.weights_bytes(fit_pooled(report.learner, rows))
    said = json.loads((deployment.output(run) / "evaluation.json").read_text())
    assert said["r2"] == list(report.model.r2)
    assert 0.3 < said["r2"][0] < 0.7


@pytest.mark.slow  # two minutes of real processes
def test_a_regression_with_ri_and_one_whose_columns_and_ridge_are_found_by_sums(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path / "trial", n_sites=5, n_helpers=2, dataset="diabetes")
    try:
        for path in deployment.folder.rglob("roster.toml"):
            path.write_text(f"totals = [{HOLDER}]\n" + path.read_text())
        for site in deployment.sites:
            path = deployment.folder / site / "site.toml"
            path.write_text(path.read_text().replace('learners = ["afl"]', LEARNERS))
        deployment.start_superlink()
        deployment.register(deployment.sites)
        for site in deployment.sites:
            deployment.start_supernode(site)
        _is_judged(deployment, _run(deployment, ri=1.0, evaluate=True))
        _run(deployment, ridge="cv", feature_format="standardised", target_format="agreed")
        for party in CLIENTS:
            counts = [len(_results(deployment, party, pattern)) for pattern in ("model-*", "evaluation-*", "totals-*")]
            assert counts == ([2, 1, 3] if party == HOLDER else [2, 0, 0])
    finally:
        deployment.close()
