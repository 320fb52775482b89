"""Flower's own simulation engine over a trial's sites: ``flwr run … local``, as the how-to describes it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from child_processes import reserve_port
from loopback_deployment import Deployment, assert_exact

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="Flower's simulation engine needs Ray: pip install 'flwr[simulation]'"
)

N_SITES = 5


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Ray's sockets need a path of less than 107 bytes, so its own folder lies elsewhere."""
    folder = tmp_path / "trial"
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as ray:
        environment = {
            "ANALYTIC_SECAGG_SERVER": str(folder / "server" / "server.toml"),
            "ANALYTIC_SECAGG_SITES": str(folder),
            "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(reserve_port()),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's word for: listen on loopback alone
            "HOME": str(folder / "operator-home"),
            "RAY_TMPDIR": ray,
        }
        running = Deployment(folder, n_sites=N_SITES, n_helpers=2, superlink="local", environment=environment)
        # With this file there Ray does not ask the metadata addresses of clouds where it is.
        (folder / "operator-home" / "ray_bootstrap_config.yaml").write_text("{}\n")
        try:
            yield running
        finally:
            running.close()


@pytest.mark.slow  # starts Ray, which not every machine lets run; half a minute
def test_flwr_run_over_a_trial(deployment: Deployment) -> None:
    """Node k is site k + 1, the model is exact, and nobody speaks to another host."""
    size = f"num-supernodes={N_SITES} client-resources-num-cpus=1"
    run = deployment.submit("--federation-config", size, mode="committee", join_seconds=300.0, round_seconds=300.0)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert_exact(deployment.trial, deployment.output(run), survivors=list(deployment.trial.rows))
    assert deployment.addresses_seen == {"127.0.0.1"}
    assert deployment.way_out.requests() == []
