"""A TCP proxy between one node and the server, which cuts, delays, slows or swallows what passes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

HOST = "127.0.0.1"


class Proxy:
    """Passes bytes on; each fault is an attribute that may change at any time.

    Args:
        port: of the server.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self.seconds = 0.0
        """Delay of each piece, each way."""
        self.piece_bytes = 1 << 16
        """Largest piece; with ``seconds`` it makes a slow line."""
        self.is_black = False
        """Whether everything is swallowed, and nothing closed: a firewall that forgot the connection."""
        self.cut_after: dict[str, int] = {}
        """Bytes after which the next message ``up`` (from the node) or ``down`` is cut off with its connection."""
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End it and its connections."""
        for one in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
                far = socket.create_connection((HOST, self._to))
            except OSError:
                if self._listening.fileno() < 0:
                    return
                with contextlib.suppress(OSError):
                    near.close()
                time.sleep(0.1)
                continue
            self._open += [near, far]
            for way, source, sink in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self._pass, args=(way, source, sink), daemon=True).start()

    def _pass(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(self.piece_bytes):
                time.sleep(self.seconds)
                if self.is_black:
                    while self.is_black:
                        time.sleep(0.05)
                    break  # what was swallowed does not come again, so the stream is no stream of TLS any more
                if (left := self.cut_after.pop(way, None)) is not None:
                    sink.sendall(piece[:left])
                    break
                sink.sendall(piece)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
