"""The front door: sites' tables in, a model that predicts their labels out; every wrong argument is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.linear_model import LinearRegression
from sklearn.metrics import RocCurveDisplay, accuracy_score
from sklearn.utils.validation import check_is_fitted
from support.extras import needs

from analytic import AFL, ClientRows, RowFormat, fit_pooled
from analytic.errors import AnalyticError, InvalidRowsError, RowsOutsideFormatError
from analytic.estimators import AFLClassifier
from analytic_secagg.errors import UsageError
from analytic_secagg.federated_model import FederatedModel, federate
from analytic_secagg.learners import LEARNERS
from analytic_secagg.privacy import PrivacyPlan

X, ILL = load_breast_cancer(return_X_y=True)
LABELS = np.where(ILL == 1, "benign", "malignant")
RIDGES = {"random": 1.0, "logistic": 1.0, "deepafl": 1.0}


def dealt(features: Any, targets: Any, names: str = "ABC") -> dict[str, tuple[Any, Any]]:
    return {name: (features[place :: len(names)], targets[place :: len(names)]) for place, name in enumerate(names)}


@pytest.mark.parametrize("learner", LEARNERS)
def test_every_learner_predicts_labels_as_they_came(learner: str, tmp_path: Path) -> None:
    model = federate(dealt(X, LABELS), learner, ridge=RIDGES.get(learner, 0.0), **SMALL.get(learner, {}))
    found = model.predict(X)
    assert set(found) <= {"benign", "malignant"}
    assert (found == LABELS).mean() > 0.9
    model.save(tmp_path / "model")
    again = FederatedModel.load(tmp_path / "model")
    assert np.array_equal(again.predict(X), found)
    assert again.classes == model.classes == ("benign", "malignant")


SMALL: dict[str, dict[str, Any]] = {"deepafl": {"n_layers": 1, "d_phi": 32, "d_f": 16}, "random": {"d_phi": 64}}


@pytest.mark.parametrize("mode", ["plain", "committee"])
def test_modes_and_pooled_rows_give_the_same_bits(mode: str) -> None:
    options: dict[str, Any] = {"format": "standardised", "ridge": "cv", "max_rows": 1024}
    masked, other = (federate(dealt(X, LABELS), mode=own, **options) for own in ("masked", mode))
    pooled = fit_pooled(masked.learner, ClientRows(X, 1 - ILL))
    assert masked.learner.weights_bytes(pooled) == masked.learner.weights_bytes(masked.model)
    assert other.learner.weights_bytes(other.model) == masked.learner.weights_bytes(masked.model)


def test_scores_are_those_of_the_estimator_at_any_number_of_sites() -> None:
    """Formats follow from all rows: if each site's share were rounded up, two sites would have 25 bits, three 26."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1100, 3))
    y = x @ [1.0, -2.0, 0.5] + rng.normal(size=1100) > 0

    def scores(n_sites: int) -> bytes:
        sites = {k: (x[k::n_sites], y[k::n_sites]) for k in range(n_sites)}
        return federate(sites, mode="plain", ridge=0.5, intercept=1).decision_function(x).tobytes()

    pooled = AFLClassifier(ridge=0.5).fit(x, y).decision_function(x)
    assert scores(3) == scores(4) == scores(9) == pooled.tobytes()


def test_real_targets_keep_their_shape() -> None:
    features, targets = load_diabetes(return_X_y=True)
    flat, column = federate(dealt(features, targets)), federate(dealt(features, targets[:, None]))
    assert flat.predict(features).shape == (442,)
    assert column.predict(features).shape == (442, 1)
    least = LinearRegression().fit(features, targets).predict(features)
    assert np.abs(flat.predict(features) - least).max() < 1e-3 * np.ptp(targets)


