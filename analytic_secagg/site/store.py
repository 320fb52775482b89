"""A site's running sessions and its query log: one SQLite file in a folder of its own. A session id is used once.

Every write is a transaction that is on the disk before it returns, so what a party says is stored before it leaves. Who
works in the file holds its exclusive lock until the end, so there is one process at a time, and no other can have
written in between. Records are sealed under the site's keys; what is wiped is overwritten in the file
(``secure_delete``), though the disk may keep blocks of its journal. A record has at most 10^9 bytes, which is SQLite's
limit.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic_secagg.site.errors import NoSessionError, SiteFileError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.query_log_head import QueryLogHead
from secagg import PartyId

FILE = "sessions.sqlite"

BEGIN = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA synchronous = EXTRA;
PRAGMA secure_delete = ON;
BEGIN EXCLUSIVE;
"""
"""What the rules above are in SQLite; a server's runs are stored under the same ones."""

PREPARE = f"""{BEGIN}
CREATE TABLE IF NOT EXISTS sessions (id BLOB PRIMARY KEY, touched REAL, invitation BLOB);
CREATE TABLE IF NOT EXISTS records (session BLOB, name TEXT, content BLOB, PRIMARY KEY (session, name));
CREATE TABLE IF NOT EXISTS journal_key (content BLOB);
CREATE TABLE IF NOT EXISTS journal_heads (number INTEGER PRIMARY KEY, head BLOB);
CREATE TABLE IF NOT EXISTS journal_owners (party TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS fingerprints (subject BLOB PRIMARY KEY, tags BLOB);
CREATE TABLE IF NOT EXISTS vectors
    (total BLOB PRIMARY KEY, subject BLOB, session BLOB, configuration BLOB, run BLOB, grown INTEGER);
CREATE TABLE IF NOT EXISTS totals (
    total BLOB, survivors BLOB, subject BLOB, cohort BLOB, run BLOB, grown INTEGER, allowed INTEGER, clean INTEGER,
    PRIMARY KEY (total, survivors, subject));
CREATE TABLE IF NOT EXISTS computations (
    computed BLOB, subject BLOB, is_noisy INTEGER, is_made INTEGER, run BLOB, grown INTEGER, allowed INTEGER,
    PRIMARY KEY (computed, subject, is_noisy));
CREATE TABLE IF NOT EXISTS means (session BLOB, line TEXT);
PRAGMA user_version = 3;
COMMIT;
"""
"""A session without an invitation is over. Setting the version writes to the file, so that a disk that is full or that
cannot lock is known before anything is drawn."""

VERSION = 3
"""Version of the file's tables; no release wrote an earlier one."""

_PIECE_BYTES = 1 << 18
"""Bytes of a record that SQLite is given at a time; of a whole one it would make two copies."""

_WAIT_SECONDS = 3600.0
"""Time that a process waits for the one before it, which may have many rows to sum."""

_READ_SECONDS = 20.0
"""Time that a reader waits for a process at work."""

_KEY_PAIR = "key pair"


