"""Choosing a penalty from sums of folds: the path is that of the pooled rows, and scikit-learn's up to its rounding."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from support.composed import choosing
from support.learner_driver import steps

from analytic.afl import AFL
from analytic.discriminant import LDA
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.estimators import AFLRegressor
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_in_the_clear, fit_pooled
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.pipeline import Pipeline
from analytic.row_format import ColumnMap, RowFormat
from analytic.selection import Choice, Criterion
from analytic.statistics import LABELS
from analytic.validation_path import Path, Rule
from analytic_secagg import federate
from analytic_secagg.federation import Federation
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import ReleasePolicy, ReleaseRefusedError
from secagg import SumResult
from secagg.dp import PrivacyError

RNG = np.random.default_rng(2)
X = RNG.uniform(-1, 1, (90, 5))
Y = X @ RNG.normal(size=(5, 2)) + RNG.normal(size=(90, 2)) + [3.0, -1.0]
LABEL = (Y[:, 0] > 3).astype(np.int64) + (Y[:, 1] > 0)
SIZES: dict[str, Any] = {
    "n_features": 5,
    "feature_format": RowFormat(integer_bits=0, fraction_bits=20),
    "max_rows": 200,
}
ONE = ColumnMap(exponents=(0,) * 5, intercept=1)
REAL = choosing(
    AFL(
        **SIZES,
        n_targets=2,
        target_format=RowFormat(integer_bits=0, fraction_bits=20),
        columns=replace(ONE, target_exponents=(4, 3)),
    ),
    ridges=(100.0, 0.01, 1.0, 10.0, 0.1),
)
CLASSES = choosing(AFL(**SIZES, n_targets=3, columns=ONE), n_folds=3, criterion=Criterion.CLASSES, ridges=(0.1, 10.0))


def folds_of(learner: Pipeline, rows: ClientRows) -> NDArray[np.intp]:
    assert learner.selection is not None
    return learner.selection.deal(rows, learner.head)


def changed(learner: Pipeline, **own: Any) -> Pipeline:
    """The learner that chooses in another way."""
    assert learner.selection is not None
    return replace(learner, selection=replace(learner.selection, **own))


def clients(targets: Any, n: int = 6) -> dict[int, ClientRows]:
    return {k + 1: ClientRows(X[k::n], targets[k::n]) for k in range(n)}


def test_the_path_is_scikit_learns_on_the_same_folds() -> None:
    model, folds = fit_pooled(REAL, ClientRows(X, Y)), folds_of(REAL, ClientRows(X, Y))
    assert model.path.values == (0.01, 0.1, 1.0, 10.0, 100.0)
    for place, ridge in enumerate(model.path.values):
        for fold in range(5):
            # our penalty is of scaled targets, which changes nothing: weights scale along
            fitted = Ridge(alpha=ridge).fit(X[folds != fold], Y[folds != fold])
            error = ((Y - fitted.predict(X))[folds == fold] ** 2).sum(axis=1).mean()
            assert model.path.errors[place, fold] == pytest.approx(error, rel=1e-4)  # 20 bits
    total = np.nansum(model.path.errors * np.bincount(folds, minlength=5), axis=1) / len(X)
    assert np.allclose(model.path.mean, total, rtol=1e-12)
    assert model.ridge == model.path.values[int(np.argmin(total))]
    settled, inner = REAL.settled(model)
    assert settled.ridge == model.ridge
    assert inner.weights.tobytes() == fit_pooled(settled, ClientRows(X, Y)).weights.tobytes()


def test_a_row_has_its_fold_wherever_it_lies_and_another_seed_deals_anew() -> None:
    folds, order = folds_of(REAL, ClientRows(X, Y)), np.arange(len(X))[::-1]
    assert np.array_equal(folds_of(REAL, ClientRows(X[order].astype(np.float64), Y[order])), folds[order])
    assert np.array_equal(folds_of(REAL, ClientRows(X[:7], Y[:7])), folds[:7])
    assert not np.array_equal(folds_of(changed(REAL, seed=1), ClientRows(X, Y)), folds)
    assert np.bincount(folds, minlength=5).min() > 5
    doubled = np.repeat(X[:20], 2, axis=0)
    twins = folds_of(REAL, ClientRows(doubled, np.repeat(Y[:20], 2, axis=0)))
    assert np.array_equal(twins[::2], twins[1::2])  # equal rows are never on both sides


@pytest.mark.parametrize(("learner", "targets"), [(REAL, Y), (CLASSES, LABEL)], ids=["squares", "classes"])
def test_a_masked_federation_takes_the_pooled_path_and_its_model_is_stored(learner: Pipeline, targets: Any) -> None:
    pooled = fit_pooled(learner, ClientRows(X, targets))
    model = federate(clients(targets), learner, "masked").model
    assert (model.ridge, model.weights.tobytes()) == (pooled.ridge, pooled.weights.tobytes())
    assert (model.path.errors.tobytes(), model.path.mean) == (pooled.path.errors.tobytes(), pooled.path.mean)
    assert model_from_bytes(model_to_bytes(learner, model)).model.path.mean == model.path.mean


def test_errors_of_classes_are_counted_without_the_fold() -> None:
    model, folds = fit_pooled(CLASSES, ClientRows(X, LABEL)), folds_of(CLASSES, ClientRows(X, LABEL))
    for place, ridge in enumerate(model.path.values):
        for fold in range(3):
            own = replace(CLASSES.head, ridge=ridge)
            fitted = fit_pooled(own, ClientRows(X[folds != fold], LABEL[folds != fold]))
            wrong = own.decision_function(fitted, X[folds == fold]).argmax(axis=1) != LABEL[folds == fold]
            assert model.path.errors[place, fold] == np.mean(wrong)


def test_one_standard_error_takes_the_largest_penalty_within_it_exactly() -> None:
    rows, values = (10, 10), (1.0, 2.0, 3.0, 4.0)
    sums = [[Fraction(a), Fraction(b)] for a, b in ((30, 30), (10, 30), (12, 33), (40, 40))]
    least = Path.of(values, sums, rows, Rule.LEAST)
    # errors 1 and 3 a row: mean 2, standard error sqrt((10 + 10) / 20 / 1) = 1; 2.25 is within it, 4 is not
    assert (least.choice, least.mean[1], least.standard_error[1]) == (2.0, 2.0, 1.0)
    assert Path.of(values, sums, rows, Rule.ONE_STANDARD_ERROR).choice == 3.0
    at_the_end = [[Fraction(30), Fraction(30)], *sums[1:3], [Fraction(25), Fraction(35)]]  # 3 = 2 + 1 exactly
    assert Path.of(values, at_the_end, rows, Rule.ONE_STANDARD_ERROR).choice == 4.0
    equal = Path.of(values, [sums[1]] * 4, rows, Rule.LEAST)
    assert equal.choice == 4.0


def test_a_client_chooses_its_own_alpha_from_the_sums_of_folds() -> None:
    learner = replace(
        REAL, head=FedHiP(**{f: getattr(REAL.head, f) for f in (*SIZES, "n_targets", "target_format", "columns")})
    )
    shifted = [ClientRows(X[k::3], Y[k::3] + 2.0 * k) for k in range(3)]
    model, alphas = fit_in_the_clear(learner, shifted), (0.0, 1.0, 30.0)
    own, folds = shifted[2], [folds_of(learner, rows) for rows in shifted]
    path = learner.choose_alpha(model, own, alphas)
    fedhip = replace(learner.head, ridge=model.ridge)
    assert isinstance(fedhip, FedHiP)
    for place, alpha in enumerate(alphas):
        for fold in range(5):
            kept = [
                ClientRows(r.features[f != fold], r.targets[f != fold]) for r, f in zip(shifted, folds, strict=True)
            ]
            (personal,) = fedhip.personalise(fit_in_the_clear(fedhip, kept), kept[2], [alpha])
            mine = folds[2] == fold
            scores = fedhip.decision_function(personal, own.features[mine])
            error = ((own.targets[mine] - scores) ** 2).sum(axis=1).mean()
            assert path.errors[place, fold] == pytest.approx(error, rel=1e-4)
    assert path.choice == 30.0
    saved = model_from_bytes(model_to_bytes(learner, model, with_totals=True))
    assert learner.choose_alpha(saved.model, own, alphas).mean == path.mean
    (personal,) = learner.personalise(model, own, [path.choice])
    assert learner.weights_bytes(personal) == fedhip.weights_bytes(personal.head)
    assert learner.decision_function(personal, X).tobytes() == fedhip.decision_function(personal.head, X).tobytes()
    published = model_from_bytes(model_to_bytes(learner, model))
    with pytest.raises(NotReadyError, match="sums of the folds"):
        learner.choose_alpha(published.model, own, alphas)
    for few in ((), (-1.0,), (float("inf"),)):
        with pytest.raises(SpecificationError, match="finite alphas >= 0"):
            learner.choose_alpha(model, own, few)
    with pytest.raises(NotReadyError, match="how its penalty was chosen"):
        _ = replace(model, choice=Choice()).ridge
    assert getattr(replace(model, choice=None), "ridge", None) is None
    assert repr(learner.layers(model)) == repr(learner.head.layers(model.own))
    with pytest.raises(SpecificationError, match="no personal models"):
        REAL.choose_alpha(fit_pooled(REAL, ClientRows(X, Y)), own, alphas)


def test_every_fold_is_a_total_to_the_gates() -> None:
    """The pooled total passes; a fold of fewer rows than features, from which its rows follow, does not."""

    def taken(n_folds: int) -> None:
        chosen = changed(REAL, n_folds=n_folds)
        federation = Federation(chosen, release=ReleasePolicy())
        step = federation.next_sum
        assert step is not None
        total = sum(step.vector(rows) for rows in clients(Y).values())
        federation.take(SumResult(total=total, survivors=tuple(clients(Y))))

    taken(3)
    with pytest.raises(ReleaseRefusedError, match=r"rank: part \d+ of 30 .* rank"):
        taken(30)


def test_what_cannot_be_chosen_is_refused() -> None:
    for changes in ({"ridge": 1.0}, {"ri_gamma": 1.0}, {"target_sums": False}):
        with pytest.raises(SpecificationError, match="without an RI process"):
            replace(REAL, head=replace(REAL.head, **changes))
    lda = LDA(**SIZES, n_targets=3, columns=ONE)
    with pytest.raises(SpecificationError, match="for afl, random or fedhip, and lda states its own"):
        replace(CLASSES, head=lda)
    for wrong in ({"n_folds": 1}, {"ridges": (-1.0,)}, {"criterion": Criterion.CLASSES}):
        with pytest.raises(SpecificationError):
            changed(REAL, **wrong)
    with pytest.raises(InvalidRowsError, match=r"counted for labels of shape \(n,\), not \(.*, 2\)"):
        CLASSES.client_statistics(list(steps(CLASSES, [ClientRows(X, LABEL)]))[1], ClientRows(X, np.zeros((90, 2))))
    with pytest.raises(PrivacyError, match="no private form"):
        PrivacyPlan(epsilon=1.0, min_noise_shares=5).apply(CLASSES)
    assert CLASSES.head.target_format == LABELS


def test_an_estimator_chooses_and_says_so() -> None:
    fitted = AFLRegressor(ridge="cv").fit(X, Y)
    assert fitted.ridge_ == fitted.path_.choice
    assert len(fitted.path_.values) == 9
    by_hand = AFLRegressor(ridge=fitted.ridge_).fit(X, Y)
    assert fitted.learner_.weights_bytes(fitted.model_) == by_hand.learner_.weights_bytes(by_hand.model_)
    with pytest.raises(SpecificationError, match="not 'best'"):
        AFLRegressor(ridge="best").fit(X, Y)


def test_folds_without_rows_say_nothing_of_the_error() -> None:
    """Two folds of means 1 and 3 have a standard error of 1, whatever stands empty beside them."""
    sums = [[Fraction(10), Fraction(30)]]
    two, among = (
        Path.of([1.0], [own + [Fraction(0)] * n for own in sums], [10, 10] + [0] * n, Rule.LEAST) for n in (0, 3)
    )
    assert two.standard_error == among.standard_error == (1.0,)
    assert Path.of([1.0], [[Fraction(10), Fraction(0)]], [10, 0], Rule.LEAST).standard_error == (0.0,)


def test_a_seed_of_more_than_64_bits_is_refused() -> None:
    learner = AFL(n_features=2, n_targets=2, feature_format=RowFormat.parse("Q3.8"), max_rows=100)
    with pytest.raises(SpecificationError, match="64 bits"):
        choosing(learner, ridges=(1.0,), seed=2**63)
