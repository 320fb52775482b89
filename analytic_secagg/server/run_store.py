"""What a server keeps of a run until the run is over, so that a server process that died can be started again.

One SQLite file in the run's folder, under the rules of a site's own store (``site.store``): a write is a transaction
that is on the disk before it returns, so what the server sends is stored before it leaves; the file is of mode 0600 and
its exclusive lock is held while the run is at work; what is wiped is overwritten in the file (``secure_delete``).

It holds the settings that the run began with, every finished total, and of the sum at work the proposal, where its
parties are, and the server's session. When the run is over only how it ended is left.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analytic_secagg.site.errors import DeploymentError, RunSettingsError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.store import BEGIN, insert_record, transaction
from secagg import PartyId, SumResult
from secagg.snapshots import read, write

FILE = "run.sqlite"

PREPARE = f"""{BEGIN}
CREATE TABLE IF NOT EXISTS records (name TEXT PRIMARY KEY, content BLOB);
PRAGMA user_version = 1;
COMMIT;
"""

_WAIT_SECONDS = 5.0

_RUN, _BEGAN, _SUM, _ADDRESSES, _SESSION = "run", "began", "sum", "addresses", "session"
_TOTAL, _FAILED, _PROOF, _ENDED = "total ", "failed", "proof", "ended"

Outcome = tuple[str, str]
"""The kind of the error that a run ended with, and its reason; both empty for a model."""


class NotStoredError(DeploymentError):
    """The state of a run cannot be read or written. What was stored before stays, and the run can go on with it."""


class StoppedRunError(DeploymentError):
    """A run had failed before its server was started again.

    Args:
        kind: the name of the error that it failed with.
        reason: its text.
    """

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(
            f"this run failed before its server was started again, with {kind}: {reason}. It does not go on: begin "
            "another run, under another name where you name it. Keep this folder until all sites were told that it "
            'failed, which each run that begins does for those that are there ("not told" counts the others)'
        )
        self.kind, self.reason = kind, reason


@dataclass(slots=True)
class NodeAddresses:
    """Nodes of the parties of a sum, or of all sums of a series.

    Args:
        node_of: each party's node.
        n_invited: how many nodes were invited at first, also by a process before or to the run's sum before; every
            later quorum is a fraction of it. No more than there are parties, since other nodes have no part.
    """

    node_of: dict[PartyId, int] = field(default_factory=dict)
    n_invited: int = 0


@dataclass(slots=True, kw_only=True)
class FinishedSum:
    """A sum that has its total.

    Args:
        session: its id.
        proposal: what it began with.
        result: the total.
    """

    session: bytes
    proposal: bytes
    result: SumResult


class RunStore:
    """The state of one run. Make it with ``opened``.

    Args:
        database: the open file.
        path: its place, for messages.
    """

    def __init__(self, database: sqlite3.Connection, path: Path) -> None:
        self._database, self._path = database, path

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, *, wait_seconds: float = _WAIT_SECONDS) -> Iterator[RunStore]:
        """Yield the state of the run in this folder, locked; both are made where they are missing.

        Args:
            folder: of the run.
            wait_seconds: how long a process that works on it is waited for.

        Raises:
            DeploymentError: another process works on the run, or the file cannot be made, or is damaged.
        """
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            database = sqlite3.connect(path, timeout=wait_seconds, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise NotStoredError(f"cannot keep the state of a run in {folder}: {error}; free space there") from error
        try:
            store = cls(database, path)
            with store._explained():
                database.executescript(PREPARE)
            yield store
        finally:
            database.close()

    @classmethod
    def left(cls, output: Path) -> list[Path]:
        """Return the folders of the runs that no process works on and that have not ended, in the order of their names.

        Args:
            output: the server's folder of all runs.
        """
        found = []
        for path in sorted(output.glob(f"*/{FILE}")):
            if not _is_over(path):
                with suppress(DeploymentError), cls.opened(path.parent, wait_seconds=0.0) as store:
                    if store.has_asked and store.outcome is None:
                        found.append(path.parent)
        return found

    @staticmethod
    def prune(output: Path, n_kept: int) -> None:
        """Remove the folders of all runs that have ended but the newest. One that has not ended stays.

        Args:
            output: the server's folder of all runs.
            n_kept: how many stay.
        """
        ended = sorted(filter(_is_over, output.glob(f"*/{FILE}")), key=lambda path: path.stat().st_mtime_ns)
        for path in ended[:-n_kept]:
            shutil.rmtree(path.parent, ignore_errors=True)

    def begin(self, plan: Mapping[str, Any], *, moment: str) -> bool:
        """Begin a run, or go on with the one that was left unfinished; return whether it goes on.

        Args:
            plan: the run's settings and the roster's fingerprint. A run goes on with the same ones only.
            moment: when it begins.

        Raises:
            RunSettingsError: the folder holds an unfinished run of others.
        """
        if self.outcome is not None or not self.has_asked:
            self._save({_RUN: _canonical(plan), _BEGAN: moment.encode()}, keep=())
            return False
        if not self.is_of(plan):
            raise RunSettingsError(
                f"{self._path.parent} holds a run that has not ended, of other settings or of another roster: start it "
                "again with what it began with, so that it ends; or give this run another name"
            )
        return True

    @property
    def has_asked(self) -> bool:
        """Whether a site may have been asked for something."""
        return any(map(self._load, (_SUM, f"{_TOTAL}0", _FAILED)))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the run began with."""
        found: dict[str, Any] = json.loads(self._load(_RUN) or b"{}").get("settings", {})
        return found

    @property
    def outcome(self) -> Outcome | None:
        """How the run in this folder ended; None while it has not."""
        return self._outcome(_ENDED)

    @property
    def failure(self) -> Outcome | None:
        """The error that ended this run, of which the sites may not have been told yet."""
        return self._outcome(_FAILED)

    @property
    def proof(self) -> bytes:
        """What certifies that the sum at work failed; empty where nothing does."""
        return self._load(_PROOF) or b""

    def is_of(self, plan: Mapping[str, Any]) -> bool:
        """Return whether the run in this folder has these settings and this roster."""
        return self._load(_RUN) == _canonical(plan)

    @property
    def began(self) -> str:
        """When the run began."""
        return (self._load(_BEGAN) or b"").decode()

    @property
    def finished(self) -> list[FinishedSum]:
        """The sums that have their totals, in their order."""
        found, fresh = list[FinishedSum](), SumResult(total=np.zeros(0, dtype=np.int64), survivors=())
        while (content := self._load(f"{_TOTAL}{len(found)}")) is not None:
            found.append(read(FinishedSum(session=b"", proposal=b"", result=fresh), content))
        return found

    @property
    def proposal(self) -> TrainingProposal | None:
        """The proposal of the sum at work; None between sums."""
        content = self._load(_SUM)
        return None if content is None else TrainingProposal.from_bytes(content)

    @property
    def addresses(self) -> NodeAddresses:
        """Where the parties of the last sum were, once its invitation was over; before, how many nodes were invited."""
        content = self._load(_ADDRESSES)
        if content is None:
            return NodeAddresses()
        said = json.loads(content)
        node_of = {int(party): node for party, node in said["node_of"].items()}
        return NodeAddresses(node_of=node_of, n_invited=said["n_invited"])

    @property
    def session(self) -> Record:
        """Where the server's session of the sum at work is stored."""
        return Record(self)

    def open_sum(self, proposal: TrainingProposal) -> None:
        """Store a proposal before anybody is sent it; nothing of the sum before is kept but its total."""
        self._save({_SUM: proposal.to_bytes(), _SESSION: None})

    def drop_sum(self) -> None:
        """Remove a sum that nobody has sent a vector for."""
        self._save({_SUM: None, _SESSION: None})

    def keep_addresses(self, addresses: NodeAddresses) -> None:
        """Store where the parties of the sum are."""
        self._save({_ADDRESSES: _written(addresses)})

    def close_sum(self, proposal: TrainingProposal, result: SumResult) -> None:
        """Store a total and wipe the session that it is of."""
        finished = FinishedSum(session=proposal.session, proposal=proposal.to_bytes(), result=result)
        place = 0
        while self._load(f"{_TOTAL}{place}") is not None:
            place += 1
        name = f"{_TOTAL}{place}"
        self._save({name: write(finished), _SUM: None, _SESSION: None})

    def fail(self, outcome: Outcome, addresses: NodeAddresses) -> None:
        """Store that the run failed: nothing goes on with the sum at work, whose session is wiped."""
        self._save({_FAILED: json.dumps(outcome).encode(), _ADDRESSES: _written(addresses), _SESSION: None})

    def keep_proof(self, proof: bytes) -> None:
        """Store what certifies the failure: a site that is away now is told once it is back."""
        self._save({_PROOF: proof})

    def end(self, outcome: Outcome) -> None:
        """Wipe everything but what was run and how it ended."""
        self._save({_ENDED: json.dumps(outcome).encode()}, keep=(_RUN,))
        with self._explained():
            self._database.execute("VACUUM")

    def _outcome(self, name: str) -> Outcome | None:
        content = self._load(name)
        if content is None:
            return None
        kind, reason = json.loads(content)
        return kind, reason

    def _load(self, name: str) -> bytes | None:
        with self._explained():
            found = self._database.execute("SELECT content FROM records WHERE name = ?", (name,)).fetchall()
        return found[0][0] if found else None

    def _save(self, records: Mapping[str, bytes | None], *, keep: tuple[str, ...] | None = None) -> None:
        """Write these records, or remove those that are None, in one transaction; ``keep`` names the others to stay."""
        with self._explained(), transaction(self._database):
            if keep is not None:
                places = ", ".join("?" * len(keep))
                self._database.execute(f"DELETE FROM records WHERE name NOT IN ({places})", keep)  # noqa: S608
            for name, content in records.items():
                self._database.execute("DELETE FROM records WHERE name = ?", (name,))
                if content is not None:
                    insert_record(self._database, "INSERT INTO records VALUES (?, zeroblob(?))", (name,), content)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise NotStoredError(
                    f"another process works on the run in {self._path.parent}; end that one, or wait for it"
                ) from error
            raise NotStoredError(
                f"the state of the run cannot be stored in {self._path}: {error}. Where the disk is full, free space "
                "and start the server again with the same command; where the file is damaged, rows that a sum of this "
                "run may have used stay used, and their owners can allow one more total (further_totals)"
            ) from error


def _is_over(path: Path) -> bool:
    """Return whether a file says that its run has ended; it is only looked at."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0.0)) as database:
            return bool(database.execute("SELECT 1 FROM records WHERE name = ?", (_ENDED,)).fetchall())
    except sqlite3.Error:
        return False  # a process works on it, or died in a write


def _written(addresses: NodeAddresses) -> bytes:
    return json.dumps({"node_of": addresses.node_of, "n_invited": addresses.n_invited}).encode()


def _canonical(plan: Mapping[str, Any]) -> bytes:
    return json.dumps(plan, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class Record:
    """The record of the server's session (a ``secagg.durable.Store``)."""

    store: RunStore

    def load(self) -> bytes | None:
        """Return what was saved last; None if nothing was."""
        return self.store._load(_SESSION)

    def save(self, record: bytes) -> None:
        """Replace it; once this returns the record survives a crash."""
        self.store._save({_SESSION: record})
