"""Whole deployments of processes over TLS on loopback: the bits of the pooled rows, whoever is killed or lies."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from federation.datasets import bundled
from federation.errors import UsageError
from federation.local.deployment import LocalDeployment
from federation.local.frames import HOST, MAX_BYTES, receive_frame, send_frame
from federation.local.server import SocketTransport, server_tls
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
        ((MAX_BYTES + 1).to_bytes(8, "big"), f"a frame has at most 67108864 bytes, and one of {MAX_BYTES + 1} is"),
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


def test_who_comes_while_no_descriptor_is_free_gets_in_afterwards(deployment: LocalDeployment) -> None:
    """And who is late for an exchange that is over finds that nobody waits for it."""
    folder = deployment.trial.folder
    transport = SocketTransport(server_tls(folder / "server" / "tls"))
    with socket.socket() as raw:
        (free := os.dup(0), os.close(free))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            raw.connect((HOST, transport.port))
            time.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        tls = ssl.create_default_context(cafile=folder / "server" / "tls" / "ca.crt")
        tls.load_cert_chain(*(folder / "site-1" / "tls" / f"own.{half}" for half in ("crt", "key")))
        with tls.wrap_socket(raw, server_hostname=HOST) as node:
            wait_for(lambda: transport.nodes() == [1])
            (first,) = transport.send("STEP", {1: b"one"}, seconds=1, number=1)
            ticket, kind, content = receive_frame(node, 3)
            assert (ticket, kind, content) == (first.encode(), b"STEP", b"one")
            (second,) = transport.send("STEP", {1: b"two"}, seconds=1, number=2)
            (third,) = transport.send("STEP", {1: b"three"}, seconds=1, number=3)
            send_frame(node, ticket, b"", b"late")
            ticket, _, content = receive_frame(node, 3)
            assert (ticket, content) == (third.encode(), b"three")
            send_frame(node, ticket, b"", b"in time")
            wait_for(lambda: transport._answers)
            assert [transport.receive(one) for one in (first, second, third)] == [None, None, b"in time"]


def test_a_node_whose_process_ended_is_not_there_from_then_on(deployment: LocalDeployment) -> None:
    """Else a run counts the process that was there before a party was started anew, and begins without the new one."""
    folder = deployment.trial.folder
    transport = SocketTransport(server_tls(folder / "server" / "tls"))
    tls = ssl.create_default_context(cafile=folder / "server" / "tls" / "ca.crt")
    tls.load_cert_chain(*(folder / "site-1" / "tls" / f"own.{half}" for half in ("crt", "key")))
    for _ in range(5):
        with tls.wrap_socket(socket.create_connection((HOST, transport.port)), server_hostname=HOST):
            wait_for(lambda: transport.nodes() == [1])
            assert transport.nodes() == [1]
        assert transport.nodes() == []


def wait_for(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_node_that_is_not_let_in_says_so_and_waits_longer(deployment: LocalDeployment) -> None:
    """Its certificate names nobody; a server that is away does the same to it."""
    log = deployment.log("stranger")
    with log.open("w") as file:
        words = [sys.executable, "-m", "federation.local.node", str(deployment.trial.folder / "server")]
        stranger = subprocess.Popen([*words, deployment._port], stdin=subprocess.PIPE, stderr=file)
        wait_for(lambda: "now every 0.8 seconds" in log.read_text())
        stranger.communicate(timeout=20)
    assert re.search(r"no connection to the server at 127.0.0.1:\d+ \(.*\); this node tries again", log.read_text())


def test_what_is_not_there_is_named(deployment: LocalDeployment, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no site-9; it is one of site-1"):
        deployment.kill("site-9")
    broken = Trial.create(tmp_path / "broken", DATASET, n_sites=4, n_helpers=0)
    (broken.folder / "server" / "server.toml").write_text("")
    with pytest.raises(DeploymentError, match=r"must print its port and did not; read .*server\.log"):
        LocalDeployment(broken)