def test_scikit_learn_takes_it_for_a_fitted_estimator() -> None:
    """Its tools score, inspect and calibrate a federated model as any other."""
    model = federate(dealt(X, LABELS), ridge=1.0)
    check_is_fitted(model)
    assert is_classifier(model)
    assert model.score(X, LABELS) == accuracy_score(LABELS, model.predict(X))
    assert list(model.classes_) == ["benign", "malignant"]
    assert (model.n_features_in_, model.coef_.shape, model.intercept_.shape) == (30, (1, 30), (1,))
    assert np.allclose((X @ model.coef_.T + model.intercept_)[:, 0], model.decision_function(X), atol=1e-6)
    assert np.array_equal(model.exact_predict(X), model.predict(X))
    assert RocCurveDisplay.from_estimator(model, X, LABELS).roc_auc > 0.9
    assert partial_dependence(model, X, [0])["average"].shape[0] == 1
    importances = permutation_importance(model, X[:80], LABELS[:80], n_repeats=2, random_state=0).importances_mean
    assert importances.max() > 0
    calibrated = CalibratedClassifierCV(FrozenEstimator(model)).fit(X[::2], LABELS[::2])
    assert np.allclose(calibrated.predict_proba(X).sum(axis=1), 1)
    with pytest.raises(UsageError, match=r"trained by federate\(sites\)"):
        model.fit(X, LABELS)
    features, targets = load_diabetes(return_X_y=True)
    regression = federate(dealt(features, targets))
    assert is_regressor(regression)
    assert abs(regression.score(features, targets) - 0.5177) < 1e-3
    assert np.allclose(features @ regression.coef_[0] + regression.intercept_, regression.predict(features))
    both = federate(dealt(features, np.stack([targets, targets], axis=1)), "random", d_phi=8)
    with pytest.raises(AttributeError, match="agreed-random has no coefficients: it is no linear map"):
        _ = both.coef_
    with pytest.raises(AttributeError, match="no class labels"):
        _ = regression.classes_
    with pytest.raises(AttributeError, match="qda has no coefficients"):
        _ = federate(dealt(X, LABELS), "qda", ridge=1.0).coef_


def test_several_classes_a_row_are_zeros_and_ones() -> None:
    both = np.stack([ILL, ILL], axis=1)
    assert (federate(dealt(X, both), ridge=1.0).predict(X) == both).mean() > 0.9


def test_frames_weights_dropouts_and_probabilities() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pip install pandas")
    frame = pandas.DataFrame(X, columns=[f"column {place}" for place in range(X.shape[1])])
    sites = {
        name: (*own, np.ones(len(own[1]), int)) for name, own in dealt(frame, pandas.Series(LABELS), "ABCDE").items()
    }
    model = federate(sites, "logistic", dropouts={"E": 1}, ridge=1.0)
    assert model.run is not None
    assert set(model.run.survivors) == {(1, 2, 3, 4)}
    probabilities = model.predict_proba(frame)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.array_equal(np.array(model.classes)[probabilities.argmax(axis=1)], model.predict(frame))
    with pytest.raises(UsageError, match="X needs the columns column 0, column 1"):
        model.predict(frame.iloc[:, ::-1])
    with pytest.raises(AttributeError, match="train learner='logistic'"):
        _ = federate(sites).predict_proba


def test_a_learner_with_its_parameters_takes_numbered_sites() -> None:
    learner = AFL(n_features=30, n_targets=2, feature_format=RowFormat.parse("UQ13.4"), max_rows=600, ridge=1.0)
    sites = {party: ClientRows(*own) for party, own in zip((3, 5, 9), dealt(X, ILL).values(), strict=True)}
    model = federate(sites, learner, mode="masked")
    assert model.run is not None
    assert model.run.survivors == ((3, 5, 9),)
    assert learner.weights_bytes(model.model) == learner.weights_bytes(fit_pooled(learner, ClientRows(X, ILL)))
    with pytest.raises(UsageError, match="ridges is for a learner by name"):
        federate(sites, learner, ridges=(1.0,))


class OfAnotherPackage(AFL):
    """A least-squares learner whose name ends as a probabilistic one's."""

    @property
    def name(self) -> str:
        return "centred-lda"


