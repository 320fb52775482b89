"""The local engine's own: frames, connections over TLS that come, end and are refused, and processes that do not start.

Whole runs are in ``contracts/test_engine.py``, and over real processes in ``test_demo.py``.
"""

from __future__ import annotations

import io
import json
import os
import queue
import re
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.rehearsed import assert_pooled

from analytic_secagg.datasets import bundled
from analytic_secagg.local import node, server
from analytic_secagg.local.deployment import LocalDeployment, _write_tls
from analytic_secagg.local.frames import HOST, MAX_BYTES, PING, receive_frame, send_frame
from analytic_secagg.local.server import SocketTransport, server_tls
from analytic_secagg.local.server import main as run_server
from analytic_secagg.server.run_settings import template_settings
from analytic_secagg.site.errors import DeploymentError, WireError
from analytic_secagg.trial import Trial, fitted_settings

SITE, SERVER = "site-1", "server"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a server and a site, with their certificates."""
    folder = tmp_path_factory.mktemp("local")
    for name in (SERVER, SITE):
        (folder / name).mkdir()
    _write_tls(folder, [SITE])
    return folder


@pytest.fixture
def transport(folder: Path) -> SocketTransport:
    return SocketTransport(server_tls(folder / SERVER / "tls"))


def tls(folder: Path, *, of: str) -> ssl.SSLContext:
    """A node's side, with this party's certificate or with none."""
    context = ssl.create_default_context(cafile=folder / SERVER / "tls" / "ca.crt")
    if of:
        context.load_cert_chain(folder / of / "tls" / "own.crt", folder / of / "tls" / "own.key")
    return context


def connect(folder: Path, transport: SocketTransport, *, of: str) -> ssl.SSLSocket:
    raw = socket.create_connection((HOST, transport.port))
    return tls(folder, of=of).wrap_socket(raw, server_hostname=HOST)


def test_a_letter_is_not_dropped_by_a_node_that_is_quick(transport: SocketTransport) -> None:
    """A node's thread drops a letter whose ticket is not open, so the ticket must be open before it has the letter."""

    class Reader(queue.SimpleQueue):  # type: ignore[type-arg]
        def put(self, letter: tuple[str, str, bytes, float], *more: object) -> None:
            was_open.append(transport._answers.is_expected(letter[0]))

    was_open: list[bool] = []
    transport._connected[1] = Reader(), None  # type: ignore[assignment]
    transport.send("step", {1: b"x"}, seconds=1.0, number=1)
    assert was_open == [True]


def is_closed(connection: ssl.SSLSocket) -> bool:
    try:
        return connection.recv(1) == b""
    except OSError:  # which one is the system's choice
        return True


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\xff" * 8, "a frame has at most"),
        ((MAX_BYTES + 1).to_bytes(8, "big"), f"a frame has at most 1073741824 bytes, and one of {MAX_BYTES + 1} is"),
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


def test_no_stranger_gets_in_and_noise_ends_a_connection_alone(folder: Path, transport: SocketTransport) -> None:
    with connect(folder, transport, of="") as stranger:
        assert is_closed(stranger)
    with connect(folder, transport, of=SERVER) as nobody:
        assert is_closed(nobody)
    with connect(folder, transport, of=SITE) as good:
        wait_for(lambda: transport.nodes() == [1])
        (ticket,) = transport.send("STEP", {1: b"one"}, seconds=1, number=1)
        assert receive_frame(good, 3) == [ticket.encode(), b"STEP", b"one"]
        good.sendall(b"\xff" * 64)
        assert is_closed(good)
    wait_for(lambda: transport.nodes() == [])


