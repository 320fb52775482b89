"""The pooled oracle and the float64 ridge, each against a second way to the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.afl import AFL
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic.solve import solve_ridge
from analytic_secagg.datasets import Dataset
from simulations.compare import reference
from simulations.compare.reference import Float64Ridges, References, float64_ridge, largest_deviation


def dataset(n_rows: int = 40, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=(n_rows, 4)), rng.integers(0, 3, n_rows)
    labels[:3] = range(3)
    return Dataset(name="made", x_train=features, y_train=labels, x_test=features[:5], y_test=labels[:5])


def references(data: Dataset, ridge: float = 0.5) -> tuple[References, list[int]]:
    """References that solve AFL, and the numbers of holders for which a learner was asked."""
    asked: list[int] = []

    def learner_for(n_holders: int) -> AnalyticLearner[object]:
        asked.append(n_holders)
        return AFL(  # type: ignore[return-value]
            n_features=4,
            n_targets=3,
            feature_format=RowFormat.covering(data.x_train),
            max_rows=len(data.x_train),
            max_clients=n_holders,
            ridge=ridge,
            ri_gamma=1.0,
        )

    return References(data, learner_for, Float64Ridges(data, ridge=ridge)), asked


@given(cut=st.integers(1, 39), seed=st.integers(0, 99))
def test_rows_of_survivors_alone_decide(cut: int, seed: int) -> None:
    data = dataset(seed=seed)
    order = np.random.default_rng(seed).permutation(40)
    known, asked = references(data)
    parts = {1: order[:cut], 2: order[cut:]}
    both, first = known.of(parts, [(1, 2)]), known.of(parts, [(1,)])
    assert known.of({7: np.arange(40)}, [(7,)]) is both
    assert len(asked) == 2
    learner = AFL(n_features=4, n_targets=3, feature_format=RowFormat.covering(data.x_train), max_rows=40, ridge=0.5)
    pooled = fit_pooled(learner, ClientRows(data.x_train[order[:cut]], data.y_train[order[:cut]]))
    assert first.weights_bytes == learner.weights_bytes(pooled)
    assert both.weights_bytes != first.weights_bytes


@pytest.mark.parametrize("spread", [1, 100, 1_000, 100_000])
@pytest.mark.parametrize("ridge", [0.0, 0.25])
def test_float64_ridge_is_as_near_as_the_rows_allow(spread: int, ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normal equations square the condition number of the rows; what they find is corrected, or QR finds it."""
    rng = np.random.default_rng(6)
    common = rng.integers(-99, 100, (300, 1))
    whole = np.hstack([common, common * spread + rng.integers(-9, 10, (300, 5))])
    rows, labels = whole.astype(np.float64), rng.integers(0, 3, 300)
    exact = solve_ridge(whole.T @ whole, whole.T @ np.eye(3, dtype=int)[labels], ridge=ridge).weights
    monkeypatch.setattr(reference, "BLOCK_ROWS", 77)
    found = float64_ridge(rows, labels, 3, ridge=ridge)
    assert np.abs(found - exact).max() <= 100 * np.linalg.cond(rows) * np.finfo(float).eps * np.abs(exact).max()
    asked: list[int] = []
    monkeypatch.setattr(reference, "_by_qr", lambda *args: asked.append(1))
    float64_ridge(rows, labels, 3, ridge=ridge)
    assert bool(asked) is (spread > 5_000)


def test_float64_ridge_gives_unused_features_no_weight() -> None:
    data = dataset()
    widened = np.column_stack([data.x_train, np.zeros(40)])
    weights = float64_ridge(widened, data.y_train, 3, ridge=0.0)
    assert np.abs(weights[4]).max() == 0
    few = float64_ridge(data.x_train[:2], data.y_train[:2], 3, ridge=0.0)
    minimum_norm = np.linalg.pinv(data.x_train[:2]) @ np.eye(3)[data.y_train[:2]]
    np.testing.assert_allclose(few, minimum_norm, rtol=0, atol=1e-13 * np.linalg.cond(data.x_train[:2]) ** 2)


def test_deviation_is_zero_only_for_equal_bytes() -> None:
    weights = np.array([1.0, -2.0, 3.0])
    assert largest_deviation(weights.tobytes(), weights.tobytes()) == 0
    assert largest_deviation(weights.tobytes(), (weights + np.array([0, 0.25, -0.5])).tobytes()) == 0.5
    assert largest_deviation(weights.tobytes(), weights[:2].tobytes()) is None
    assert largest_deviation(weights.tobytes(), np.array([1.0, np.nan, 3.0]).tobytes()) is None