def test_probabilities_follow_the_kind_of_a_learner() -> None:
    """Scores of a linear map are no logarithms of probabilities, whatever the learner is called."""
    learner = OfAnotherPackage(
        n_features=30, n_targets=2, feature_format=RowFormat.parse("UQ13.4"), max_rows=600, ridge=1.0
    )
    model = federate(dealt(X, ILL), learner)
    with pytest.raises(AttributeError, match="scores of centred-lda are no probabilities"):
        _ = model.predict_proba


SITES = dealt(X, LABELS)


def changed(*, of: Any = LABELS, **change: Callable[[Any], Any]) -> dict[str, Any]:
    """The sites, with X or y of the second one otherwise."""
    features, targets = dealt(X, of)["B"]
    other = {"X": lambda X: X, "y": lambda y: y} | change
    return dealt(X, of) | {"B": (other["X"](features), other["y"](targets))}


def sparse(features: Any) -> Any:
    from scipy.sparse import csr_array

    return csr_array(features)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: federate([SITES["A"]]), "sites must be a dict"),  # type: ignore[arg-type]
        (lambda: federate({"A": SITES["A"]}), "sites must be at least 2, not 1"),
        (lambda: federate(SITES, mode=None), "mode must be one of plain, masked"),  # type: ignore[arg-type]
        (lambda: federate(SITES, mode="none"), "mode must be one of plain, masked"),
        (lambda: federate(SITES, dropouts={"Z": 1}), "dropouts must name sites, and 'Z' is none of A, B, C"),
        (lambda: federate(SITES, dropouts=["A"]), "dropouts must be a dict"),  # type: ignore[arg-type]
        (lambda: federate(SITES | {"D": X}), r"sites\['D'\] must be \(X, y\)"),
        (lambda: federate(SITES | {"D": (X, LABELS[:3])}), r"sites\['D'\] must have one y for each row of X"),
        (lambda: federate(SITES | {"D": (X[:, :5], LABELS)}), "their X have 30 at 'C', 5 at 'D'"),
        (lambda: federate(SITES | {"D": (X.astype(str), LABELS)}), r"X of sites\['D'\] must be numbers"),
        (lambda: federate(SITES | {"D": (X, ILL)}), "is texts at 'C', whole numbers at 'D'"),
        (lambda: federate(SITES | {"D": (X, ILL.astype(float))}), "is texts at 'C', floats at 'D'"),
        (lambda: federate(dict.fromkeys("ABC", (X[:0], ILL[:0]))), "sites must have rows, and none has one"),
        (lambda: federate(dealt(X, ILL * 0)), "y must have at least two classes"),
        (
            lambda: federate({name: (*rows, np.zeros(len(rows[1]))) for name, rows in SITES.items()}),
            "all weights are 0",
        ),
        (lambda: federate(changed(y=lambda y: np.where(np.arange(len(y)) == 3, np.nan, 1.0))), "1 of 190 are missing"),
        (
            lambda: federate(changed(y=lambda y: [None, *y[1:].tolist()])),
            r"y of sites\['B'\] must have a target in each",
        ),
        (
            lambda: federate(changed(X=lambda X: np.where(X[3, 4] == X, np.inf, X))),
            r"1 of 190 rows do not \(columns 4\)",
        ),
        (
            lambda: federate(changed(X=lambda X: np.where(X[3, 4] == X, 2.0**64, X))),
            r"X of sites\['B'\] must hold finite numbers below 1\.84467e\+19, and 1 of 190 rows do not \(columns 4\)",
        ),
        (
            lambda: federate(changed(X=lambda X: np.where(X[3, 4] == X, 2**64, X.astype(object)))),
            r"X of sites\['B'\] must hold finite numbers below",
        ),
        (
            lambda: federate(changed(X=lambda X: np.full(X.shape, 10**400, object))),
            r"sites\['B'\] .* as float64",
        ),
        (lambda: federate(dealt(X, X[:, 0] * 2.0**64)), r"y of sites\['A'\] must hold finite numbers below"),
        (lambda: federate(dealt(X, ILL.astype(object) * 2**64)), r"y of sites\['A'\] must have labels that 64 bits"),
        (lambda: federate(changed(X=lambda X: [*X[1:].tolist(), [1.0]])), r"cannot be made one \(ValueError\)"),
        (lambda: federate(changed(X=sparse)), "not a sparse matrix: give"),
        (lambda: federate(SITES, ridge=1.0).predict(X * np.nan), "X must hold finite numbers"),
        (lambda: federate(SITES | {"D": (X, np.stack([ILL, ILL], axis=1))}), "sites must have y of one shape"),
        (lambda: federate(SITES, classes=["benign"]), "classes must name every label once, and 1 of y are missing"),
        (lambda: federate(SITES, "nope"), "learner must be one of afl"),
        (lambda: federate(SITES, n_layers=3), "n_layers is no parameter of afl"),
        (lambda: federate(SITES, ridge="much"), "ridge must be a number of at least 0, or cv"),
        (lambda: federate(SITES, ridge=-1.0), "ridge must be a number of at least 0, or cv"),
        (lambda: federate(dealt(X, X[:, 0]), "logistic"), "logistic takes class labels, and y has real targets"),
        (lambda: federate(dealt(X, X[:, 0]), format="Q13.4"), "target_format must be stated with format"),
    ],
)
def test_a_wrong_argument_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()