def test_who_comes_while_no_descriptor_is_free_gets_in_afterwards(folder: Path, transport: SocketTransport) -> None:
    """And who is late for an exchange that is over finds that nobody waits for it."""
    with socket.socket() as raw:
        (free := os.dup(0), os.close(free))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            raw.connect((HOST, transport.port))
            time.sleep(0.3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with tls(folder, of=SITE).wrap_socket(raw, server_hostname=HOST) as node:
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
            wait_for(lambda: not transport._answers._open)
            assert [transport.receive(one) for one in (first, second, third)] == [None, None, b"in time"]


def test_a_node_whose_process_ended_is_not_there_from_then_on(folder: Path, transport: SocketTransport) -> None:
    """Else a run counts the process that was there before a party was started anew, and begins without the new one."""
    for _ in range(5):
        with connect(folder, transport, of=SITE):
            wait_for(lambda: transport.nodes() == [1])
            assert transport.nodes() == [1]
        assert transport.nodes() == []


def test_a_half_open_connection_is_given_up_on_both_sides(
    folder: Path, transport: SocketTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its other end is silent and does not close, as behind a firewall that forgot it; a node that is there answers."""
    monkeypatch.setattr(server, "PING_SECONDS", 0.2)
    with connect(folder, transport, of=SITE) as silent:
        wait_for(lambda: transport.nodes() == [1])
        wait_for(lambda: transport.nodes() == [])
        silent.settimeout(300)
        assert receive_frame(silent, 3) == [b"", PING, b""]
    with connect(folder, transport, of=SITE) as good:
        wait_for(lambda: transport.nodes() == [1])
        for _ in range(3):
            ticket, kind, _ = receive_frame(good, 3)
            assert kind == PING
            send_frame(good, ticket, b"", b"")
        assert transport.nodes() == [1]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(node, "SILENT_SECONDS", 0.1)
        monkeypatch.setattr(sys, "stdin", theirs)
        silence = SimpleNamespace(fileno=ours.fileno, pending=lambda: 0)
        with pytest.raises(ConnectionError, match=r"nothing came for 0\.1 seconds"):
            node._serve(silence, folder)  # type: ignore[arg-type]


def wait_for(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_a_node_that_is_not_let_in_says_so_and_waits_longer(folder: Path, transport: SocketTransport) -> None:
    """Its certificate names nobody; a server that is away does the same to it."""
    log = folder / "stranger.log"
    with log.open("w") as file:
        words = [sys.executable, "-m", "analytic_secagg.local.node", str(folder / SERVER), str(transport.port)]
        stranger = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=file)
        try:
            wait_for(lambda: "now every 0.8 seconds" in log.read_text())
        finally:
            stranger.communicate()
    assert re.search(r"no connection to the server at 127.0.0.1:\d+ \(.*\); this node tries again", log.read_text())


def test_a_server_that_does_not_start_is_an_error(tmp_path: Path) -> None:
    trial = Trial.create(tmp_path / "broken", bundled("iris"), n_sites=4, n_helpers=0)
    (trial.folder / "server" / "server.toml").write_text("")
    with pytest.raises(DeploymentError, match=r"must print its port and did not; read .*server\.log"):
        LocalDeployment(trial)


def test_a_deployment_is_opened_again_over_its_own_folder(tmp_path: Path) -> None:
    """And by one at a time: two servers and two processes of each site in one folder would be two deployments."""
    trial = Trial.create(tmp_path / "trial", bundled("iris"), n_sites=4, n_helpers=0)
    settings = fitted_settings(bundled("iris"), 4)
    for run in ("first", "again"):
        with LocalDeployment(trial) as deployment:
            with pytest.raises(DeploymentError, match="another one is open over"):
                LocalDeployment(trial)
            deployment.order(run, **{name.replace("-", "_"): value for name, value in settings.items()})
            assert deployment.wait() is None
            assert_pooled(deployment.output(run), trial.rows)


def test_the_server_obeys_orders_and_says_why_a_run_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = Trial.create(tmp_path / "trial", bundled("iris"), n_sites=4, n_helpers=0)
    _write_tls(trial.folder, [])
    settings = template_settings() | fitted_settings(bundled("iris"), 4)
    orders = [
        {"run": "wrong", "settings": settings | {"learner": "none"}},
        {"run": "alone", "settings": settings | {"join-seconds": 0.1}},
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(json.dumps(order) + "\n" for order in orders)))
    run_server(trial.folder / SERVER, 0.0)
    port, *ended = capsys.readouterr().out.splitlines()
    assert port.isdigit()
    assert [json.loads(line)["run"] for line in ended] == ["wrong", "alone"]
    (wrong, why), (alone, reason) = (json.loads(line)["error"] for line in ended)
    assert (wrong, alone) == ("RunSettingsError", "UnreachableError")
    assert "learner must be one of afl" in why
    assert "no node is online after 0.1 seconds" in reason
