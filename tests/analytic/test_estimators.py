from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.examples import examples
from support.learner_driver import train

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.estimators import (
    AFLClassifier,
    AFLRegressor,
    DeepAFLClassifier,
    DeepAFLRegressor,
    FedHiPClassifier,
    FedHiPRegressor,
    LDAClassifier,
    LogisticClassifier,
    NaiveBayesClassifier,
    QDAClassifier,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
    SAFLeClassifier,
    SAFLeRegressor,
)
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_pooled
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe

Q = RowFormat.parse
DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS, LABELS = DIGITS[:600] / 16, LABELS[:600]
LIFT = RandomMap(n_features=64, n_columns=96, feature_bound=1.0, fraction_bits=10)
NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])


def checks_of(*estimators):
    return parametrize_with_checks(
        list(estimators),
        expected_failed_checks=lambda estimator: (
            {"check_class_weight_classifiers": "a class of 10^-7 weighs less than the ridge: its rows are extrapolated"}
            if isinstance(estimator, DeepAFLClassifier)
            else {}
        ),
    )


@checks_of(
    AFLClassifier(feature_format="Q8.11", ridge=0.1),  # with partial_fit
    AFLRegressor(),
    DeepAFLClassifier(n_layers=1, d_phi=32, d_f=16, fed_by_first=True, activation="relu"),
    SAFLeRegressor(),
    QDAClassifier(ridge=0.1),
    NaiveBayesClassifier(ridge=0.1),
    RandomFeaturesClassifier(n_columns=32, ridge=0.1),
)
def test_it_passes_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@checks_of(
    AFLClassifier(),
    AFLRegressor(feature_format="Q8.12", target_format="Q12.12"),
    LogisticClassifier(n_rounds=2),
    LDAClassifier(ridge=0.1),
    RandomFeaturesRegressor(n_columns=32, ridge=0.1),
    DeepAFLClassifier(n_layers=2, d_phi=32, d_f=32),
    SAFLeClassifier(),
    SAFLeClassifier(encoding="integer", group_size=1),
    FedHiPRegressor(ridge=0.1),
    DeepAFLRegressor(n_layers=1, d_phi=32, d_f=16),
)
def test_the_others_pass_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", [AFLClassifier, FedHiPClassifier, SAFLeClassifier])
def test_probabilities_come_from_a_link_that_was_asked_for(kind):
    """The slope is the likeliest, so that a little more and a little less of it is worse on the rows that fitted it."""
    train, other, labels, others = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    estimator = kind().fit(train, NAMES[labels])
    with pytest.raises(AttributeError, match="has no attribute 'predict_proba'"):
        estimator.predict_proba(other)
    estimator.calibrate(other, NAMES[others])
    found = estimator.predict_proba(other)
    assert (found >= 0).all()
    assert np.allclose(found.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert (estimator.classes_[found.argmax(axis=1)] == estimator.predict(other)).all()
    best, slope = log_loss(NAMES[others], found), estimator.link_slope_
    for factor in (0.9, 1.1):
        estimator.link_slope_ = slope * factor
        assert log_loss(NAMES[others], estimator.predict_proba(other)) > best
    with pytest.raises(InvalidRowsError, match="1 of 2 labels are none of the 2 classes"):
        estimator.calibrate(other[:2], ["one", "two"])
    assert not hasattr(estimator.fit(train, labels), "predict_proba")


@pytest.mark.parametrize(
    "estimator",
    [AFLRegressor(), FedHiPRegressor(), DeepAFLRegressor(n_layers=1, d_phi=32, d_f=16), SAFLeRegressor(ridge=0.5)],
)
def test_a_regressor_is_the_same_in_whatever_unit_its_targets_are(estimator):
    """Powers of two are exact, so a target of size 1e-9 is no worse than the same of size 300."""
    train, other, y, _ = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    small = np.ldexp(y, -40)
    both = clone(estimator).fit(train, np.column_stack([y, small])).predict(other)
    assert (np.ldexp(both[:, 1], 40) == both[:, 0]).all()
    alone = clone(estimator).fit(train, small)
    assert alone.predict(other).shape == (len(other),)
    with pytest.raises(InvalidRowsError, match="real targets are numbers, not <U"):
        clone(estimator).fit(train, NAMES[(y > 140).astype(int)])


@pytest.mark.parametrize(
    ("kind", "theirs", "own"),
    [
        (LDAClassifier, LinearDiscriminantAnalysis(solver="lsqr"), {}),
        (QDAClassifier, QuadraticDiscriminantAnalysis(), {"shrinkage": 0.0}),
        (NaiveBayesClassifier, GaussianNB(var_smoothing=0.0), {"shrinkage": 0.0}),
    ],
)
def test_discriminants_have_the_probabilities_of_scikit_learn(kind, theirs, own):
    train, other, labels, _ = train_test_split(*load_iris(return_X_y=True), random_state=0)
    estimator = kind(**own).fit(train, NAMES[labels])
    expected = theirs.fit(train, NAMES[labels]).predict_proba(other)
    assert (estimator.classes_ == theirs.classes_).all()
    assert np.allclose(estimator.predict_proba(other), expected, rtol=0, atol=1e-5)
    found = kind.from_model(estimator.learner_, estimator.model_, estimator.classes_)
    assert (found.predict_proba(other) == estimator.predict_proba(other)).all()


def test_an_estimator_of_random_features_is_afls_with_that_map():
    rows, labels = DIGITS[:300], NAMES[LABELS[:300]]
    estimator = RandomFeaturesClassifier(n_columns=96, seed=3, ridge=0.5).fit(rows, labels)
    lift = RandomMap(n_features=64, n_columns=96, feature_bound=1.0, seed=3).with_bits(16)
    same = AFLClassifier(lift=lift, ridge=0.5).fit(rows, labels)
    assert estimator.learner_.name == "random"
    assert estimator.model_.weights.tobytes() == same.model_.weights.tobytes()
    found = RandomFeaturesClassifier.from_model(estimator.learner_, estimator.model_, estimator.classes_)
    assert found.get_params() == estimator.get_params() | {"feature_bound": 1.0}
    assert (found.predict(DIGITS) == same.predict(DIGITS)).all()
    plain = AFLClassifier().fit(rows, labels)
    with pytest.raises(SpecificationError, match="takes models of random features"):
        RandomFeaturesClassifier.from_model(plain.learner_, plain.model_)


def test_a_fedhip_estimator_makes_the_personal_model_of_its_learner():
    train, _, y, _ = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    everybody = FedHiPRegressor().fit(train, y)
    assert (everybody.predict(train) == AFLRegressor().fit(train, y).predict(train)).all()
    own = everybody.personalise(train[:60], y[:60], alpha=5.0)
    weighted = np.concatenate([np.repeat(train[:60], 6, axis=0), train[60:]])
    oracle = LinearRegression().fit(weighted, np.concatenate([np.repeat(y[:60], 6), y[60:]]))
    assert np.allclose(own.predict(train), oracle.predict(train), rtol=0, atol=1e-3)
    classes = FedHiPClassifier().fit(DIGITS, NAMES[LABELS])
    personal = classes.personalise(DIGITS[:50], NAMES[LABELS[:50]], alpha=3.0)
    own = ClientRows(DIGITS[:50], np.searchsorted(classes.classes_, NAMES[LABELS[:50]]))
    (model,) = classes.learner_.personalise(classes.model_, own, [3.0])
    assert personal.model_.weights.tobytes() == model.weights.tobytes()
    assert set(personal.classes_) == set(NAMES)
    with pytest.raises(NotReadyError, match="total"):
        FedHiPClassifier.from_model(personal.learner_, personal.model_).personalise(DIGITS, LABELS, alpha=1)


@pytest.mark.filterwarnings("ignore:.*is coarse for")
@examples(8)
@given(data=st.data())
def test_partial_fit_on_any_batches_has_the_bits_of_fit_and_of_a_federation(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 6))
    features = rng.normal(size=(n, d))
    labels = rng.choice(["a", "b", "c"], size=n)
    cuts = sorted(data.draw(st.lists(st.integers(1, n), max_size=5)))
    order = rng.permutation(n)
    batches = [batch for batch in np.split(order, cuts) if len(batch)]

    in_batches = AFLClassifier(feature_format="Q4.12", ridge=0.5)
    for batch in batches:
        in_batches.partial_fit(features[batch], labels[batch], classes=["a", "b", "c"])
    whole = AFLClassifier(feature_format="Q4.12", ridge=0.5).partial_fit(features, labels, classes=["c", "b", "a"])
    ones = ColumnMap(exponents=(0,) * d, intercept=0)
    learner = AFL(n_features=d, n_targets=3, feature_format=Q("Q4.12"), max_rows=n, ridge=0.5, columns=ones)
    numbers = np.searchsorted(["a", "b", "c"], labels)
    model = train(learner, [ClientRows(features[batch], numbers[batch]) for batch in batches])

    expected = learner.weights_bytes(model)
    assert in_batches.model_.weights.tobytes() == whole.model_.weights.tobytes() == expected
    if len(np.unique(labels)) == 3:
        fitted = AFLClassifier(feature_format="Q4.12", ridge=0.5).fit(features, labels)
        assert fitted.model_.weights.tobytes() == expected