def test_rows_that_leave_a_format_are_those_of_a_site_by_its_name() -> None:
    with pytest.raises(RowsOutsideFormatError, match=r"^sites\['A'\]: \d+ of \d+ rows do not fit Q5\.11"):
        federate(SITES, format="Q5.11")


def test_a_hidden_entry_is_not_taken_as_it_lies() -> None:
    with pytest.raises(InvalidRowsError, match="a masked one"):
        federate(changed(X=lambda X: np.ma.masked_less(X, 1.0)))


def test_targets_of_another_order_are_refused_and_columns_of_all_numbers_are_read() -> None:
    pandas = needs("pandas")
    frame, ill = pandas.DataFrame(X[:, :3], columns=list("abc")), pandas.Series(ILL)
    whole = frame.assign(n=pandas.Series(ILL, dtype="Int64"), b=frame["b"] > 18, c=frame["c"].astype("Float64"))
    found = {name: (whole.iloc[at::3], ill.iloc[at::3].to_frame()) for at, name in enumerate("ABC")}
    other = {name: (rows.astype(float), targets.to_numpy()[:, 0]) for name, (rows, targets) in found.items()}
    assert (
        federate(found, ridge=1.0, intercept=True).weights.tolist()
        == federate(other, ridge=1.0, intercept=True).weights.tolist()
    )
    with pytest.raises(UsageError, match=r"indices are the same in another order.*y\.loc\[X\.index\]"):
        federate(found | {"B": (whole, ill[::-1])})
    with pytest.raises(UsageError, match=r"c \(category\) not"):
        federate(found | {"B": (whole.assign(c=whole["c"].astype("category")), ill)})
    with pytest.raises(UsageError, match=r"1 of 569 rows do not \(columns n\)"):
        federate(found | {"B": (whole.assign(n=whole["n"].where(whole.index != 5)), ill)})


