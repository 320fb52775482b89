"""The ledger refuses what goes beyond its budget, and every change of what it holds."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from secagg.dp import Budget, BudgetExceededError, Ledger, LedgerError, PrivacyError, Release, calibrate, guarantee
from secagg.dp.ledger import _line

BUDGET = Budget(epsilon=1.0, delta=1e-5, unit="record", adjacency="add-remove", population="site 3, 2024")
HALF = calibrate(1.0, 1e-5, releases=2)


def release(rho: Fraction = HALF, label: str = "statistics") -> Release:
    return Release(label=label, unit="record", adjacency="add-remove", rho=rho, tail_mass=1e-37)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "ledger.jsonl", BUDGET)


def test_a_budget_for_two_releases_is_spent_after_two(ledger: Ledger) -> None:
    assert ledger.spent() is None
    first = ledger.charge(release(), session_id=bytes(16))
    second = ledger.charge(release(), session_id=bytes(16))
    assert first.epsilon < second.epsilon <= 1.0
    before = ledger.path.read_bytes()
    with pytest.raises(BudgetExceededError, match=r"after 2 releases.*budget is 1"):
        ledger.charge(release(Fraction(1, 10**5)), session_id=bytes(16))
    assert ledger.path.read_bytes() == before
    assert ledger.spent() == second == guarantee([release(), release()], 1e-5)


def test_a_first_release_beyond_the_budget_is_refused(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceededError, match="not made"):
        ledger.charge(release(3 * HALF), session_id=bytes(16))
    assert ledger.releases == ()


@pytest.mark.parametrize("change", [{"unit": "client"}, {"adjacency": "replace-one"}])
def test_a_release_that_was_priced_for_another_promise_is_not_charged(ledger: Ledger, change: dict[str, str]) -> None:
    """An add-remove price is less than a replace-one budget has to pay."""
    before = ledger.path.read_bytes()
    with pytest.raises(PrivacyError, match=r"is for record, add-remove, and the privacy cost .* not made"):
        ledger.charge(replace(release(), **change), session_id=bytes(16))  # type: ignore[arg-type]
    assert ledger.path.read_bytes() == before


def test_a_repeated_session_is_charged_again(ledger: Ledger) -> None:
    """Nothing is given back without a proof: the same id a second time is a second release."""
    ledger.charge(release(HALF / 4), session_id=b"x" * 16)
    ledger.charge(release(HALF / 4), session_id=b"x" * 16)
    assert len(ledger.releases) == 2


def test_what_released_nothing_is_given_back_and_nothing_else(ledger: Ledger) -> None:
    for session in (b"x", b"y", b"x"):
        ledger.charge(release(HALF / 4, session.decode()), session_id=session * 16)
    head, before = ledger.head, ledger.path.read_bytes()
    assert ledger.void(session_id=b"z" * 16, proof=b"of another one") == 0
    assert ledger.path.read_bytes() == before
    assert [ledger.void(session_id=b"x" * 16, proof=b"signed") for _ in range(2)] == [2, 0]
    assert [one.label for one in Ledger.open(ledger.path, expected_head=head).releases] == ["y"]
    assert ledger.path.read_bytes().startswith(before)
    ledger.charge(release(HALF / 4, "late"), session_id=b"x" * 16)
    assert [one.label for one in ledger.releases] == ["y", "late"], "what leaves after the proof is paid for"
    lines = ledger.path.read_bytes().split(b"\n")[:-1]
    ledger.path.write_bytes(b"\n".join(lines[:4] + lines[5:]) + b"\n")
    with pytest.raises(LedgerError, match="does not follow"):
        ledger.spent()


def test_costs_are_exact(ledger: Ledger) -> None:
    odd = Fraction(1, 3**40) + Fraction(1, 1000)
    ledger.charge(release(odd), session_id=bytes(16))
    assert Ledger.open(ledger.path).releases == (release(odd),)
    assert Ledger.open(ledger.path).budget == BUDGET


def test_a_ledger_is_never_begun_over_another(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="never overwritten"):
        Ledger.create(ledger.path, BUDGET)


def test_only_its_owner_reads_it(ledger: Ledger) -> None:
    assert ledger.path.stat().st_mode & 0o077 == 0


def _three(ledger: Ledger) -> list[bytes]:
    for part in (8, 9, 10):
        ledger.charge(release(HALF / part), session_id=bytes(16))
    return ledger.path.read_bytes().split(b"\n")[:-1]


def _edit(lines: list[bytes], number: int, old: bytes, new: bytes) -> None:
    assert lines[number].count(old) == 1
    lines[number] = lines[number].replace(old, new)


CHANGES: dict[str, Callable[[list[bytes]], object]] = {
    "the budget": lambda lines: _edit(lines, 0, b'"epsilon": 1.0', b'"epsilon": 9.0'),
    "the first release": lambda lines: _edit(lines, 1, b'"tail_mass": 1e-37', b'"tail_mass": 0.0'),
    "a release between": lambda lines: _edit(lines, 2, b'"adjacency": "add-remove"', b'"adjacency": "replace-one"'),
    "the last release": lambda lines: _edit(lines, 3, b'"tail_mass": 1e-37', b'"tail_mass": 0.0'),
    "a space in the last line": lambda lines: _edit(lines, 3, b'"release": {', b'"release":  {'),
    "left out": lambda lines: lines.pop(2),
    "swapped": lambda lines: lines.insert(1, lines.pop(2)),
    "not json": lambda lines: lines.insert(3, b"rubbish"),
    "no number": lambda lines: _edit(lines, 3, b'"tail_mass": 1e-37', b'"tail_mass": NaN'),
    "another format": lambda lines: _edit(lines, 0, b"privacy-ledger/2", b"privacy-ledger/1"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_every_change_is_noticed(ledger: Ledger, change: Callable[[list[bytes]], object]) -> None:
    lines = _three(ledger)
    change(lines)
    ledger.path.write_bytes(b"\n".join(lines) + b"\n")
    for attempt in (
        lambda: Ledger.open(ledger.path),
        lambda: ledger.charge(release(HALF / 100), session_id=bytes(16)),
        ledger.spent,
    ):
        with pytest.raises(LedgerError, match="ledger"):
            attempt()


def test_a_cut_off_end_is_noticed_by_whoever_kept_the_head(ledger: Ledger) -> None:
    _three(ledger)
    head = ledger.head
    Ledger.open(ledger.path, expected_head=head)
    lines = ledger.path.read_bytes().split(b"\n")[:-1]
    ledger.path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
    Ledger.open(ledger.path)
    with pytest.raises(LedgerError, match="lost lines"):
        Ledger.open(ledger.path, expected_head=head)


def test_a_forger_is_noticed_by_whoever_kept_the_head(ledger: Ledger) -> None:
    """Digests have no key: whoever writes them anew passes, except where an old head is known."""
    lines = _three(ledger)
    head = ledger.head
    forged = {key: value for key, value in json.loads(lines[3]).items() if key != "sha256"}
    forged["release"]["rho"] = "1/1000000"
    ledger.path.write_bytes(b"\n".join([*lines[:3], _line(forged)]) + b"\n")
    assert Ledger.open(ledger.path).releases[-1].rho == Fraction(1, 10**6)
    with pytest.raises(LedgerError, match="lost lines"):
        Ledger.open(ledger.path, expected_head=head)


def test_half_a_line_stops_everything(ledger: Ledger) -> None:
    with ledger.path.open("ab") as file:
        file.write(b'{"previous": "ab')
    with pytest.raises(LedgerError, match="incomplete"):
        ledger.charge(release(HALF / 100), session_id=bytes(16))


def test_a_missing_file_is_no_fresh_budget(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot read"):
        Ledger.open(tmp_path / "none")
    with pytest.raises(LedgerError, match="cannot begin"):
        Ledger.create(tmp_path / "no" / "folder", BUDGET)


def test_budgets_out_of_range_are_refused() -> None:
    with pytest.raises(PrivacyError, match="epsilon"):
        Budget(epsilon=0.0, delta=1e-5, unit="record", adjacency="add-remove", population="x")
    for change in ({"unit": "row"}, {"adjacency": "swap"}):
        with pytest.raises(PrivacyError, match="a unit is one of record, client and an adjacency one of"):
            replace(BUDGET, **change)  # type: ignore[arg-type]


SPENDER = """
import sys
from pathlib import Path
from secagg.dp import BudgetExceededError, Ledger, Release
from fractions import Fraction
ledger, charged = Ledger.open(Path(sys.argv[1])), 0
try:
    while True:
        release = Release(label="x", unit="record", adjacency="add-remove", rho=Fraction(sys.argv[2]))
        ledger.charge(release, session_id=bytes(16))
        charged += 1
