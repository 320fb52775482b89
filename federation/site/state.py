"""A site's folder of running sessions: each in sealed files of its own, each id used once and then remembered.

<session>.invitation     what the server proposed (public)
<session>.<party>        the party's session, sealed under the site's key
<session>.key-pair       the key holder's keys for this session, sealed the same way
<session>.over           an empty file that stays: this session is never begun again
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from federation.site.errors import NoSessionError, SiteFileError
from federation.site.invitation import Invitation
from federation.site.terms import Terms
from secagg import PartyId
from secagg.durable import FileStore

_INVITATION, _KEY_PAIR, _OVER = ".invitation", ".key-pair", ".over"


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

        A key holder sees it twice: without its context, which it then makes, and with it. The next sum of a series
        takes the place of the one before.

        Raises:
            NoSessionError: this id was used before, by a session that is over or by another invitation; or this is a
                later sum of a series that is not here.
        """
        session, content = invitation.session, invitation.to_bytes()
        if self._file(session, _OVER).exists():
            raise NoSessionError("this session is over; one session id serves one sum")
        store = FileStore(self._file(session, _INVITATION))
        before = store.load()
        if before is None and Terms.from_bytes(invitation.terms).place > 1:
            raise NoSessionError("this series is not here: it began without this site, or its file was lost")
        if before is None or before == invitation.question.to_bytes() or _follows(invitation, before):
            store.save(content)
        elif content not in (before, Invitation.from_bytes(before).question.to_bytes()):
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

    def key_pair(self, session: bytes) -> FileStore:
        """Where the key holder's keys for one session lie."""
        return FileStore(self._file(session, _KEY_PAIR))

    def end(self, session: bytes) -> None:
        """Forget all secrets of a session, and remember that it was.

        The invitation, which is public, goes last: a session that still has one has not been wiped to the end.
        """
        FileStore(self._file(session, _OVER)).save(b"")
        for path in sorted(self._files(session), key=lambda path: path.suffix == _INVITATION):
            path.unlink(missing_ok=True)

    def held(self) -> tuple[bytes, ...]:
        """The sessions of which more is here than that they are over."""
        names = {path.name.partition(".")[0] for path in self.path.glob("*.*") if path.suffix != _OVER}
        return tuple(bytes.fromhex(name) for name in sorted(names) if re.fullmatch("([0-9a-f]{2}){16,64}", name))

    def end_older_than(self, moment: float, *, spare: bytes = b"") -> None:
        """End what nobody has touched since ``moment`` (seconds of the epoch), whose server is gone.

        A session whose wiping a crash cut short is wiped to the end; ``spare`` is left as it is.
        """
        for session in self.held():
            is_half_wiped = self._file(session, _OVER).exists()
            newest = max(path.stat().st_mtime for path in self._files(session))
            if session != spare and (is_half_wiped or newest < moment):
                self.end(session)

    def _files(self, session: bytes) -> list[Path]:
        """All of a session but the word that it is over."""
        return [path for path in self.path.glob(f"{session.hex()}.*") if path.suffix != _OVER]

    def _file(self, session: bytes, suffix: str) -> Path:
        if not 16 <= len(session) <= 64:
            raise NoSessionError("a session id has 16 to 64 bytes")
        return self.path / (session.hex() + suffix)


def _follows(invitation: Invitation, stored: bytes) -> bool:
    """Whether it is to the next sum of the series that the stored invitation belongs to."""
    before = Terms.from_bytes(Invitation.from_bytes(stored).terms)
    return before.place > 0 and Terms.from_bytes(invitation.terms) == before.next_of_series
