"""A query log's count and head hash, kept in a second place: a site with an old copy forgot totals, and is stopped.

The head is a hash chain over the totals that the query log let pass and what it let be computed of rows. The
query log's own file has all heads, the second place the last one. This is written before a total is agreed to, so the
query log is behind it only where it was lost or replaced by an older copy; a crash between the two writes leaves it one
ahead, which is harmless.
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
    """

    path: Path
    run: Callable[..., list[tuple[Any, ...]]]

    def problem(self, *, is_there: bool = True) -> str:
        """Return why the query log cannot be trusted to know all totals; empty if it can. It changes nothing.

        Args:
            is_there: whether the query log has a file at all.

        Raises:
            SiteFileError: the second place is damaged or cannot be read.
        """
        count, noted = self._last()[0] if is_there else 0, self._noted()
        if noted is None and count:
            return (
                f"the query log counts {count} entries, and {self.path}, which must say how many it had last, is not "
                f"there: nobody can tell whether the query log is an older copy. Bring the file back, or: {_ACCEPT}"
            )
        if noted is not None and noted[1] != (self._at(noted[0]) if is_there and noted[0] else _NOTHING):
            return (
                f"the query log must have the {noted[0]} entries that {self.path} counts, and counts {count}, or "
                "others: it is lost, or an older copy, and who is in a total that it forgot could be told from the "
                f"next one. Bring back the newest copy of the state folder; where there is none: {_ACCEPT}"
            )
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

    def advance(self, *entry: bytes) -> None:
        """Count one more entry, in the query log's file first; once this returns, both writes survive a crash.

        Raises:
            SiteFileError: the second place cannot be written to; then nothing is to be agreed to.
        """
        count, head = self._last()
        self._put(count + 1, hashlib.sha256(length_prefixed(b"journal head", head, *entry)).digest())

    def lost(self) -> int:
        """How many entries the second place counts, of which the query log forgot some.

        Raises:
            SiteFileError: it forgot none.
        """
        if not self.problem():
            raise SiteFileError(f"the query log has all entries that {self.path} counts: there is no loss to accept")
        return (self._noted() or (0, _NOTHING))[0]

    def accept(self) -> None:
        """Go on from what the query log has.

        The chain goes on from both, so that no older copy of the query log is taken for the newest one afterwards.

        Raises:
            SiteFileError: as ``advance``.
        """
        (count, head), (_, said) = self._last(), self._noted() or (0, _NOTHING)
        self._put(count + 1, hashlib.sha256(length_prefixed(b"accepted loss", head, said)).digest())

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
                f"{self.path} must say a count and a head hash, as this site wrote them; bring it back from a copy, or "
                f"remove it and: {_ACCEPT}"
            )
        return int(match[1]), bytes.fromhex(match[2])


_ACCEPT = (
    "the command accept-loss goes on, and counts this site's rows as being in one more total that nothing is compared "
    "with"
)
