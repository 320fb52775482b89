"""Every learner over a trial's sites, what stands around a solve, and rows that are labelled in part."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from support.rehearsed import edit_all, is_exact, rehearse, run_config, weigh

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic.statistics import UNKNOWN
from analytic_secagg.modes import MODES
from analytic_secagg.release import ReleaseRefusedError
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.trial import PRIVATE_MODES, Trial


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