class SessionStore:
    """The sessions of one site. One process works on them at a time, and only while it has them ``locked``.

    Args:
        path: a folder of mode 0700 on a local disk; it is created where it is missing.
        now: the time in seconds of the epoch.
        head: the second place of the query log's count and head hash; a file beside the folder where none is named.
        parties: whose query log it is, each in words; another site's is not used. Empty asks nothing.
    """

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], float] = time.time,
        head: Path | None = None,
        parties: tuple[str, ...] = (),
    ) -> None:
        self.path, self._now = path, now
        self.query_log_head = QueryLogHead(head or path.with_name(f"{path.name}.head"), self.run, parties)
        self._database: sqlite3.Connection | None = None

    @contextmanager
    def locked(self, *, is_behind: bool = False) -> Iterator[None]:
        """Keep every other process out, also one that a deadline left behind.

        Args:
            is_behind: whether to go on although the query log is behind its second place, which its owner accepts.

        Raises:
            SiteFileError: the folder cannot be made or written to, or others may enter it; or the query log is behind.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.path.stat().st_mode
        except OSError as error:
            raise SiteFileError(
                f"cannot keep sessions in {self.path}: {error.strerror}; name another folder"
            ) from error
        if mode & 0o077:
            raise SiteFileError(f"{self.path} must be a folder of its owner alone; chmod 700 it")
        with self._opened(self.path / FILE, _WAIT_SECONDS) as database:
            self._check_version(database, self.path / FILE)
            database.executescript(PREPARE)
            (self.path / FILE).chmod(0o600)
            if not is_behind:
                self.query_log_head.start()
            self._end_sessions_of_files()
            yield

    @contextmanager
    def reading(self) -> Iterator[bool]:
        """Look without changing anything or keeping anybody out; whether there is something to look at.

        Raises:
            SiteFileError: a process is at work in the file, or it does not read.
        """
        path = self.path / FILE
        if not path.exists():
            yield False
            return
        with self._opened(f"{path.absolute().as_uri()}?mode=ro", _READ_SECONDS) as database:
            yield self._check_version(database, path) > 0  # of an empty file it is 0

    @contextmanager
    def copied(self) -> Iterator[bool]:
        """Work in a copy in memory, which is forgotten; whether there is something to copy.

        Raises:
            SiteFileError: as ``reading``.
        """
        with self.reading() as is_there:
            if not is_there or (original := self._database) is None:
                yield False
                return
            self._database = sqlite3.connect(":memory:", isolation_level=None)
            try:
                original.backup(self._database)
                yield True
            finally:
                self._database.close()
                self._database = original

    def check(self) -> None:
        """Look at every page of the file.

        Raises:
            SiteFileError: some are damaged.
        """
        if (found := self.run("PRAGMA quick_check")) != [("ok",)]:
            raise SiteFileError(f"{self._damaged}: {found[0][0]}")

    def begin(self, proposal: TrainingProposal) -> None:
        """Remember a proposal before anything is drawn for it; the same one may come again.

        A key holder sees it twice: without its context, which it then makes, and with it. The next sum of a series
        takes the place of the one before.

        Raises:
            NoSessionError: this id was used before, by a session that is over or by another proposal; or this is a
                later sum of a series that is not here.
        """
        session, content = proposal.session, proposal.to_bytes()
        before, is_over = self._session(session)
        if is_over:
            raise NoSessionError("this session is over; one session id serves one sum")
        if before is None and proposal.place > 1:
            raise NoSessionError("this series is not here: it began without this site, or its file was lost")
        stored = None if before is None else TrainingProposal.from_bytes(before)
        if stored is None or before == proposal.without_announcements.to_bytes() or proposal.follows(stored):
            self.run("INSERT OR REPLACE INTO sessions VALUES (?, ?, ?)", session, self._now(), content)
        elif content not in (before, stored.without_announcements.to_bytes()):
            raise NoSessionError("this session began with another proposal; one session id serves one sum")

    def proposal(self, session: bytes) -> TrainingProposal:
        """Return the proposal that a running session began with.

        Raises:
            NoSessionError: there is none, or it is over.
        """
        content, _ = self._session(session)
        if content is None:
            raise NoSessionError("no such session is running here; it ended, or its file was lost")
        return TrainingProposal.from_bytes(content)

    def record(self, session: bytes, party: PartyId) -> Record:
        """Return the record of one party's session."""
        return Record(self, session, str(party))

    def key_pair(self, session: bytes) -> Record:
        """Return the record of the key holder's keys for one session."""
        return Record(self, session, _KEY_PAIR)

    def lasting(self, name: str) -> Record:
        """Return a record that no session's end takes away."""
        return Record(self, b"", name)

    def end(self, session: bytes) -> None:
        """Forget all secrets of a session, and remember that it was.

        That it is over is on the disk first: a crash before the end of the wiping is made good by the next sweep.
        """
        self.run("INSERT OR REPLACE INTO sessions VALUES (?, ?, NULL)", session, self._now())
        self.run("DELETE FROM records WHERE session = ?", session)

    def means(self) -> list[str]:
        """Return the lines of the log of secure means, the oldest first (``analytic_secagg.mean.participation``)."""
        return [line for (line,) in self.run("SELECT line FROM means ORDER BY rowid")]

    def note_mean(self, session: bytes, line: str) -> None:
        """Add a line to the log of secure means, which the query log's second place counts.

        Args:
            session: id of the mean's sum.
            line: what is noted.

        Raises:
            SiteFileError: the second place cannot be written to.
        """
        self.run("INSERT INTO means VALUES (?, ?)", session, line)
        self.query_log_head.advance(b"mean", session, line.encode())  # last, so that no copy is counted without it

    @property
    def is_used(self) -> bool:
        """Whether any session was ever here."""
        return bool(self.run("SELECT 1 FROM sessions LIMIT 1"))

    def held(self) -> tuple[bytes, ...]:
        """The sessions of which more is here than that they are over."""
        return tuple(session for session, _, _ in self._held())

    def running(self) -> list[TrainingProposal]:
        """Return the proposals that the running sessions began with."""
        found = self.run("SELECT invitation FROM sessions WHERE invitation IS NOT NULL")
        return [TrainingProposal.from_bytes(content) for (content,) in found]

    def end_older_than(self, moment: float, *, spare: bytes = b"") -> None:
        """End what nobody has touched since ``moment`` (seconds of the epoch), whose server is gone.

        A session whose wiping a crash cut short is wiped to the end; ``spare`` is left as it is.
        """
        for session, touched, is_half_wiped in self._held():
            if session != spare and (is_half_wiped or touched < moment):
                self.end(session)

    def _held(self) -> list[tuple[Any, ...]]:
        """The id of each, when it was touched last, and whether it is over and not yet wiped."""
        return self.run(
            "SELECT id, touched, invitation IS NULL FROM sessions "
            "WHERE invitation IS NOT NULL OR id IN (SELECT session FROM records) ORDER BY id"
        )

    def _session(self, session: bytes) -> tuple[bytes | None, bool]:
        """Return the proposal that it began with, and whether it is over."""
        if not 16 <= len(session) <= 64:
            raise NoSessionError("a session id has 16 to 64 bytes")
        found = self.run("SELECT invitation FROM sessions WHERE id = ?", session)
        return (found[0][0], found[0][0] is None) if found else (None, False)

    @contextmanager
    def _opened(self, place: Path | str, seconds: float) -> Iterator[sqlite3.Connection]:
        """Work in a file, or at an address of one; wait so long for who is at work there."""
        try:
            self._database = sqlite3.connect(place, uri=True, timeout=seconds, isolation_level=None)
            try:
                yield self._database
            finally:
                self._database.close()
                self._database = None
        except sqlite3.Error as error:
            raise SiteFileError(self._in_words(error)) from error

    def _check_version(self, database: sqlite3.Connection, path: Path) -> int:
        ((version,),) = database.execute("PRAGMA user_version").fetchall()
        if version not in (0, VERSION):
            raise SiteFileError(f"{path} is of another release; install that to go on with it")
        return int(version)

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, which is a transaction of its own and on the disk before this returns."""
        assert self._database is not None, "sessions are touched while they are locked"
        return self._database.execute(statement, values).fetchall()

    @property
    def _damaged(self) -> str:
        return (
            f"damaged: {self.path / FILE} must be the database that this site wrote, and is not. Move it away, "
            "keep it, and bring back the newest copy; where there is none the command accept-loss goes on without it"
        )

    def _in_words(self, error: sqlite3.Error) -> str:
        """Return what is wrong by name, and what to do."""
        path, code = self.path / FILE, getattr(error, "sqlite_errorcode", 0) & 0xFF
        known = {
            sqlite3.SQLITE_CORRUPT: self._damaged,
            sqlite3.SQLITE_NOTADB: self._damaged,
            sqlite3.SQLITE_FULL: f"disk full: nothing more can be stored in {self.path}; free space",
            sqlite3.SQLITE_READONLY: f"read-only: {path} cannot be written to; mount its disk for writing, or give it "
            "back to this site's user",
            sqlite3.SQLITE_BUSY: f"{path} is locked: a sum is at work in it, so look again in a while",
        }
        general = (
            f"{path} cannot be used; state must be a folder on a local disk with space left, where files can be locked "
            "and flushed"
        )
        return f"{known.get(code, general)}: {error}"

    def _end_sessions_of_files(self) -> None:
        """Remember the sessions that earlier releases kept as files here, and remove the files.

        Their ids were used, and what they hold does not open any more.
        """
        for path in self.path.glob("*.*"):
            name = path.name.partition(".")[0]
            if re.fullmatch("([0-9a-f]{2}){16,64}", name):
                self.end(bytes.fromhex(name))
                path.unlink()


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Do in one transaction what is done meanwhile: all of it is on the disk, or nothing of it."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def insert_record(database: sqlite3.Connection, statement: str, key: tuple[Any, ...], content: bytes) -> None:
    """Insert a row of ``records``, in a transaction.

    Args:
        database: the open file.
        statement: inserts the key and a ``zeroblob(?)``.
        key: all but the content.
        content: what the blob holds.
    """
    row, view = database.execute(statement, (*key, len(content))).lastrowid, memoryview(content)
    assert row is not None, "a row was inserted"
    with database.blobopen("records", "content", row) as blob:
        for start in range(0, len(content), _PIECE_BYTES):
            blob.write(view[start : start + _PIECE_BYTES])


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a session (a ``secagg.durable.Store``), which can be reached while the folder is locked."""

    folder: SessionStore
    session: bytes
    name: str

    def load(self) -> bytes | None:
        """Return what was saved last; None if nothing was."""
        found = self.folder.run("SELECT content FROM records WHERE (session, name) = (?, ?)", *self._key)
        return found[0][0] if found else None

    def save(self, record: bytes) -> None:
        """Replace it; once this returns the record survives a crash."""
        database = self.folder._database
        assert database is not None, "sessions are touched while they are locked"
        with transaction(database):
            database.execute("UPDATE sessions SET touched = ? WHERE id = ?", (self.folder._now(), self.session))
            insert_record(database, "INSERT OR REPLACE INTO records VALUES (?, ?, zeroblob(?))", self._key, record)

    @property
    def _key(self) -> tuple[bytes, str]:
        return self.session, self.name
