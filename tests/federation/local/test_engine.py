"""Whole deployments of processes over TLS on loopback: the bits of the pooled rows, whoever is killed or lies."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from federation.datasets import bundled
from federation.errors import UsageError
from federation.local.deployment import LocalDeployment
from federation.local.frames import receive_frame
from federation.site.errors import DeploymentError, WireError
from federation.trial import JOURNAL, Trial, fitted_settings

DATASET = bundled("iris")
N_SITES, N_HELPERS = 4, 4


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalDeployment]:
    """Helpers sit at the sites, so that there are five processes and not nine."""
    folder = tmp_path_factory.mktemp("local") / "trial"
    trial = Trial.create(folder, DATASET, n_sites=N_SITES, n_helpers=N_HELPERS, of_clients=JOURNAL)
    for path in trial.folder.glob("site-*/site.toml"):
        path.write_text(path.read_text().replace("modes = [", 'modes = ["plain", '))
    with LocalDeployment(trial) as running:
        yield running


def run(deployment: LocalDeployment, name: str, **settings: Any) -> tuple[str, str] | None:
    fitted = {key.replace("-", "_"): value for key, value in fitted_settings(DATASET, N_SITES).items()}
    deployment.order(name, **(fitted | settings))
    return deployment.wait()


def assert_exact(deployment: LocalDeployment, name: str, survivors: list[int]) -> dict[str, Any]:
    """The model has the bytes of the survivors' pooled rows; what the summary says."""
    saved = load_model(deployment.output(name) / "model.safetensors")
    pooled = fit_pooled(saved.learner, ClientRows.pool([deployment.trial.rows[party] for party in survivors]))
    assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)
    said: dict[str, Any] = json.loads((deployment.output(name) / "summary.json").read_text())
    assert said["survivors"] == [survivors]
    return said


@pytest.mark.parametrize("mode", ["plain", "masked", "committee"])
def test_the_bits_are_those_of_the_pooled_rows(deployment: LocalDeployment, mode: str) -> None:
    assert run(deployment, mode, mode=mode) is None
    assert_exact(deployment, mode, [1, 2, 3, 4])


def test_a_killed_site_is_away_and_a_lying_helper_is_named(deployment: LocalDeployment) -> None:
    deployment.kill("site-4")
    assert deployment.process("site-4") is None
    assert run(deployment, "killed", mode="masked") is None
    assert_exact(deployment, "killed", [1, 2, 3])
    deployment.start("site-4")
    deployment.start("site-2", lies=True)
    assert run(deployment, "lying", mode="committee") is None
    disputes = assert_exact(deployment, "lying", [1, 2, 3, 4])["sums"][0]["disputes"]
    assert disputes
    assert all(102 in pair for pair in disputes)
    assert deployment.lies("site-2")


def test_why_a_run_failed_is_told(deployment: LocalDeployment) -> None:
    error = run(deployment, "wrong", mode="masked", learner="none")
    assert error is not None
    assert error[0] == "RunSettingsError"
    assert "learner must be one of afl" in error[1]


def _connect(deployment: LocalDeployment, *, of: str = "") -> ssl.SSLSocket:
    """A connection to the server with the certificate of a site, or with none."""
    tls = ssl.create_default_context(cafile=deployment.trial.folder / "server" / "tls" / "ca.crt")
    if of:
        folder = deployment.trial.folder / of / "tls"
        tls.load_cert_chain(folder / "own.crt", folder / "own.key")
    return tls.wrap_socket(socket.create_connection(("127.0.0.1", int(deployment._port))), server_hostname="localhost")


def is_closed(connection: ssl.SSLSocket) -> bool:
    try:
        return connection.recv(1) == b""
    except OSError:  # which one is the system's choice
        return True


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff" * 8, "a frame has at most"),
        (b"\0" * 7 + b"\3abc", "does not come apart"),
        (b"\0" * 8, "a frame of 3 parts is due, not of 0"),
    ],
)
def test_what_is_no_frame_is_refused(sent: bytes, reason: str) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(sent)
        with pytest.raises(WireError, match=reason):
            receive_frame(other, 3)


def test_no_stranger_gets_in_and_noise_ends_a_connection_alone(deployment: LocalDeployment) -> None:
    with _connect(deployment) as stranger:
        assert is_closed(stranger)
    with _connect(deployment, of="server") as nobody:
        assert is_closed(nobody)
    with _connect(deployment, of="site-3") as noisy:
        noisy.sendall(b"\xff" * 64)
        assert is_closed(noisy)
    assert run(deployment, "after", mode="masked") is None
    assert_exact(deployment, "after", [1, 2, 3, 4])


def test_what_is_not_there_is_named(deployment: LocalDeployment, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no site-9; it is one of site-1"):
        deployment.kill("site-9")
    broken = Trial.create(tmp_path / "broken", DATASET, n_sites=4, n_helpers=0)
    (broken.folder / "server" / "server.toml").write_text("")
    with pytest.raises(DeploymentError, match=r"must print its port and did not; read .*server\.log"):
        LocalDeployment(broken)
