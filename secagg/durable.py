"""Sessions that survive their process: stored before anything leaves, repeating themselves when asked again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    MalformedMessageError,
    SecureSumError,
    SnapshotError,
)
from secagg.primitives.sealing import KEY_BYTES, SealBrokenError, open_sealed, seal
from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
from secagg.snapshots import VERSION
from secagg.wire import Reader

_HEADER = b"SAGD" + bytes([VERSION])
_HASH_BYTES = 32
_NOTHING = bytes(32)
_UNASKED = b"\xff" * 32


class Store(Protocol):
    """Where one party keeps one session. One process at a time works on it: two would answer two requests."""

    def load(self) -> bytes | None:
        """What was saved last; None if nothing was."""
        ...

    def save(self, record: bytes) -> None:
        """Replace it; once this returns the record survives a crash."""
        ...


@dataclass(slots=True)
class FileStore:
    """One file of mode 0600, replaced as a whole and flushed to the disk before ``save`` returns.

    A store that has read its file writes over nothing else: where another process went on with the session, ``save``
    refuses, and the answer that it was for does not leave. The folder is locked while it looks and writes (``flock``,
    so on a local disk of a POSIX system; elsewhere bring a store of your own).
    """

    path: Path
    _known: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """The hash of what was read or written last; None before."""

    def load(self) -> bytes | None:
        """The file's bytes; None if there is no file."""
        record = self._read()
        self._known = _hash(record)
        return record

    def save(self, record: bytes) -> None:
        """Write beside the file, flush, then rename over it.

        Raises:
            SnapshotError: the file is not what this store read or wrote last.
        """
        fresh = self.path.with_name(self.path.name + ".new")
        with _locked(self.path.parent) as folder:
            if self._known not in (None, _hash(self._read())):
                raise SnapshotError(
                    f"{self.path.name} was changed by another process, which went on with this session; this one "
                    "answers nothing. One process at a time may work on a stored session"
                )
            fresh.unlink(missing_ok=True)  # left by a crash, or put there by somebody else: with its mode, or as a link
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(record)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            self._known = _hash(record)
            os.fsync(folder)

    def _read(self) -> bytes | None:
        return self.path.read_bytes() if self.path.exists() else None


def _hash(record: bytes | None) -> bytes:
    """What tells records apart, and a file from none."""
    return b"" if record is None else hashlib.sha256(record).digest()


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """The folder's descriptor, while no other process has it."""
    import fcntl  # POSIX alone; a store of one's own needs none of it

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


class DurableClient:
    """One client's or helper's session in a store.

    Args:
        store: where it is kept.
        key: 32 bytes that only this party knows; the record is sealed under it, and bound to format, role, party and
            configuration.
        session: a fresh session; it goes on where the stored one stopped, if there is one.
        entropy: where the seal's nonces come from.

    Raises:
        ConfigurationError: no key of 32 bytes.
        SnapshotError: the store holds a record of another version, session or party, its bytes were changed, or this
            session is over there.
    """

    def __init__(self, store: Store, key: bytes, session: ClientSession, *, entropy: Entropy = os_entropy) -> None:
        if type(key) is not bytes or len(key) != KEY_BYTES:
            raise ConfigurationError(f"a stored session is sealed under {KEY_BYTES} bytes that only its owner knows")
        self._store, self._key, self._session, self._entropy = store, key, session, entropy
        self._asked, self._answer, self._is_stored = b"", b"", True
        self._own, self._over = hashlib.sha256(session.snapshot_id).digest(), tuple[bytes, ...]()
        record = store.load()
        if record is None:
            return
        self._over, sealed = _read_over(record)
        if self._own in self._over:
            raise SnapshotError("this session is over; one session id serves one sum: begin one with a fresh id")
        if not sealed:
            return
        try:
            plain = open_sealed(key, sealed, self._bound)
        except SealBrokenError as error:
            raise SnapshotError(
                "the stored session does not open: another key, another party, session or configuration, or changed "
                "bytes; restore it with what it was made with"
            ) from error
        self._asked, size = plain[:32].removesuffix(_UNASKED), int.from_bytes(plain[32:40], "big")
        self._answer, state = plain[40 : 40 + size], plain[40 + size :]
        session.restore(state)

    @property
    def party(self) -> int:
        """Whose session it is."""
        return self._session.party

    def start(self) -> bytes | None:
        """The first message; the same one if it was made before."""
        self._need_running()
        if self._asked == _NOTHING:
            return self._again()
        if self._asked:
            raise LocalProtocolError("this session is past its first message; pass on what the server asks")
        return self._keep(_NOTHING, self._session.start())

    def receive(self, message: bytes) -> bytes | None:
        """The answer, stored before it is given; the stored one if this request was the last one answered.

        What ``save`` raises passes through (a full disk, say). Nothing has left then: ask the same again.
        """
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._asked:
            return self._again()
        try:
            answer = self._session.receive(message)
        except SecureSumError:
            self._save()  # an aborted session stays aborted after a restart
            raise
        return self._keep(fingerprint, answer)

    def end(self) -> None:
        """Forget the session, and remember that it was: from this store nobody begins it a second time.

        Raises:
            LocalProtocolError: it has ended already.
        """
        self._need_running()
        self._asked, self._answer, self._over = b"", b"", (*self._over, self._own)
        self._store.save(_HEADER + self._listed)

    def _need_running(self) -> None:
        if self._own in self._over:
            raise LocalProtocolError("this session has ended; one session id serves one sum")

    @property
    def _listed(self) -> bytes:
        """The sessions that are over here, as bytes."""
        return len(self._over).to_bytes(4, "big") + b"".join(self._over)

    @property
    def _bound(self) -> bytes:
        """What the record is bound to."""
        return _HEADER + self._session.snapshot_id + self._listed

    def _again(self) -> bytes | None:
        if not self._is_stored:  # the store refused it when it was made, so it has not left either
            self._save()
        return self._answer or None

    def _keep(self, asked: bytes, answer: bytes | None) -> bytes | None:
        self._is_stored, self._asked, self._answer = False, asked, answer or b""
        self._save()
        return answer

    def _save(self) -> None:
        self._need_running()
        self._is_stored = False
        record = self._asked.ljust(32, b"\xff") + len(self._answer).to_bytes(8, "big") + self._answer
        record += self._session.snapshot()
        sealed = seal(self._key, record, self._bound, entropy=self._entropy)
        self._store.save(_HEADER + self._listed + sealed)
        self._is_stored = True