def test_a_regressor_adds_batches_up_too():
    features, targets = load_diabetes(return_X_y=True)
    formats = {"feature_format": "Q0.16", "target_format": "UQ9.8"}
    whole = AFLRegressor(**formats).fit(features, targets)
    in_batches = AFLRegressor(**formats)
    for start in range(0, len(features), 100):
        in_batches.partial_fit(features[start : start + 100], targets[start : start + 100])
    assert in_batches.model_.weights.tobytes() == whole.model_.weights.tobytes()
    assert in_batches.statistics_.count == len(features)


@pytest.mark.parametrize("seed", range(5))
def test_defaults_on_raw_rows_are_least_squares_with_an_intercept(seed):
    """Columns of breast cancer reach from 0.03 to 4 254: one format of 16 bits makes six of them zeros."""
    rows, other, labels, wanted = train_test_split(
        *load_breast_cancer(return_X_y=True), test_size=0.25, random_state=seed
    )
    peer = LinearRegression().fit(rows, np.eye(2)[labels]).predict(other)
    fitted = AFLClassifier().fit(rows, labels)
    assert fitted.score(other, wanted) == np.mean(peer.argmax(axis=1) == wanted)
    assert np.abs(fitted.decision_function(other) - (peer[:, 1] - peer[:, 0])).max() < 4e-6  # of two classes' scores
    rows, other, targets, real = train_test_split(*load_diabetes(return_X_y=True), test_size=0.25, random_state=seed)
    regressor, peer = AFLRegressor().fit(rows, targets), LinearRegression().fit(rows, targets)
    assert abs(regressor.score(other, real) - peer.score(other, real)) < 1e-6
    assert np.abs(regressor.predict(other) / peer.predict(other) - 1).max() < 1e-6


