"""The commands as a newcomer meets them: help with examples, errors that say what to do, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from child_processes import wait_until
from support.commands import flower as main
from support.rehearsed import edit, is_wiped, state

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic_secagg.__main__ import main as of_sites
from analytic_secagg.commands.site import COMMANDS as OF_SITES
from analytic_secagg.flower.commands import COMMANDS
from analytic_secagg.flower.trial import app_settings
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.source import read_rows
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import Trial

ROOT = Path(__file__).resolve().parents[3]
SITE_NAMES = [command.name for command in OF_SITES]
NEEDS_FLOWER = "needs the extra: pip install '.[flower]'"


def printed_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that fails says: one message, no traceback, code 2."""
    assert (of_sites if words[:1] and words[0] in SITE_NAMES else main)(words) == 2
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return text.splitlines()[-1]


@pytest.mark.parametrize("command", [*COMMANDS, *OF_SITES], ids=lambda command: command.name)
def test_every_help_has_examples_that_parse(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    name = command.name  # type: ignore[attr-defined]
    run, prog = (of_sites, "analytic-secagg") if command in OF_SITES else (main, "analytic-secagg flower")
    assert run([name, "--help"]) == 0
    printed = capsys.readouterr().out
    examples = [line.strip() for line in printed.splitlines() if line.startswith(f"  {prog} ")]
    assert examples
    assert all(f"{line} ".startswith(f"{prog} {name} ") for line in examples)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: needs a command, such as python -m analytic_secagg flower trial trial"),
        (["trail"], "did you mean trial?"),
        (["trial"], "Missing argument 'FOLDER'; see python -m analytic_secagg flower trial --help"),
        (["trial", "new", "--clients", "0"], "for '--clients': needs a whole number of at least 4, not '0'"),
        (["trial", "new", "--clients", "4", "--helpers", "5"], "no more helpers than sites, not 4 sites and 5 helpers"),
        (["trial", "new", "--client", "4"], "did you mean --clients?"),
        (["trial", "new", "--address", "10.0.0.1:80"], "127.0.0.1:PORT or localhost:PORT, not '10.0.0.1:80'"),
        (["trial", "trial"], "trial must be a new folder and exists already; name another"),
        (["app", "trial"], "trial must be a new folder and exists already; name another"),
        (["rehearse", "nowhere"], "make a folder with the command app or trial"),
        (["rehearse", "trial", "mode=bfv"], "texts in quotes, such as 'mode=\"committee\" ridge=0.5', not 'mode=bfv'"),
        (
            ["rehearse", "trial", 'mod="bfv"'],
            "the configuration has no mod; it has adjacency, allow-low-rank, at-once, ",
        ),
        (["rehearse", "trial", 'mode="none"'], "mode must be one of plain, masked, committee, ckks"),
        (["rehearse", "trial", "nodes=1.5"], "needs nodes as a whole number, not a number"),
        (["ledger", "trial/site-1/site.toml"], "needs [privacy]: a ledger is of a budget for rows"),
        (["trial", "broken.toml/new"], "cannot make the folder broken.toml/new: Not a directory; name another place"),
        (["identity", ""], "needs the name of a file or folder"),
        (["identity", "nowhere/key"], "cannot write nowhere/key: No such file or directory; name another place"),
        (["identity", "trial/site-1/identity.key"], "never overwritten: move the old one away"),
        (["roster", "nowhere.toml"], "cannot read nowhere.toml: No such file or directory; name a file that is there"),
        (["roster", "trial"], "cannot read trial: Is a directory"),
        (["roster", "broken.toml"], "broken.toml must be TOML and is not"),
        (["roster", "trial/site-1/site.toml"], "needs server as a text in quotes, not nothing"),
        (["check-site", "trial/site-1/roster.toml"], "needs roster as a text in quotes, not nothing"),
    ],
)
def test_wrong_input_is_answered_with_what_to_do(
    trial: Trial,
    tmp_path: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if words[:1] == ["rehearse"]:
        pytest.importorskip("flwr", reason=NEEDS_FLOWER)
    monkeypatch.chdir(tmp_path)
    Path("broken.toml").write_text("x = [")
    before = sorted(tmp_path.rglob("*"))
    assert message in printed_error(words, capsys)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('state = "state"', 'state = "state"\nstat = "s"', "has no place for stat; correct or remove it"),
        ('"rows.npz"', '"nowhere.npz"', "nowhere.npz: No such file or directory; write it with numpy.savez"),
        ('"rows.npz"', '"rows.csv"\ncolumns = "columns.toml"', r"columns.toml: No such file"),
        ('"rows.npz"', '"site.toml.npz"', "must be an npz archive with a matrix x_train"),
        ('"rows.npz"', '"nowhere:load"', "calling it raised ModuleNotFoundError: call it by yourself"),
        ('"rows.npz"', '"os:getcwd"', "calling it raised InvalidRowsError"),
        ('"identity.key"', '"nowhere.key"', "make one with the command identity"),
        ('"identity.key"', '"site.toml"', "chmod 600 it"),
    ],
)
def test_check_site_says_what_to_mend(
    trial: Trial, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (trial.folder / "site-3" / "site.toml.npz").write_text("no archive")
    (trial.folder / "site-3" / "site.toml").chmod(0o644)
    edit(trial, 3, (old, new))
    assert message in printed_error(["check-site", str(trial.folder / "site-3" / "site.toml")], capsys)


def test_check_site_tries_the_state_folder_and_names_missing_extras(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(trial.folder / "site-5" / "site.toml")
    monkeypatch.setitem(sys.modules, "tenseal", None)
    assert of_sites(["check-site", path]) == 0
    printed = capsys.readouterr().out
    assert "key holder 201: key fits the roster" in printed
    assert "masked+bfv: declined until this host has more: pip install '.[he]'" in printed
    state(trial, 5).chmod(0o755)
    assert "chmod 700" in printed_error(["check-site", path], capsys)


@pytest.mark.parametrize(
    ("party", "modes", "warning"),
    [
        (
            1,
            '"masked", "bfv"',
            "party 101 has nothing to do: modes of [policy] names bfv, masked only; add one of committee",
        ),
        (1, '"committee"', ""),
        (5, '"masked", "committee"', "add one of ckks, bfv, masked+ckks, masked+bfv"),
        (5, '"masked+bfv"', ""),
        (3, '"masked"', ""),
    ],
)
def test_check_site_warns_of_a_role_without_work(
    trial: Trial, party: int, modes: str, warning: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trial.folder / f"site-{party}" / "site.toml"
    path.write_text(re.sub(r"modes = \[.*\]", f"modes = [{modes}]", path.read_text()))
    assert of_sites(["check-site", str(path)]) == 0
    printed = capsys.readouterr().out
    assert warning in printed
    assert ("warning" in printed) == bool(warning)


def test_without_flower_only_rehearsals_are_missing(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "flwr"]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("client", "server", "rehearsal", "wire"):
        monkeypatch.delitem(sys.modules, f"analytic_secagg.flower.{name}", raising=False)
    assert of_sites(["check-site", str(trial.folder / "site-1" / "site.toml")]) == 0
    assert "pip install '.[flower]'" in printed_error(["rehearse", str(trial.folder)], capsys)


@pytest.mark.parametrize("dataset", ["digits", "breast_cancer"])
def test_a_trial_of_the_smallest_size_rehearses_as_it_is(
    tmp_path: Path, dataset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr", reason=NEEDS_FLOWER)
    folder = str(tmp_path / "trial")
    assert main(["trial", folder, "--clients", "4", "--helpers", "0", "--dataset", dataset]) == 0
    for settings in ("", 'mode="bfv"'):
        assert main(["rehearse", folder, settings]) == 0
    assert "the model is in" in capsys.readouterr().out


def test_a_trial_that_cannot_be_finished_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("analytic_secagg.flower.trial._write_tls", stopped)
    assert main(["trial", str(tmp_path / "trial")]) == 130
    assert list(tmp_path.iterdir()) == []


def test_half_a_key_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **settings: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("analytic_secagg.site.key_files.os.fdopen", full)
    assert of_sites(["identity", str(tmp_path / "key")]) == 2
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    assert of_sites(["identity", str(tmp_path / "key")]) == 0
    assert len(read_secret(tmp_path / "key")) == 32


def test_ctrl_c_ends_a_rehearsal_without_a_trace(trial: Trial) -> None:
    """A real interrupt, while a site's slow rows hold the second exchange up."""
    pytest.importorskip("flwr", reason=NEEDS_FLOWER)
    (trial.folder / "slow_rows.py").write_text("import time\n\ndef load():\n    time.sleep(900)\n")
    edit(trial, 1, ('"rows.npz"', '"slow_rows:load"'))
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "analytic_secagg",
            "flower",
            "rehearse",
            str(trial.folder),
            'mode="masked+bfv"',
        ],
        cwd=trial.folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{trial.folder}"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    log = trial.folder / "server" / "models" / "rehearsal" / "progress.jsonl"
    wait_until(
        lambda: process.poll() is not None or (log.exists() and "SHARE_DELIVERY" in log.read_text()),
        "the exchange that site 1 holds up",
    )
    process.send_signal(signal.SIGINT)
    try:
        said = process.communicate(timeout=120)[1]
    except subprocess.TimeoutExpired:  # once in hundreds it falls into a destructor, where Python drops what is raised
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=300)[1]
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "stopped; no file is half-written"
    assert "Traceback" not in said
    assert sorted(path.name for path in log.parent.iterdir()) == ["progress.jsonl", "run.sqlite"]
    assert json.loads(log.read_text().splitlines()[-1])["round"] == "END"
    assert is_wiped(trial)


def test_three_commands_lead_from_a_table_to_a_model_of_five_sites(tmp_path: Path) -> None:
    """Columns of all sizes, some of which no common format holds, and rows without a target."""
    rng = np.random.default_rng(0)
    lines = [f"{rng.uniform(1e4, 9e4):.1f},{rng.uniform():.4f},{('yes', 'no', 'no', '')[n % 4]}" for n in range(80)]
    table, folder = tmp_path / "heart.csv", tmp_path / "trial"
    table.write_text("platelets,crp,ill\n" + "\n".join(lines))
    assert of_sites(["schema", "draft", str(table), "--target", "ill", "--into", str(tmp_path)]) == 0
    both = ["--columns", str(tmp_path / "columns.toml"), "--reading", str(tmp_path / "reading.toml")]
    assert main(["trial", str(folder), "--data", str(table), *both, "--helpers", "0"]) == 0
    assert main(["rehearse", str(folder)]) == 0
    saved = load_model(folder / "server/models/rehearsal/model.safetensors")
    roster = Roster.read(folder / "server/roster.toml")
    learner = RunSettings.of(app_settings(folder / "app")).federation(roster).learner
    rows = ClientRows.pool([read_rows(str(folder / f"site-{site}/rows.npz")) for site in range(1, 6)])
    assert len(rows) == 48  # of 60 with a target a fifth is kept for judging
    assert saved.learner.weights_bytes(saved.model) == learner.weights_bytes(fit_pooled(learner, rows))


SITES_OF_A_TABLE: dict[str, tuple[bytes, str]] = {
    "a.csv": (b"age;chol;ill\n61;5,2;yes\n57;k.A.;no\n", 'separator = ";"\ndecimal = ","\nmissing = ["k.A."]'),
    "b.tsv": (b"AGE\tCHOL\tDX\n50\t200\t1\n", '[client.reading.columns.age]\nname = "AGE"\n'
    '[client.reading.columns.chol]\nname = "CHOL"\nfactor = 0.025\n'
    '[client.reading.columns.ill]\nname = "DX"\nrecode = { 1 = "yes", 0 = "no" }'),
    "c.csv": (b"Auszug vom M\xe4rz\nage,chol,ill\n44,4,no\n45,4,yes\n", 'encoding = "cp1252"\nskip_lines = 1'),
    "d.txt": (b"39|-9|no\n", 'separator = "|"\nnames = ["age", "chol", "ill"]\nmissing = ["-9"]'),
}  # fmt: skip


def trial_of_tables(folder: Path, readings: int) -> list[str]:
    (folder / "columns.toml").write_text(
        '[columns.age]\n[columns.chol]\nmissing = "flag"\n[columns.ill]\nrole = "target"\ncategories = ["no", "yes"]'
    )
    words = ["trial", str(folder / "trial"), "--helpers", "0", "--columns", str(folder / "columns.toml")]
    for number, (name, (text, reading)) in enumerate(SITES_OF_A_TABLE.items()):
        (folder / name).write_bytes(text)
        (folder / f"{name}.toml").write_text(f"[client.reading]\n{reading}", encoding="utf-8")
        words += ["--data", str(folder / name), *["--reading", str(folder / f"{name}.toml")] * (number < readings)]
    return words


def test_each_site_of_a_trial_reads_a_table_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(trial_of_tables(tmp_path, readings=4)) == 0
    assert "site-1 to site-4" in capsys.readouterr().out
    files = [SiteFile.read(tmp_path / f"trial/site-{party}/site.toml") for party in range(1, 5)]
    rows = [file.client.rows() for file in files if file.client is not None]
    assert [own.features.tolist() for own in rows] == [
        [[61, 5.2, 0], [57, 0, 1]], [[50, 5, 0]], [[44, 4, 0], [45, 4, 0]], [[39, 0, 1]],
    ]  # fmt: skip
    assert [own.targets.tolist() for own in rows] == [[1, 0], [1], [0, 1], [0]]
    assert {file.roster.columns for file in files} == {TableSchema.read(tmp_path / "columns.toml").fingerprint}


@pytest.mark.parametrize(
    ("readings", "more", "said"),
    [
        (2, [], "once for all tables or once for each in their order, not 2 times for 4"),
        (0, [], "a.csv looks separated by semicolons"),
        (4, ["--clients", "5"], "not 4 tables and --clients 5"),
        (4, ["--data", "rows.npz"], "for tables alone"),
    ],
)
def test_tables_of_a_trial_that_do_not_fit_leave_no_folder(
    readings: int, more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "rows.npz" in more:
        more = [*more, "--reading", str(tmp_path / "a.csv.toml")]
    assert said in printed_error([*trial_of_tables(tmp_path, readings), *more], capsys)
    assert not (tmp_path / "trial").exists()


def test_a_table_of_a_trial_needs_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--data needs --columns" in printed_error(["trial", str(tmp_path / "new"), "--data", "heart.csv"], capsys)
