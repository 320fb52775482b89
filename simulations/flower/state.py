"""A site's folder of running sessions: each in sealed files of its own, each id used once and then remembered.

<session>.invitation     what the server proposed (public)
<session>.<party>        the party's session, sealed under the site's key
<session>.over           an empty file that stays: this session is never begun again
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from secagg import ClientSession, PartyId
from secagg.config import SERVER
from secagg.durable import FileStore
from secagg.errors import LocalProtocolError, MalformedMessageError, RepeatedMessageError, SecureSumError
from simulations.flower.errors import NoSessionError, SiteFileError
from simulations.flower.invitation import Invitation

_INVITATION, _OVER = ".invitation", ".over"


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """The sessions of one site. One process works in it at a time (``locked``).

    Args:
        path: a folder of mode 0700; it is created where it is missing.
    """

    path: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep every other process out, also one that a deadline left behind.

        Raises:
            SiteFileError: the folder cannot be made, or others may enter it.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise SiteFileError(
                f"cannot keep sessions in {self.path}: {error.strerror}; name another folder"
            ) from error
        try:
            if self.path.stat().st_mode & 0o077:
                raise SiteFileError(f"{self.path} must be a folder of its owner alone; chmod 700 it")
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def begin(self, invitation: Invitation) -> None:
        """Remember an invitation before anything is drawn for it; the same one may come again.

        Raises:
            NoSessionError: this id was used before, by a session that is over or by another invitation.
        """
        session, content = invitation.session, invitation.to_bytes()
        if self._file(session, _OVER).exists():
            raise NoSessionError("this session is over; one session id serves one sum")
        store = FileStore(self._file(session, _INVITATION))
        before = store.load()
        if before is None:
            store.save(content)
        elif before != content:
            raise NoSessionError("this session began with another invitation; one session id serves one sum")

    def invitation(self, session: bytes) -> Invitation:
        """What a running session began with.

        Raises:
            NoSessionError: there is none, or it is over.
        """
        content = FileStore(self._file(session, _INVITATION)).load()
        if content is None or self._file(session, _OVER).exists():
            raise NoSessionError("no such session is running here; it ended, or its file was lost")
        return Invitation.from_bytes(content)

    def store(self, session: bytes, party: PartyId) -> FileStore:
        """Where one party's session lies."""
        return FileStore(self._file(session, f".{party}"))

    def end(self, session: bytes) -> None:
        """Forget all secrets of a session, and remember that it was."""
        FileStore(self._file(session, _OVER)).save(b"")
        for path in self.path.glob(f"{session.hex()}.*"):
            if path.suffix != _OVER:
                path.unlink(missing_ok=True)

    def running(self) -> tuple[bytes, ...]:
        """The sessions that are not over."""
        return tuple(bytes.fromhex(path.stem) for path in sorted(self.path.glob(f"*{_INVITATION}")))

    def end_older_than(self, moment: float) -> None:
        """End what nobody has touched since ``moment`` (seconds of the epoch): its server is gone."""
        for session in self.running():
            if max(path.stat().st_mtime for path in self.path.glob(f"{session.hex()}.*")) < moment:
                self.end(session)

    def _file(self, session: bytes, suffix: str) -> Path:
        if not 16 <= len(session) <= 64:
            raise NoSessionError("a session id has 16 to 64 bytes")
        return self.path / (session.hex() + suffix)


class SpeaksOnce:
    """A session that gives at most one answer, so that all there is to store is whether it did.

    Args:
        session: a committee's or plain client, or a helper; None once it spoke in an earlier process.
        party: whose it is.
    """

    def __init__(self, session: ClientSession | None, party: PartyId) -> None:
        self._session, self.party = session, party

    @classmethod
    def restored(cls, snapshot: bytes, fresh: Callable[[], ClientSession], party: PartyId) -> SpeaksOnce:
        """The session that a snapshot holds."""
        return cls(fresh() if snapshot == b"silent" else None, party)

    def snapshot(self) -> bytes:
        """Whether it has spoken; what it said lies beside it (``DurableClient``)."""
        return b"silent" if self._session is not None else b"spoke"

    def start(self) -> bytes | None:
        """The one message of a client; nothing from a helper, which waits to be asked."""
        message = self._open().start()
        if message is not None:
            self._session = None
        return message

    def receive(self, message: bytes) -> bytes | None:
        """The one answer of a helper. A foreign message changes nothing; any other ends the session."""
        session = self._open()
        try:
            answer = session.receive(message)
        except (MalformedMessageError, RepeatedMessageError):
            raise
        except SecureSumError:
            self._session = None
            raise
        self._session = None
        return answer

    def _open(self) -> ClientSession:
        if self._session is None:
            raise LocalProtocolError(
                f"party {self.party} has spoken in this session with party {SERVER}; it does so once"
            )
        return self._session
