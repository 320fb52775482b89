"""Sessions that survive their process: stored before anything leaves, repeating themselves when asked again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError, MalformedMessageError, SecureSumError, SnapshotError
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal
from secagg.sessions import ClientSession, PartyId, ServerSession, SumResult
from secagg.wire import Reader

_BINDING = b"analytic-secagg/1 durable client"
_HASH_BYTES = 32
_NOTHING = bytes(32)
_UNASKED = b"\xff" * 32


class Store(Protocol):
    """Where one client keeps one session."""

    def load(self) -> bytes | None:
        """What was saved last; None if nothing was."""
        ...

    def save(self, record: bytes) -> None:
        """Replace it; once this returns the record survives a crash."""
        ...

    def wipe(self) -> None:
        """Forget it."""
        ...


@dataclass(frozen=True, slots=True)
class FileStore:
    """One file of mode 0600, replaced as a whole and flushed to the disk before ``save`` returns."""

    path: Path

    def load(self) -> bytes | None:
        """The file's bytes; None if there is no file."""
        return self.path.read_bytes() if self.path.exists() else None

    def save(self, record: bytes) -> None:
        """Write beside the file, flush, then rename over it."""
        fresh = self.path.with_name(self.path.name + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(record)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def wipe(self) -> None:
        """Remove the file (the disk may keep its blocks: see the threat model)."""
        self.path.unlink(missing_ok=True)
        self.path.with_name(self.path.name + ".new").unlink(missing_ok=True)


class DurableClient:
    """One client's session in a store.

    Args:
        store: where it is kept.
        key: 32 bytes that only this client knows; the record is sealed under it.
        fresh: makes a new session.
        restore: makes the session of a snapshot.
        snapshot: a session's snapshot.
        entropy: where the seal's nonces come from.

    Raises:
        SnapshotError: the store holds another session's record, or its bytes were changed.
    """

    def __init__(
        self,
        store: Store,
        key: bytes,
        *,
        fresh: Callable[[], ClientSession],
        restore: Callable[[bytes], ClientSession],
        snapshot: Callable[[ClientSession], bytes],
        entropy: Entropy = os_entropy,
    ) -> None:
        self._store, self._key, self._snapshot, self._entropy = store, key, snapshot, entropy
        self._asked, self._answer = b"", b""
        record = store.load()
        if record is None:
            self._session = fresh()
            return
        try:
            plain = open_sealed(key, record, _BINDING)
        except SealBrokenError as error:
            raise SnapshotError("the stored session does not open: another key, or changed bytes") from error
        self._asked, size = plain[:32].removesuffix(_UNASKED), int.from_bytes(plain[32:40], "big")
        self._answer, state = plain[40 : 40 + size], plain[40 + size :]
        self._session = restore(state)

    @property
    def party(self) -> int:
        """Whose session it is."""
        return self._session.party

    def start(self) -> bytes | None:
        """The first message; the same one if it was made before."""
        if self._asked == _NOTHING:
            return self._answer or None
        if self._asked:
            raise LocalProtocolError("this session is past its first message; pass on what the server asks")
        return self._keep(_NOTHING, self._session.start())

    def receive(self, message: bytes) -> bytes | None:
        """The answer, stored before it is given; the stored one if this request was the last one answered."""
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._asked:
            return self._answer or None
        try:
            answer = self._session.receive(message)
        except SecureSumError:
            self._save()  # an aborted session stays aborted after a restart
            raise
        return self._keep(fingerprint, answer)

    def _keep(self, asked: bytes, answer: bytes | None) -> bytes | None:
        self._asked, self._answer = asked, answer or b""
        self._save()
        return answer

    def _save(self) -> None:
        record = self._asked.ljust(32, b"\xff") + len(self._answer).to_bytes(8, "big") + self._answer
        record += self._snapshot(self._session)
        self._store.save(seal(self._key, record, _BINDING, entropy=self._entropy))


class DurableServer:
    """One server's session in a store; after a crash ``requests`` holds what the last closed round sent.

    Args:
        store: where it is kept; only the server may read it.
        fresh: makes a new session.
        restore: makes the session of a snapshot.
        snapshot: a session's snapshot.

    Raises:
        SnapshotError: the store holds another session's record, or its bytes were changed.
    """

    def __init__(
        self,
        store: Store,
        *,
        fresh: Callable[[], ServerSession],
        restore: Callable[[bytes], ServerSession],
        snapshot: Callable[[ServerSession], bytes],
    ) -> None:
        self._store, self._snapshot = store, snapshot
        self.requests: Mapping[PartyId, bytes] = {}
        record = store.load()
        if record is None:
            self._session = fresh()
            return
        if hashlib.sha256(record[_HASH_BYTES:]).digest() != record[:_HASH_BYTES]:
            raise SnapshotError("the stored session does not read: changed bytes")
        try:
            reader = Reader(memoryview(record)[_HASH_BYTES:], peer=SERVER)
            self.requests = {reader.number(): reader.take(reader.number()) for _ in range(reader.number())}
            self._session = restore(reader.rest())
        except MalformedMessageError as error:
            raise SnapshotError("the stored session does not read: changed bytes") from error

    @property
    def result(self) -> SumResult | None:
        """The sum once the last round is closed."""
        return self._session.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties asked in this round that have not answered yet."""
        return self._session.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take a message; once this returns it survives a crash."""
        self._session.receive(sender, message)
        self._save()

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round; the next messages are stored before they are returned."""
        try:
            self.requests = self._session.close_round()
        finally:
            self._save()
        return self.requests

    def _save(self) -> None:
        parts = [len(self.requests).to_bytes(4, "big")]
        for party, message in self.requests.items():
            parts += [party.to_bytes(4, "big"), len(message).to_bytes(4, "big"), message]
        record = b"".join([*parts, self._snapshot(self._session)])
        self._store.save(hashlib.sha256(record).digest() + record)