@pytest.mark.parametrize(
    ("sites", "said"),
    [
        (lambda: dealt(X, ILL.astype(float)), "y holds floats and is taken for a real target"),
        (lambda: dealt(X, np.eye(2, dtype=int)[ILL]), "is one 1 among zeros and is taken for 2 classes"),
        (lambda: changed(y=lambda y: np.char.upper(y)), "'BENIGN', 'benign' are taken for a class each"),
        (lambda: changed(y=lambda y: y + 1, of=ILL), "site 'B' has labels that no other site has, and lacks one"),
        (lambda: SITES | {"D": SITES["A"]}, "sites 'A' and 'D' have the same rows"),
        (lambda: changed(X=lambda X: np.where(np.arange(X.size).reshape(X.shape) % 97 == 0, -999.0, X)), "-999"),
        (lambda: changed(X=lambda X: X * np.r_[1000.0, np.ones(29)]), "column 0 of site 'B' lies beyond all values"),
        (lambda: changed(X=lambda X: X[:, ::-1]), "column 0 of site 'B' lies beyond"),
        (lambda: dealt(X[:, :2] + 1e7, LABELS), r"column 0 has values .* take a public round number off"),
        (lambda: dealt(X * 1e-40, LABELS), "less than 8 bits: give it in a larger unit"),
        (lambda: dealt(X, X[:, 0] + 1e9), r"target 0 has values .*take a public round number off, such as 1000000000"),
        (lambda: dealt(X[:, :2], LABELS), r"without an intercept finds \d\d% of these rows' labels"),
    ],
)  # fmt: skip
def test_what_may_have_been_meant_otherwise_is_warned_of(sites: Callable[[], Any], said: str) -> None:
    """Each of these gave a model without a word, and not the one that was meant."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with suppress(AnalyticError):
            federate(sites(), mode="plain", ridge=1e-6)
    assert any(re.search(said, str(one.message)) for one in found), [str(one.message) for one in found]


@pytest.mark.parametrize("other", [[1.0, 0.0], ["a", "b"]])
def test_batches_have_targets_of_one_kind(other: list[Any]) -> None:
    with pytest.raises(InvalidRowsError, match="batches need targets of one kind"):
        ClientRows.from_batches([(X[:2], [0, 1]), (X[2:4], other)])


def test_white_space_makes_no_class() -> None:
    plain, blanks = (
        federate(sites, mode="plain", ridge=1.0) for sites in (SITES, changed(y=lambda y: np.char.add(y, " ")))
    )
    assert plain.classes == blanks.classes
    assert plain.weights.tolist() == blanks.weights.tolist()


def test_a_wrong_format_is_no_raw_error() -> None:
    with pytest.raises(AnalyticError, match="a row format reads like Q5"):
        federate(SITES, format="five bits")


@pytest.mark.parametrize(("unit", "delta", "n"), [("record", 0.1, 569), ("client", 0.4, 3)])
def test_a_delta_that_protects_nobody_is_warned_of(unit: Any, delta: float, n: int) -> None:
    plan = PrivacyPlan(epsilon=1.0, delta=delta, unit=unit, min_noise_shares=3, colluders=1)
    with pytest.warns(UserWarning, match=f"privacy: delta {delta:g} is too large for {n} {unit}s"):
        federate(dealt(X, LABELS), format="Q13.8", privacy=plan)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federate(dealt(X, LABELS), format="Q13.8", privacy=replace(plan, delta=1e-5))


def test_two_sites_are_warned_of() -> None:
    """Each takes its own part off the total, and what is left is the other's."""
    with pytest.warns(UserWarning, match="sites are 2: each can take its own part off a total"):
        federate(dealt(X, LABELS, "AB"), mode="plain")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        federate(SITES, mode="plain")


def test_amounts_given_as_whole_numbers_are_no_classes() -> None:
    """1 397 kWh figures became as many classes, whose predictions could be believed."""
    rng = np.random.default_rng(0)
    sites = {name: (rng.normal(size=(40, 3)), rng.integers(1, 10**6, 40)) for name in "ABC"}
    with pytest.raises(UsageError, match=r"its whole numbers would be 120 classes, .*give amounts as floats"):
        federate(sites)
    assert federate({name: (X, y.astype(float)) for name, (X, y) in sites.items()}).classes is None


def test_a_printed_model_says_what_it_predicts_from_what() -> None:
    rng = np.random.default_rng(0)
    sites = {name: (rng.normal(size=(40, 3)), [f"ward {n % 8}" for n in range(40)]) for name in "ABC"}
    assert repr(federate(sites)) == (
        "FederatedModel(agreed-afl: 3 features, classes ward 0, ward 1, ward 2, ward 3, ward 4 and 3 more, "
        "trained by 3 sites)"
    )
    targets = {name: (X, rng.normal(size=40)) for name, (X, _) in sites.items()}
    assert repr(federate(targets)) == "FederatedModel(agreed-afl: 3 features, a real target, trained by 3 sites)"
