"""A disk that is full or read-only: at a site before a row is touched, at the server before any site is asked."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.disks import fill, make_read_only, small_disk
from support.rehearsed import CLIENTS, edit, edit_all, is_exact, is_wiped, proposal, rehearse, run_config, site, state

from analytic.errors import AnalyticError
from analytic.learner import ClientRows
from analytic_secagg.__main__ import main
from analytic_secagg.console import output_files
from analytic_secagg.console.output_files import append_line
from analytic_secagg.errors import FederationError, OutputError
from analytic_secagg.server.run_store import FILE, RunStore
from analytic_secagg.site.disk import MARGIN_BYTES, disk_problem
from analytic_secagg.site.errors import DeploymentError, Refusal, SiteFileError
from analytic_secagg.site.messages import END, STEP
from analytic_secagg.trial import Trial

MEGABYTE = 1 << 20


def nearly_full(folder: Path) -> None:
    """Room for the probe and not for a vector."""
    fill(folder, but=MARGIN_BYTES + 8192)


@pytest.mark.parametrize(
    ("fault", "said"), [(fill, "disk full: "), (nearly_full, "disk full: "), (make_read_only, "read-only: ")]
)
@pytest.mark.parametrize("is_used", [False, True], ids=["new", "used"])
def test_a_disk_that_takes_no_more_is_named_before_rows_are_used(
    trial: Trial, capsys: pytest.CaptureFixture[str], fault: Callable[[Path], None], said: str, is_used: bool
) -> None:
    file = str(trial.site(2) / "site.toml")
    with small_disk(state(trial, 2), 2 * MEGABYTE):
        if is_used:
            rehearse(trial.folder, run_config())
            is_exact(trial, [1, 2, 3, 4, 5])
        before = site(trial, 2).look()
        assert main(["health", file]) == 0
        assert main(["check-site", file]) == 0
        capsys.readouterr()
        fault(state(trial, 2))
        assert main(["health", file]) == 1
        assert f"FAIL disk: {said}" in capsys.readouterr().out
        assert main(["check-site", file]) == 2
        assert f"error: {said}" in capsys.readouterr().err
        with pytest.raises(SiteFileError, match=said):
            site(trial, 2).join(proposal())
        rehearse(trial.folder, run_config())
        is_exact(trial, [1, 3, 4, 5])
        after = site(trial, 2).look()
        assert (before or ([], 0))[0] == (after or ([], 0))[0], "nothing was noted"


@pytest.mark.parametrize("is_full", [False, True])
def test_a_probe_leaves_nothing_and_needs_no_folder(tmp_path: Path, is_full: bool) -> None:
    with small_disk(tmp_path / "disk", MEGABYTE):
        if is_full:
            fill(tmp_path / "disk")
        before = sorted(os.listdir(tmp_path / "disk"))
        assert bool(disk_problem(tmp_path / "disk" / "not" / "there")) == is_full
        assert disk_problem(tmp_path / "disk", 2 * MEGABYTE).startswith("disk full: ")
        assert sorted(os.listdir(tmp_path / "disk")) == before


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: a write that is cut short, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_line_is_whole_or_not_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert append_line(log, "one")
    with largest_file(8):
        assert not append_line(log, "much too long")
        assert append_line(log, "two")
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600
    assert not append_line(tmp_path / "not" / "there", "three")
    assert not append_line(Path("/dev/full"), "four")


def test_logs_results_and_runs_are_bounded(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log goes on in a new file, and the newest models and runs stay; so do receipts and runs that have not ended."""
    monkeypatch.setattr(output_files, "LOG_BYTES", 2000)
    edit_all(trial, ('state = "state"', 'state = "state"\nlog = "log"\nkeep_models = 2'))
    server = trial.folder / "server" / "server.toml"
    server.write_text(server.read_text() + "keep_runs = 1\n")
    models = trial.folder / "server" / "models"
    unfinished = models / "unfinished"
    with RunStore.opened(unfinished) as store:
        store.begin({}, moment="")
    for number in range(3):
        for party, rows in trial.rows.items():
            trial.give_rows(party, ClientRows(rows.features[number:], rows.targets[number:]))
        rehearse(trial.folder, run_config(receipts="server"))
        (models / "rehearsal").rename(models / f"run-{number}")
        os.utime(models / f"run-{number}" / FILE, (number, number))
    results = trial.site(1) / "results"
    assert len(list(results.glob("model-*"))) == 2
    assert len(list(results.glob("*.receipt"))) == 3
    assert sorted(path.name for path in models.iterdir()) == ["run-2", "unfinished"]
    assert sorted(path.name for path in trial.site(1).glob("log*")) == ["log", "log.1"]
    assert all(path.stat().st_size < 2500 for path in trial.site(1).glob("log*"))


