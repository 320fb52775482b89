"""The server as a process: nodes connect to it over TLS, and each order on its standard input is one run."""

from __future__ import annotations

import itertools
import json
import logging
import os
import queue
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from analytic_secagg.errors import FederationError
from analytic_secagg.local.frames import HOST, PING, PING_SECONDS, receive_frame, send_frame
from analytic_secagg.server.exchange import Answers, NodeId, NoReply, Transport
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.server.run_store import RunStore
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import plan_of, train
from analytic_secagg.site.errors import Refusal, WireError
from secagg.errors import SecureSumError

_HANDSHAKE_SECONDS = 10.0
_IDLE_SECONDS = 0.1

PORT = "port"
"""The file in the server's folder that says where it listens, for the process that is started after it."""

GONE = "its connection ended"
_GONE = NoReply(GONE, may_return=True)

_Letter = tuple[str, str, bytes, float]
"""A ticket, a kind, a content, and for how many seconds an answer is of use."""


class SocketTransport(Transport):
    """Nodes that hold a connection (``analytic_secagg.server.exchange.Transport``), one thread each.

    A node is who its certificate names, and the newest connection of a name counts.

    Args:
        tls: the server's certificate, and the authority that nodes' certificates are of.
        port: where it listens; 0 for one that is free.
        pace_seconds: waits so long before each exchange, for people who watch.
    """

    def __init__(self, tls: ssl.SSLContext, *, port: int = 0, pace_seconds: float = 0.0) -> None:
        self._tls, self._pace_seconds = tls, pace_seconds
        self._listening = socket.create_server((HOST, port))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._connected: dict[NodeId, tuple[queue.SimpleQueue[_Letter], ssl.SSLSocket]] = {}
        self._answers = Answers()
        self._tickets = itertools.count(1)
        threading.Thread(target=self._accept, daemon=True).start()

    def nodes(self) -> list[NodeId]:
        """Return whose connections stand: one that its node has closed does not, whether its thread saw that or not."""
        with self._lock:
            return [node for node, (_, connection) in self._connected.items() if _stands(connection)]

    def send(self, kind: str, contents: Mapping[NodeId, bytes], *, seconds: float, number: int) -> dict[str, NodeId]:
        """Hand each connected node its letter; its thread sends it."""
        time.sleep(self._pace_seconds)
        with self._lock:
            taken = {str(next(self._tickets)): node for node in contents.keys() & self._connected.keys()}
            self._answers.expect(taken, number=number)  # a node's thread drops a letter whose answer nobody expects
            for ticket, node in taken.items():
                self._connected[node][0].put((ticket, kind, contents[node], seconds))
        return taken

    def receive(self, ticket: str) -> bytes | NoReply | None:
        """Return what came back, or that nothing will."""
        return self._answers.take(ticket)

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listening.accept()
            except OSError:  # no descriptor is free while strangers hold connections, each for one handshake at most
                time.sleep(_IDLE_SECONDS)
                continue
            threading.Thread(target=self._attend, args=(raw,), daemon=True).start()

    def _attend(self, raw: socket.socket) -> None:
        """One connection from its handshake to its end."""
        raw.settimeout(_HANDSHAKE_SECONDS)
        letters: queue.SimpleQueue[_Letter] = queue.SimpleQueue()
        node = None
        try:
            with self._tls.wrap_socket(raw, server_side=True) as connection:
                connection.settimeout(None)
                certificate: Any = connection.getpeercert()  # which names the node's number
                node = int(dict(pair for (pair,) in certificate["subject"])["commonName"])
                with self._lock:
                    self._connected[node] = letters, connection
                while (letter := self._next(node, letters, connection)) is not None:
                    self._deliver(letter, connection)
        except (OSError, WireError, ValueError):
            pass  # a stranger, or a node that is gone
        finally:
            with self._lock:
                if node is not None and self._is_newest(node, letters):
                    del self._connected[node]
            while not letters.empty():  # nobody puts one there any more
                self._answers.settle(letters.get()[0], _GONE)

    def _next(self, node: NodeId, letters: queue.SimpleQueue[_Letter], connection: ssl.SSLSocket) -> _Letter | None:
        """The next letter; None once the node closed the connection, which speaks only when it is spoken to."""
        asks = time.monotonic() + PING_SECONDS
        while True:
            try:
                return letters.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                has_spoken = connection.pending() or select.select([connection], [], [], 0)[0]
                if has_spoken or not self._is_newest(node, letters):
                    return None
                if time.monotonic() > asks:
                    _exchange(connection, PING, b"", b"", seconds=PING_SECONDS)
                    asks = time.monotonic() + PING_SECONDS

    def _is_newest(self, node: NodeId, letters: queue.SimpleQueue[_Letter]) -> bool:
        """Return whether this is the newest connection of the node."""
        return self._connected.get(node, (None,))[0] is letters

    def _deliver(self, letter: _Letter, connection: ssl.SSLSocket) -> None:
        ticket, kind, content, seconds = letter
        if not self._answers.is_expected(ticket):
            return  # its exchange closed while this node was busy
        try:
            refusal, answer = _exchange(
                connection, kind.encode(), ticket.encode(), content, seconds=seconds + PING_SECONDS
            )
            self._answers.settle(ticket, NoReply.refused(Refusal(int(refusal))) if refusal else answer)
        except (OSError, WireError, ValueError) as error:
            self._answers.settle(ticket, _GONE)
            raise ConnectionError from error


