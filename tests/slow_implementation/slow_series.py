"""Many sums of one cohort in bundles: section 14 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from slow_bytes import (
    HEADER,
    SERVER,
    Cursor,
    Refused,
    Type,
    length_prefixed,
    need,
    number,
    read_frame,
    sha256,
    write_frame,
)
from slow_client import SlowClient
from slow_server import SlowServer
from slow_session import Session

Layout = tuple[tuple[str, int, int], ...]


def sum_of_series(parameters: Mapping[str, Any], index: int, layout: Layout = (), context: bytes = b"") -> Session:
    session_id = sha256(length_prefixed(b"sum of a series", bytes.fromhex(parameters["series_id"]), number(index, 8)))
    known = {**parameters, "session_id": session_id.hex(), "layout": [], "context": ""}
    return replace(Session.of(known), layout=layout, context=context)


def write_bundle(parts: Sequence[bytes], digest: bytes, sender: int, recipient: int, secret: bytes) -> bytes:
    return write_frame(Type.BUNDLE, digest, sender, recipient, b"".join(number(len(p), 8) + p for p in parts), secret)


def read_bundle(message: bytes, digest: bytes, sender: int, recipient: int, public: bytes) -> list[bytes]:
    cursor, parts = Cursor(read_frame(message, Type.BUNDLE, digest, sender, recipient, public)), []
    while cursor.rest:
        parts.append(cursor.take(cursor.number(8)))
        need(len(parts[-1]) >= HEADER and len(parts) <= 2, "a bundle holds one or two messages")
    need(bool(parts), "an empty bundle")
    return parts


class SlowSeriesClient:
    def __init__(
        self, parameters: Mapping[str, Any], party: int, draw: Callable[[int], bytes], identity: bytes = b""
    ) -> None:
        self.parameters, self.party, self.draw, self.identity = parameters, party, draw, identity
        first = sum_of_series(parameters, 0)
        self.digest, self.server = first.setup_digest, first.server_identity
        self.index = -1
        self.next: SlowClient | None = None

    def begin_sum(self, layout: Layout, context: bytes, vector: Sequence[int]) -> None:
        self.index += 1
        session = sum_of_series(self.parameters, self.index, layout, context)
        if self.next is not None:
            self.current = self.next
            self.current.session, self.current.vector = session, vector
        else:  # before the first sum; later such a client stays silent, but draws its keys all the same
            self.current = SlowClient(session, self.party, vector, self.draw, self.identity)
        self.next = None

    def start(self) -> bytes | None:
        return self.bundle(self.current.start()) if self.index == 0 else None

    def receive(self, message: bytes) -> bytes:
        first, *more = read_bundle(message, self.digest, SERVER, self.party, self.server)
        was_due = self.current.due
        answers = [self.current.receive(first)]
        if was_due is Type.SHARE_DELIVERY:
            session = sum_of_series(self.parameters, self.index + 1)
            self.next = SlowClient(session, self.party, (), self.draw, self.identity)
            answers.append(self.next.start())
        if was_due is Type.UNMASK_REQUEST and more and self.next is not None:
            answers.append(self.next.receive(more[0]))
        return self.bundle(*answers)

    def bundle(self, *parts: bytes) -> bytes:
        return write_bundle(parts, self.digest, self.party, SERVER, self.identity)


class SlowSeriesServer:
    def __init__(self, parameters: Mapping[str, Any], secret: bytes = b"") -> None:
        self.parameters, self.secret, self.first = parameters, secret, sum_of_series(parameters, 0)
        self.digest = self.first.setup_digest
        self.index = -1
        self.next: SlowServer | None = None

    def begin_sum(self, layout: Layout, context: bytes) -> None:
        self.index += 1
        session = sum_of_series(self.parameters, self.index, layout, context)
        self.current = SlowServer(session, self.secret) if self.next is None else self.next
        self.current.session = session
        self.next = SlowServer(sum_of_series(self.parameters, self.index + 1), self.secret)

    def receive(self, sender: int, message: bytes) -> None:
        first, *more = read_bundle(message, self.digest, sender, SERVER, self.first.identity(sender))
        self.current.receive(sender, first)
        for part in more:
            try:
                assert self.next is not None
                self.next.receive(sender, part)
            except Refused:
                pass  # its sender has no part in the next sum

    def close_round(self) -> dict[int, bytes]:
        assert self.next is not None
        sends_requests = self.current.due is Type.MASKED_INPUT
        requests = {party: [message] for party, message in self.current.close_round().items()}
        if sends_requests:
            for party, roster in self.next.close_round().items():
                requests[party].append(roster)
        return {
            party: write_bundle(parts, self.digest, SERVER, party, self.secret) for party, parts in requests.items()
        }

    @property
    def total(self) -> list[int] | None:
        return self.current.total

    @property
    def survivors(self) -> list[int]:
        return self.current.survivors