except BudgetExceededError:
    print(charged)
"""


def test_two_processes_cannot_spend_the_same_budget(ledger: Ledger) -> None:
    command = [sys.executable, "-c", SPENDER, str(ledger.path), str(HALF / 4)]
    spenders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    charged = sum(int(spender.communicate(timeout=60)[0]) for spender in spenders)
    assert charged == len(ledger.releases) == 8
    spent = ledger.spent()
    assert spent is not None
    assert spent.epsilon <= 1.0


def test_a_full_disk_stops_the_release_before_it_starts(ledger: Ledger) -> None:
    """Once with no room for a byte, once with room for a part of the line, which then stops all that follow."""
    before = ledger.path.read_bytes()
    with no_file_longer_than(len(before)), pytest.raises(LedgerError, match=r"File too large.*the release must not"):
        ledger.charge(release(), session_id=bytes(16))
    assert ledger.path.read_bytes() == before
    with no_file_longer_than(len(before) + 10), pytest.raises(LedgerError, match="only part of a line; the release"):
        ledger.charge(release(), session_id=bytes(16))
    with pytest.raises(LedgerError):
        ledger.charge(release(), session_id=bytes(16))


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As a disk with so much room; Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_ledger_that_cannot_be_opened_stops_the_release(ledger: Ledger) -> None:
    ledger.path.unlink()
    ledger.path.mkdir()
    with pytest.raises(LedgerError, match=r"cannot append to .*directory"):
        ledger.charge(release(), session_id=bytes(16))
