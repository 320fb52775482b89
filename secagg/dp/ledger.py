"""Privacy ledger: a file with every release that was started on some data, and the budget for all of them.

One line of JSON per release, each with the SHA-256 of the previous line and of its own content, is appended and synced
before the release may start. The charge stays if the release is aborted or repeated, since a server that aborts on
purpose may have learned something. Only a session that is proven to have released nothing is given back (``void``), by
a line more. Nothing is overwritten.

The digests detect accidents: a changed, missing or moved line. They do not detect truncation at the end, or a forger
who recomputes them. To detect both, store ``head`` elsewhere and pass it to ``open``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

from secagg.dp.accountant import PrivacyGuarantee, Release, check_unit_and_adjacency, guarantee
from secagg.dp.conversions import check_epsilon_delta
from secagg.dp.errors import BudgetExceededError, LedgerError, PrivacyError
from secagg.durable import locked

FORMAT = "analytic-secagg/privacy-ledger/2"
_START = "0" * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Privacy budget of one population.

    Args:
        epsilon: upper limit of all releases together.
        delta: the delta for it.
        unit: unit of privacy: ``record`` or ``client``.
        adjacency: neighbouring relation: ``add-remove`` or ``replace-one``.
        population: name of the data; each has its own ledger.

    Raises:
        PrivacyError: a field is out of range.

    >>> Budget(epsilon=1.0, delta=1e-5, unit="record", adjacency="add-remove", population="cohort 2026").epsilon
    1.0
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str
    population: str

    def __post_init__(self) -> None:
        check_epsilon_delta(self.epsilon, self.delta)
        check_unit_and_adjacency(self.unit, self.adjacency)


class Ledger:
    """An open privacy ledger. Other processes may append to the same file; each charge reads it again.

    Requires a file system with POSIX locks. Use ``create`` once, then ``open``.

    >>> import tempfile
    >>> budget = Budget(epsilon=1.0, delta=1e-5, unit="record", adjacency="add-remove", population="cohort 2026")
    >>> release = Release(label="Gram", unit="record", adjacency="add-remove", rho=Fraction(1, 100))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(Path(folder) / "ledger.jsonl", budget)
    ...     together = ledger.charge(release, session_id=bytes(16))
    ...     together.epsilon < budget.epsilon, len(ledger.releases)
    (True, 1)
    """

    def __init__(self, path: Path, budget: Budget) -> None:
        self.path, self.budget = path, budget

    @classmethod
    def create(cls, path: Path, budget: Budget) -> Self:
        """Create a ledger without releases.

        Raises:
            LedgerError: the file exists or cannot be written.
        """
        first = {"format": FORMAT, "previous": _START, "budget": {n: getattr(budget, n) for n in _BUDGET_FIELDS}}
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                _append(descriptor, first)
            finally:
                os.close(descriptor)
            _sync_folder(path)
        except OSError as error:
            raise LedgerError(
                f"cannot begin a ledger at {path}: {error.strerror or error}; an existing ledger is never overwritten"
            ) from error
        return cls(path, budget)

    @classmethod
    def open(cls, path: Path, *, expected_head: str | None = None) -> Self:
        """Open an existing ledger and verify every line.

        Args:
            path: the file.
            expected_head: an earlier value of ``head``; it must be in the chain.

        Raises:
            LedgerError: the file cannot be read or was changed.
        """
        lines = _read(path)
        if expected_head is not None and expected_head not in [_digest(line) for line in lines]:
            raise LedgerError(
                f"{path} has lost lines, or they were rewritten: the head noted before is no longer in its chain; "
                "restore it from a copy"
            )
        return cls(path, _checked(path, lines)[0])

    @property
    def releases(self) -> tuple[Release, ...]:
        """All charged releases that were not given back, in order."""
        return _checked(self.path, _read(self.path))[1]

    @property
    def sessions(self) -> tuple[bytes, ...]:
        """The session id that each release was charged with, in order."""
        lines = _read(self.path)
        _checked(self.path, lines)
        return tuple(bytes.fromhex(json.loads(line)["session"]) for line in lines[1:])

    @property
    def head(self) -> str:
        """Digest of the last line. Store it elsewhere; ``open`` verifies that it is still in the chain."""
        return _digest(_read(self.path)[-1])

    def spent(self) -> PrivacyGuarantee | None:
        """Return the guarantee of all charged releases together; None without releases."""
        releases = self.releases
        return guarantee(releases, self.budget.delta) if releases else None

    def charge(self, release: Release, *, session_id: bytes) -> PrivacyGuarantee:
        """Charge a release before it starts; send none of its messages before this returns.

        Args:
            release: its privacy cost.
            session_id: id of its session, for the record.

        Returns:
            The guarantee of all releases together, including this one.

        Raises:
            BudgetExceededError: the release would exceed the budget; nothing was written.
            PrivacyError: its unit or adjacency differs from the budget's; nothing was written.
            LedgerError: the file was changed or cannot be written.
        """
        with self._locked() as descriptor:
            lines = _read(self.path)
            together = self._with([release], lines)
            entry = {"previous": _digest(lines[-1]), "session": session_id.hex(), "release": _written(release)}
            try:
                _append(descriptor, entry)
            except OSError as error:
                raise LedgerError(
                    f"cannot append to {self.path}: {error.strerror or error}; the release must not start"
                ) from error
        return together

    def void(self, *, session_id: bytes, proof: bytes) -> int:
        """Give back what a session was charged so far; the caller has verified that it released nothing and never will.

        Args:
            session_id: id of the session, as in ``charge``. What it is charged later counts.
            proof: what proves it (``SumProtocol.check_failure``); its hash is kept.

        Returns:
            How many releases were given back; without any nothing is written.

        Raises:
            LedgerError: the file was changed or cannot be written.

        >>> import tempfile
        >>> budget = Budget(epsilon=1.0, delta=1e-5, unit="record", adjacency="add-remove", population="cohort 2026")
        >>> release = Release(label="Gram", unit="record", adjacency="add-remove", rho=Fraction(1, 100))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     ledger = Ledger.create(Path(folder) / "ledger.jsonl", budget)
        ...     _ = ledger.charge(release, session_id=bytes(16))
        ...     ledger.void(session_id=bytes(16), proof=b"signatures of a quorum"), ledger.spent()
        (1, None)
        """
        with self._locked() as descriptor:
            lines = _read(self.path)
            before = len(_checked(self.path, lines)[1])
            entry = {"previous": _digest(lines[-1]), "session": session_id.hex(), "void": _digest(proof)}
            if given_back := before - len(_checked(self.path, [*lines, _line(entry)])[1]):
                try:
                    _append(descriptor, entry)
                except OSError as error:
                    raise LedgerError(f"cannot append to {self.path}: {error.strerror or error}") from error
        return given_back

    def check(self, releases: Sequence[Release]) -> PrivacyGuarantee:
        """Check that the budget allows these releases, without charging them.

        Returns:
            The guarantee of all releases together, including these.

        Raises:
            BudgetExceededError: they would exceed the budget.
            PrivacyError: a unit or adjacency differs from the budget's.
            LedgerError: the file was changed.
        """
        return self._with(releases, _read(self.path))

    def _with(self, releases: Sequence[Release], lines: list[bytes]) -> PrivacyGuarantee:
        """Return the guarantee of the releases in these lines and further ones, if the budget allows it."""
        budget, before = _checked(self.path, lines)
        for release in releases:
            if (release.unit, release.adjacency) != (budget.unit, budget.adjacency):
                raise PrivacyError(
                    f"the budget of {budget.population!r} is for {budget.unit}, {budget.adjacency}, and "
                    f"the privacy cost of {release.label!r} for {release.unit}, {release.adjacency}: it is not made. "
                    "Use the budget's unit and adjacency"
                )
        together = guarantee([*before, *releases], budget.delta)
        if together.epsilon > budget.epsilon:
            labels = " and ".join(repr(release.label) for release in releases[:3])
            raise BudgetExceededError(
                f"{labels} would bring {budget.population!r} to epsilon {together.epsilon:.4g} at delta "
                f"{budget.delta:g} after {len(before)} releases, and the budget is {budget.epsilon:g}: it is not "
                "made. Use more noise, or data that has not been spent"
            )
        return together

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file for appending, locked against other processes."""
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(locked(self.path, os.O_WRONLY | os.O_APPEND))
            except OSError as error:
                raise LedgerError(f"cannot append to {self.path}: {error.strerror or error}") from error
            yield descriptor


