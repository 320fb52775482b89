"""Formats agreed through sums: scales, means and losses are what the rows say, and least squares is scikit-learn's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.composed import choosing, scaled, weighted

from analytic.afl import AFL
from analytic.bucketing import QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.layers import Linear
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.pipeline import Pipeline
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe
from analytic.scaling import LOWEST, TARGET_BITS, Agreement, Scaler, agreed_format
from analytic.statistics import LABELS
from analytic_secagg import federate
from analytic_secagg.federation import Federation
from analytic_secagg.release import Gate, ReleasePolicy
from secagg import SumResult

CANCER, DIABETES = load_breast_cancer(return_X_y=True), load_diabetes(return_X_y=True)
RNG = np.random.default_rng(3)


def agreed(d: int, c: int, *, real: bool = False, rows: int = 600, ridge: float = 0.0, **own: Any) -> Pipeline:
    learner = AFL(
        n_features=d,
        n_targets=c,
        feature_format=agreed_format(rows),
        target_format=agreed_format(rows, most=TARGET_BITS) if real else LABELS,
        max_rows=rows,
        ridge=ridge,
        columns=ColumnMap(exponents=(0,) * d, intercept=1),
    )
    return scaled(learner, **own)


def scaling(learner: Pipeline, **own: Any) -> Pipeline:
    """The learner whose columns are agreed on in another way."""
    assert learner.scaler is not None
    return replace(learner, scaler=replace(learner.scaler, **own))


def dealt(features: NDArray[Any], targets: NDArray[Any], n: int = 6) -> dict[int, ClientRows]:
    return {k + 1: ClientRows(features[k::n], targets[k::n]) for k in range(n)}


@pytest.mark.parametrize("agreement", Agreement)
def test_raw_tables_give_scikit_learns_least_squares(agreement: Agreement) -> None:
    """Columns from 0.03 to 4 254, without a party that has seen them all: six of them were zeros in one format."""
    for (x, y), learner in (
        (CANCER, agreed(30, 2, agreement=agreement)),
        ((DIABETES[0], DIABETES[1][:, None]), agreed(10, 1, real=True, agreement=agreement)),
    ):
        model = fit_pooled(learner, ClientRows(x, y))
        targets = np.eye(2)[y] if y.ndim == 1 else y
        scores, oracle = learner.decision_function(model, x), LinearRegression().fit(x, targets).predict(x)
        assert np.abs(scores - oracle).max() < 1e-6 * np.abs(targets).max()


def test_a_ridge_is_of_standardised_columns() -> None:
    learner = agreed(30, 2, agreement=Agreement.STANDARDISED, ridge=3.0)
    model = fit_pooled(learner, ClientRows(*CANCER))
    oracle = make_pipeline(StandardScaler(), Ridge(alpha=3.0)).fit(CANCER[0], np.eye(2)[CANCER[1]])
    assert np.abs(learner.decision_function(model, CANCER[0]) - oracle.predict(CANCER[0])).max() < 1e-5


@pytest.mark.parametrize("size", [2.0**-60, 1e-12, 1e-3, 1e9, 2.0**60])
def test_sizes_of_columns_and_targets_change_little_and_their_loss_is_stated(size: float) -> None:
    x, y = RNG.normal(size=(120, 3)) * [size, 1.0, 1 / size], RNG.normal(size=(120, 2)) * size
    learner = agreed(3, 2, real=True)
    model = fit_pooled(learner, ClientRows(x, y))
    assert model.columns.exponents == tuple(np.frexp(np.abs(np.hstack([x, y])).max(axis=0))[1].tolist())
    mapped = learner.mapped(model, ClientRows(x, y)).features
    row_format = learner.head.feature_format
    kept = row_format.dequantise(row_format.quantise(mapped)) * learner.column_map(model).units
    lost = np.abs(kept - x).max(axis=0) / learner.losses(model)
    assert (lost < 1).all()
    assert (lost > 0.9).all(), "the bound is no larger than it must be"
    oracle = LinearRegression().fit(x / [size, 1.0, 1 / size], y / size)
    assert np.allclose(learner.decision_function(model, x) / size, oracle.predict(x / [size, 1, 1 / size]), atol=1e-5)


def test_moments_are_those_of_the_pooled_rows() -> None:
    learner = agreed(30, 2, agreement=Agreement.STANDARDISED)
    model = fit_pooled(learner, ClientRows(*CANCER))
    assert model.columns is not None
    assert model.columns.moments is not None
    below_one = np.ldexp(CANCER[0], -np.array(model.columns.exponents))
    for ours, numpys in zip(model.columns.moments, (below_one.mean(axis=0), below_one.std(axis=0)), strict=True):
        assert np.abs(np.array(ours) / numpys - 1).max() < 1e-4  # 22 bits, and a mean of a few hundredths


def test_missing_values_are_counted_and_filled_where_that_is_asked_for() -> None:
    x = CANCER[0].copy()
    x[RNG.random(x.shape) < 0.02] = np.nan
    learner = agreed(30, 2, agreement=Agreement.STANDARDISED, ridge=1.0, fill=True)
    model = federate(dealt(x, CANCER[1]), learner, "masked").model
    assert model.columns.missing == tuple(np.isnan(x).sum(axis=0).tolist())
    scaler = StandardScaler()
    pipe = make_pipeline(scaler, SimpleImputer(strategy="constant", fill_value=0.0), Ridge(alpha=1.0))
    oracle = pipe.fit(x, np.eye(2)[CANCER[1]]).predict(x)
    assert np.abs(learner.decision_function(model, x) - oracle).max() < 1e-5
    own, found = learner.settled(model)
    assert own.decision_function(found, x).tobytes() == learner.decision_function(model, x).tobytes()
    with pytest.raises(RowsOutsideFormatError, match=r"hold NaN or infinity \(.*fill=True"):
        fit_pooled(scaling(learner, fill=False), ClientRows(x, CANCER[1]))
    with pytest.raises(RowsOutsideFormatError, match="1 of 569 rows hold NaN"):
        fit_pooled(
            agreed(30, 1, real=True, fill=True), ClientRows(x, np.where(np.arange(569) == 3, np.nan, 1.0)[:, None])
        )


CHOSEN = choosing(agreed(10, 1, real=True), n_folds=3)
LIFTED = scaled(
    AFL(
        n_features=10,
        n_targets=1,
        max_rows=600,
        target_format=RowFormat.parse("Q0.20"),
        lift=(lift := RandomMap(n_features=10, n_columns=20, feature_bound=1.0).with_bits(16)),
        feature_format=lift.row_format,
    ),
    agreement="standardised",
)


@pytest.mark.parametrize("learner", [CHOSEN, scaling(CHOSEN, agreement="standardised"), LIFTED])
def test_models_are_exported_as_layers(learner: Pipeline) -> None:
    x, y = DIABETES[0], DIABETES[1][:, None]
    model = fit_pooled(learner, ClientRows(x, y))
    saved = model_from_bytes(model_to_bytes(learner, model))
    assert (saved.learner, saved.learner.context_bytes(saved.model)) == (learner, learner.context_bytes(model))
    if learner is LIFTED:
        with pytest.raises(SpecificationError, match="no linear map"):
            learner.settled(model)
        first, *_, last = learner.layers(model)
        assert isinstance(first, Linear)
        assert isinstance(last, Linear)
        assert np.allclose(x @ first.matrix + first.bias, learner.mapped(model, ClientRows(x, y)).features, atol=1e-9)
        assert last.matrix.tolist() == [[2.0 ** model.columns.exponents[-1]]]
        return
    (layer,) = learner.layers(model)
    assert isinstance(layer, Linear)
    assert np.allclose(x @ layer.matrix + layer.bias, learner.decision_function(model, x), rtol=1e-9)
    own, found = learner.settled(model)
    assert own.ridge == model.ridge == model.path.choice
    assert own.decision_function(found, x).tobytes() == learner.decision_function(model, x).tobytes()


def test_a_column_that_an_outlier_makes_coarse_is_known() -> None:
    x = RNG.normal(size=(100, 3))
    x[7, 1] = 1e9
    x[50:, 2] = 0.0
    model = fit_pooled(agreed(3, 2), ClientRows(x, np.arange(100) % 2))
    assert model.columns.coarse == (0, 99, 0)
    x[:, 0] *= 1e-30  # below what the first sum tells apart: all zeros in the format
    assert fit_pooled(agreed(3, 2), ClientRows(x, np.arange(100) % 2)).columns.coarse == (100, 99, 0)


def test_a_lone_largest_value_shows_in_the_first_total_and_the_gate_says_so() -> None:
    """What the total gives away beside scales: that one row is of this size. The gate counts such cells."""
    x = RNG.uniform(0.5, 1.0, size=(100, 2))
    x[3, 0] = 700.0
    learner, clients = agreed(2, 2), dealt(x, np.arange(100) % 2)
    federation = Federation(learner, release=ReleasePolicy())
    step = federation.next_sum
    assert step is not None
    total = sum(step.vector(rows) for rows in clients.values())
    counts = step.spec.from_vector(total)["exponents"]
    assert counts[0, 2 + 10 - LOWEST] == 1, "one value of column 0 is from 512 to below 1024"
    (concern,) = federation.take(SumResult(total=total, survivors=tuple(clients))).concerns
    assert (concern.gate, concern.refuses) == (Gate.SMALL_COUNTS, False)
    assert "1 of 3 counts are of fewer than 5 rows" in concern.message


def test_who_was_not_in_the_first_sum_has_the_headroom_that_was_agreed() -> None:
    x, y = RNG.uniform(0.5, 1.0, size=(40, 2)), np.arange(40) % 2
    for headroom in (0, 2):
        learner = agreed(2, 2, headroom=headroom)
        first = learner.client_statistics(learner.init(), ClientRows(x, y))
        model = learner.update(learner.init(), first, 1)
        late = ClientRows(3 * x, y)
        if headroom:
            assert learner.client_statistics(model, late).count == 40
        else:
            with pytest.raises(RowsOutsideFormatError, match=r"do not fit Q0\.26"):
                learner.client_statistics(model, late)


def test_what_cannot_be_agreed_on_is_refused() -> None:
    learner = agreed(2, 2)
    for changes, message in (
        ({"feature_format": RowFormat.parse("Q1.20")}, "signed formats Q0.f"),
        ({"feature_format": RowFormat.parse("UQ0.20")}, "signed formats Q0.f"),
        ({"columns": ColumnMap(exponents=(1, 0))}, "leave the row map, or other scales, out"),
    ):
        with pytest.raises(SpecificationError, match=message):
            replace(learner, head=replace(learner.head, **changes))
    with pytest.raises(SpecificationError, match="0 to 8 bits, not 9"):
        scaling(learner, headroom=9)
    with pytest.raises(NotReadyError, match="columns are agreed by"):
        learner.decision_function(learner.init(), np.zeros((1, 2)))
    real = agreed(2, 1, real=True)
    with pytest.raises(RowsOutsideFormatError, match="targets"):
        real.client_statistics(real.init(), ClientRows(np.zeros((3, 2)), np.array([[1.0], [np.nan], [2.0]])))
    small = fit_pooled(real, ClientRows(RNG.normal(size=(50, 2)), RNG.normal(size=(50, 1)) * 2.0**-60))
    with pytest.raises(SpecificationError, match="give them in another unit"):
        real.evaluation_format(small)
    labelled = fit_pooled(learner, ClientRows(RNG.normal(size=(50, 2)), np.arange(50) % 2))
    assert learner.evaluation_format(labelled) == LABELS
    assert labelled.weights.tobytes() == labelled.own.weights.tobytes()
    narrow = np.column_stack([1e8 + RNG.normal(size=100), RNG.normal(size=100)])
    with pytest.raises(InvalidRowsError, match="columns 0 need more than 18 integer bits"):
        fit_pooled(scaling(learner, agreement="standardised"), ClientRows(narrow, np.arange(100) % 2))
    with pytest.raises(
        RowsOutsideFormatError, match=r"^1 of 1 rows hold a value from 2\^64 on .*leave out these rows$"
    ):
        fit_pooled(learner, ClientRows(np.array([[1.0, 2.0**64]]), np.array([0])))


def test_personal_models_are_of_those_that_make_them() -> None:
    """A learner that chooses or personalises nothing says so by name."""
    linear = agreed(3, 1, real=True)
    rows = ClientRows(RNG.normal(size=(40, 3)), RNG.normal(size=(40, 1)))
    model = fit_pooled(linear, rows)
    with pytest.raises(SpecificationError, match=r"agreed-afl has no folds of rows that count once"):
        linear.choose_alpha(model, rows, [0.0, 1.0])
    with pytest.raises(SpecificationError, match=r"agreed-afl makes no personal models; take fedhip"):
        linear.personalise(model, rows, [1.0])


def test_rows_are_mapped_once_for_all_sums_of_a_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepAFL finds its layers again by the rows' identity; it computed all of them anew for each sum."""
    n, rows = 3, ClientRows(RNG.uniform(-3, 900, (60, 5)), RNG.integers(0, 2, 60))
    deep = DeepAFL(n_features=5, n_targets=2, n_layers=n, d_phi=8, d_f=4, feature_bound=1.0, max_rows=600)
    learner, calls = scaled(deep), list[int]()
    plain = ColumnMap.features

    def counted(self: ColumnMap, features: NDArray[Any]) -> Any:
        calls.append(len(features))
        return plain(self, features)

    monkeypatch.setattr(ColumnMap, "features", counted)
    model = learner.init()
    while (spec := learner.next_sum(model)) is not None:
        model = learner.update(model, spec.from_vector(spec.to_vector(learner.client_statistics(model, rows))), 1)
    assert len(calls) == 2  # once to count exponents
    pooled = fit_pooled(learner, ClientRows(rows.features, rows.targets))
    assert learner.weights_bytes(model) == learner.weights_bytes(pooled)
    other = ClientRows(rows.features + 1, rows.targets, memory=rows.memory)
    assert not np.array_equal(learner.mapped(model, other).features, learner.mapped(model, rows).features)


