"""A site as a process: it connects to the server, answers each message by its own file, and comes back if cut off."""

from __future__ import annotations

import logging
import select
import socket
import ssl
import sys
import time
from functools import partial
from pathlib import Path

from analytic_secagg.local.frames import HOST, PING, SILENT_SECONDS, receive_frame, send_frame
from analytic_secagg.site.errors import Refusal, WireError
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.site_file import SiteFile

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.2, 5.0
"""Delay before a node connects again: it doubles each time, from the first to the second."""

LOG = logging.getLogger("analytic_secagg.node")


def main(folder: Path, port: int) -> None:
    """Serve until the standard input ends, which it does with whoever started this process.

    Args:
        folder: of the site: ``site.toml``, and ``tls`` with its certificate, key and the authority's certificate.
        port: of the server, on this host.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    tls = ssl.create_default_context(cafile=folder / "tls" / "ca.crt")
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.load_cert_chain(folder / "tls" / "own.crt", folder / "tls" / "own.key")
    seconds = RETRY_SECONDS
    while not _is_over(seconds):
        began = time.monotonic()
        try:
            with socket.create_connection((HOST, port)) as raw, tls.wrap_socket(raw, server_hostname=HOST) as server:
                _serve(server, folder / "site.toml")
                return
        except (OSError, WireError) as error:  # the server is away, or goes on without this answer
            has_stood = time.monotonic() - began > MAX_RETRY_SECONDS
            last, seconds = seconds, RETRY_SECONDS if has_stood else min(2 * seconds, MAX_RETRY_SECONDS)
            if has_stood or seconds != last:
                LOG.warning(
                    "no connection to the server at %s:%d (%s: %s); this node tries again, now every %.1f seconds",
                    *(HOST, port, type(error).__name__, error, seconds),
                )


def _serve(server: ssl.SSLSocket, file: Path) -> None:
    """Answer what is asked, until the input ends.

    Raises:
        ConnectionError: the server has gone, or said nothing for too long.
    """
    while not _is_over(SILENT_SECONDS, server):
        ticket, kind, content = receive_frame(server, 3)
        if kind == PING:
            send_frame(server, ticket, b"", b"")
            continue
        said = handle_message(partial(SiteFile.read, file), kind.decode("ascii", "replace"), partial(bytes, content))
        refusal, answer = (str(int(said)).encode(), b"") if isinstance(said, Refusal) else (b"", said)
        send_frame(server, ticket, refusal, answer)


def _is_over(seconds: float, server: ssl.SSLSocket | None = None) -> bool:
    """Return whether the input ended; wait so long for that, or until the server sends something.

    Raises:
        ConnectionError: it sent nothing for so long.
    """
    if server is not None and server.pending():
        return False
    ready = select.select([sys.stdin] if server is None else [sys.stdin, server], [], [], seconds)[0]
    if server is not None and not ready:
        raise ConnectionError(f"nothing came for {seconds:g} seconds")
    return sys.stdin in ready


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
