"""The page of a demonstration: one file, served on 127.0.0.1 to whoever has the token of its address."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from urllib.parse import parse_qs, urlsplit

from analytic_secagg.errors import FederationError
from analytic_secagg.local.watch import Demonstration

_MAX_BYTES = 1000
"""Largest request of a button."""


class PageServer(ThreadingHTTPServer):
    """Serves the page, what it shows and what its buttons say. Nothing of it can be reached from another host.

    Args:
        demonstration: what is shown.
        port: on 127.0.0.1; 0 for any that is free.
    """

    daemon_threads = True

    def __init__(self, demonstration: Demonstration, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.demonstration = demonstration
        self.token = secrets.token_urlsafe(16)
        self.page = (files("analytic_secagg.local") / "page.html").read_bytes()
        self.policy = _policy(self.page)

    @property
    def address(self) -> str:
        """Address to open in a browser."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 10.0
    """Seconds that a browser may leave a request half said; its thread ends then."""

    def do_GET(self) -> None:
        """The page, or as JSON what it shows."""
        if self._is_known():
            path = urlsplit(self.path).path
            if path == "/":
                self._say(200, "text/html; charset=utf-8", self.server.page)
            elif path == "/state":
                self._say(200, "application/json", json.dumps(self.server.demonstration.state()).encode())
            else:
                self._say(404, "text/plain", b"there is / and /state")

    def do_POST(self) -> None:
        """Do what a button says: ``{"what": ..., "whom": ...}``."""
        if not self._is_known():
            return
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,4}", length) or int(length) > _MAX_BYTES:
            self._say(400, "text/plain", b"a button says little")
            return
        try:
            said = json.loads(self.rfile.read(int(length)))
            self.server.demonstration.act(str(said["what"]), str(said["whom"]))
            self._say(200, "text/plain", b"")
        except FederationError as error:
            self._say(409, "text/plain; charset=utf-8", str(error).encode())
        except (ValueError, LookupError, TypeError, RecursionError):
            self._say(400, "text/plain", b"a button says what and whom")

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal is for people."""

    def _is_known(self) -> bool:
        """Return whether the address has the token, and names this host: a page of another name may not lead here."""
        try:
            token = parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        except ValueError:
            self._say(400, "text/plain", b"this is no address")
            return False
        own = f"127.0.0.1:{self.server.server_port}"
        if hmac.compare_digest(token.encode(), self.server.token.encode()) and self.headers.get("Host") == own:
            return True
        self._say(403, "text/plain", b"open the address that the terminal shows; it holds a token")
        return False

    def _say(self, code: int, kind: str, content: bytes) -> None:
        self.send_response(code)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", self.server.policy),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _policy(page: bytes) -> str:
    """Allow the page's own script and style by their hashes, calls to where it came from, and nothing else."""
    hashes = {}
    for tag in (b"script", b"style"):
        (inside,) = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
        hashes[tag.decode()] = base64.b64encode(hashlib.sha256(inside).digest()).decode()
    allowed = "; ".join(f"{tag}-src 'sha256-{value}'" for tag, value in hashes.items())
    no_more = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; {allowed}; connect-src 'self'; img-src data:; {no_more}"
