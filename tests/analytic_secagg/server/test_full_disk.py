"""A full disk at the server: found before a site is asked, and later it costs neither the total nor the end message."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.disks import fill, small_disk
from support.rehearsed import CLIENTS, is_exact, is_wiped, rehearse, run_config, site

from analytic.errors import AnalyticError
from analytic_secagg.errors import FederationError, OutputError
from analytic_secagg.site.errors import DeploymentError, Refusal
from analytic_secagg.site.messages import END, STEP
from analytic_secagg.trial import Trial

MEGABYTE = 1 << 20

MODES = ["masked", "committee"]


def models(trial: Trial) -> Path:
    return trial.folder / "server" / "models"


@pytest.mark.parametrize("mode", MODES)
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


@pytest.mark.parametrize("mode", MODES)
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


@pytest.mark.parametrize("mode", MODES)
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
