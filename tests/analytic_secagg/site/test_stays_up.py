"""A site that stays up: its log, its health, and new keys for its parties."""

from __future__ import annotations

import json
import sqlite3
import stat
from functools import partial

import pytest
from support.rehearsed import by_server, edit, is_exact, proposal, rehearse, run_config, site

from analytic_secagg.__main__ import main
from analytic_secagg.site.errors import Refusal, SiteFileError
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import INVITE, write_proposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial


def test_the_log_is_lines_of_json_without_rows_or_keys(trial: Trial) -> None:
    """As any engine speaks to the site: one good message and one that is none."""
    edit(trial, 1, ('state = "state"', 'state = "state"\nlog = "log.jsonl"'))
    folder = trial.site(1)
    content = by_server(trial, INVITE, write_proposal(proposal()))
    for said in (content, content[:-1]):
        answer = handle_message(partial(SiteFile.read, folder / "site.toml"), INVITE, partial(bytes, said))
    assert answer is Refusal.BAD_MESSAGE
    text = (folder / "log.jsonl").read_text()
    good, bad = map(json.loads, text.splitlines())
    assert good.keys() == {"time", "level", "logger", "message"}
    assert (good["level"], good["message"].partition(" with ")[0]) == ("INFO", "answered a message of the kind invite")
    assert (bad["level"], bad["message"].partition(":")[0]) == ("WARNING", "no answer given")
    assert stat.S_IMODE((folder / "log.jsonl").stat().st_mode) == 0o600
    assert not any(key.read_text().strip() in text for key in folder.glob("*.key"))


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        ("", "ok   query log: none yet"),
        ("journal", "FAIL query log: "),
        ("rows", "FAIL rows: "),
        ("receipt", "FAIL receipts: 1 do not hold: 0; the command inspect says why"),
        ("ledger", "FAIL budget: "),
    ],
)
def test_health_says_what_is_wrong(breaks: str, said: str, trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial.site(1)
    if breaks == "journal":
        site(trial, 1).sweep()
        with sqlite3.connect(folder / "state" / "sessions.sqlite") as database:
            database.execute("DROP TABLE totals")
    elif breaks == "rows":
        (folder / "rows.npz").unlink()
    elif breaks == "receipt":
        (folder / "results").mkdir()
        (folder / "results" / "0.receipt").touch()
    elif breaks == "ledger":
        (folder / "site.toml").write_text(
            (folder / "site.toml").read_text() + '\n[privacy]\nepsilon = 1.0\nledger = "ledger"\n'
        )
    before = sorted(folder.rglob("*"))
    assert main(["health", str(folder / "site.toml")]) == bool(breaks)
    told = capsys.readouterr().out
    assert said in told
    assert told.count("FAIL") == bool(breaks)
    assert sorted(folder.rglob("*")) == before


def test_new_keys(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/how-to/runbook.md says it, for site 1, which is a client and a helper."""
    config = run_config(mode="committee", dropout=0.0)
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])
    folder = trial.site(1)
    rosters = [*trial.folder.glob("*/roster.toml")]
    fingerprint = Roster.read(rosters[0]).fingerprint
    for name in ("identity", "helper"):
        old = SiteFile.read(folder / "site.toml")
        key = old.client.identity.public if name == "identity" and old.client else old.helpers[0].identity.public
        capsys.readouterr()
        assert main(["identity", str(folder / f"{name}-2.key")]) == 0
        new = capsys.readouterr().out.strip()
        for roster in rosters:
            roster.write_text(roster.read_text().replace(key.hex(), new))
        with pytest.raises(SiteFileError, match="the roster lists another identity for"):
            SiteFile.read(folder / "site.toml")
        edit(trial, 1, (f'"{name}.key"', f'"{name}-2.key"'))
    assert Roster.read(rosters[0]).fingerprint != fingerprint
    assert main(["check-site", str(folder / "site.toml")]) == 2
    assert "another identity" in capsys.readouterr().err
    assert main(["epoch", str(folder / "site.toml"), "--number", "1"]) == 0
    assert main(["check-site", str(folder / "site.toml")]) == 0
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])