def test_columns_that_a_stated_format_hardly_holds_are_named():
    rows, labels = load_breast_cancer(return_X_y=True)
    with pytest.warns(UserWarning, match=r"Q13\.8 .* coarse for \d+ of 30 columns: 4 \(at most 0\.163\)"):
        AFLClassifier(feature_format="Q13.8").fit(rows, labels)
    with pytest.warns(UserWarning, match=r"coarse for 1 of 30 columns: 4 \(all zeros\)"):
        AFLClassifier().fit(np.insert(rows[:, 1:], 4, rows[:, 4] * 1e-309, axis=1), labels)


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1.0, 1e9])
def test_sizes_of_features_and_targets_change_nothing(size):
    """Powers of two are exact; others move a rounding of the format."""
    rows, targets = load_diabetes(return_X_y=True)
    power = 2.0 ** np.round(np.log2(size))
    fitted, scaled = AFLRegressor().fit(rows, targets), AFLRegressor().fit(rows * power, targets / power)
    assert (scaled.predict(rows * power) * power).tolist() == fitted.predict(rows).tolist()
    assert scaled.score(rows * power, targets / power) > 0.5
    assert (scaled.coef_ * power * power).tolist() == fitted.coef_.tolist()
    assert (scaled.intercept_ * power).tolist() == fitted.intercept_.tolist()


def test_no_ridge_shrinks_an_intercept():
    rng = np.random.default_rng(3)
    rows = rng.integers(-8, 8, (60, 3)) / 16  # scales of 2^-1 and 2^0: every entry is exact
    targets = rows @ [1.0, -2.0, 0.5] + 7
    scaled = np.ldexp(rows, -np.frexp(np.abs(rows).max(axis=0))[1])
    peer = Ridge(alpha=0.5).fit(scaled, targets)
    fitted = AFLRegressor(ridge=0.5).fit(rows, targets)
    np.testing.assert_allclose(fitted.predict(rows), peer.predict(scaled), atol=1e-5)
    np.testing.assert_allclose(fitted.intercept_, peer.intercept_, atol=1e-5)


