"""docs/how-to/runbook.md: each of its commands in the situation that it is for; and set-up commands given twice."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from support.commands import flower, nvflare
from support.disks import fill, small_disk
from support.rehearsed import (
    declining,
    edit,
    edit_all,
    is_exact,
    is_wiped,
    proposal,
    rehearse,
    run_config,
    site,
    state,
    vanishes,
)

from analytic.learner import ClientRows
from analytic_secagg.__main__ import main
from analytic_secagg.datasets import bundled
from analytic_secagg.server.run_store import RunStore
from analytic_secagg.site.errors import Refusal, UnreachableError
from analytic_secagg.site.messages import INVITE, STEP
from analytic_secagg.site.roster import Roster
from analytic_secagg.trial import FIRST_HELPER, OPEN, Trial
from secagg.errors import HelperMissingError, TooFewSurvivorsError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "runbook.md"

SITE = 1
"""A client, and a committee's helper."""


def commands_of(section: str) -> list[list[str]]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].partition("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("analytic-secagg ") for line in lines)
    return [line.split()[1:] for line in lines]


@pytest.fixture
def here(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """In the folder of a site whose query log is closed."""
    edit_all(trial, (OPEN, 'configurations = "any"\n'))
    monkeypatch.chdir(trial.site(SITE))
    return trial


def test_the_page_has_a_section_for_each_thing_that_is_gone() -> None:
    sections = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [
        "The server died",
        "A disk is full",
        "A key is lost",
        "A site must leave",
        "Restore from a backup",
    ]


def test_the_server_died(here: Trial, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sites stay away once all have signed who survives; with all of them the same rows are free under masks."""
    abandon, inspect = commands_of("The server died")
    models = here.folder / "server" / "models"
    with monkeypatch.context() as at_the_server:
        at_the_server.chdir(models.parent)
        assert main(abandon) == 2, "there is no such run"
    came = Counter[int]()

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        came[party] += 1
        return said

    with pytest.raises(TooFewSurvivorsError):
        rehearse(here.folder, run_config(), hear=hear, is_gone=lambda party, kind: party > 2 and came[party] == 4)
    assert main(inspect) == 0
    assert f"ok   client {SITE}: its rows are in 1 total" in capsys.readouterr().out
    assert not is_wiped(here)
    (models / "rehearsal").rename(models / "run-1")
    monkeypatch.chdir(models.parent)
    assert main(abandon) == 0
    assert main(abandon) == 0, "a second time changes nothing"
    rehearse(here.folder, run_config())
    assert is_wiped(here)
    assert RunStore.left(models) == []


def test_a_committees_run_that_is_given_up_frees_its_rows(here: Trial) -> None:
    """Three vectors are lost on their way, and a helper is away, so that nothing is certified; it is back later."""
    config = run_config(mode="committee", **{"min-survivors": 3})
    with pytest.raises(TooFewSurvivorsError):
        rehearse(here.folder, config, hear=declining(3, 4, 5, to=(INVITE,)), is_gone=vanishes(2, STEP))
    assert [site(here, party).count_totals()[0] for party in here.rows] == [1] * 5
    models = here.folder / "server" / "models"
    assert main(["abandon", str(models / "rehearsal")]) == 0
    (models / "rehearsal").rename(models / "given-up")
    rehearse(here.folder, config)
    assert [site(here, party).count_totals()[0] for party in (3, 4, 5)] == [1, 1, 1]
    is_exact(here, [1, 2, 3, 4, 5])


def test_a_disk_is_full(here: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    health, check = commands_of("A disk is full")
    with small_disk(state(here, SITE), 2 << 20):
        fill(state(here, SITE))
        assert (main(health), main(check)) == (1, 2)
        assert "FAIL disk: disk full: " in capsys.readouterr().out
        (state(here, SITE) / "filler").unlink()
        assert (main(check), main(health)) == (0, 0)
        rehearse(here.folder, run_config())


@pytest.mark.parametrize(("role", "key"), [("client", "identity.key"), ("helper", "helper.key")])
def test_a_key_is_lost(here: Trial, capsys: pytest.CaptureFixture[str], role: str, key: str) -> None:
    """The server knows a sealing key of a later epoch, which the lost key of the helper signed."""
    identity, epoch, roster, check = commands_of("A key is lost")
    assert main(["epoch", "site.toml", "--number", "7"]) == 0
    config, models = run_config(mode="committee"), here.folder / "server" / "models"
    with pytest.raises(UnreachableError):
        rehearse(here.folder, config, is_gone=lambda party, kind: kind == INVITE)
    (models / "rehearsal").rename(models / "before")
    assert main(identity) == 0
    public = capsys.readouterr().out.splitlines()[-1]
    (here.site(SITE) / key).unlink()
    before = Roster.read(Path("roster.toml"))
    old = (before.clients[SITE] if role == "client" else before.beside["helpers"][FIRST_HELPER]).hex()
    for path in here.folder.rglob("roster.toml"):
        path.write_text(path.read_text().replace(old, public))
    assert main(check) == 2
    edit(here, SITE, (f'"{key}"', '"identity-2.key"'))
    if role == "helper":
        assert main(check) == 2, "its epoch is of the lost key"
        assert main(epoch) == 0
    assert (main(roster), main(check)) == (0, 0)
    rehearse(here.folder, config)
    assert main(identity) == 2, "a second time it replaces nothing"


def test_a_site_must_leave(here: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    roster, check = commands_of("A site must leave")
    whole = Roster.read(Path("roster.toml"))
    left = whole.model_copy(update={"clients": {party: key for party, key in whole.clients.items() if party != 3}})
    for path in here.folder.rglob("roster.toml"):
        path.write_text(left.to_toml())
    edit_all(here, ("min_clients = 5", "min_clients = 4"))
    assert (main(roster), main(check)) == (0, 0)
    assert "4 clients" in capsys.readouterr().out
    rehearse(here.folder, run_config(dropout=0.25))


def test_restore_from_a_backup(here: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """All but the query log and its second place was in the backup; of another site came its receipt."""
    check, inspect, accept, again = commands_of("Restore from a backup")
    assert again == check
    rehearse(here.folder, run_config(receipts="clients"))
    for name in ("state", "results"):
        shutil.rmtree(here.site(SITE) / name)
    (here.site(SITE) / "state.head").unlink()
    assert main(check) == 0, "nothing here tells"
    shutil.copytree(here.site(3) / "results", here.site(SITE) / "results")
    assert main(check) == 2
    assert "error: lost: " in capsys.readouterr().err
    assert main(inspect) == 0
    assert (main(accept), main(check)) == (0, 0)
    capsys.readouterr()
    assert main(inspect) == 0
    assert "warn loss: its owner accepted" in capsys.readouterr().out
    for party, rows in here.rows.items():
        here.give_rows(party, ClientRows(rows.features[::-1] * 0.5, rows.targets[::-1]))
    rehearse(here.folder, run_config())


def test_a_helper_that_lost_its_state_helps_again(here: Trial) -> None:
    """Under an epoch above the one that clients accepted, and once its owner allows it further totals."""
    (epoch,) = re.findall(r"`(epoch site\.toml --number) N`", PAGE.read_text(encoding="utf-8"))
    models, config, path = (
        here.folder / "server" / "models",
        run_config(mode="committee"),
        here.site(SITE) / "site.toml",
    )
    check, _, accept, _ = commands_of("Restore from a backup")

    def run(name: str, part: float) -> None:
        for party, rows in here.rows.items():
            here.give_rows(party, ClientRows(rows.features * part, rows.targets))
        try:
            rehearse(here.folder, config)
        finally:
            (models / "rehearsal").rename(models / name)

    assert main([*epoch.split(), "7"]) == 0
    run("before", 1.0)
    shutil.rmtree(here.site(SITE) / "state")
    assert (main(check), main(accept), main(check), main([*epoch.split(), "8"])) == (2, 0, 0, 0)
    with pytest.raises(HelperMissingError):
        run("not allowed", 0.5)
    path.write_text(path.read_text() + "\n[journal]\nfurther_totals = 1\n")
    run("allowed", 0.25)


def test_set_up_commands_can_be_given_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second time they replace nothing and say so in one sentence."""
    trial = Trial.create(tmp_path / "trial", bundled("iris"), n_sites=4, n_helpers=0)
    path = trial.site(1) / "site.toml"
    path.write_text(path.read_text() + '\n[privacy]\nepsilon = 1.0\nledger = "ledger"\n')
    once = [
        (main, ["identity", str(tmp_path / "own.key")]),
        (main, ["ledger", str(path)]),
        (flower, ["trial", str(tmp_path / "flower"), "--clients", "4", "--helpers", "0", "--dataset", "iris"]),
        (flower, ["app", str(tmp_path / "app")]),
        (nvflare, ["trial", str(tmp_path / "nvflare"), "--clients", "4", "--helpers", "0", "--dataset", "iris"]),
        (nvflare, ["job", str(tmp_path / "job"), 'mode="masked"']),
    ]
    for run, words in once:
        assert run(words) == 0
        before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        capsys.readouterr()
        assert run(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert "Traceback" not in said
        assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    for words in (["check-site", str(path)], ["roster", str(trial.site(1) / "roster.toml")]):
        assert main(words) == main(words) == 0


def test_check_site_warns_of_what_leaves_helpers_at_work(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """A service that runs it before it starts must not keep a helper away because of a stray file."""
    (trial.site(SITE) / "results").mkdir(mode=0o700)
    (trial.site(SITE) / "results" / "0.receipt").touch()
    file = str(trial.site(SITE) / "site.toml")
    assert (main(["check-site", file]), main(["health", file])) == (0, 1)
    out = capsys.readouterr().out
    assert "warning: receipts: 1 do not hold" in out
    assert "FAIL receipts: 1 do not hold" in out
    site(trial, SITE).join(proposal())
