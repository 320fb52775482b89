"""The query log's second place: a lost or restored query log is noticed, and its site does not start."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.crashes import KilledError
from support.parties import key_of
from support.rehearsed import edit, edit_all, proposal, rehearse, run_config, site, state, vanishes, with_budgets

from analytic import ClientRows
from analytic_secagg.__main__ import main
from analytic_secagg.site.errors import SiteFileError, UnreachableError
from analytic_secagg.site.messages import INVITE
from analytic_secagg.site.query_log import QueryLog, RunPlace
from analytic_secagg.site.store import FILE, SessionStore
from analytic_secagg.trial import OPEN, Trial
from secagg import IdentityKey, Layout, MaskedSum, Receipt, new_session_id
from secagg.errors import ConsentRefusedError
from secagg.policy import ClientPolicy

CLIENTS = tuple(range(1, 8))
IDENTITIES = tuple(key_of(party).public for party in CLIENTS)
SERVER_KEY = IdentityKey.generate().public
LOST, BEHIND, OLDER = "lost: the query log must", "behind: the query log must", "restored from an older copy: "


def rows(number: int) -> ClientRows:
    return ClientRows(np.arange(12.0).reshape(6, 2) + 100 * number, np.array([0, 1, 2, 0, 1, 2]))


@contextmanager
def journal(tmp_path: Path, *, further_totals: int = 0, is_behind: bool = False) -> Iterator[QueryLog]:
    folder = SessionStore(tmp_path / "state")
    with folder.locked(is_behind=is_behind):
        yield QueryLog(folder, policy=ClientPolicy(), further_totals=further_totals)


def masked() -> MaskedSum:
    return MaskedSum(
        layout=Layout.of([("sum", 2, 100)]),
        clients=CLIENTS,
        session_id=new_session_id(),
        threshold=6,
        identities=IDENTITIES,
        server_identity=SERVER_KEY,
    )


def enter(own: QueryLog, number: int, survivors: tuple[int, ...] = CLIENTS) -> None:
    own.note(protocol := masked(), rows(number))
    own.consent(protocol, survivors)


def older_copy(tmp_path: Path) -> None:
    """A query log of two totals, put back to where it had one."""
    with journal(tmp_path) as own:
        enter(own, 1)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    with journal(tmp_path) as own:
        enter(own, 2)
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")


def lost(tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        enter(own, 1)
    shutil.rmtree(tmp_path / "state")


def another(tmp_path: Path) -> None:
    """That of another site, or a fork of an older copy, with as many totals."""
    older_copy(tmp_path)
    whole = (tmp_path / "state.head").read_text()
    (tmp_path / "state.head").unlink()
    with journal(tmp_path, is_behind=True) as own:
        enter(own, 3)
    (tmp_path / "state.head").write_text(whole)


def set_back_by_one(tmp_path: Path) -> None:
    """Its last entry alone is gone."""
    with journal(tmp_path) as own:
        enter(own, 1)
        enter(own, 2)
    with closing(sqlite3.connect(tmp_path / "state" / FILE)) as file, file:
        file.execute("DELETE FROM totals WHERE rowid = (SELECT max(rowid) FROM totals)")
        file.execute("DELETE FROM journal_heads WHERE number = 2")


def emptied(tmp_path: Path) -> None:
    """A file of 0 bytes, as a full disk or a careless copy leaves it."""
    with journal(tmp_path) as own:
        enter(own, 1)
    (tmp_path / "state" / FILE).write_bytes(b"")


def of_different_times(tmp_path: Path) -> None:
    """Both copies are older ones: a backup copied the second place first, and a run went on meanwhile."""
    for number in range(4):
        with journal(tmp_path) as own:
            enter(own, number)
        shutil.copytree(tmp_path / "state", tmp_path / f"backup-{number}")
        shutil.copy(tmp_path / "state.head", tmp_path / f"backup-{number}.head")
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup-2", tmp_path / "state")
    shutil.copy(tmp_path / "backup-0.head", tmp_path / "state.head")


def begun_anew(tmp_path: Path) -> None:
    """A second place as of a new site, beside a copy of whatever age."""
    older_copy(tmp_path)
    with journal(tmp_path / "new"):
        pass
    with journal(tmp_path, is_behind=True) as own:
        enter(own, 3)
    shutil.copy(tmp_path / "new" / "state.head", tmp_path / "state.head")


def without_a_second_place(tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        enter(own, 1)
    (tmp_path / "state.head").unlink()


def computations_forgotten(tmp_path: Path) -> None:
    """Computations that came to nothing are counted too: else a server would have three more."""
    place = RunPlace(session=b"", computed=b"a")
    with journal(tmp_path) as own:
        own.note(protocol := masked(), rows(1), place)
        with suppress(ArithmeticError), own.computing(protocol, place):
            raise ArithmeticError
    shutil.rmtree(tmp_path / "state")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (older_copy, BEHIND),
        (set_back_by_one, BEHIND),
        (lost, LOST),
        (emptied, LOST),
        (computations_forgotten, LOST),
        (another, OLDER),
        (of_different_times, OLDER),
        (begun_anew, OLDER),
        (without_a_second_place, "without its second place: "),
    ],
)
def test_a_journal_that_forgot_totals_is_not_used(tmp_path: Path, damage: object, said: str) -> None:
    assert callable(damage)
    damage(tmp_path)
    looks = SessionStore(tmp_path / "state")
    with looks.reading() as is_there:
        assert said in looks.query_log_head.problem(is_there=is_there)
    for _ in range(2):
        with pytest.raises(SiteFileError, match=rf"(?s){said}.*the command accept-loss"), journal(tmp_path):
            pytest.fail("it started")


def test_a_second_place_that_does_not_read_stops_the_site(tmp_path: Path) -> None:
    with journal(tmp_path) as own:
        enter(own, 1)
    for text in ("", "1 abc\n", "\xff", (tmp_path / "state.head").read_text() * 2):
        (tmp_path / "state.head").write_text(text, encoding="latin-1")
        with pytest.raises(SiteFileError, match=r"must hold a count and a head hash|cannot be read"), journal(tmp_path):
            pytest.fail("it started")


@pytest.mark.parametrize("damage", ["cut", "zeroed", "page"])
def test_a_damaged_file_is_damaged_and_not_a_full_disk(tmp_path: Path, damage: str) -> None:
    with journal(tmp_path) as own:
        for number in range(20):
            enter(own, number)
    content = bytearray((path := tmp_path / "state" / FILE).read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    start, end = (0, 100) if damage == "zeroed" else (4096, 8192) if damage == "page" else (0, 0)
    content[start:end] = bytes(end - start)
    path.write_bytes(content)

    def use() -> None:
        store = SessionStore(tmp_path / "state")
        with store.locked():
            store.check()

    def look() -> None:
        store = SessionStore(tmp_path / "state")
        with store.reading():
            store.check()

    for sees in (use, look):
        with pytest.raises(SiteFileError, match=r"damaged: .*Move it away, keep it, and bring back the newest copy"):
            sees()
    path.rename(tmp_path / "kept")
    with pytest.raises(SiteFileError, match=LOST), journal(tmp_path):
        pytest.fail("it started")
    with journal(tmp_path, is_behind=True) as own:
        assert own.accept_loss([rows(1)]) == 20


def test_another_sites_query_log_is_not_used(tmp_path: Path) -> None:
    """With its second place, too: two sites of one host, or a folder that went to the wrong one."""
    for party in (1, 2):
        with SessionStore(tmp_path / str(party) / "state", parties=(f"client {party}",)).locked():
            pass
    wrong = SessionStore(tmp_path / "1" / "state", parties=("client 2",))
    said = "another site's: the query log must be of client 2, and is of client 1"
    with pytest.raises(SiteFileError, match=said), wrong.locked():
        pytest.fail("it started")
    with wrong.locked(is_behind=True):
        wrong.query_log_head.accept()
    with wrong.locked():
        pass
    for parties in (("client 2", "helper 101"), ("helper 101", "client 7"), ("client 7",)):
        with SessionStore(tmp_path / "2" / "state", parties=parties).locked():
            pass  # a site whose roles change, one after the other


@pytest.mark.parametrize("fails_at", [0, 2, 4, 6])
def test_a_crash_between_the_two_writes_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """The second place is first of what is flushed; where it cannot be written nothing is agreed to."""
    with journal(tmp_path) as own:
        enter(own, 1)
    before = (tmp_path / "state.head").read_text()
    flushes = iter(range(10))

    def full(_: int) -> None:
        if next(flushes) >= fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with journal(tmp_path) as own:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            for number in range(2, 2 + fails_at // 2):  # each flushes the file and its folder
                enter(own, number)
            with pytest.raises(SiteFileError, match="counted in a second place before it is agreed to"):
                enter(own, 9)
        assert own.count() == (1 + fails_at // 2, 0), "what was not counted was not agreed to"
    assert ((tmp_path / "state.head").read_text() == before) == (fails_at == 0)
    with journal(tmp_path) as own:
        before = (tmp_path / "state.head").read_text()
        enter(own, 9)
        assert own.count() == (2 + fails_at // 2, 0)
    (tmp_path / "state.head").write_text(before)  # as a crash between the two writes leaves it
    with journal(tmp_path):
        pass
    assert (tmp_path / "state.head").read_text().startswith(f"{3 + fails_at // 2} ")
    assert (tmp_path / "state.head").stat().st_mode & 0o777 == 0o600


def test_the_journal_is_written_before_its_second_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash in between would stop a site that lost nothing."""
    with journal(tmp_path) as own:
        enter(own, 1)
    before, run = (tmp_path / "state.head").read_text(), SessionStore.run

    def dies(self: SessionStore, statement: str, *values: object) -> list[tuple[object, ...]]:
        if "INSERT INTO journal_heads" in statement:
            raise KilledError
        return run(self, statement, *values)

    with monkeypatch.context() as patch:
        patch.setattr(SessionStore, "run", dies)
        with pytest.raises(KilledError), journal(tmp_path) as own:
            enter(own, 2)
    assert (tmp_path / "state.head").read_text() == before
    with journal(tmp_path) as own:
        assert own.count() == (1, 0)
        enter(own, 2)


