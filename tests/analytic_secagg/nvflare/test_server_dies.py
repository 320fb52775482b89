"""The process of a job is killed at NVFlare's server, and the next job of the same settings goes on with its run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from child_processes import wait_until
from flare_deployment import ENVIRONMENT, FlareDeployment
from reliability.stepping import counted
from support.rehearsed import assert_pooled


@pytest.mark.slow  # minutes of real processes
def test_the_next_job_goes_on_where_the_one_before_died(tmp_path: Path) -> None:
    """While vectors come, and when the total is there and nobody has it yet; each site sends one vector a sum."""
    deployment = FlareDeployment(tmp_path / "trial", n_sites=5)
    server = deployment.folder / "server"
    try:
        deployment.start_server(counted(server, ENVIRONMENT["PYTHONPATH"]))
        for site in deployment.sites:
            deployment.start_site(site)
        deployment.wait_connected(*deployment.sites)
        for number, (mode, dies) in enumerate(
            [("masked", "round closes SHARE_DELIVERY"), ("committee", "before saving session sum total 0")]
        ):
            settings = {"mode": mode, "ridge": 0.5 + number, "round_seconds": 60.0}
            whole = deployment.submit(**settings)
            deployment.wait_ended(whole)
            steps = (server / "steps").read_text().splitlines()
            (server / "steps").write_text("")
            number = next(number for number, step in enumerate(steps, start=1) if step.startswith(dies))
            (server / "fault").write_text(f"{number} kill")
            killed = deployment.submit(**settings)
            wait_until(lambda: not (server / "fault").exists(), f"the death at {dies}", seconds=600)
            again = deployment.submit(**settings)
            ended = deployment.wait_ended(again)
            assert not deployment.output(again).exists(), ended
            assert_pooled(deployment.output(killed), deployment.trial.rows, [1, 2, 3, 4, 5])
            print(f"{mode}: died at {dies}; the next job ended as {ended}", flush=True)
    finally:
        deployment.close()