_BUDGET_FIELDS = ("epsilon", "delta", "unit", "adjacency", "population")
_RELEASE_FIELDS = ("label", "unit", "adjacency", "log_ratio", "tail_mass", "rounding")


def _written(release: Release) -> dict[str, Any]:
    return {"rho": str(release.rho)} | {name: getattr(release, name) for name in _RELEASE_FIELDS}


def _line(entry: dict[str, Any]) -> bytes:
    """Return the line of an entry, with the digest of its content."""
    rest = json.dumps(entry, sort_keys=True, allow_nan=False).encode()
    return json.dumps(entry | {"sha256": _digest(rest)}, sort_keys=True, allow_nan=False).encode()


def _append(descriptor: int, entry: dict[str, Any]) -> None:
    line = _line(entry) + b"\n"
    if os.write(descriptor, line) != len(line):
        raise OSError("the disk took only part of a line")
    os.fsync(descriptor)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror or error}; no release may start without it") from error
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise LedgerError(
            f"the last line of {path} is incomplete: its writer stopped before the release could start. Look at it, "
            "remove that line by hand and go on"
        )
    return lines


def _checked(path: Path, lines: list[bytes]) -> tuple[Budget, tuple[Release, ...]]:
    try:
        entries = [json.loads(line) for line in lines]
        if entries[0]["format"] != FORMAT:
            raise LedgerError(
                f"a ledger has the format {FORMAT!r} and {path} has {entries[0]['format']!r}; open it with the release "
                "that began it"
            )
        previous = [_START, *(_digest(line) for line in lines)]
        for number, (line, entry) in enumerate(zip(lines, entries, strict=True), start=1):
            changed = line != _line({key: value for key, value in entry.items() if key != "sha256"})
            if changed or entry["previous"] != previous[number - 1]:
                where = "was changed" if changed else "does not follow from the one before"
                raise LedgerError(
                    f"{path} is not the ledger that was written (line {number} {where}); restore it from a copy"
                )
        budget = Budget(**entries[0]["budget"])
        charged = list[tuple[str, Release]]()
        for entry in entries[1:]:
            if "void" in entry:
                charged = [(session, release) for session, release in charged if session != entry["session"]]
            else:
                charged.append((entry["session"], _release(entry["release"])))
        return budget, tuple(release for _, release in charged)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"{path} is not a privacy ledger: {type(error).__name__}; restore it from a copy") from error


def _release(written: dict[str, Any]) -> Release:
    return Release(rho=Fraction(written["rho"]), **{name: written[name] for name in _RELEASE_FIELDS})


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
