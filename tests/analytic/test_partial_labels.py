"""Several classes a row, and rows that are labelled for some: each class as from the pooled rows that say of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.composed import of_kind, weighted

from analytic import (
    AFL,
    ClientRows,
    ColumnMap,
    InvalidRowsError,
    PartialLabels,
    RowFormat,
    SpecificationError,
)
from analytic.estimators import AFLClassifier, DeepAFLClassifier, SAFLeClassifier
from analytic.learner import fit_in_the_clear, fit_pooled
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg import federate
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError

D, C, N = 4, 3, 60
LINEAR = AFL(
    n_features=D,
    n_targets=C,
    feature_format=RowFormat.parse("Q3.12"),
    max_rows=2**16,
    max_clients=9,
    ridge=0.25,
    columns=ColumnMap(exponents=(0,) * D, intercept=0),
)
PATTERNS = ((0, 1), (1, 2), (0, 1, 2))
PARTIAL = of_kind(PartialLabels, LINEAR, patterns=PATTERNS)
RNG = np.random.default_rng(3)
X = RNG.uniform(-7, 7, (N, D))
Y = (X @ RNG.normal(size=(D, C)) > 0).astype(np.int64)
for place in range(N):
    Y[place, [label for label in range(C) if label not in PATTERNS[place % 6 // 2]]] = -1
ROWS = ClientRows(X, Y, RNG.integers(0, 5, N))
SITES = {k + 1: ROWS.taken(np.arange(N) % 6 == k) for k in range(6)}
"""Each site labels the classes of one pattern; two sites a pattern."""


@pytest.mark.parametrize("weight", [1, 4])
def test_each_class_is_that_of_the_pooled_rows_that_are_labelled_for_it(weight: int) -> None:
    learner = PARTIAL if weight == 1 else weighted(PARTIAL, max_weight=weight)
    sites = {party: rows.unweighted if weight == 1 else rows for party, rows in SITES.items()}
    weights = federate(sites, learner, "masked").model.weights
    copies = np.ones(N, dtype=np.int64) if weight == 1 else ROWS.weights
    for label in range(C):
        known = np.repeat(np.arange(N), copies * (Y[:, label] >= 0))
        alone = replace(LINEAR, n_targets=1)
        pooled = fit_pooled(alone, ClientRows(X[known], Y[known, label : label + 1]))
        assert weights[:, label].tobytes() == pooled.weights[:, 0].tobytes()


def test_a_pattern_of_few_sites_is_refused() -> None:
    """One site's Gram would be a total; weights do not make two sites of it."""
    for learner, sites in ((PARTIAL, 1), (weighted(PARTIAL, max_weight=4), 1)):
        rows = [SITES[party] if learner is not PARTIAL else SITES[party].unweighted for party in (1, 3, 4, 5, 6)]
        federation = Federation(learner, release=ReleasePolicy(min_survivors=2))
        step = federation.next_sum
        assert step is not None
        total = sum((step.vector(own) for own in rows), start=np.zeros(step.layout.size, dtype=np.int64))
        found = learner.exact_total(federation.model, step.spec.from_vector(total), 5)
        assert [part.n_clients for part in found] == [sites, 2, 2]
        with pytest.raises(ReleaseRefusedError, match=r"part 1 of 3 .* at least 2 clients and has 1") as error:
            ReleasePolicy(min_survivors=2).before_release(found, range(5))
        assert Gate.SURVIVORS in {concern.gate for concern in error.value.concerns}


def test_its_model_can_be_stored_and_used() -> None:
    model = fit_in_the_clear(PARTIAL, [rows.unweighted for rows in SITES.values()])
    saved = model_from_bytes(model_to_bytes(PARTIAL, model))
    assert saved.learner == PARTIAL
    assert PARTIAL.context_bytes(saved.model) == PARTIAL.context_bytes(model)
    assert PARTIAL.max_rows == LINEAR.max_rows
    assert PARTIAL.exact_scores(model, X).tobytes() == LINEAR.exact_scores(model, X).tobytes()
    assert repr(PARTIAL.layers(model)) == repr(LINEAR.layers(model))
    estimator = AFLClassifier.from_model(PARTIAL, model, ["a", "b", "c"])
    known = Y >= 0
    assert (estimator.predict(X) == Y)[known].mean() > 0.8
    own = AFLClassifier(feature_format="Q3.12", ridge=0.25).fit(X, Y)
    assert own.model_.weights.shape == model.weights.shape
    assert (own.predict(X) == estimator.predict(X)).all()


@pytest.mark.parametrize("kind", [AFLClassifier(), DeepAFLClassifier(n_layers=1, d_phi=16, d_f=8)])
def test_several_classes_a_row_are_columns_of_their_own(kind: AFLClassifier | DeepAFLClassifier) -> None:
    several = (X @ np.random.default_rng(1).normal(size=(D, 2)) > 0).astype(int)
    assert (kind.fit(X, several).predict(X) == several).mean() > 0.85
    with pytest.raises(SpecificationError, match="one class a row"):
        kind.calibrate(X, several)


def test_options_name_the_patterns() -> None:
    settings = {"n_features": D, "n_classes": C, "feature_format": RowFormat.parse("Q3.12"), "max_rows": 99}
    learner = LEARNERS["afl"].build(LearnerSettings(**settings, max_clients=5, options={"patterns": "1+0,1+2,0+1+2"}))
    assert (learner.name, learner.patterns) == ("partial-afl", PATTERNS)
    learner = LEARNERS["random"].build(
        LearnerSettings(**settings, max_clients=5, options={"patterns": "1+0,1+2,0+1+2"})
    )
    assert learner.name == "partial-random"


def test_what_no_pattern_says_is_refused() -> None:
    with pytest.raises(InvalidRowsError, match="10 of 20 rows are labelled for other classes"):
        fit_pooled(
            replace(PARTIAL, patterns=((0, 1), (2,))), ClientRows(X[:20], np.repeat([[0, 1, -1], [0, 0, 0]], 10, 0))
        )
    for wrong in (np.full((N, C), 2), np.zeros(N), np.zeros((N, 2))):
        with pytest.raises(InvalidRowsError, match="entries 1, 0 and"):
            fit_pooled(PARTIAL, ClientRows(X, wrong))
    for patterns in (((0, 1),), ((1, 0), (2,)), ((0, 1, 2), (0, 1, 2)), ((0, 3), (1, 2)), ((), (0, 1, 2))):
        with pytest.raises(SpecificationError, match="different ascending sets"):
            replace(PARTIAL, patterns=patterns)
    with pytest.raises(SpecificationError, match="without an RI process"):
        replace(PARTIAL, ri_gamma=1.0)
    with pytest.raises(ValueError, match="should be a 1d array"):
        SAFLeClassifier().fit(X, np.abs(Y))
