"""Naive Bayes: scikit-learn's Gaussians on the rows of the sum, from 2 d + 1 numbers a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from analytic.discriminant import NEVER, QDA
from analytic.errors import ImpossibleTotalError, InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.naive_bayes import NaiveBayes
from analytic.row_format import ColumnMap, RowFormat
from analytic.statistics import Statistics
from analytic.torch_export import to_torch
from analytic_secagg.federation import Federation
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import ReleasePolicy, ReleaseRefusedError

D, C = 6, 4
FORMAT = RowFormat.parse("Q4.11")
COLUMNS = ColumnMap(exponents=(1,) * D, intercept=2)
SIZES: dict[str, Any] = {"n_features": D, "n_targets": C, "feature_format": FORMAT, "max_rows": 1000}
WHOLE = NaiveBayes(**SIZES, columns=COLUMNS)


def rows(n: int = 400) -> ClientRows:
    """Rows of classes that differ in their means and in their spread."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, C, n)
    return ClientRows(rng.normal(size=(n, D)) * (1 + labels[:, None]) + 0.3 * labels[:, None], labels)


def held(own: ClientRows) -> Any:
    """The rows of the sum."""
    return FORMAT.dequantise(FORMAT.quantise(COLUMNS.features(own.features)))[:, :D]


def test_it_is_scikit_learns_on_the_rows_of_the_sum() -> None:
    learner, own = replace(WHOLE, shrinkage=0.0), rows()
    model, theirs = fit_pooled(learner, own), GaussianNB(var_smoothing=0.0).fit(held(own), own.targets)
    np.testing.assert_allclose(model.weights[:D], -0.5 / theirs.var_.T, rtol=1e-12)
    np.testing.assert_allclose(model.weights[D:-1], (theirs.theta_ / theirs.var_).T, rtol=1e-10, atol=1e-12)
    scores = learner.decision_function(model, 2 * held(own))  # columns are halved on their way into the sum
    expected = theirs.predict_joint_log_proba(held(own)) + D / 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("shrinkage", "ridge"), [(0.0, 0.0), (0.25, 0.0), (0.5, 3.0), (1.0, 0.25)])
def test_it_is_qda_where_columns_are_independent(shrinkage: float, ridge: float) -> None:
    """Every pattern of signs about a centre of each class: no column follows from another."""
    rng = np.random.default_rng(1)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * D)).reshape(D, -1).T
    labels = np.repeat(np.arange(C), len(signs))
    features = np.concatenate([signs * rng.integers(1, 9, D) / 4 + rng.integers(-8, 8, D) / 4 for _ in range(C)])
    own = ClientRows(features, labels)
    naive = replace(WHOLE, shrinkage=shrinkage, ridge=ridge)
    whole = QDA(**SIZES, columns=COLUMNS, shrinkage=shrinkage, ridge=ridge)
    found, expected = (one.decision_function(fit_pooled(one, own), features) for one in (naive, whole))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_a_class_costs_its_columns_twice_and_its_count() -> None:
    segments = WHOLE.classes_spec.segments
    assert sum(size for _, size, _ in segments) == C + C * (2 * D + 1)  # how many sites have rows of each, too


def test_a_class_without_rows_is_never_chosen_and_columns_of_zeros_weigh_nothing() -> None:
    own = rows()
    own.features[:, 2] = 0.0
    few = own.taken(own.targets != 3)
    model = fit_pooled(WHOLE, few)
    assert not model.weights[[2, D + 2]].any()
    assert (WHOLE.decision_function(model, own.features)[:, 3] == NEVER).all()
    nothing = fit_pooled(WHOLE, own.taken(np.zeros(len(own), dtype=bool)))
    assert (WHOLE.decision_function(nothing, own.features) == NEVER).all()


def test_a_column_without_variance_needs_a_shrinkage_or_a_ridge() -> None:
    own = rows()
    own.features[own.targets == 1, 4] = 0.5
    with pytest.raises(NotPositiveDefiniteError, match=r"column 4 .* use a shrinkage above 0"):
        fit_pooled(replace(WHOLE, shrinkage=0.0), own)
    own.features[:, 4] = 0.5
    with pytest.raises(NotPositiveDefiniteError, match="a ridge above 0 where that is not enough"):
        fit_pooled(WHOLE, own)
    assert np.isfinite(fit_pooled(replace(WHOLE, ridge=0.01), own).weights).all()


FAULTS: dict[str, tuple[Callable[[Statistics], Statistics], str]] = {
    "a square below zero": (lambda t: replace(t, gram=-t.gram), "sums of squares in 0 to"),
    "squares too large": (lambda t: replace(t, gram=t.gram << 12), "sums of squares in 0 to"),
    "sums too large": (lambda t: replace(t, cross=t.cross + (1 << 40)), "sums of columns that so many rows"),
    "sums beyond their squares": (lambda t: replace(t, gram=t.gram * 0 + (t.gram & 1)), "of at most the rows times"),
    "an odd sum of even squares": (lambda t: replace(t, cross=t.cross + 1), "both even or both odd"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_total_that_no_rows_have_is_refused(fault: str) -> None:
    tamper, needs = FAULTS[fault]
    spec, total = WHOLE.classes_spec.parts[3], WHOLE.client_statistics(WHOLE.init(), rows())[3]
    spec.check_total(total, 1)
    with pytest.raises(ImpossibleTotalError, match=needs):
        spec.check_total(tamper(total), 1)


def test_a_class_of_few_rows_or_of_one_client_is_refused() -> None:
    own = rows()
    parts = [
        own.taken(np.flatnonzero((own.targets == 3) == (k == 0))[k::5] if k else own.targets == 3) for k in range(6)
    ]
    step = Federation(WHOLE, release=None).next_sum
    assert step is not None
    total = sum((step.vector(part) for part in parts), start=np.zeros(step.layout.size, dtype=np.int64))
    statistics = WHOLE.exact_total(step.model, step.spec.from_vector(total), 6)
    with pytest.raises(ReleaseRefusedError, match=r"part 4 of 4 .* at least 5 clients and has 1"):
        ReleasePolicy().before_release(statistics, range(6))
    few = WHOLE.exact_total(step.model, WHOLE.client_statistics(WHOLE.init(), rows(8 * D)), 6)
    with pytest.raises(ReleaseRefusedError, match=r"rank 6 in 6 columns"):
        ReleasePolicy(min_survivors=3).before_release(few, range(6))


def test_no_noise_no_layers_and_one_class_a_row() -> None:
    with pytest.raises(SpecificationError, match="naive-bayes"):
        PrivacyPlan(epsilon=1.0, delta=1e-5, min_noise_shares=2).apply(WHOLE)
    with pytest.raises(SpecificationError, match="scores of naive-bayes are quadratic in a row"):
        to_torch(WHOLE, fit_pooled(WHOLE, rows()))
    with pytest.raises(InvalidRowsError, match="naive-bayes needs one class a row"):
        fit_pooled(WHOLE, ClientRows(np.zeros((3, D)), np.eye(3, C, dtype=int)))
