"""A query log's count and head hash, kept in a second place: a site with an old copy forgot totals, and is stopped.

The head is a hash chain over the totals that the query log let pass and what it let be computed of rows. The
query log's own file has all heads, the second place the last one. This is written before a total is agreed to, so the
query log is behind it only where it was lost or replaced by an older copy; a crash between the two writes leaves it one
ahead, which is harmless. More than one ahead is a second place that was replaced by an older copy.

Neither a clock nor a file's time is asked. Both copies set back together are told from other records alone
(``analytic_secagg.site.witnesses``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import OutputError
from analytic_secagg.site.errors import SiteFileError
from secagg.encoding import length_prefixed

_NOTHING = bytes(32)
"""The head before the first total."""


@dataclass(frozen=True, slots=True)
class QueryLogHead:
    """The last head of one query log, in its file and in the second place. Use it while the query log's file is locked.

    Args:
        path: the second place, a file; best on a disk that is not restored together with the query log.
        run: runs one statement in the query log's file (``SessionStore.run``).
        parties: whose query log it is, each in words; empty asks nothing.
    """

    path: Path
    run: Callable[..., list[tuple[Any, ...]]]
    parties: tuple[str, ...] = ()

    def problem(self, *, is_there: bool = True) -> str:
        """Return why the query log cannot be trusted to know all totals; empty if it can. It changes nothing.

        Args:
            is_there: whether the query log has a file at all.

        Raises:
            SiteFileError: the second place is damaged or cannot be read.
        """
        count, noted = self._last()[0] if is_there else 0, self._noted()
        if noted is None:
            if not count:
                return ""
            return (
                f"without its second place: the query log counts {count} entries, and {self.path}, which must say how "
                f"many it had last, is not there: nobody can tell whether the query log is an older copy. {REMEDY}"
            )
        named, head = noted
        if named and not count:
            return f"lost: the query log must have the {named} entries that {self.path} counts, and has none. {REMEDY}"
        if count < named:
            return (
                f"behind: the query log must have the {named} entries that {self.path} counts, and has {count}: it was "
                f"set back, or restored from an older copy. {REMEDY}"
            )
        if (self._at(named) if named else _NOTHING) != head:
            return (
                f"restored from an older copy: entry {named} of the query log must have the head that {self.path} "
                f"names, and has another: it is an older copy that was used since, or another site's. {REMEDY}"
            )
        if count > named + 1:
            return (
                f"restored from an older copy: {self.path} must count the {count} entries of the query log, or one "
                f"less after a crash, and counts {named}: it is older, so the query log may be older, too. {REMEDY}"
            )
        if is_there and (others := self._owners()) and self.parties and others.isdisjoint(self.parties):
            of, own = ", ".join(sorted(others)), ", ".join(self.parties)
            return f"another site's: the query log must be of {own}, and is of {of}. {REMEDY}"
        return ""

    def start(self) -> None:
        """Refuse a query log that is behind its second place; else see that this one says what the query log counts.

        Raises:
            SiteFileError: says what was needed, what came and what the owner can do.
        """
        if problem := self.problem():
            raise SiteFileError(problem)
        if self._noted() != (last := self._last()):
            self._write(*last)
        self._sign()

    def advance(self, *entry: bytes) -> None:
        """Count one more entry, in the query log's file first; once this returns, both writes survive a crash.

        Raises:
            SiteFileError: the second place cannot be written to; then nothing is to be agreed to.
        """
        count, head = self._last()
        self._put(count + 1, hashlib.sha256(length_prefixed(b"journal head", head, *entry)).digest())

    @property
    def is_empty(self) -> bool:
        """Whether it never had an entry."""
        return not self._last()[0]

    def counted(self) -> int:
        """How many entries the second place counts, or the query log where that one says more."""
        return max((self._noted() or (0, _NOTHING))[0], self._last()[0])

    def accept(self) -> None:
        """Go on from what the query log has.

        The chain goes on from both, so that no older copy of the query log is taken for the newest one afterwards.

        Raises:
            SiteFileError: as ``advance``.
        """
        (count, head), (_, said) = self._last(), self._noted() or (0, _NOTHING)
        self._sign()
        self._put(count + 1, hashlib.sha256(length_prefixed(b"accepted loss", head, said)).digest())

    def _owners(self) -> set[str]:
        """The parties whose query log it is; a file of an earlier version names none before it is carried on."""
        if not self.run("SELECT 1 FROM sqlite_master WHERE name = 'journal_owners'"):
            return set()
        return {party for (party,) in self.run("SELECT party FROM journal_owners")}

    def _sign(self) -> None:
        """Note whose query log it is; a site may get further parties, and give others up."""
        for party in set(self.parties) - self._owners():
            self.run("INSERT INTO journal_owners VALUES (?)", party)

    def _put(self, count: int, head: bytes) -> None:
        self.run("INSERT INTO journal_heads VALUES (?, ?)", count, head)
        self._write(count, head)

    def _write(self, count: int, head: bytes) -> None:
        try:
            OutputFile(self.path, private=True).write(f"{count} {head.hex()}\n")
        except OutputError as error:
            raise SiteFileError(
                f"an entry must be counted in a second place before it is agreed to: {error}"
            ) from error

    def _last(self) -> tuple[int, bytes]:
        found = self.run("SELECT number, head FROM journal_heads ORDER BY number DESC LIMIT 1")
        return found[0] if found else (0, _NOTHING)

    def _at(self, count: int) -> bytes:
        found = self.run("SELECT head FROM journal_heads WHERE number = ?", count)
        return found[0][0] if found else b""

    def _noted(self) -> tuple[int, bytes] | None:
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise SiteFileError(f"{self.path}, the query log's second place, cannot be read: {error}") from error
        if not (match := re.fullmatch(r"(0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n", text)):
            raise SiteFileError(
                f"{self.path} must hold a count and a head hash, as this site wrote them; bring it back from a copy, "
                f"or remove it and: {_ACCEPT}"
            )
        return int(match[1]), bytes.fromhex(match[2])


_ACCEPT = (
    "the command accept-loss goes on, and counts this site's rows as being in one more total that nothing is compared "
    "with"
)
REMEDY = (
    "Who is in a total that it forgot could be told from the next one, so this site takes part in nothing. Bring back "
    f"the newest copies of both; where there are none: {_ACCEPT}"
)
