"""An engine of another package: sites connect by ``multiprocessing.connection`` and answer what the server asks.

    analytic-secagg pipes serve server.toml /run/pipes.socket 'mode="masked"'
    analytic-secagg pipes join site.toml /run/pipes.socket

The server and sites sign every message; which host may connect, and TLS between hosts, are for the operator.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path

from analytic_secagg.server.exchange import NodeId, NoReply, Transport
from analytic_secagg.server.run_settings import overrides, template_settings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import train
from analytic_secagg.site.errors import Refusal
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.site_file import SiteFile


class PipeTransport(Transport):
    """The server's side: the three methods of ``analytic_secagg.server.exchange.Transport``."""

    def __init__(self, listener: Listener) -> None:
        self._connected: dict[NodeId, Connection] = {}
        self._asked: dict[NodeId, deque[str]] = {}  # tickets in the order in which a node answers
        self._answers: dict[str, bytes | NoReply] = {}
        self._n_sent = 0
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def nodes(self) -> list[NodeId]:
        """Return who can be reached now."""
        return list(self._connected)

    def send(self, kind: str, contents: Mapping[NodeId, bytes], *, seconds: float, number: int) -> dict[str, NodeId]:
        """Send each node its content; return a ticket for each message that was taken."""
        taken = {}
        for node in contents.keys() & self._connected.keys():
            self._n_sent += 1
            ticket = str(self._n_sent)
            try:
                self._connected[node].send_bytes(kind.encode())
                self._connected[node].send_bytes(contents[node])
            except OSError:
                self._lose(node)
                continue
            self._asked[node].append(ticket)
            taken[ticket] = node
        return taken

    def receive(self, ticket: str) -> bytes | NoReply | None:
        """Return the answer to one message; None while there is none."""
        for node, connection in list(self._connected.items()):
            try:
                while self._asked[node] and connection.poll():
                    refusal, said = connection.recv_bytes(), connection.recv_bytes()
                    self._answers[self._asked[node].popleft()] = (
                        NoReply.refused(Refusal(int(refusal))) if refusal else said
                    )
            except (OSError, EOFError):
                self._lose(node)
        return self._answers.pop(ticket, None)

    def close(self) -> None:
        """End all connections, with which the sites' processes end."""
        for connection in self._connected.values():
            connection.close()

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (OSError, EOFError):  # the run is over, or somebody left in the middle
                return
            node = len(self._asked) + 1
            self._asked[node] = deque()
            self._connected[node] = connection

    def _lose(self, node: NodeId) -> None:
        del self._connected[node]
        self._answers |= dict.fromkeys(self._asked[node], NoReply("its connection ended", may_return=True))


def serve(file: Path, address: str, settings: str) -> int:
    """Run one training over the sites that connect."""
    server, config = ServerFile.read(file), template_settings()
    with Listener(address) as listener:
        transport = PipeTransport(listener)
        try:
            train(config | overrides(settings, config), server, transport, server.output / "pipes")
        finally:
            transport.close()
    return 0


def join(file: Path, address: str) -> int:
    """Answer the server until it leaves: a site's one call is ``handle_message``, whatever carries the bytes."""
    with Client(address) as server:
        try:
            while True:
                kind, content = server.recv_bytes().decode(), server.recv_bytes()
                said = handle_message(partial(SiteFile.read, file), kind, lambda content=content: content)
                server.send_bytes(str(int(said)).encode() if isinstance(said, Refusal) else b"")
                server.send_bytes(b"" if isinstance(said, Refusal) else said)
        except (EOFError, OSError):
            return 0


def main(argv: Sequence[str]) -> int:
    """Run ``serve SERVER.TOML ADDRESS [SETTINGS]`` or ``join SITE.TOML ADDRESS``."""
    what, file, address, *settings = argv
    return serve(Path(file), address, " ".join(settings)) if what == "serve" else join(Path(file), address)
