"""Every legal composition of weights, agreed columns, a chosen ridge and a closed form gives the vectors that it gave.

Vectors and weights are published: parties of one release may meet those of the next in one sum, and a model's hash is
kept. Learners are built by name, as sites and apps do; the digests were written before compositions were one class.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic.statistics import LABELS
from analytic_secagg.learners import LEARNERS, LearnerSettings

GOLDEN = Path(__file__).with_name("composed_learners.json")
D, C, SITES = 6, 3, 4
CV = {"ridge": "cv", "options": {"folds": 3}}
HEAVY = {"max_weight": 3}
BALANCED = {"class_weights": "balanced"}
PARTIAL = {"patterns": "0+1,1+2"}
OPTIONS: dict[str, dict[str, Any]] = {
    "afl": {},
    "afl cv": CV,
    "afl cv classes": {"ridge": "cv", "options": {"folds": 3, "criterion": "classes"}},
    "afl intercept": {"ridge": 0.5, "options": {"intercept": "yes"}},
    "afl ri": {"ridge": 1.0, "ri_gamma": 1.0},
    "afl partial": {"ridge": 1.0, "options": PARTIAL},
    "fedhip": {"ridge": 1.0},
    "fedhip cv": CV,
    "random": {"ridge": 0.5, "options": {"d_phi": 8}},
    "random cv": {"ridge": "cv", "options": {"folds": 3, "d_phi": 8}},
    "logistic": {"ridge": 0.5, "options": {"n_rounds": 2}},
    "logistic random": {"ridge": 0.5, "options": {"n_rounds": 2, "d_phi": 8}},
    "lda": {"ridge": 0.5},
    "qda": {"ridge": 0.5},
    "naive-bayes": {"ridge": 0.5},
    "deepafl": {"ridge": 0.5, "options": {"n_layers": 2, "d_phi": 8, "d_f": 8}},
    "safle": {"ridge": 0.5, "options": {"n_buckets": 4, "n_bins": 16}},
}
LABELS_ONLY = {"logistic", "logistic random", "lda", "qda", "naive-bayes", "afl cv classes", "afl partial"}


def _cases() -> dict[str, dict[str, Any]]:
    found = {}
    for name, stated in OPTIONS.items():
        options = stated.get("options", {})
        for agreement in (None, *Agreement):
            for weights in ({}, HEAVY, BALANCED, HEAVY | BALANCED):
                for targets in ("labels", "real"):
                    if targets == "real" and (name in LABELS_ONLY or "class_weights" in weights):
                        continue
                    if name == "afl partial" and "class_weights" in weights:
                        continue  # weights of classes need one class a row
                    label = ", ".join([name, agreement or "stated", *weights, targets])
                    found[label] = {**stated, "options": options | weights, "agreement": agreement, "targets": targets}
    return found


CASES = _cases()


def _learner(case: str) -> AnalyticLearner[Any]:
    stated = dict(CASES[case])
    entry = LEARNERS[case.split(",")[0].split()[0]]
    is_real = stated.pop("targets") == "real"
    options = {name: entry.options[name](str(value)) for name, value in stated.pop("options").items()}
    settings = LearnerSettings(
        n_features=D,
        n_classes=C,
        feature_format=RowFormat.parse("Q3.8"),
        target_format=RowFormat.parse("Q3.8") if is_real else LABELS,
        max_rows=500,
        max_clients=8,
        options=options,
        **stated,
    )
    return entry.build(settings)


def _rows(case: str) -> list[ClientRows]:
    rng = np.random.default_rng(7)
    found = []
    for _ in range(SITES):
        n = int(rng.integers(15, 30))
        labels = rng.integers(0, C, n)
        features = np.round(rng.uniform(-4, 4, (n, D)) + labels[:, None], 3)
        targets: Any = labels
        if case.endswith("real"):
            targets = np.round(features[:, :C] - rng.uniform(-1, 1, (n, C)), 3)
        elif "partial" in case:
            targets = (labels[:, None] == np.arange(C)).astype(np.int64)
            targets[::2, 2], targets[1::2, 0] = -1, -1
        weights = rng.integers(1, 4, n) if "max_weight" in case else None
        found.append(ClientRows(features, targets, weights))
    return found


def _digests(case: str) -> dict[str, str]:
    """Return the SHA-256 of segments and vectors of every client in every sum, and of the weights."""
    learner, sites = _learner(case), _rows(case)
    model, sent = learner.init(), hashlib.sha256()
    while (spec := learner.next_sum(model)) is not None:
        sent.update(repr((spec.segments, spec.max_rows, spec.client_bounds(50))).encode())
        vectors = [spec.to_vector(learner.client_statistics(model, rows)) for rows in sites]
        for vector in vectors:
            sent.update(vector.astype("<i8").tobytes())
        model = learner.update(model, spec.from_vector(np.sum(vectors, axis=0)), len(sites))
    return {
        "name": learner.name,
        "sent": sent.hexdigest()[:16],
        "weights": hashlib.sha256(learner.weights_bytes(model)).hexdigest()[:16],
    }


@pytest.mark.parametrize("case", CASES)
def test_sums_and_weights_of_a_composition_are_those_that_were_published(case: str) -> None:
    assert _digests(case) == json.loads(GOLDEN.read_text())[case]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({case: _digests(case) for case in CASES}, indent=1) + "\n")
