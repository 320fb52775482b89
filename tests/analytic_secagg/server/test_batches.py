"""Batches of sites that join, leave and take rows out by runs of their own: the bits of having begun like that."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.rehearsed import edit_all, rehearse, run_config

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic_secagg.__main__ import main
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import MODES
from analytic_secagg.site.roster import Roster
from analytic_secagg.trial import PRIVATE_MODES, Trial
from secagg import PartyId

OLD, NEW, GONE = (1, 2, 3), (4, 5, 6), (2, 3, 4)

Run = Callable[[Sequence[PartyId]], Path]
"""Makes a run of some sites alone and returns its folder."""


def name_cohort(trial: Trial, whole: Roster, parties: Sequence[PartyId]) -> None:
    """Have the operator hand out a roster of these clients alone; hosts of others only help."""
    roster = whole.model_copy(update={"clients": {party: whole.clients[party] for party in parties}})
    for path in trial.folder.rglob("roster.toml"):
        path.write_text(roster.to_toml())
    for party in trial.rows:
        folder = trial.site(party)
        said = folder / "whole.toml"
        if not said.exists():
            shutil.copy(folder / "site.toml", said)
        text = said.read_text()
        as_client = text[text.index("[client]") : text.index("[policy]")]
        (folder / "site.toml").write_text(text if party in parties else text.replace(as_client, ""))


def change_over_time(trial: Trial, run: Run, folder: Path) -> None:
    """Three begin, three join, three leave, of whom two had begun; two who stay take half of their rows out."""
    first, batch = run(OLD), run(NEW)
    model, totals = folder / "model.safetensors", folder / "totals.safetensors"

    def change(model_before: Path, totals_before: Path, batch: Path, how: str, rows: dict[int, ClientRows]) -> None:
        words = ["change", str(model_before), str(totals_before), str(batch / "totals.safetensors"), "--how", how]
        words += ["--min-sites", "3", "--new-model", str(folder / "new"), "--new-totals", str(folder / "new-totals")]
        words += ["--record", str(folder / f"{how}.json")]
        assert main(words) == 0
        (folder / "new").rename(model)
        (folder / "new-totals").rename(totals)
        saved = load_model(model)
        pooled = fit_pooled(saved.learner, ClientRows.pool(list(rows.values())))
        assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)
        assert main(["verify", str(model), str(totals)]) == 0

    rows = dict(trial.rows)
    change(first / "model.safetensors", first / "totals.safetensors", batch, "join", rows)
    stay = {party: own for party, own in rows.items() if party not in GONE}
    change(model, totals, run(GONE), "leave", stay)
    for party, own in stay.items():
        is_out = np.arange(len(own)) % 2 == 0
        trial.give_rows(party, own.taken(is_out))
        stay[party] = own.taken(~is_out)
    change(model, totals, run(tuple(stay)), "remove rows", stay)


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=[] if mode in ("masked", "bfv") else pytest.mark.slow)
        for mode in PRIVATE_MODES
        if not MODES[mode].missing_extra
    ],
)
def test_batches_join_leave_and_take_rows_out_by_runs_of_their_own(tmp_path: Path, mode: str) -> None:
    trial = Trial.create(tmp_path / "trial", bundled("digits"), n_sites=6, n_helpers=2, are_rows_public=True)
    edit_all(trial, ("min_clients = 6", "min_clients = 3"), ("min_survivors = 3", "min_survivors = 2"))
    whole = Roster.read(trial.folder / "server" / "roster.toml")
    settings = {"mode": mode, "learner": "afl", "allow-low-rank": True, "dropout": 0.0}

    def run(parties: Sequence[PartyId]) -> Path:
        name_cohort(trial, whole, parties)
        rehearse(trial.folder, run_config(**settings))
        return (trial.folder / "server" / "models" / "rehearsal").rename(tmp_path / "-".join(map(str, parties)))

    change_over_time(trial, run, tmp_path)
