"""A dry run says ok to what the run then does, and to nothing else: each case is tried, and then really run."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.rehearsed import edit, events, kept, pin, pin_run, rehearse, run_config

from analytic.learner import ClientRows
from analytic_secagg.__main__ import main
from analytic_secagg.certificates import Authority
from analytic_secagg.console.findings import Mark
from analytic_secagg.dry_run import DryRun, link
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg.errors import SecureSumError

Change = Callable[[Trial], None]


def nothing(trial: Trial) -> None:
    """Leave the trial as it is."""


def rows(change: Callable[[ClientRows], ClientRows]) -> Change:
    return lambda trial: trial.give_rows(1, change(trial.rows[1]))


def with_value(value: float) -> Change:
    def changed(own: ClientRows) -> ClientRows:
        features = own.features.copy()
        features[3, 5] = value
        return ClientRows(features, own.targets)

    return rows(changed)


def agreed(*unverified: str, **settings: Any) -> Change:
    """Let everybody agree on what a run computes; sites trust the server with these learners' models."""

    def changed(trial: Trial) -> None:
        run, roster = RunSettings.of(run_config(**settings)), Roster.read(trial.site(1) / "roster.toml")
        learner = run.federation(roster).learner
        judges = [run.evaluation(learner, None)] if run.evaluate else []
        names = ", ".join(f'"{name}"' for name in unverified)
        pin(trial, learner, *judges, more=f"unverified_models = [{names}]")

    return changed


def other_roster(**changes: Any) -> Change:
    def changed(trial: Trial) -> None:
        path = trial.site(1) / "roster.toml"
        path.write_text(Roster.read(path).model_copy(update=changes).to_toml())

    return changed


def no_test_rows(trial: Trial) -> None:
    own = trial.rows[1]
    np.savez(trial.site(1) / "rows.npz", x_train=own.features, y_train=own.targets)


DEEP = {"learner": "deepafl", "options": "n_layers=1 d_phi=16 d_f=8 gamma=1.0"}

CASES: dict[str, tuple[dict[str, Any], Change]] = {
    "as it is": ({}, nothing),
    "committee": ({"mode": "committee"}, nothing),
    "judged too": ({"evaluate": True}, agreed("evaluation-of-classes", evaluate=True)),
    "two sums": ({"feature-format": "agreed"}, agreed("agreed-afl", **{"feature-format": "agreed"})),
    "a later sum is not allowed": ({"feature-format": "agreed"}, agreed(**{"feature-format": "agreed"})),
    "three sums": (DEEP, agreed("deepafl", **DEEP)),
    "labels from 1": ({}, rows(lambda own: ClientRows(own.features, own.targets + 1))),
    "labels are texts": ({}, rows(lambda own: ClientRows(own.features, own.targets.astype("U2")))),
    "real targets": ({}, rows(lambda own: ClientRows(own.features, own.targets[:, None] * 1.5))),
    "another width": ({}, rows(lambda own: ClientRows(own.features[:, :60], own.targets))),
    "a missing value": ({}, with_value(np.nan)),
    "a value beyond the format": ({}, with_value(1e6)),
    "too many rows": ({"max-rows": 1000}, nothing),
    "too many rows by the roster": ({}, other_roster(max_client_rows=100)),
    "another mode": ({"mode": "plain"}, nothing),
    "another learner": ({"learner": "lda"}, nothing),
    "too few survivors": ({"mode": "committee", "min-survivors": 2}, nothing),
    "noise that nobody asked for": ({"epsilon": 2.0, "noise-survivors": 3}, nothing),
    "another configuration": ({"ridge": 2.0}, pin_run),
    "no rows for judging": ({"evaluate": True}, no_test_rows),
    "judging is not allowed": ({"evaluate": True}, agreed()),
}


FINE = ("as it is", "committee", "judged too", "two sums", "three sums")


def takes_part(trial: Trial, config: dict[str, Any]) -> bool:
    """Whether site 1 is in every total of a real run."""
    try:
        rehearse(trial.folder, config)
    except (SecureSumError, DeploymentError):
        return False
    said = [one for one in events(trial) if one["event"] in ("sum", "evaluation")]
    assert len([one for one in said if one["event"] == "evaluation"]) == config["evaluate"]
    return all(1 in one["survivors"] for one in said)


@pytest.mark.parametrize("format_", ["UQ5.3", "agreed"])
def test_columns_that_a_format_hardly_holds_are_said_with_what_helps(trial: Trial, format_: str) -> None:
    """A run whose columns are agreed on is not told to agree on them."""

    def changed(own: ClientRows) -> ClientRows:
        features = own.features + 1 / 3  # of which no format holds all: whole numbers would lose nothing
        if format_ == "agreed":
            features[:, 5] += 2.0**40  # its deviation is below the unit of the scale that all agree on
        return ClientRows(features, own.targets)

    settings = {"feature-format": format_}
    rows(changed)(trial)
    agreed("agreed-afl", **settings)(trial)
    file = SiteFile.read(trial.site(1) / "site.toml")
    *_, (_, finding) = DryRun(file=file, settings=RunSettings.of(run_config(**settings))).findings()
    assert "the format keeps less than 8 bits of" in str(finding)
    assert ('feature-format = "agreed"' in str(finding)) is (format_ != "agreed")


@pytest.mark.parametrize("case", CASES)
def test_what_it_says_ok_to_does_not_fail_and_what_fails_is_said(trial: Trial, case: str) -> None:
    changes, change = CASES[case]
    change(trial)
    config = run_config(**changes)
    file = SiteFile.read(trial.site(1) / "site.toml")
    found = list(DryRun(file=file, settings=RunSettings.of(config)).findings())
    assert not kept(trial, 1)
    assert not (file.state / "sessions.sqlite").exists()
    is_ok = all(finding.mark is Mark.OK for _, finding in found)
    assert is_ok is takes_part(trial, config) is (case in FINE), found


