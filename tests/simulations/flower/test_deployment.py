"""A real deployment on loopback: TLS, node keys, processes that are killed. The model is exact to the bit."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import SavedModel, load_model
from simulations.flower.certificates import node_key_pair

CRASHING, KILLED = "site-4", "site-5"


@pytest.mark.slow  # minutes of real processes; `python -m simulations.flower rehearse` is its short form
def test_a_deployment_from_start_to_end(deployment: Any) -> None:
    """One deployment for all of it: processes take longer to start than a sum does."""
    _start_sites(deployment)
    _an_unregistered_key_is_refused(deployment)
    _everybody_stays(deployment)
    _the_serverapp_is_killed(deployment)
    _two_sites_are_killed(deployment)


def _start_sites(deployment: Any) -> None:
    sites = [f"site-{party}" for party in deployment.trial.rows]
    folder = deployment.folder / CRASHING
    text = (folder / "site.toml").read_text().replace('"rows.npz"', '"crash_when_asked:load"')
    (folder / "site.toml").write_text(text)
    for site in sites:
        deployment.register(site)
    crash = {
        "CRASH_WHEN": str(deployment.folder / "crash"),
        "CRASH_ROWS": str(folder / "rows.npz"),
        "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{deployment.python_path}",
    }
    for site in sites:
        deployment.start_supernode(site, extra=crash if site == CRASHING else None)
    deployment.wait_online(len(sites))


def _an_unregistered_key_is_refused(deployment: Any) -> None:
    """A node with a key that the operator did not register ends by itself, and is never online."""
    wrong = deployment.folder / "wrong-key"
    wrong.write_bytes(node_key_pair()[0])
    wrong.chmod(0o600)
    deployment.start_supernode("site-1", key=wrong, name="stranger")
    assert deployment.processes["stranger"].wait(timeout=90) != 0
    assert "2004" in deployment.log("stranger") or "not registered" in deployment.log("stranger")
    deployment.wait_online(len(deployment.trial.rows))


def _everybody_stays(deployment: Any) -> None:
    run = deployment.submit(mode="committee", round_seconds=60.0)
    assert deployment.wait_finished(run) == "finished:completed", deployment.progress(run)
    _is_exact(deployment, run, survivors=[1, 2, 3, 4, 5])


def _the_serverapp_is_killed(deployment: Any) -> None:
    """The run ends and says that it failed; nothing of it is left but sealed files, and the next run works."""
    run = deployment.submit(mode="masked", round_seconds=60.0)
    deployment.wait_for(lambda: any(line["event"] == "party" for line in deployment.progress(run)), "keys")
    serverapps = deployment.children("superlink", "flwr-serverapp")
    assert serverapps, deployment.log("superlink")
    for pid in serverapps:
        os.kill(pid, signal.SIGKILL)
    assert deployment.wait_finished(run) == "finished:failed"
    assert not (deployment.output(run) / "model").exists()


def _two_sites_are_killed(deployment: Any) -> None:
    """One when its vector is due, after it shared its keys; one when its masked vector has arrived."""
    (deployment.folder / "crash").touch()
    run = deployment.submit(mode="masked", round_seconds=40.0)

    def has_sent_its_vector() -> bool:
        return any(
            line["event"] == "party" and (line["party"], line["sent"]) == (5, "MASKED_INPUT")
            for line in deployment.progress(run)
        )

    deployment.wait_for(has_sent_its_vector, "the masked vector of client 5")
    deployment.kill(KILLED)
    assert deployment.wait_finished(run) == "finished:completed", deployment.progress(run)
    lines = deployment.progress(run)
    assert (4, "SEALED_SHARES") in {(line.get("party"), line.get("sent")) for line in lines}
    assert (5, "SURVIVOR_SIGNATURE") not in {(line.get("party"), line.get("sent")) for line in lines}
    assert deployment.processes[CRASHING].wait(timeout=30) == -signal.SIGKILL
    _is_exact(deployment, run, survivors=[1, 2, 3, 5])
    _no_session_is_left(deployment, run)


def _is_exact(deployment: Any, run: str, *, survivors: list[int]) -> None:
    saved: SavedModel = load_model(deployment.output(run) / "model")
    pooled = fit_pooled(saved.learner, ClientRows.pool([deployment.trial.rows[party] for party in survivors]))
    everybody = fit_pooled(saved.learner, ClientRows.pool(list(deployment.trial.rows.values())))
    weights = saved.learner.weights_bytes(saved.model)
    assert weights == saved.learner.weights_bytes(pooled)
    assert (weights == saved.learner.weights_bytes(everybody)) == (len(survivors) == len(deployment.trial.rows))
    assert deployment.summary(run)["survivors"] == [survivors]
    assert deployment.summary(run)["weights_sha256"] == hashlib.sha256(weights).hexdigest()


def _no_session_is_left(deployment: Any, run: str) -> None:
    """Of the two finished runs the sites that live hold nothing but their ids; of the killed one a sealed session."""
    for party in (1, 2, 3):
        state = deployment.folder / f"site-{party}" / "state"
        assert len(list(state.glob("*.over"))) == 2
        assert len(list(state.glob("*.invitation"))) == 1
