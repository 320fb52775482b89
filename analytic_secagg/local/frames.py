"""Frames on a stream: a length, then parts. What the parts say is this library's own and opaque here."""

from __future__ import annotations

import socket

from analytic_secagg.site.errors import WireError
from secagg.encoding import length_prefixed, split_parts

_SIZE_BYTES = 8
MAX_BYTES = 1 << 30
"""Largest frame: a vector of 8 192 features and 1 000 classes takes a quarter of it, and a site's store holds records
of 10^9 bytes. Memory is taken as bytes come, not as they are announced."""

HOST = "127.0.0.1"
"""Address of the server; no name, since a name may lead elsewhere."""

PING = b"ping"
"""Kind of a frame that asks whether the other side is there. A connection may be dead and nobody notice: half-open."""

PING_SECONDS, SILENT_SECONDS = 10.0, 30.0
"""The server asks whenever nothing was said for so long, and waits as long for the answer. A node that hears nothing
for the longer time takes the connection for dead, and connects again."""


def send_frame(connection: socket.socket, *parts: bytes) -> None:
    """Send these parts as one frame.

    Raises:
        OSError: the other side is gone.
    """
    connection.sendall(length_prefixed(length_prefixed(*parts)))


def receive_frame(connection: socket.socket, n_parts: int) -> list[bytes]:
    """Return the parts of the next frame.

    Raises:
        OSError: the other side is gone.
        WireError: it sent no frame of so many parts.
    """
    size = int.from_bytes(_exactly(connection, _SIZE_BYTES), "big")
    if size > MAX_BYTES:
        raise WireError(f"a frame has at most {MAX_BYTES} bytes, and one of {size} is announced")
    try:
        parts = split_parts(_exactly(connection, size))
    except ValueError as error:
        raise WireError("this frame does not come apart; both sides need the same version") from error
    if len(parts) != n_parts:
        raise WireError(f"a frame of {n_parts} parts is due, not of {len(parts)}; both sides need the same version")
    return parts


def _exactly(connection: socket.socket, size: int) -> bytearray:
    content = bytearray()
    while len(content) < size:
        piece = connection.recv(min(size - len(content), 1 << 20))
        if not piece:
            raise ConnectionError("the other side closed the connection")
        content += piece
    return content
