"""What the snapshots of all sums have in common: the header that ties one to its session, the seal, and rounds.

magic 4 | version 1 | role 1 | configuration digest 32 | party 4 | body (sealed for clients and helpers)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from secagg.config import SERVER, SumConfig
from secagg.entropy import Entropy
from secagg.errors import LocalProtocolError, MalformedMessageError, SnapshotError
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal
from secagg.rounds import Round
from secagg.sessions import PartyId
from secagg.wire import MessageType, Reader, write_entries, write_parties

MAGIC = b"SAGS"
VERSION = 1
CLIENT, SERVER_ROLE, HELPER = 1, 2, 3
HASH_BYTES = 32
_NO_ROUND = 0
S = TypeVar("S")


def own_session(session: object, kind: type[S], what: str) -> S:
    """The session, if it is one that this sum made.

    Raises:
        LocalProtocolError: it is another sum's, or another party's; ``what`` says what it should be.
    """
    if not isinstance(session, kind):
        raise LocalProtocolError(f"this is no {what}: {type(session).__name__}")
    return session


def write_header(role: int, config: SumConfig, party: PartyId) -> bytes:
    """Whose snapshot it is, of which session; also what its seal is bound to."""
    return MAGIC + bytes([VERSION, role]) + config.digest + party.to_bytes(4, "big")


def read_body(snapshot: bytes, header: bytes) -> bytes:
    """What follows the header.

    Raises:
        SnapshotError: another header.
    """
    if snapshot[: len(header)] != header:
        raise SnapshotError(
            "this snapshot belongs to another party, session, configuration or version; restore it with what it was "
            "made with"
        )
    return snapshot[len(header) :]


def seal_snapshot(role: int, config: SumConfig, party: PartyId, body: bytes, key: bytes, *, entropy: Entropy) -> bytes:
    """The snapshot of a client or helper, sealed under 32 bytes that only its owner knows."""
    header = write_header(role, config, party)
    return header + seal(key, body, header, entropy=entropy)


@contextmanager
def opened_snapshot(role: int, config: SumConfig, party: PartyId, snapshot: bytes, key: bytes) -> Iterator[Reader]:
    """A reader of the body of a sealed snapshot, which must end where the ``with`` block does.

    Raises:
        SnapshotError: another party, session or key, or changed bytes; also from within the block.
    """
    header = write_header(role, config, party)
    sealed = read_body(snapshot, header)
    try:
        reader = Reader(memoryview(open_sealed(key, sealed, header)), peer=party)
        yield reader
        reader.end()
    except (SealBrokenError, MalformedMessageError, ValueError, IndexError) as error:
        raise SnapshotError(f"this snapshot of party {party} does not open: another key, or changed bytes") from error


def hash_snapshot(config: SumConfig, body: bytes) -> bytes:
    """The snapshot of a server: not sealed, but a changed byte is noticed."""
    content = write_header(SERVER_ROLE, config, SERVER) + body
    return content + hashlib.sha256(content).digest()


@contextmanager
def server_snapshot(config: SumConfig, snapshot: bytes) -> Iterator[Reader]:
    """A reader of the body of a server's snapshot, which must end where the ``with`` block does.

    Raises:
        SnapshotError: another session, or changed bytes; also from within the block.
    """
    body = read_body(snapshot, write_header(SERVER_ROLE, config, SERVER))
    if hashlib.sha256(snapshot[:-HASH_BYTES]).digest() != snapshot[-HASH_BYTES:]:
        raise SnapshotError("this snapshot of a server does not read: changed bytes")
    try:
        reader = Reader(memoryview(body)[:-HASH_BYTES], peer=SERVER)
        yield reader
        reader.end()
    except (MalformedMessageError, ValueError) as error:
        raise SnapshotError("this snapshot of a server does not read: changed bytes") from error


def write_round(round_: Round | None) -> bytes:
    """A round: what is due, who was asked, who answered; or that the session is over."""
    return (
        bytes([_NO_ROUND if round_ is None else round_.answer])
        + write_parties(round_.asked if round_ else ())
        + write_entries(round_.answered if round_ else {})
    )


def read_round(reader: Reader, digest_of: Callable[[MessageType], bytes]) -> Round | None:
    """Read ``write_round``; ``digest_of`` tells what messages of a type are bound to."""
    answer, asked, answered = reader.take(1)[0], reader.entries(0), reader.entries(HASH_BYTES)
    if answer == _NO_ROUND:
        return None
    type_ = MessageType(answer)
    round_ = Round(digest_of(type_), type_, asked)
    round_.answered.update(answered)
    return round_