@pytest.mark.parametrize(
    ("estimator", "learner"),
    [
        (AFLClassifier, AFL(n_features=64, n_targets=10, feature_format=Q("UQ1.15"), max_rows=600, ridge=1.0)),
        (AFLClassifier, AFL(n_features=64, n_targets=10, feature_format=LIFT.row_format, max_rows=600, lift=LIFT)),
        (AFLClassifier, FedHiP(n_features=64, n_targets=10, feature_format=Q("UQ1.15"), max_rows=600, ridge=1.0)),
        (
            DeepAFLClassifier,
            DeepAFL(n_features=64, n_targets=10, feature_bound=1.0, max_rows=600, n_layers=1, d_phi=48, d_f=40),
        ),
        (
            SAFLeClassifier,
            SAFLe(
                n_features=64,
                n_classes=10,
                max_rows=600,
                thresholds=QuantileThresholds(low=0.0, high=1.0, n_bins=64),
                encoding="integer",
                n_buckets=4,
            ),
        ),
    ],
    ids=["afl", "random", "fedhip", "deepafl", "safle"],
)
def test_the_model_of_a_federation_becomes_an_estimator(estimator, learner):
    clients = [ClientRows(DIGITS[part], LABELS[part]) for part in np.array_split(np.arange(600), 7)]
    model = train(learner, clients)
    served = estimator.from_model(learner, model, classes=NAMES)
    scores = learner.decision_function(model, DIGITS)
    np.testing.assert_array_equal(served.decision_function(DIGITS), scores)
    np.testing.assert_array_equal(served.predict(DIGITS), NAMES[scores.argmax(axis=1)])
    exact = served.learner_.exact_scores(served.model_, DIGITS)
    np.testing.assert_array_equal(served.exact_predict(DIGITS), NAMES[exact.argmax(axis=1)])
    assert served.score(DIGITS, NAMES[LABELS]) > 0.9
    assert served.get_params()["ridge"] == learner.ridge
    assert pickle.loads(pickle.dumps(served)).predict(DIGITS[:5]).tolist() == served.predict(DIGITS[:5]).tolist()  # noqa: S301
    with pytest.raises(ValueError, match="64 features"):
        served.predict(DIGITS[:, :5])
    if not isinstance(learner, FedHiP):  # the same parameters, trained again on all rows
        again = clone(served).fit(DIGITS, NAMES[LABELS])
        order = np.argsort(NAMES)
        np.testing.assert_array_equal(again.classes_, NAMES[order])
        assert again.score(DIGITS, NAMES[LABELS]) == served.score(DIGITS, NAMES[LABELS])


def test_a_federation_of_regressors():
    features, targets = load_diabetes(return_X_y=True)
    learner = AFL(
        n_features=10, n_targets=1, feature_format=Q("Q0.16"), target_format=Q("UQ9.8"), max_rows=1000, ridge=0.1
    )
    model = fit_pooled(learner, ClientRows(features, targets[:, None]))
    served = AFLRegressor.from_model(learner, model)
    fitted = AFLRegressor(feature_format="Q0.16", target_format="UQ9.8", ridge=0.1, fit_intercept=False)
    fitted.fit(features, targets)
    assert served.predict(features).tobytes() == fitted.predict(features).tobytes()
    exact = served.learner_.exact_scores(served.model_, features)
    assert served.exact_predict(features).tobytes() == exact.tobytes()


def test_rows_of_zeros_are_no_reason_to_fail():
    zeros = np.zeros((4, 3))
    deep = DeepAFLClassifier(n_layers=1, d_phi=16, d_f=16)
    for estimator in (AFLClassifier(), deep, SAFLeClassifier(), LogisticClassifier(n_rounds=1)):
        assert estimator.fit(zeros, [0, 1, 1, 1]).predict(zeros).shape == (4,)


def test_thresholds_may_be_fixed():
    fixed = FixedThresholds.evenly(0.0, 1.0, 8)
    estimator = clone(SAFLeClassifier(thresholds=fixed)).fit(DIGITS[:, 20:24], LABELS)
    assert estimator.model_.thresholds.tobytes() == fixed.table(4, 8).tobytes()


