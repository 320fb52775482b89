"""Durable sessions: stored before a message leaves, so that they survive a restart and repeat their last answer.

Call in order: ``DurableClient(store, key, session)``, ``start``, ``receive`` for each message of the server, ``end``.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Protocol

from secagg.config import SERVER
from secagg.encoding import joined
from secagg.entropy import Entropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    MalformedMessageError,
    SecureSumError,
    SnapshotError,
)
from secagg.primitives.sealing import KEY_BYTES, SealBrokenError, open_sealed, seal_parts
from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
from secagg.snapshots import VERSION
from secagg.wire import Reader

_HEADER = b"SAGD" + bytes([VERSION])
_HASH_BYTES = 32
_NOTHING = bytes(32)
_UNASKED = b"\xff" * 32


class Store(Protocol):
    """Interface of the storage of one session of one party. Only one process at a time may use it.

    >>> class MemoryStore:
    ...     record: bytes | None = None
    ...     def load(self) -> bytes | None:
    ...         return self.record
    ...     def save(self, record: bytes) -> None:
    ...         self.record = record
    >>> store: Store = MemoryStore()
    """

    def load(self) -> bytes | None:
        """Return the record that was saved last; None if there is none."""
        ...

    def save(self, record: bytes) -> None:
        """Replace the record; it must survive a crash once this returns."""
        ...


@dataclass(slots=True)
class FileStore:
    """A store in one file of mode 0600, replaced atomically and flushed to the disk before ``save`` returns.

    If another process changed the file since this store read or wrote it, ``save`` refuses and the answer that depends
    on it is not sent. The folder is locked with ``flock`` during ``save``: use a local disk of a POSIX system.

    Args:
        path: the file, as a path or a text; its folder must exist. Each session of each party needs a file of its own.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FileStore(Path(folder) / "session")
    ...     store.save(b"record")
    ...     store.load()
    b'record'
    """

    path: Path
    _known: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """Hash of the record that was read or written last; None before."""

    def __post_init__(self) -> None:
        self.path = Path(self.path)

    def load(self) -> bytes | None:
        """Return the bytes of the file; None if there is no file."""
        record = self._read()
        self._known = _hash(record)
        return record

    def save(self, record: bytes) -> None:
        """Write a new file, flush it, then rename it over the old one.

        Raises:
            SnapshotError: another process changed the file since this store read or wrote it.
        """
        fresh = self.path.with_name(self.path.name + ".new")
        with locked(self.path.parent) as folder:
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
    """Return the hash of a record; empty for none."""
    return b"" if record is None else hashlib.sha256(record).digest()


@contextmanager
def locked(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file or folder, lock it against other processes, and yield its descriptor.

    Args:
        path: of a local disk of a POSIX system.
        flags: of ``os.open``.

    Raises:
        OSError: the file cannot be opened, or the system is not POSIX.
    """
    try:
        import fcntl
    except ImportError:
        raise OSError(
            errno.ENOSYS, "files are locked by flock, which only POSIX systems have; elsewhere use a store of your own"
        ) from None
    descriptor = os.open(path, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


class DurableClient:
    """A client's or helper's session that is stored, encrypted, before every answer.

    Args:
        store: storage of the session.
        key: 32 bytes that only this party knows. The record is encrypted with it (AES-256-GCM) and bound to format,
            role, party and configuration.
        session: a new session. If the store has a record, it continues from there.
        entropy: source of the nonces.

    Raises:
        ConfigurationError: ``key`` does not have 32 bytes.
        SnapshotError: the record is of another version, session or party, was changed, or the session has ended.

    >>> import tempfile
    >>> import numpy as np
    >>> from secagg import Layout, PlainSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = PlainSum(layout=layout, clients=(1, 2), session_id=new_session_id())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store, key = FileStore(Path(folder) / "session"), os_entropy(32)
    ...     message = DurableClient(store, key, protocol.client(1, np.array([3, 4]))).start()
    ...     restarted = DurableClient(store, key, protocol.client(1, np.array([3, 4])))
    ...     restarted.start() == message
    True
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
                "bytes; restore it with what it was made with, and give each session a store of its own"
            ) from error
        self._asked, size = plain[:32].removesuffix(_UNASKED), int.from_bytes(plain[32:40], "big")
        self._answer, state = plain[40 : 40 + size], plain[40 + size :]
        session.restore(state)

    @property
    def party(self) -> int:
        """Number of the party."""
        return self._session.party

    def start(self) -> bytes | None:
        """Return the first message; the stored one if it was created before.

        Raises:
            LocalProtocolError: the restored session has answered the server since: pass it the current request. Or it
                has ended.
        """
        self._need_running()
        if self._asked == _NOTHING:
            return self._again()
        if self._asked:
            raise LocalProtocolError("this session is past its first message; pass on what the server asks")
        return self._keep(_NOTHING, self._session.start())

    def receive(self, message: bytes) -> bytes | None:
        """Return the answer, after storing it; the stored answer if this message was the last one answered.

        Errors of ``Store.save`` (such as a full disk) pass through; no answer was sent then, so repeat the call.
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
        """Erase the session and record that it has ended: it cannot be started again from this store.

        Raises:
            LocalProtocolError: the session has ended before.
        """
        self._need_running()
        self._asked, self._answer, self._over = b"", b"", (*self._over, self._own)
        self._store.save(_HEADER + self._listed)

    def _need_running(self) -> None:
        if self._own in self._over:
            raise LocalProtocolError("this session has ended; one session id serves one sum")

    @property
    def _listed(self) -> bytes:
        """Hashes of the ended sessions, as bytes."""
        return len(self._over).to_bytes(4, "big") + b"".join(self._over)

    @property
    def _bound(self) -> bytes:
        """Associated data of the encrypted record."""
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
        size = len(self._answer).to_bytes(8, "big")
        record = self._asked.ljust(32, b"\xff"), size, self._answer, self._session.snapshot()
        sealed = seal_parts(self._key, record, self._bound, entropy=self._entropy)
        self._store.save(joined(chain([_HEADER, self._listed], sealed)))
        self._is_stored = True


class DurableServer:
    """A server's session that is stored before its messages leave. ``requests`` are those of the last closed round.

    Unlike a client's store it keeps no list of ended sessions: a server has no secret that a second sum would expose,
    and such a list would not bind a malicious server. Clients and helpers repeat an answer or refuse, by their own
    stores.

    Where ``each_message`` is set, every message writes the whole session: over n clients n times the vector, and
    n^2 / 2 sealed shares. Without it a session is written once a round; after a crash send ``requests`` again to all
    (before the first closed round, ask for the first messages again), and durable clients repeat what they sent. A
    session that too few answered asks again in the same way, and goes on with those who are back.

    Args:
        store: storage of the session; only the server may read it.
        session: a new session. If the store has a record, it continues from there.
        each_message: whether a message is stored when it came, for clients and helpers that repeat nothing.

    Raises:
        SnapshotError: the record is of another version or session, or was changed.

    >>> import tempfile
    >>> import numpy as np
    >>> from secagg import Layout, PlainSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = PlainSum(layout=layout, clients=(1, 2), session_id=new_session_id())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FileStore(Path(folder) / "session")
    ...     DurableServer(store, protocol.server()).receive(1, protocol.client(1, np.array([3, 4])).start())
    ...     sorted(DurableServer(store, protocol.server()).waiting_for)
    [2]
    """

    def __init__(self, store: Store, session: ServerSession, *, each_message: bool = True) -> None:
        self._store, self._session, self._is_stored = store, session, True
        self._each_message = each_message
        self.requests: Mapping[PartyId, bytes] = {}
        self._unstored: Mapping[PartyId, bytes] | None = None
        record = store.load()
        if record is None:
            return
        content = _of_this_version(record)
        digest, content = content[:_HASH_BYTES], content[_HASH_BYTES:]
        if _hash_of(session.snapshot_id, content) != digest:
            raise SnapshotError("the stored session does not read: another session or configuration, or changed bytes")
        try:
            reader = Reader(content, peer=SERVER)
            self.requests = {reader.number(): reader.take(reader.number()) for _ in range(reader.number())}
        except MalformedMessageError as error:
            raise SnapshotError("the stored session does not read: changed bytes") from error
        session.restore(reader.rest())

    @property
    def result(self) -> SumResult | None:
        """Result after the last round; None before."""
        return self._session.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties asked in this round that have not answered yet."""
        return self._session.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process a message. With ``each_message`` it survives a crash once this returns or is called a repetition."""
        if not self._is_stored:  # the store refused what was taken before, and its sender asks again
            self._save()
        self._session.receive(sender, message)
        if self._each_message:
            self._save()

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round; the next messages are stored before they are returned.

        If the store raises an error, the round is closed nevertheless: call again for the same messages. An interrupt
        (Ctrl-C) stores nothing and ends this object: create another one, which continues from the stored record.
        """
        if self._unstored is None:
            if not self._is_stored:
                self._save()
            try:
                self._unstored = self._session.close_round()
            except LocalProtocolError:
                raise  # nothing changed, so the stored record is valid
            except SecureSumError:
                if self._each_message:
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
        parts.append(self._session.snapshot())
        self._store.save(joined([_HEADER, _hash_of(self._session.snapshot_id, *parts), *parts]))
        self._is_stored = True


def _hash_of(*parts: bytes | memoryview) -> bytes:
    """Return the SHA-256 of parts in a row."""
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.digest()


def _read_over(record: bytes) -> tuple[tuple[bytes, ...], memoryview]:
    """Return the hashes of the ended sessions, and the encrypted record of the running one; empty if none runs."""
    reader = Reader(_of_this_version(record), peer=SERVER)
    try:
        return tuple(reader.take(_HASH_BYTES) for _ in range(reader.number())), reader.rest_view()
    except MalformedMessageError as error:
        raise SnapshotError("the stored session does not read: changed bytes") from error


def _of_this_version(record: bytes) -> memoryview:
    """Return the bytes after the header of a stored record."""
    if record[: len(_HEADER)] != _HEADER:
        raise SnapshotError(
            f"the stored session was written by another version of this library, not in format {VERSION}; end it with "
            "the version that began it, or begin a new session"
        )
    return memoryview(record)[len(_HEADER) :]