def _exchange(connection: ssl.SSLSocket, kind: bytes, ticket: bytes, content: bytes, *, seconds: float) -> list[bytes]:
    """Return what a node answers: its refusal's code or nothing, and its answer.

    Raises:
        OSError: the node is gone, or says nothing for so long.
        WireError: it answers something else.
    """
    connection.settimeout(seconds)
    send_frame(connection, ticket, kind, content)
    answered, *said = receive_frame(connection, 3)
    if answered != ticket:
        raise WireError("a node answers what it was asked")
    return said


def _stands(connection: ssl.SSLSocket) -> bool:
    """Return whether its other end is open, as far as this host knows; nothing is read."""
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as raw:
            return raw.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def server_tls(folder: Path) -> ssl.SSLContext:
    """Return the server's side of TLS 1.3 with certificates of both sides, from the three files in its folder."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
    tls.minimum_version, tls.verify_mode = ssl.TLSVersion.TLSv1_3, ssl.CERT_REQUIRED
    tls.num_tickets = 0  # nodes are not spoken to but by letters
    tls.load_cert_chain(folder / "own.crt", folder / "own.key")
    return tls


def main(folder: Path, pace_seconds: float) -> None:
    """Print the port, then obey orders until the input ends: a line of JSON with the run's name and settings each.

    After each run a line says how it ended: ``{"run": ..., "error": null or [kind, reason]}``. A server that died is
    started again with the same command and given the same order: it listens where it did, and goes on with the run.

    Args:
        folder: of the server: ``server.toml``, and ``tls`` with its certificate, key and the authority's certificate.
        pace_seconds: see ``SocketTransport``.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    server = ServerFile.read(folder / "server.toml")
    listened = folder / PORT
    port = int(listened.read_text()) if listened.exists() else 0
    transport = SocketTransport(server_tls(folder / "tls"), port=port, pace_seconds=pace_seconds)
    listened.write_text(f"{transport.port}\n")
    print(transport.port, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        error = _obey(order["settings"], server, transport, server.output / order["run"])
        print(json.dumps({"run": order["run"], "error": error}), flush=True)


def _obey(
    settings: Mapping[str, Any], server: ServerFile, transport: SocketTransport, folder: Path
) -> tuple[str, str] | None:
    """Carry a run, go on with it, or find that it has ended; return how it failed (a kind and a reason), None if not.

    A name is of one run: the same order again is not another run over the same rows.
    """
    try:
        plan = plan_of(RunSettings.of(settings), server)
        with RunStore.opened(folder) as store:
            if (outcome := store.outcome) is not None and store.is_of(plan):
                return outcome if outcome[0] else None
        # on one host answers come sooner than an exchange expects
        train(settings, server, transport, folder, sleep=lambda seconds: time.sleep(seconds / 5))
    except (FederationError, AnalyticError, SecureSumError, OSError) as raised:
        return type(raised).__name__, str(raised)
    return None


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
