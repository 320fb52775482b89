"""What a host says of itself: the commands doctor and health, and its log."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.rehearsed import by_server, edit, proposal, site

from analytic_secagg.__main__ import main
from analytic_secagg.code_version import PACKAGES, code_version
from analytic_secagg.site.errors import Refusal
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import INVITE, write_proposal
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial

VERSION = metadata.version


def found(name: str, version: str | None) -> Callable[[str], str]:
    def ask(asked: str) -> str:
        if asked == name and version is None:
            raise metadata.PackageNotFoundError(asked)
        return version if asked == name and version is not None else VERSION(asked)

    return ask


def not_ready(size: int, flags: int) -> bytes:
    raise BlockingIOError


def test_this_host_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "ok   arithmetic: the weights of known rows have the bits that they have everywhere, with" in said
    assert "ok   primitives: keys, signatures, boxes, shares and masks have the known results" in said
    assert "ok   vectors: 9 published vectors are reproduced, byte for byte" in said
    assert f"its modules' digest {code_version().sha256}" in said
    assert "FAIL" not in said


def test_the_digest_of_the_code_is_of_its_python_files_wherever_they_are(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    for package in PACKAGES:
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))

    def digest() -> str:
        words = [sys.executable, "-B", "-c", "from analytic_secagg.code_version import *; print(code_version().sha256)"]
        return subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, text=True, check=True).stdout.strip()

    assert digest() == code_version().sha256
    (tmp_path / "analytic_secagg" / "notes.txt").write_text("no code")
    assert digest() == code_version().sha256
    with (tmp_path / "secagg" / "ring.py").open("a") as module:
        module.write("#\n")
    assert digest() != code_version().sha256


@pytest.mark.parametrize(
    ("place", "value", "code", "line"),
    [
        ("metadata.version", found("scipy", None), 1, "FAIL versions: scipy is missing; pip install 'scipy"),
        ("metadata.version", found("numpy", "1.9.3"), 1, "FAIL versions: numpy is 1.9.3, and numpy"),
        ("metadata.version", found("numpy", "3.0"), 1, "FAIL versions: numpy is 3.0, and numpy"),
        ("KNOWN_WEIGHTS", "0" * 64, 1, "FAIL arithmetic: known rows give weights d76f3c11bc3f5fe1 and not 00000000"),
        (
            "wrong_answers",
            lambda: ("shares",),
            1,
            "FAIL primitives: other results than the known ones: shares; reinst",
        ),
        (
            "conformance._exchanged",
            lambda *run: [],
            1,
            "FAIL vectors: not as published: authenticated_dropouts, series",
        ),
        ("os.getrandom", not_ready, 1, "FAIL entropy: the system has no random bytes yet"),
        ("time.time", lambda: 0.0, 1, "FAIL clock: the clock shows 1970-01-01; set it"),
        ("_clock_state", lambda: 5, 0, "warn clock: nobody sets this clock by others'"),
        ("_clock_state", lambda: -1, 0, "warn clock: this system does not say who sets its clock"),
        ("_clock_state", lambda: 0, 0, "ok   clock: the clock is set by others'"),
    ],
)
def test_a_fault_is_named_with_what_to_do(
    place: str, value: Any, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"analytic_secagg.doctor_command.{place}", value)
    assert main(["doctor"]) == code
    assert line in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kept", "code", "line"),
    [
        ("as it was", 0, "ok   code: all 2 files are those of the wheel that was installed"),
        ("edited", 1, "FAIL code: changed since the installation: secagg/b.py; install the release again"),
        (None, 1, "FAIL code: changed since the installation: secagg/b.py; install the release again"),
    ],
)
def test_installed_files_are_compared_with_the_wheels_record(
    kept: str | None,
    code: int,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "secagg").mkdir()
    listed = ["analytic_secagg-1.dist-info/METADATA,sha256=0000,1"]
    for name in ("secagg/a.py", "secagg/b.py"):
        (tmp_path / name).write_text("as it was")
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"as it was").digest()).decode().rstrip("=")
        listed.append(f"{name},sha256={digest},9")
    info = tmp_path / "analytic_secagg-1.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("\n".join(listed))
    if kept is None:
        (tmp_path / "secagg/b.py").unlink()
    else:
        (tmp_path / "secagg/b.py").write_text(kept)
    monkeypatch.setattr(
        "analytic_secagg.doctor_command.metadata.files", lambda name: metadata.PathDistribution(info).files
    )
    assert main(["doctor"]) == code
    assert line in capsys.readouterr().out


def test_an_extra_that_is_missing_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("analytic_secagg.modes.Mode.missing_extra", property(lambda mode: "pip install x"))
    assert main(["doctor"]) == 0
    assert "warn extras: ckks needs more; pip install x" in capsys.readouterr().out


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