def test_mapped_rows_are_kept_for_the_map_and_not_for_whoever_asks() -> None:
    """Learners take columns in ranges of their own; the second one on the same rows got the first one's."""
    rows = ClientRows(RNG.normal(size=(80, 4)) * [1, 10, 100, 3], RNG.integers(0, 2, 80))
    deep = DeepAFL(n_features=4, n_targets=2, n_layers=1, d_phi=8, d_f=4, feature_bound=1.0, max_rows=600)
    counts = SAFLe(n_features=4, n_classes=2, max_rows=600, thresholds=QuantileThresholds(low=-1.0, high=1.0))
    for heads in ((deep, counts), (counts, deep)):
        shared = ClientRows(rows.features, rows.targets)
        for head in heads:
            learner = scaled(head, agreement="standardised")
            alone = fit_pooled(learner, ClientRows(rows.features, rows.targets))
            assert learner.weights_bytes(fit_pooled(learner, shared)) == learner.weights_bytes(alone)


def test_slots_are_stated_in_one_pipeline() -> None:
    """Nested the other way round, the rows' weights were left out in silence."""
    weighing = weighted(agreed(5, 2).head, max_weight=3)
    with pytest.raises(SpecificationError, match="state all slots in one pipeline"):
        Pipeline(head=weighing, scaler=Scaler())
    with pytest.raises(SpecificationError, match="scaler must be a Scaler, not Weights"):
        Pipeline(head=weighing.head, scaler=weighing.weights)  # type: ignore[arg-type]
    with pytest.raises(SpecificationError, match="needs a scaler, a selection or weights; take afl itself"):
        Pipeline(head=weighing.head)