@pytest.mark.parametrize("place", ["/dev/full", "missing/site.log"])
def test_a_log_line_that_cannot_be_written_stops_no_sum(
    trial: Trial, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    """Every site's log is lost; all of them stay in the total."""
    for party in trial.rows:
        edit(trial, party, ('state = "state"', f'state = "state"\nlog = "{place}"'))
    rehearse(trial.folder, run_config())
    is_exact(trial, [1, 2, 3, 4, 5])
    assert not list(trial.folder.glob("site-*/missing"))
    if place == "/dev/full":
        assert main(["accept-loss", str(trial.site(2) / "site.toml")]) == 2, "and no command"


def test_a_log_that_takes_no_line_is_a_warning(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    with small_disk(trial.site(2) / "logs", 2 * MEGABYTE):
        edit(trial, 2, ('state = "state"', 'state = "state"\nlog = "logs/site.log"'))
        rehearse(trial.folder, run_config())
        lines = (trial.site(2) / "logs" / "site.log").read_text().splitlines()
        assert {json.loads(line)["logger"] for line in lines} == {"analytic_secagg.site"}
        fill(trial.site(2) / "logs")
        file = str(trial.site(2) / "site.toml")
        assert main(["health", file]) == main(["check-site", file]) == 0
        out = capsys.readouterr().out
        assert "warn disk: lines of the site's own log are lost: disk full: " in out
        assert "warning: disk: lines of the site's own log are lost: disk full: " in out


BOTH = pytest.mark.parametrize("mode", ["masked", "committee"])


def models(trial: Trial) -> Path:
    return trial.folder / "server" / "models"


@BOTH
def test_it_is_found_before_any_site_is_asked(trial: Trial, mode: str) -> None:
    asked: list[str] = []

    def tell(party: int, kind: str, content: bytes) -> bytes:
        asked.append(kind)
        return content

    with small_disk(models(trial), MEGABYTE):
        (models(trial) / "rehearsal").mkdir()
        with pytest.raises(OutputError, match=r"bytes must be free in .*No site was asked"):
            rehearse(trial.folder, run_config(mode=mode), tell=tell)
        assert set(asked) <= {END}
        assert all(site(trial, party).look() in (None, ([], 0)) for party in CLIENTS)
    rehearse(trial.folder, run_config(mode=mode))
    is_exact(trial, list(CLIENTS))


@BOTH
def test_a_disk_that_fills_up_during_a_run_costs_no_total(trial: Trial, mode: str) -> None:
    """The results have their space, and lines of the log that have none stop nothing.

    A server that cannot store the state of its run ends in an error; once there is space the same command gives the
    total.
    """

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if kind == STEP:
            fill(models(trial))
        return said

    with small_disk(models(trial), 4 * MEGABYTE):
        try:
            rehearse(trial.folder, run_config(mode=mode), hear=hear)
        except DeploymentError:
            (models(trial) / "filler").unlink()
            rehearse(trial.folder, run_config(mode=mode))
        is_exact(trial, list(CLIENTS))
        assert (models(trial) / "rehearsal" / "summary.json").stat().st_size > 0
        assert is_wiped(trial)


@BOTH
def test_a_total_that_cannot_be_written_is_not_lost(trial: Trial, mode: str) -> None:
    """Somebody took the reserved space away. No site is told of an end; with space the same command goes on."""
    ends: list[int] = []

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if kind == STEP and not ends:
            (models(trial) / "rehearsal" / ".reserved").unlink(missing_ok=True)
            fill(models(trial))
        if kind == END:
            ends.append(party)
        return said

    with small_disk(models(trial), 4 * MEGABYTE):
        with pytest.raises((FederationError, AnalyticError)):
            rehearse(trial.folder, run_config(mode=mode), hear=hear)
        assert ends == []
        (models(trial) / "filler").unlink()
        rehearse(trial.folder, run_config(mode=mode), hear=lambda *said: ends.append(said[0]) or said[3])
        is_exact(trial, list(CLIENTS))
        assert is_wiped(trial)
        assert [site(trial, party).count_totals()[0] for party in CLIENTS[2:]] == [1] * 3