class DurableServer:
    """One server's session in a store; after a crash ``requests`` holds what the last closed round sent.

    It keeps no list of sessions that are over, as a client's store does. A client's second vector under one session id
    would be hidden by the masks of its first; a server has no secret that a second sum would spend, and a list of its
    own would bind no server that lies. Whoever is asked again says the same again or refuses, by *its* store.

    Each message that is taken writes the whole session: the sum so far, and what the round has brought of each party.
    Over n clients this writes n times the vector, and boxes of n^2 / 2 clients.

    Args:
        store: where it is kept; only the server may read it.
        session: a fresh session; it goes on where the stored one stopped, if there is one.

    Raises:
        SnapshotError: the store holds a record of another version or session, or its bytes were changed.
    """

    def __init__(self, store: Store, session: ServerSession) -> None:
        self._store, self._session, self._is_stored = store, session, True
        self.requests: Mapping[PartyId, bytes] = {}
        self._unstored: Mapping[PartyId, bytes] | None = None
        record = store.load()
        if record is None:
            return
        content = _of_this_version(record)
        digest, content = content[:_HASH_BYTES], content[_HASH_BYTES:]
        if hashlib.sha256(session.snapshot_id + content).digest() != digest:
            raise SnapshotError("the stored session does not read: another session or configuration, or changed bytes")
        try:
            reader = Reader(memoryview(content), peer=SERVER)
            self.requests = {reader.number(): reader.take(reader.number()) for _ in range(reader.number())}
        except MalformedMessageError as error:
            raise SnapshotError("the stored session does not read: changed bytes") from error
        session.restore(reader.rest())

    @property
    def result(self) -> SumResult | None:
        """The sum once the last round is closed."""
        return self._session.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties asked in this round that have not answered yet."""
        return self._session.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take a message; once this returns, or says that the message was taken before, it survives a crash."""
        if not self._is_stored:  # the store refused what was taken before, and its sender asks again
            self._save()
        self._session.receive(sender, message)
        self._save()

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round; the next messages are stored before they are returned.

        Where the store refuses them the round is closed all the same: call again for the same messages. A stop halfway
        (Ctrl-C) stores nothing and ends this object: make another one, which begins with what is stored.
        """
        if self._unstored is None:
            if not self._is_stored:
                self._save()
            try:
                self._unstored = self._session.close_round()
            except LocalProtocolError:
                raise  # nothing happened, so what is stored stands
            except SecureSumError:
                self._save()  # an aborted session stays aborted after a restart
                raise
        self._save()
        self.requests, self._unstored = self._unstored, None
        return self.requests

    def _save(self) -> None:
        self._is_stored = False
        requests = self.requests if self._unstored is None else self._unstored
        parts = [len(requests).to_bytes(4, "big")]
        for party, message in requests.items():
            parts += [party.to_bytes(4, "big"), len(message).to_bytes(4, "big"), message]
        content = b"".join([*parts, self._session.snapshot()])
        self._store.save(_HEADER + hashlib.sha256(self._session.snapshot_id + content).digest() + content)
        self._is_stored = True


def _read_over(record: bytes) -> tuple[tuple[bytes, ...], bytes]:
    """Return the sessions that are over, by their hashes, and the box of the one that runs; empty if none does."""
    reader = Reader(memoryview(_of_this_version(record)), peer=SERVER)
    try:
        return tuple(reader.take(_HASH_BYTES) for _ in range(reader.number())), reader.rest()
    except MalformedMessageError as error:
        raise SnapshotError("the stored session does not read: changed bytes") from error


def _of_this_version(record: bytes) -> bytes:
    """Return what follows the header of a stored record."""
    if record[: len(_HEADER)] != _HEADER:
        raise SnapshotError(
            f"the stored session was written by another version of this library, not in format {VERSION}; end it with "
            "the version that began it, or begin a new session"
        )
    return record[len(_HEADER) :]
