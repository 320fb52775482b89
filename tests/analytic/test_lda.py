"""LDA: the classifier of scikit-learn on the same fixed-point rows, from a sum that AFL makes too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from analytic.afl import AFL
from analytic.discriminant import LDA, NEVER
from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.noisy_solve import NoisySolver
from analytic.row_format import ColumnMap, RowFormat
from analytic_secagg.errors import UsageError
from analytic_secagg.federated_model import federate
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.privacy import PrivacyPlan

FORMAT = RowFormat.parse("Q3.12")
COLUMNS = ColumnMap(exponents=(1,) * 6, intercept=2)
SIZES: dict[str, Any] = {"n_features": 6, "n_targets": 4, "feature_format": FORMAT, "max_rows": 1000}


def rows(n: int = 400) -> ClientRows:
    """Rows of classes that differ in their means."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, n)
    return ClientRows(rng.normal(size=(n, 6)) + 0.3 * labels[:, None] * rng.normal(size=6), labels)


def test_it_is_scikit_learns_on_the_rows_of_the_sum() -> None:
    learner, own = LDA(**SIZES, columns=COLUMNS), rows()
    model = fit_pooled(learner, own)
    held = FORMAT.dequantise(FORMAT.quantise(COLUMNS.features(own.features)))[:, :6]
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(held, own.targets)
    weights, intercepts = model.weights[:6], np.ldexp(model.weights[6], -2)
    np.testing.assert_allclose(weights, theirs.coef_.T, rtol=0, atol=1e-11 * abs(theirs.coef_).max())
    np.testing.assert_allclose(intercepts, theirs.intercept_, rtol=0, atol=1e-11)
    assert model.solution is not None
    assert model.solution.certified


def test_a_ridge_is_added_to_the_scatter_within_classes_and_the_sum_is_afls() -> None:
    learner, own, ridge = LDA(**SIZES, columns=COLUMNS, ridge=3.0), rows(), 3.0
    held = FORMAT.dequantise(FORMAT.quantise(COLUMNS.features(own.features)))[:, :6]
    means = np.array([held[own.targets == label].mean(axis=0) for label in range(4)])
    within = (held - means[own.targets]).T @ (held - means[own.targets])
    weights = np.linalg.solve(within + ridge * np.eye(6), len(own) * means.T)
    np.testing.assert_allclose(fit_pooled(learner, own).weights[:6], weights, rtol=1e-11, atol=1e-11)
    afl = AFL(**SIZES, columns=COLUMNS)
    vectors = (one.spec.to_vector(one.client_statistics(one.init(), own)) for one in (learner, afl))
    assert next(vectors).tobytes() == next(vectors).tobytes()


def test_a_class_without_rows_is_never_chosen_and_columns_of_zeros_weigh_nothing() -> None:
    own = rows()
    own.features[:, 2] = 0.0
    few = own.taken(own.targets != 3)
    learner = LDA(**SIZES, columns=COLUMNS)
    model = fit_pooled(learner, few)
    assert not model.weights[2].any()
    assert model.weights[6, 3] == NEVER
    assert set(learner.decision_function(model, own.features).argmax(axis=1)) == {0, 1, 2}


def test_columns_that_follow_from_others_need_a_ridge() -> None:
    own = rows()
    own.features[:, 4] = own.features[:, 1]
    with pytest.raises(NotPositiveDefiniteError, match="use a ridge above 0"):
        fit_pooled(LDA(**SIZES, columns=COLUMNS), own)
    assert np.isfinite(fit_pooled(LDA(**SIZES, columns=COLUMNS, ridge=0.01), own).weights).all()


@pytest.mark.parametrize("seed", range(6))
def test_equal_rows_need_a_ridge(seed: int) -> None:
    """No class scatters, and values near the format's largest make a system whose kernel float64 does not solve."""
    labels, features = np.random.default_rng(seed).integers(0, 3, 12), np.full((12, 2), 8 - 1 / 64)
    sites = {site: (features[site::2], labels[site::2]) for site in range(2)} | {2: (features[:2], labels[:2])}
    with pytest.raises(NotPositiveDefiniteError, match="use a ridge above 0, or more rows"):
        federate(sites, "lda", "plain", classes=(0, 1, 2))


def test_rows_of_several_classes_are_refused_where_they_are() -> None:
    own = ClientRows(rows().features, np.random.default_rng(0).integers(0, 2, (400, 4)))
    with pytest.raises(InvalidRowsError, match=r"lda needs one class a row, .* of shape \(400, 4\): take afl"):
        fit_pooled(LDA(**SIZES, columns=COLUMNS), own)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"columns": None}, "lda has intercepts"),
        ({"target_format": FORMAT}, "for class labels"),
        ({"target_sums": False}, "needs their counts"),
        ({"solver": NoisySolver()}, "no private form"),
    ],
)
def test_what_lda_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        LDA(**SIZES | {"columns": COLUMNS} | changes)


def test_no_noise_and_no_real_targets() -> None:
    with pytest.raises(SpecificationError, match="lda"):
        PrivacyPlan(epsilon=1.0, delta=1e-5, min_noise_shares=2).apply(LDA(**SIZES, columns=COLUMNS))
    settings = LearnerSettings(
        n_features=6, n_classes=4, feature_format=FORMAT, max_rows=9, max_clients=2, target_format=FORMAT
    )
    with pytest.raises(UsageError, match="lda is for class labels"):
        LEARNERS["lda"].build(settings)
