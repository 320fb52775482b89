"""Reports from one sum: those of the pooled rows, bit for bit, and what scikit-learn says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from analytic import (
    AFL,
    ClassEvaluation,
    ClientRows,
    InvalidRowsError,
    LabelsEvaluation,
    RegressionEvaluation,
    RowFormat,
    RowsOutsideFormatError,
    SpecificationError,
    fit_pooled,
)
from analytic.intervals import delong, wilson
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg import federate
from analytic_secagg.datasets import bundled
from analytic_secagg.release import ReleasePolicy, ReleaseRefusedError

Q = RowFormat.parse
DIGITS = bundled("digits")
MAX_ROWS = 2000


@pytest.fixture(scope="module")
def classifier() -> ClassEvaluation:
    learner = AFL(n_features=64, n_targets=10, feature_format=Q("UQ5.11"), max_rows=MAX_ROWS, ridge=1.0)
    model = fit_pooled(learner, ClientRows(DIGITS.x_train, DIGITS.y_train))
    return ClassEvaluation(learner=learner, model=model, n_classes=10, max_rows=MAX_ROWS)


def rows_of_several(n: int = 300, seed: int = 0) -> ClientRows:
    """Three classes, each with the rows of a half space; for every third row nobody says of the last one."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-7, 7, (n, 4))
    targets = (features @ np.random.default_rng(9).normal(size=(4, 3)) > 2).astype(np.int64)
    targets[::3, 2] = -1
    return ClientRows(features, targets)


@pytest.fixture(scope="module")
def several() -> LabelsEvaluation:
    learner = AFL(n_features=4, n_targets=3, feature_format=Q("Q3.12"), max_rows=MAX_ROWS, ridge=1e-3)
    model = fit_pooled(learner, ClientRows(rows_of_several().features, np.maximum(rows_of_several().targets, 0)))
    return LabelsEvaluation(learner=learner, model=model, n_classes=3, max_rows=MAX_ROWS)


def rows_of_targets(n: int = 300, seed: int = 0) -> ClientRows:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 4)).clip(-7, 7)
    targets = features @ rng.normal(size=(4, 2)) + rng.normal(size=(n, 2))
    return ClientRows(features, targets.clip(-15, 15))


@pytest.fixture(scope="module")
def regression() -> RegressionEvaluation:
    formats: dict[str, Any] = {"feature_format": Q("Q3.12"), "target_format": Q("Q4.14")}
    learner = AFL(n_features=4, n_targets=2, max_rows=MAX_ROWS, ridge=1e-3, **formats)
    model = fit_pooled(learner, rows_of_targets())
    return RegressionEvaluation(
        learner=learner, model=model, n_targets=2, target_format=Q("Q4.14"), max_rows=MAX_ROWS, n_bins=6
    )


def test_a_report_is_stored_with_what_it_judges(
    classifier: ClassEvaluation, regression: RegressionEvaluation, several: LabelsEvaluation
) -> None:
    for evaluation, rows in (
        (classifier, ClientRows(DIGITS.x_test, DIGITS.y_test)),
        (regression, rows_of_targets()),
        (several, rows_of_several()),
    ):
        report: Any = fit_pooled(evaluation, rows)
        saved: Any = model_from_bytes(model_to_bytes(evaluation, report))
        assert saved.model.figures == report.figures
        assert saved.learner.next_sum(saved.model) is None


def test_a_report_is_a_frame_with_a_row_for_each_class_or_target(
    regression: RegressionEvaluation, several: LabelsEvaluation
) -> None:
    pytest.importorskip("pandas", reason="only data frames need it")
    of_classes, of_targets = fit_pooled(several, rows_of_several()), fit_pooled(regression, rows_of_targets())
    frame = of_classes.to_frame()
    assert frame["recall"].tolist() == list(of_classes.figures["recall"])
    assert set(frame["accuracy_low"]) == {of_classes.accuracy_interval[0]}
    assert [*zip(frame["auc_low"], frame["auc_high"], strict=True)] == list(of_classes.figures["auc_interval"])
    assert of_targets.to_frame()["rmse"].tolist() == list(of_targets.rmse)