@pytest.mark.parametrize("agreement", Agreement)
def test_a_deviation_that_is_lost_beside_its_size_is_known_to_who_has_the_rows(agreement: Agreement) -> None:
    """Of 1e9 + {0, 1, 2} a total keeps a constant, and an offset of 1e9 keeps all of it (field case c15)."""
    years, other = 1e9 + np.arange(600) % 3, RNG.normal(size=600)
    x, y = np.column_stack([years, other, np.full(600, 0.01)]), (np.arange(600) % 3 == 2).astype(int)
    learner = scaling(agreed(3, 2), agreement=agreement)
    rows = ClientRows(x, y)
    model = fit_pooled(learner, rows)
    assert learner.coarse_columns(model, rows) == (0,)
    assert not any(model.columns.coarse)
    assert model.columns.without_spread == ((0, 2) if agreement is Agreement.STANDARDISED else ())
    assert learner.coarse_columns(model, ClientRows(x[:0], y[:0])) == ()
    near = ClientRows(x - [1e9, 0.0, 0.0], y)
    model = fit_pooled(learner, near)
    assert learner.coarse_columns(model, near) == ()
    assert 0 not in model.columns.without_spread
    assert learner.losses(model)[0] < 1e-5
    assert (learner.decision_function(model, near.features).argmax(axis=1) == y).mean() == 1.0


def test_missing_values_hide_no_lost_deviation() -> None:
    x = np.column_stack([1e9 + np.arange(90) % 3, np.arange(90.0)])
    x[::4, 0], x[1, 1] = np.nan, np.nan
    learner = scaling(agreed(2, 2), fill=True)
    rows = ClientRows(x, np.arange(90) % 2)
    assert learner.coarse_columns(fit_pooled(learner, rows), rows) == (0,)
    whole = ClientRows(np.array([[0, 7], [200, 7], [100, 7]] * 30, dtype=np.uint8), np.arange(90) % 2)
    assert learner.coarse_columns(fit_pooled(learner, whole), whole) == ()
    nothing = ClientRows(np.column_stack([np.full(90, np.nan), x[:, 1]]), np.arange(90) % 2)
    assert learner.coarse_columns(fit_pooled(learner, nothing), nothing) == ()