def test_what_the_owner_accepts_counts_as_a_total_that_nothing_is_compared_with(tmp_path: Path) -> None:
    older_copy(tmp_path)
    with journal(tmp_path, is_behind=True) as own:
        assert own.accept_loss([rows(1), rows(2)]) == 2
    with journal(tmp_path) as own:
        enter(own, 1)  # these survivors were agreed to for these rows already
        enter(own, 3)
        for number in (1, 2):
            with pytest.raises(ConsentRefusedError, match="1 earlier ones cannot be compared"):
                enter(own, number, CLIENTS[1:])
    with journal(tmp_path, further_totals=1) as own:
        enter(own, 2, CLIENTS[1:])
    shutil.rmtree(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state")
    with pytest.raises(SiteFileError, match=f"{BEHIND}|{OLDER}"), journal(tmp_path):
        pytest.fail("it started with the copy that was accepted once")


def test_a_crash_before_the_loss_is_noted_leaves_the_site_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost(tmp_path)
    run = SessionStore.run

    def dies(self: SessionStore, statement: str, *values: object) -> list[tuple[object, ...]]:
        if "INSERT INTO totals" in statement:
            raise KilledError
        return run(self, statement, *values)

    with monkeypatch.context() as patch, journal(tmp_path, is_behind=True) as own:
        patch.setattr(SessionStore, "run", dies)
        with pytest.raises(KilledError):
            own.accept_loss([rows(1)])
    with pytest.raises(SiteFileError, match=LOST), journal(tmp_path):
        pytest.fail("it started")


def test_a_helper_that_lost_its_journal_asks_its_owner_for_every_total(tmp_path: Path) -> None:
    protocol = MaskedSum(layout=Layout.of([("sum", 2, 100)]), clients=CLIENTS, session_id=new_session_id(), threshold=6)
    for is_helper in (False, True):
        place = tmp_path / str(is_helper)
        lost(place)
        with journal(place, is_behind=True) as own:
            own.accept_loss([], is_helper=is_helper)
        with journal(place) as own:
            if not is_helper:
                own.consent_to_help(protocol, CLIENTS)
                continue
            with pytest.raises(ConsentRefusedError, match="1 earlier ones cannot be compared"):
                own.consent_to_help(protocol, CLIENTS)


def test_a_head_is_of_all_entries_before_it(tmp_path: Path) -> None:
    """Two journals with the same last entry and as many before it are two journals."""
    heads = []
    for first in (b"one", b"another"):
        folder = SessionStore(tmp_path / first.decode() / "state")
        with folder.locked():
            folder.query_log_head.advance(first)
            folder.query_log_head.advance(b"the same")
        heads.append((tmp_path / first.decode() / "state.head").read_text())
    assert [head.split()[0] for head in heads] == ["2", "2"]
    assert len(set(heads)) == 2


@pytest.mark.parametrize("is_named", [False, True], ids=["beside state", "where the file says"])
def test_a_restored_state_makes_no_second_total(
    trial: Trial,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    is_named: bool,
) -> None:
    """A committee's sites agree to one total of their rows; all come back from yesterday's backup."""
    own = 'configurations = "any"\n'
    edit_all(trial, (OPEN, f'{own}[journal]\nhead = "{tmp_path}/PARTY.head"\n' if is_named else own))
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "site.toml"
        path.write_text(path.read_text().replace("PARTY", str(party)))
        site(trial, party).sweep()
        shutil.copytree(state(trial, party), tmp_path / f"backup-{party}")
    rehearse(trial.folder, run_config(mode="committee"))
    for party in trial.rows:
        shutil.rmtree(state(trial, party))
        shutil.copytree(tmp_path / f"backup-{party}", state(trial, party))
    with pytest.raises(UnreachableError):
        rehearse(trial.folder, run_config(mode="committee"))
    second = tmp_path / "2.head" if is_named else state(trial, 2).with_name("state.head")
    file = str(trial.folder / "site-2" / "site.toml")
    assert main(["health", file]) == 1
    assert f"FAIL query log: {LOST} have the 4 entries that {second} counts" in capsys.readouterr().out
    assert main(["check-site", file]) == 2
    assert LOST in " ".join(capsys.readouterr().err.split())
    assert main(["accept-loss", file]) == 0
    assert "each further total of them" in capsys.readouterr().out
    looked = site(trial, 2).look(check=True)
    assert looked is not None
    rows_and_help = [(one.is_help, one.n_vectors, one.is_allowed) for one in looked[0]]
    assert sorted(rows_and_help) == [(False, 0, False), (False, 0, False), (True, 0, False)]
    assert main(["accept-loss", file]) == 2
    assert "there is no loss to accept" in " ".join(capsys.readouterr().err.split())
    assert main(["check-site", file]) == 0
    for party in trial.rows:
        (tmp_path / f"{party}.head" if is_named else state(trial, party).with_name("state.head")).unlink()
        shutil.rmtree(state(trial, party))
        shutil.rmtree(trial.site(party) / "results")
    run = trial.folder / "server" / "models" / "rehearsal"  # its session is sealed to keys that are gone, too
    assert main(["abandon", str(run)]) == 0
    run.rename(run.with_name("given-up"))
    rehearse(trial.folder, run_config(mode="committee"))  # what no site notices alone: everything of it is lost


def set_back(trial: Trial, party: int, backup: Path) -> None:
    """Bring back a site's query log and its second place, both from one backup."""
    shutil.rmtree(state(trial, party))
    if (backup / "state").exists():
        shutil.copytree(backup / "state", state(trial, party))
        shutil.copy(backup / "state.head", trial.site(party))
    else:
        (trial.site(party) / "state.head").unlink()


def backed_up(trial: Trial, party: int, backup: Path) -> None:
    shutil.copytree(state(trial, party), backup / "state")
    shutil.copy(trial.site(party) / "state.head", backup)


def check_both(trial: Trial, party: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands agree, in the same words."""
    file = str(trial.site(party) / "site.toml")
    assert main(["health", file]) == 1
    assert f"FAIL query log: {said}" in capsys.readouterr().out
    assert main(["check-site", file]) == 2
    assert f"error: {said}" in " ".join(capsys.readouterr().err.split())


NAMING_SUMS = ["its own receipt", "another site's receipt", "its ledger"]


@pytest.mark.parametrize(
    ("witness", "is_older"), [*product(NAMING_SUMS, [False, True]), ("models", False)], ids=lambda value: str(value)
)
def test_both_copies_set_back_are_told_from_the_sites_other_records(
    trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str], witness: str, is_older: bool
) -> None:
    """One backup brings back both; what a run left beside them says that there were more sums."""
    how: dict[str, Any] = {"receipts": "none" if witness == "models" else "clients"}
    if witness == "its ledger":
        with_budgets(trial)
        how = {"epsilon": 5.0, "noise-survivors": 3, "noise-colluders": 1}
    if is_older:
        rehearse(trial.folder, run_config(**how))
        backed_up(trial, 2, tmp_path / "backup")
    rehearse(trial.folder, run_config(**how))
    assert site(trial, 2).look(check=True) is not None
    set_back(trial, 2, tmp_path / "backup")
    results = trial.site(2) / "results"
    if witness != "models":
        for path in results.glob("*.safetensors"):
            path.unlink()
    if witness == "another site's receipt":
        shutil.rmtree(results)
        if is_older:  # nobody can tell from the site's own files alone
            assert site(trial, 2).look(check=True) is not None
        shutil.copytree(trial.site(3) / "results", results, ignore=shutil.ignore_patterns("*.safetensors"))
    said = "restored from an older copy: " if is_older else "lost: "
    check_both(trial, 2, said, capsys)
    with pytest.raises(SiteFileError, match=said):
        site(trial, 2).join(proposal())
    log = trial.site(2) / "site.log"
    edit(trial, 2, ('state = "state"', f'state = "state"\nlog = "{log}"'))
    assert main(["accept-loss", str(trial.site(2) / "site.toml")]) == 0
    assert f"this site's owner accepted a loss with the command accept-loss: {said}" in log.read_text()
    assert main(["inspect", str(trial.site(2) / "site.toml")]) == 0
    assert "warn loss: its owner accepted that totals of the rows" in capsys.readouterr().out
    rehearse(trial.folder, run_config(**how))
    looked = site(trial, 2).look(check=True)
    assert looked is not None
    assert any(one.is_loss for one in looked[0])


def test_a_receipt_that_does_not_hold_stops_nobody(trial: Trial) -> None:
    """Nor one of a sum without this site: else whoever sends a file could stop it."""
    rehearse(trial.folder, run_config(receipts="server"), is_gone=vanishes(2, INVITE))
    results = trial.site(2) / "results"
    results.mkdir(mode=0o700, exist_ok=True)
    (other,) = (trial.site(3) / "results").glob("*.receipt")
    shutil.copy(other, results)
    (results / "0123456789abcdef.receipt").write_bytes(b"none")
    forged = Receipt.from_bytes(other.read_bytes())
    forged = replace(forged, statement=replace(forged.statement, survivors=(1, 2, 3), configuration=bytes(32)))
    (results / f"{'0' * 16}.receipt").write_bytes(forged.to_bytes())
    site(trial, 2).sweep()