def sites(rows: ClientRows) -> dict[int, ClientRows]:
    """Four uneven ones, of which the last has no rows."""
    parts = np.split(np.arange(len(rows)), [10, len(rows) // 2])
    dealt = {party: ClientRows(rows.features[own], rows.targets[own]) for party, own in enumerate(parts, start=1)}
    return {**dealt, 4: ClientRows(rows.features[:0], rows.targets[:0])}


def test_a_federation_reports_what_pooled_rows_do(
    classifier: ClassEvaluation, regression: RegressionEvaluation, several: LabelsEvaluation
) -> None:
    for evaluation, rows in (
        (classifier, ClientRows(DIGITS.x_test, DIGITS.y_test)),
        (regression, rows_of_targets(200, seed=1)),
        (several, rows_of_several(200, seed=1)),
    ):
        report = federate(sites(rows), evaluation, "masked").model
        assert evaluation.weights_bytes(report) == evaluation.weights_bytes(fit_pooled(evaluation, rows))
        assert evaluation.next_sum(report) is None


def test_a_tie_falls_the_same_way_however_rows_are_dealt() -> None:
    """Twice the same columns, and no class is favoured: float64 products of one row and of many break ties apart."""
    rng = np.random.default_rng(3)
    half = np.trunc(rng.normal(size=(400, 64)).clip(-7, 7) * 1024) / 1024
    y = rng.integers(0, 2, 400)
    rows = ClientRows(np.vstack([half, np.roll(half, 32, axis=1)]), np.concatenate([y, 1 - y]))
    learner = AFL(n_features=64, n_targets=2, feature_format=Q("Q3.10"), max_rows=5000, ridge=1.0)
    model = fit_pooled(learner, rows)
    features = np.tile(half[:40, :32], 2)
    exact = learner.exact_scores(model, features)
    assert np.array_equal(exact[:, 0], exact[:, 1])
    evaluation = ClassEvaluation(learner=learner, model=model, n_classes=2, max_rows=1000)
    judged, labels = ClientRows(features, np.zeros(40, dtype=np.int64)), [slice(1), slice(1, 2), slice(2, 40)]
    dealt = {party: judged.taken(np.arange(40)[part]) for party, part in enumerate(labels, start=1)}
    found = federate(dealt, evaluation, mode="masked").model
    assert evaluation.weights_bytes(found) == evaluation.weights_bytes(fit_pooled(evaluation, judged))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_finite_are_refused(bad: float, classifier: ClassEvaluation) -> None:
    features = DIGITS.x_test[:5].astype(np.float64)
    features[2, 3] = bad
    with pytest.raises(InvalidRowsError, match="1 of 5 rows have features that are NaN or infinite"):
        fit_pooled(classifier, ClientRows(features, DIGITS.y_test[:5]))


def test_a_classifier_is_judged_as_scikit_learn_does(classifier: ClassEvaluation) -> None:
    rows = ClientRows(DIGITS.x_test, DIGITS.y_test)
    report = fit_pooled(classifier, rows)
    scores = classifier.decision_function(None, rows.features)
    chosen = scores.argmax(axis=1)
    assert report.n_rows == len(rows)
    assert report.confusion.tolist() == metrics.confusion_matrix(rows.targets, chosen).tolist()
    assert report.accuracy == metrics.accuracy_score(rows.targets, chosen)
    assert report.recall == pytest.approx(metrics.recall_score(rows.targets, chosen, average=None), rel=1e-15)
    assert report.precision == pytest.approx(metrics.precision_score(rows.targets, chosen, average=None), rel=1e-15)
    binned = ((scores + 0.5) * 100).clip(0, 199).astype(int)
    for label in range(10):
        is_own = rows.targets == label
        area, off = report.auc(label)
        assert area == pytest.approx(metrics.roc_auc_score(is_own, binned[:, label]), rel=1e-12)
        assert abs(metrics.roc_auc_score(is_own, scores[:, label]) - area) <= off + 1e-12 < 0.01
    assert sum(n for n, _, _ in report.calibration) == len(rows)
    right = sum(n * part for n, part, _ in report.calibration if n) / len(rows)
    assert right == pytest.approx(report.accuracy)
    sure = sum(n * mean for n, _, mean in report.calibration if n) / len(rows)
    assert sure == pytest.approx(scores.max(axis=1).clip(0, 1).mean(), abs=2**-20)
    assert 0 < report.calibration_error < 1


def test_each_of_several_classes_is_judged_on_the_rows_that_are_labelled_for_it(several: LabelsEvaluation) -> None:
    rows = rows_of_several(200, seed=1)
    report = fit_pooled(several, rows)
    scores = several.decision_function(None, rows.features)
    known = rows.targets >= 0
    assert report.n_rows == len(rows)
    assert report.accuracy == ((scores > 0.5) == (rows.targets == 1))[known].mean()
    for label in range(3):
        truth, own = rows.targets[known[:, label], label], scores[known[:, label], label]
        assert report.recall[label] == pytest.approx(metrics.recall_score(truth, own > 0.5), rel=1e-15)
        assert report.precision[label] == pytest.approx(metrics.precision_score(truth, own > 0.5), rel=1e-15)
        area, off = report.auc(label)
        assert abs(metrics.roc_auc_score(truth, own) - area) <= off + 1e-12 < 0.01
    assert sum(n for n, _, _ in report.calibration) == known.sum()
    right = sum(n * part for n, part, _ in report.calibration if n)
    assert right == pytest.approx((rows.targets == 1).sum())
    assert 0 < report.calibration_error < 1


def pairs_of_delong(own: list[int], others: list[int]) -> tuple[float, float]:
    """Area and DeLong's variance by the kernel of all pairs of rows, as the paper writes it."""
    x, y = (np.repeat(np.arange(len(counts)), counts) for counts in (own, others))
    kernel = (x[:, None] > y) + 0.5 * (x[:, None] == y)
    by_own, by_others = kernel.mean(axis=1), kernel.mean(axis=0)
    return float(kernel.mean()), float(by_own.var(ddof=1) / len(x) + by_others.var(ddof=1) / len(y))


counted = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=8)


@given(bins=counted.filter(lambda bins: all(sum(side) > 1 for side in zip(*bins, strict=True))))
def test_an_area_s_interval_is_that_of_delong_s_variance(bins: list[tuple[int, int]]) -> None:
    own, others = (list(side) for side in zip(*bins, strict=True))
    area, variance = pairs_of_delong(own, others)
    low, high = delong(own, others)
    fewest = min(sum(own), sum(others))
    assert 0 <= low <= area <= high <= 1
    assert high - low > 0
    pairs = fewest if variance < 1e-12 else np.clip(area * (1 - area) / variance, fewest, 3 * fewest)
    assert (low, high) == pytest.approx(wilson(area * pairs, pairs), abs=1e-6)
    assert (1 - high, 1 - low) == pytest.approx(delong(own[::-1], others[::-1]), abs=1e-9)


@given(st.integers(1, 400), st.data())
def test_a_rate_s_interval_is_wilson_s(n: int, data: st.DataObject) -> None:
    """The rates that a score test at its level does not refuse (Wilson 1927); scipy has its own."""
    right = data.draw(st.integers(0, n))
    low, high = wilson(right, n)
    assert 0 <= low <= right / n <= high <= 1
    theirs = stats.binomtest(right, n).proportion_ci(0.95, method="wilson")
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_every_rate_of_a_report_has_an_interval(classifier: ClassEvaluation, several: LabelsEvaluation) -> None:
    for judge, rows in (
        (classifier, ClientRows(DIGITS.x_test, DIGITS.y_test)),
        (several, rows_of_several(200, seed=1)),
    ):
        figures = fit_pooled(judge, rows).figures
        for name in ("accuracy", "recall", "precision", "auc"):
            rates, intervals = figures[name], figures[f"{name}_interval"]
            for rate, (low, high) in zip(
                *((x if name != "accuracy" else (x,)) for x in (rates, intervals)), strict=True
            ):
                assert low <= rate <= high
                assert 0 < high - low < 0.7
    of_rows = fit_pooled(several, rows)
    assert of_rows.accuracy_interval == pytest.approx(wilson(of_rows.accuracy * 200, 200), abs=1e-12)


def test_a_regression_is_judged_as_scikit_learn_does(regression: RegressionEvaluation) -> None:
    rows = rows_of_targets(200, seed=1)
    report = fit_pooled(regression, rows)
    predicted = regression.decision_function(None, rows.features)
    each = {"multioutput": "raw_values"}
    assert report.r2 == pytest.approx(metrics.r2_score(rows.targets, predicted, **each), abs=1e-3)
    assert report.mae == pytest.approx(metrics.mean_absolute_error(rows.targets, predicted, **each), abs=2**-14)
    assert report.rmse == pytest.approx(metrics.root_mean_squared_error(rows.targets, predicted, **each), abs=2**-13)
    counts, _ = report.by_target
    assert counts.tolist() == [np.histogram(y, bins=6, range=(-16, 16))[0].tolist() for y in rows.targets.T]
    for bin_, off in enumerate(report.mae_by_target[0]):
        low = -16 + bin_ * 32 / 6
        inside = (rows.targets[:, 0] >= low) & (rows.targets[:, 0] < low + 32 / 6)
        mean = abs(rows.targets - predicted)[inside, 0].mean() if inside.any() else float("nan")
        assert off == pytest.approx(mean, abs=2**-14, nan_ok=True)


def test_a_class_with_one_row_among_all_sites_shows_its_score(classifier: ClassEvaluation) -> None:
    """What the threat model says of the total of an evaluation, and no gate looks at."""
    alone = int(np.flatnonzero(DIGITS.y_test == 3)[0])
    chosen = np.append(np.flatnonzero(DIGITS.y_test != 3), alone)
    report = federate(sites(ClientRows(DIGITS.x_test[chosen], DIGITS.y_test[chosen])), classifier, "masked").model
    score = classifier.decision_function(None, DIGITS.x_test[[alone]])[0, 3]
    assert np.flatnonzero(report.own[3]).tolist() == [int((score + 0.5) * 100)]


def test_no_rows_are_no_figures(classifier: ClassEvaluation, regression: RegressionEvaluation) -> None:
    report = fit_pooled(classifier, ClientRows(DIGITS.x_test[:0], DIGITS.y_test[:0]))
    assert np.isnan([report.accuracy, *report.recall, *report.auc(0), report.calibration_error]).all()
    assert np.isnan([report.accuracy_interval, *report.recall_interval, report.auc_interval(0)]).all()
    assert report.figures["auc_interval"] == (None,) * 10
    none = fit_pooled(regression, rows_of_targets(0))
    assert np.isnan([*none.r2, *none.mae, *none.rmse]).all()


def test_rows_that_do_not_belong_are_refused(
    classifier: ClassEvaluation, regression: RegressionEvaluation, several: LabelsEvaluation
) -> None:
    x, y = DIGITS.x_test[:5], DIGITS.y_test[:5]
    for targets, why in ((y + 10, "outside 0 to 9"), (y[:, None], "labels of shape"), (y + 0.5, "must be integers")):
        with pytest.raises(InvalidRowsError, match=why):
            fit_pooled(classifier, ClientRows(x, targets))
    with pytest.raises(InvalidRowsError, match="this model has 10"):
        fit_pooled(replace(classifier, n_classes=12), ClientRows(x, y))
    for targets in (np.zeros(5, dtype=int), np.zeros((5, 2), dtype=int), np.full((5, 3), 2)):
        with pytest.raises(InvalidRowsError, match="several classes is judged on entries 1, 0 and"):
            fit_pooled(several, ClientRows(rows_of_several(5).features, targets))
    rows = rows_of_targets(5)
    with pytest.raises(InvalidRowsError, match=r"shape \(n, 2\)"):
        fit_pooled(regression, ClientRows(rows.features, rows.targets[:, :1]))
    with pytest.raises(RowsOutsideFormatError, match=r"fit Q4\.14"):
        fit_pooled(regression, ClientRows(rows.features, rows.targets * 1000))
    with pytest.raises(RowsOutsideFormatError, match=r"fit Q0\.4"):
        fit_pooled(replace(regression, residual_format=Q("Q0.4")), ClientRows(rows.features, -rows.targets))
    with pytest.raises(InvalidRowsError, match="more than the 4"):
        fit_pooled(replace(classifier, max_rows=4), ClientRows(x, y))


def test_evaluations_that_cannot_be_are_refused(classifier: ClassEvaluation, regression: RegressionEvaluation) -> None:
    with pytest.raises(SpecificationError, match="still needs a sum"):
        replace(classifier, model=classifier.learner.init())
    for wrong in ({"n_classes": 0}, {"n_bins": 0}, {"low": 2.0}, {"high": float("inf")}):
        with pytest.raises(SpecificationError, match="needs classes, bins and rows"):
            replace(classifier, **wrong)
    with pytest.raises(SpecificationError, match="needs targets, bins"):
        replace(regression, n_targets=0)
    with pytest.raises(SpecificationError, match=r"moments over .* can reach 2\^"):
        replace(regression, max_rows=1 << 30, residual_format=Q("Q6.20"))


def test_an_evaluations_total_says_rows_of_each_class_and_gates_judge_them(classifier: ClassEvaluation) -> None:
    """A class of one row shows that row's scores: where it lies in the counts is the row's own bin."""
    kept = np.append(np.flatnonzero(DIGITS.y_test != 3), np.flatnonzero(DIGITS.y_test == 3)[:1])
    total = classifier.client_statistics(None, ClientRows(DIGITS.x_test[kept], DIGITS.y_test[kept]))
    assert total["own"][3].sum() == 1
    with pytest.raises(ReleaseRefusedError, match="class rows: 1 of 10 classes"):
        ReleasePolicy().before_release(classifier.exact_total(None, total, 9), range(9))


def test_parties_with_another_model_or_other_bins_do_not_add_up(classifier: ClassEvaluation) -> None:
    other = fit_pooled(classifier.learner, ClientRows(DIGITS.x_test, DIGITS.y_test))
    told = {
        one.context_bytes(None)
        for one in (classifier, replace(classifier, model=other), replace(classifier, n_bins=50))
    }
    assert len(told) == 3
    report = fit_pooled(classifier, ClientRows(DIGITS.x_test, DIGITS.y_test))
    assert classifier.context_bytes(report) not in told
