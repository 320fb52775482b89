"""Every learner over a trial's sites, what stands around a solve, labels in part, and batches that come and go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.rehearsed import edit_all, is_exact, rehearse, run_config, weigh

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic.statistics import UNKNOWN
from analytic_secagg.__main__ import main
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import MODES
from analytic_secagg.release import ReleaseRefusedError
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.roster import Roster
from analytic_secagg.trial import PRIVATE_MODES, Trial
from secagg import PartyId


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        ("fedhip", ""),
        ("safle", "n_buckets=4 group_size=2"),
        ("weighted-afl", "max_weight=4 class_weights=balanced"),
    ],
)
def test_every_learner_is_exact(trial: Trial, learner: str, options: str) -> None:
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{learner}"]'))
    if learner == "weighted-afl":
        weigh(trial)
    config = {"learner": learner.removeprefix("weighted-"), "options": options, "mode": "committee"}
    rehearse(trial.folder, run_config(**config))
    is_exact(trial, [1, 2, 3, 4, 5])


def label_in_part(trial: Trial, late: tuple[int, ...]) -> str:
    """Have sites up to 3 label rows for early classes, and late ones for late classes; who is both, half and half."""
    for party, rows in trial.rows.items():
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            content = dict(archive)
        for key in ("y_train", "y_test"):
            labels = content[key]
            is_late = np.arange(len(labels)) % 2 == 0 if party in late else np.zeros(len(labels), dtype=bool)
            is_late |= party > 3
            content[key] = np.eye(10, dtype=np.int64)[labels]
            content[key][is_late, :5] = content[key][~is_late, 5:] = UNKNOWN
        rows.targets, trial.test_rows[party].targets = content["y_train"], content["y_test"]
        np.savez(path, **content)
    return "patterns=0+1+2+3+4,5+6+7+8+9"


AROUND: dict[str, tuple[str, dict[str, Any]]] = {
    "chosen": ("chosen-afl", {"learner": "afl", "ridge": "cv", "options": "folds=2"}),
    "weighted": ("weighted-afl", {"learner": "afl", "options": "max_weight=4 class_weights=balanced"}),
    "partial": ("partial-afl", {"learner": "afl"}),
}
"""What stands around a solve: the learner that sites list, and a run's settings."""

SHORT = {("chosen", "bfv"), ("partial", "masked")}
"""The lines that are not slow: each is seconds."""


@pytest.mark.parametrize(
    ("around", "mode"),
    [
        pytest.param(around, mode, marks=[] if (around, mode) in SHORT else pytest.mark.slow)
        for around in AROUND
        for mode in PRIVATE_MODES
        if not MODES[mode].missing_extra
    ],
)
def test_what_stands_around_a_solve_is_exact_over_every_private_mode(trial: Trial, around: str, mode: str) -> None:
    """A ridge chosen, rows weighed or labelled in part; and the model judged through one more sum."""
    name, settings = AROUND[around]
    judge = "evaluation-of-labels" if around == "partial" else "evaluation-of-classes"
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{name}", "{judge}"]'))
    if around == "weighted":
        weigh(trial)
    if around == "partial":
        settings = settings | {"options": label_in_part(trial, late=(3, 4, 5))}
    config = run_config(mode=mode, evaluate=True, **settings, **{"allow-low-rank": True})
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])
    folder = trial.folder / "server" / "models" / "rehearsal"
    saved = load_model(folder / "model.safetensors")
    evaluation: Any = RunSettings.of(config).evaluation(saved.learner, saved.model)
    pooled = fit_pooled(evaluation, ClientRows.pool(list(trial.test_rows.values())))
    said = json.loads((folder / "evaluation.json").read_text())
    assert said == json.loads(json.dumps({"survivors": [1, 2, 3, 4, 5], **pooled.figures}))
    assert said["accuracy"] > 0.8


@pytest.mark.parametrize(("fewest", "passes"), [(2, True), (3, False)])
def test_a_pattern_of_labels_has_as_many_sites_as_a_total_must(trial: Trial, fewest: int, passes: bool) -> None:
    """All five sites are in the total, and two of them alone in the part of it that says something of late classes."""
    edit_all(trial, ('learners = ["afl"]', 'learners = ["partial-afl"]'))
    options = label_in_part(trial, late=(4, 5))
    config = run_config(learner="afl", options=options, **{"min-survivors": fewest, "allow-low-rank": True})
    if passes:
        rehearse(trial.folder, config)
        is_exact(trial, [1, 2, 3, 4, 5])
        return
    with pytest.raises(ReleaseRefusedError, match=r"part 2 of 2 .* at least 3 clients and has 2"):
        rehearse(trial.folder, config)
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()


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