class TestRefusals:
    def test_no_partial_fit_in_an_automatic_format(self):
        with pytest.raises(AttributeError) as error:
            AFLClassifier().partial_fit(DIGITS, LABELS, classes=range(10))
        assert "explicit formats" in str(error.value.__cause__)
        assert not hasattr(AFLRegressor(feature_format="Q1.15"), "partial_fit")
        assert not hasattr(AFLClassifier(feature_format="Q1.15", ridge="cv"), "partial_fit")
        assert not hasattr(AFLClassifier(feature_format="Q1.15", class_weight="balanced"), "partial_fit")
        assert hasattr(AFLRegressor(feature_format="Q1.15", target_format="Q9.8"), "partial_fit")

    def test_classes_come_first_and_stay(self):
        estimator = AFLClassifier(feature_format="Q1.15")
        with pytest.raises(SpecificationError, match="needs all classes"):
            estimator.partial_fit(DIGITS, LABELS)
        with pytest.raises(InvalidRowsError, match="of the 5 classes"):
            estimator.partial_fit(DIGITS, LABELS, classes=range(5))
        with pytest.raises(NotFittedError):
            estimator.predict(DIGITS)
        estimator.partial_fit(DIGITS, LABELS, classes=range(10))
        with pytest.raises(SpecificationError, match="differ from those of the first call"):
            estimator.partial_fit(DIGITS, LABELS, classes=range(11))

    def test_refused_rows_leave_the_model_as_it_was(self):
        estimator = AFLClassifier(feature_format="Q1.15").fit(DIGITS, LABELS)
        before = estimator.model_.weights.tobytes(), estimator.statistics_.to_bytes()
        with pytest.raises(RowsOutsideFormatError, match=r"do not fit Q1\.15"):
            estimator.partial_fit(2 * DIGITS, LABELS)
        assert (estimator.model_.weights.tobytes(), estimator.statistics_.to_bytes()) == before
        clipping = AFLClassifier(feature_format="Q1.15", clip=True).fit(2 * DIGITS, LABELS)
        assert clipping.score(DIGITS, LABELS) > 0.9

    def test_more_rows_than_a_sum_has_room_for(self):
        estimator = AFLClassifier(feature_format="Q0.26")  # 2^11 rows of 26 bits fill int64
        rows = np.full((1500, 1), 0.5)
        estimator.partial_fit(rows, [0] * 1500, classes=[0, 1])
        with pytest.raises(InvalidRowsError, match="3000 rows are more than the 2048"):
            estimator.partial_fit(rows, [0] * 1500)
        assert estimator.statistics_.count == 1500

    def test_no_rows_can_be_added_to_a_federations_model(self):
        learner = AFL(n_features=64, n_targets=10, feature_format=Q("UQ1.15"), max_rows=600)
        served = AFLClassifier.from_model(learner, fit_pooled(learner, ClientRows(DIGITS, LABELS)))
        assert served.classes_.tolist() == list(range(10))
        with pytest.raises(NotReadyError, match="without its rows' statistics"):
            served.partial_fit(DIGITS, LABELS)

    def test_a_model_must_be_complete_and_of_the_right_kind(self):
        learner = AFL(n_features=64, n_targets=10, feature_format=Q("UQ1.15"), max_rows=600)
        with pytest.raises(NotReadyError, match="complete model"):
            AFLClassifier.from_model(learner, learner.init())
        model = fit_pooled(learner, ClientRows(DIGITS, LABELS))
        with pytest.raises(SpecificationError, match="takes models of SAFLe"):
            SAFLeClassifier.from_model(learner, model)
        with pytest.raises(SpecificationError, match="on real targets"):
            AFLRegressor.from_model(learner, model)
        for wrong in (range(9), [0] * 10):
            with pytest.raises(SpecificationError, match="10 distinct classes"):
                AFLClassifier.from_model(learner, model, classes=wrong)

    def test_targets_keep_their_shape(self):
        estimator = AFLRegressor(feature_format="Q1.15", target_format="Q4.12").fit(DIGITS, LABELS)
        with pytest.raises(InvalidRowsError, match="1 dimensions as before"):
            estimator.partial_fit(DIGITS, np.column_stack([LABELS, LABELS]))


def test_a_refused_fit_leaves_the_model_before_it() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3))
    targets = rows @ [1.0, 2.0, 3.0]
    regressor = SAFLeRegressor(ridge=0.1).fit(rows, targets)
    before = regressor.predict(rows)
    with pytest.raises(ValueError, match="format"):
        regressor.fit(rows, np.where(np.arange(60) == 3, 1e308, 1000 * targets))
    assert regressor.predict(rows).tolist() == before.tolist()
