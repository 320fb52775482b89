"""Steps of softmax rounds: exact products, no overshooting where rows say little, stated steps that do are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from analytic import AFL, ClientRows, Logistic, RowFormat, fit_pooled
from analytic.errors import DivergedError
from analytic.logistic import LONGEST_STEP, SAFE_STEP, exact_inner


def test_an_inner_product_is_exact_and_rounded_once() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        size = int(rng.integers(1, 30))
        weights = rng.normal(size=size) * 10.0 ** rng.integers(-12, 12, size=size)
        units = rng.integers(-(2**62), 2**62, size=size) >> rng.integers(0, 60, size=size)
        exact = sum((Fraction(float(w)) * int(u) for w, u in zip(weights, units, strict=True)), Fraction(0))
        assert exact_inner(weights, units) == float(exact)
    assert exact_inner(np.zeros(0), np.zeros(0, dtype=np.int64)) == 0.0


def weak_signal(classes: int, strength: float, seed: int = 0, n: int = 4000) -> ClientRows:
    """Rows whose features say little of their class: probabilities are near uniform, where the Hessian is largest."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 8))
    scores = features @ rng.normal(size=(8, classes)) * strength + rng.gumbel(size=(n, classes))
    return ClientRows(features, scores.argmax(axis=1))


def learner(classes: int, **options: float) -> Logistic:
    row_format = RowFormat.parse("Q3.10")
    return Logistic(n_features=8, n_targets=classes, feature_format=row_format, max_rows=5000, **options)  # type: ignore[arg-type]


def loss(classifier: Logistic, model: object, rows: ClientRows) -> float:
    """The mean logistic loss."""
    scores = classifier.decision_function(model, rows.features)
    scores -= scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(rows)), rows.targets]
    return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen))


@pytest.mark.parametrize(("classes", "strength"), [(2, 0.1), (3, 0.3), (10, 0.2)])
def test_weak_signals_end_below_a_guess_and_no_worse_than_least_squares(classes: int, strength: float) -> None:
    """With constant steps of 8 the weights' sign turned here: accuracy 0.41 of two classes where afl has 0.61."""
    rows, logistic = weak_signal(classes, strength), learner(classes)
    linear = AFL(n_features=8, n_targets=classes, feature_format=logistic.feature_format, max_rows=5000)
    model = fit_pooled(logistic, rows)
    afl = fit_pooled(linear, rows)
    right, right_afl = (
        int(np.count_nonzero(one.decision_function(own, rows.features).argmax(axis=1) == rows.targets))
        for one, own in ((logistic, model), (linear, afl))
    )
    assert loss(logistic, model, rows) < np.log(classes)
    assert right >= right_afl - np.sqrt(len(rows))  # two standard errors of a count of half of the rows


@pytest.mark.parametrize(("classes", "strength"), [(2, 0.5), (3, 0.5), (10, 3.0)])
def test_each_round_leads_nearer_to_the_optimum(classes: int, strength: float) -> None:
    rows = weak_signal(classes, strength)
    losses = []
    for n_rounds in range(1, 9):
        logistic = learner(classes, n_rounds=n_rounds)
        model = fit_pooled(logistic, rows)
        assert model.last is not None
        assert SAFE_STEP <= model.last.step <= min(LONGEST_STEP, SAFE_STEP * 2 ** (n_rounds - 1))
        losses.append(loss(logistic, model, rows))
    assert losses == sorted(losses, reverse=True)


def test_a_stated_step_that_overshoots_is_refused() -> None:
    rows = weak_signal(2, 0.1)
    with pytest.raises(DivergedError, match="steps of 8 overshoot on these rows"):
        fit_pooled(learner(2, step=8.0), rows)
    assert fit_pooled(learner(2, step=2.0), rows).n_rounds == 5