def test_rows_that_the_query_log_refuses_are_seen_beforehand(trial: Trial) -> None:
    """After a first run: the same again is free, and another computation of the same rows is not."""
    rehearse(trial.folder, run_config())
    edit(trial, 1, ("further_totals = 1000000", "further_totals = 0"))
    file = SiteFile.read(trial.site(1) / "site.toml")
    for config, is_free in ((run_config(), True), (run_config(ridge=2.0), False)):
        log = (file.state / "sessions.sqlite").read_bytes()
        ((_, finding),) = DryRun(file=file, settings=RunSettings.of(config)).findings()
        assert (finding.mark is Mark.OK) is is_free, finding
        assert is_free or "raise further_totals under [journal]" in str(finding)
        assert (file.state / "sessions.sqlite").read_bytes() == log, "nothing is noted"
        assert takes_part(trial, config) is is_free


def test_rows_that_judged_another_model_are_said_beforehand(trial: Trial) -> None:
    """The model to judge is not known beforehand: where it is the same one, they may judge it again."""
    agreed("evaluation-of-classes", evaluate=True)(trial)
    config, file = run_config(evaluate=True), SiteFile.read(trial.site(1) / "site.toml")
    marks = []
    for is_another in (False, True):
        if is_another:
            rows(lambda own: ClientRows(own.features[:, ::-1].copy(), own.targets))(trial)
        marks.append([finding.mark for _, finding in DryRun(file=file, settings=RunSettings.of(config)).findings()])
        assert takes_part(trial, config) is not is_another
    assert marks == [[Mark.OK, Mark.OK], [Mark.OK, Mark.WARN]]


def test_a_vector_that_the_disk_has_no_room_for_is_seen_beforehand(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SiteFile.read(trial.site(1) / "site.toml")
    usage = type("Usage", (), {"free": 2**18 + 4 * 9000})  # the margin, and too little for a vector and its messages
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    ((name, finding),) = DryRun(file=file, settings=RunSettings.of(run_config())).findings()
    assert (name, finding.mark) == ("sum 1", Mark.FAIL)
    assert "disk full" in str(finding)


def test_the_command_tries_the_run_that_is_named(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    from analytic_secagg.nvflare.job import write_job

    job, site = trial.folder / "job", str(trial.site(1) / "site.toml")
    write_job(job, {"run": run_config()})
    assert main(["check-site", site, "--run", str(job)]) == 0
    assert "ok   sum 1: afl: 288 rows make a vector" in capsys.readouterr().out
    assert main(["check-site", site, "--run", str(job), "--settings", "n-classes=9"]) == 1
    assert "FAIL sum 1: afl: 27 of 288 labels lie outside 0 to 8" in capsys.readouterr().out
    assert main(["check-site", site, "--settings", "n-classes=9"]) == 2
    assert "--settings go with --run" in capsys.readouterr().err


def test_rows_that_are_there_twice_are_said(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    rows(lambda own: ClientRows.pool([own, own]))(trial)
    assert main(["check-site", str(trial.site(1) / "site.toml")]) == 0
    assert "the second half of the rows repeats the first" in capsys.readouterr().out
    assert main(["check-site", str(trial.site(2) / "site.toml")]) == 0
    assert "repeats the first" not in capsys.readouterr().out


def test_a_check_by_another_user_says_so(
    trial: Trial, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = trial.site(1) / "site.toml"
    assert main(["check-site", str(site)]) == 0
    assert "belongs to user" not in capsys.readouterr().out
    monkeypatch.setattr("os.geteuid", lambda: site.stat().st_uid + 1, raising=False)
    main(["check-site", str(site)])
    assert "run this as the service does" in capsys.readouterr().out


def test_texts_as_labels_are_refused_without_any_run(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    rows(lambda own: ClientRows(own.features, own.targets.astype("U2")))(trial)
    assert main(["check-site", str(trial.site(1) / "site.toml")]) == 2
    assert "must have numbers as targets, labels 0, 1, ..." in capsys.readouterr().err
    edit(trial, 2, ('"rows.npz"', '"nowhere.npz"'))
    assert main(["health", str(trial.site(1) / "site.toml")]) == 1


@pytest.fixture
def server(tmp_path: Path) -> tuple[str, Path]:
    """A server on loopback with TLS, by an authority of its own, whose certificate is for localhost."""
    authority = Authority()
    certificate, key = authority.issue("localhost", "127.0.0.1")
    for name, content in {"ca.crt": authority.certificate, "server.crt": certificate, "server.key": key}.items():
        (tmp_path / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listening.accept()
            except OSError:
                return
            with plain, suppress(OSError):
                context.wrap_socket(plain, server_side=True).close()

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listening.getsockname()[1]}", tmp_path / "ca.crt"


def test_the_link_is_opened_and_a_lost_one_says_why(server: tuple[str, Path], tmp_path: Path) -> None:
    address, authority = server
    found = link(address, authority)
    assert found.mark is Mark.OK, found
    assert "TLSv1" in found.text
    (tmp_path / "other.crt").write_bytes(Authority().certificate)
    for where, certificate, said in (
        (address, tmp_path / "other.crt", "does not trust"),
        (address, None, "does not trust"),
        (address, tmp_path / "nowhere.crt", "No such file"),
        ("127.0.0.1:1", authority, "nothing listens"),
        ("nowhere.invalid:9092", authority, "no host nowhere.invalid"),
        ("9092", authority, "a server is HOST:PORT"),
    ):
        refused = link(where, certificate)
        assert refused.mark is Mark.FAIL
        assert said in str(refused)
