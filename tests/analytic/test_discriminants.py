"""LDA, QDA and naive Bayes: the classifiers of textbooks on the rows of the sum, and what a total tells of a class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.naive_bayes import GaussianNB

from analytic.afl import AFL
from analytic.discriminant import LDA, NEVER, QDA
from analytic.errors import ImpossibleTotalError, InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.naive_bayes import NaiveBayes
from analytic.noisy_solve import NoisySolver
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.solve.certified import log_determinant
from analytic.solve.digits import Digits, digit_bits
from analytic.statistics import Statistics
from analytic.torch_export import to_torch
from analytic_secagg.errors import UsageError
from analytic_secagg.federated_model import federate
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError
from simulations.audit.attacks.rows import LATTICE_ROWS
from simulations.audit.view import Reading

D, C = 6, 4
FORMAT = RowFormat.parse("Q4.11")
COLUMNS = ColumnMap(exponents=(1,) * D, intercept=2)
SIZES: dict[str, Any] = {"n_features": D, "n_targets": C, "feature_format": FORMAT, "max_rows": 1000}
LINEAR, WHOLE, NAIVE = (kind(**SIZES, columns=COLUMNS) for kind in (LDA, QDA, NaiveBayes))
EACH = pytest.mark.parametrize("learner", [LINEAR, WHOLE, NAIVE], ids=lambda one: one.name)
BY_CLASS = pytest.mark.parametrize("learner", [WHOLE, NAIVE], ids=lambda one: one.name)
"""Those whose total has a part for each class."""


def rows(n: int = 400) -> ClientRows:
    """Rows of classes that differ in their means and in their spread."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, C, n)
    return ClientRows(rng.normal(size=(n, D)) * (1 + labels[:, None]) + 0.3 * labels[:, None], labels)


def held(own: ClientRows) -> Any:
    """The rows of the sum."""
    return FORMAT.dequantise(FORMAT.quantise(COLUMNS.features(own.features)))[:, :D]


def total_of(learner: Any, parts: list[ClientRows]) -> tuple[Federation[Any], Any]:
    """The total of clients, as an adversary has it."""
    step = Federation(learner, release=None).next_sum
    assert step is not None
    return step, sum((step.vector(own) for own in parts), start=np.zeros(step.layout.size, dtype=np.int64))


# --- the textbook's classifier ---------------------------------------------------------------------------------


def test_lda_is_scikit_learns() -> None:
    own, model = rows(), fit_pooled(LINEAR, rows())
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(held(own), own.targets)
    weights, intercepts = model.weights[:D], np.ldexp(model.weights[D], -2)
    np.testing.assert_allclose(weights, theirs.coef_.T, rtol=0, atol=1e-11 * abs(theirs.coef_).max())
    np.testing.assert_allclose(intercepts, theirs.intercept_, rtol=0, atol=1e-11)
    assert model.solution.certified


def test_a_ridge_is_added_to_the_scatter_within_classes_and_ldas_sum_is_afls() -> None:
    learner, own, ridge = replace(LINEAR, ridge=3.0), rows(), 3.0
    means = np.array([held(own)[own.targets == label].mean(axis=0) for label in range(C)])
    within = (held(own) - means[own.targets]).T @ (held(own) - means[own.targets])
    weights = np.linalg.solve(within + ridge * np.eye(D), len(own) * means.T)
    np.testing.assert_allclose(fit_pooled(learner, own).weights[:D], weights, rtol=1e-11, atol=1e-11)
    afl = AFL(**SIZES, columns=COLUMNS)
    vectors = (one.spec.to_vector(one.client_statistics(one.init(), own)) for one in (learner, afl))
    assert next(vectors).tobytes() == next(vectors).tobytes()


@pytest.mark.parametrize(("shrinkage", "ridge"), [(0.0, 0.0), (0.1, 0.0), (0.5, 3.0), (1.0, 0.25)])
def test_qdas_scores_are_friedmans(shrinkage: float, ridge: float) -> None:
    learner, own = replace(WHOLE, shrinkage=shrinkage, ridge=ridge), rows()
    groups = [held(own)[own.targets == label] for label in range(C)]
    scatters = [(group - group.mean(axis=0)).T @ (group - group.mean(axis=0)) for group in groups]
    expected = []
    for group, scatter in zip(groups, scatters, strict=True):
        within = (1 - shrinkage) * scatter + shrinkage * sum(scatters) + ridge * np.eye(D)
        covariance = within / ((1 - shrinkage) * len(group) + shrinkage * len(own))
        far, (_, log_det) = held(own) - group.mean(axis=0), np.linalg.slogdet(covariance)
        distances = np.einsum("ni,ni->n", far, np.linalg.solve(covariance, far.T).T)
        expected.append(np.log(len(group) / len(own)) - (distances + log_det) / 2)
    model = fit_pooled(learner, own)
    scores = learner.decision_function(model, 2 * held(own))  # columns are halved on their way into the sum
    np.testing.assert_allclose(scores, np.array(expected).T, rtol=1e-10, atol=1e-10)
    assert model.solution.certified
    if shrinkage == 1.0:
        linear = replace(LINEAR, ridge=ridge)
        difference = scores - linear.decision_function(fit_pooled(linear, own), 2 * held(own))
        np.testing.assert_allclose(difference, difference[:, :1] @ np.ones((1, C)), atol=1e-9)


def test_naive_bayes_is_scikit_learns() -> None:
    learner, own = replace(NAIVE, shrinkage=0.0), rows()
    model, theirs = fit_pooled(learner, own), GaussianNB(var_smoothing=0.0).fit(held(own), own.targets)
    np.testing.assert_allclose(model.weights[:D], -0.5 / theirs.var_.T, rtol=1e-12)
    np.testing.assert_allclose(model.weights[D:-1], (theirs.theta_ / theirs.var_).T, rtol=1e-10, atol=1e-12)
    scores = learner.decision_function(model, 2 * held(own))  # columns are halved on their way into the sum
    expected = theirs.predict_joint_log_proba(held(own)) + D / 2 * np.log(2 * np.pi)
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(("shrinkage", "ridge"), [(0.0, 0.0), (0.25, 0.0), (0.5, 3.0), (1.0, 0.25)])
def test_naive_bayes_is_qda_where_columns_are_independent(shrinkage: float, ridge: float) -> None:
    """Every pattern of signs about a centre of each class: no column follows from another."""
    rng = np.random.default_rng(1)
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * D)).reshape(D, -1).T
    labels = np.repeat(np.arange(C), len(signs))
    features = np.concatenate([signs * rng.integers(1, 9, D) / 4 + rng.integers(-8, 8, D) / 4 for _ in range(C)])
    own = ClientRows(features, labels)
    both = (replace(one, shrinkage=shrinkage, ridge=ridge) for one in (NAIVE, WHOLE))
    found, expected = (one.decision_function(fit_pooled(one, own), features) for one in both)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("size", "bits"), [(1, 20), (30, 20), (9, 400)])
def test_a_log_determinant_is_the_nearest(size: int, bits: int) -> None:
    """Of matrices that float64 inverts, and of one that it does not tell from a singular one."""
    rng = np.random.default_rng(size)
    half = rng.integers(-(2**20), 2**20, (size, size))
    exact = (half @ half.T + np.eye(size, dtype=int)).astype(object)
    exact[0, :] <<= bits - 20
    exact[:, 0] <<= bits - 20
    matrix = _digits(exact)
    for power, over in ((0, Fraction(1)), (-3, Fraction(7, 3)), (-1000, Fraction(1))):  # the last is beyond float64
        with flint.ctx.workprec(5000):
            value = flint.fmpz_mat(exact.tolist()).det() * flint.fmpq(over.denominator, over.numerator)
            truth = flint.arb(value).log() + size * power * flint.arb(2).log()
            units = int((truth * flint.arb(2) ** 40 + flint.arb("0.5")).floor().unique_fmpz())
        assert log_determinant(matrix.shifted(power), over) == units / 2**40
    assert log_determinant(Digits.of(np.eye(3), 20)) == 0.0


def _digits(values: Any) -> Digits:
    """Large integers as digits."""
    bits, planes, rest = digit_bits(len(values)), [], values.copy()
    while rest.any():
        low = (rest + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        planes.append(low.astype(np.float64))
        rest = (rest - low) >> bits
    return Digits(np.array(planes), bits, 0)


# --- rows that say too little -----------------------------------------------------------------------------------


@EACH
def test_a_class_without_rows_is_never_chosen_and_columns_of_zeros_weigh_nothing(learner: Any) -> None:
    own = rows()
    own.features[:, 2] = 0.0
    few = own.taken(own.targets != 3)
    model = fit_pooled(learner, few)
    assert (learner.decision_function(model, own.features).argmax(axis=1) != 3).all()
    assert (learner.decision_function(model, own.features)[:, 3] <= NEVER / 4).all()  # the intercept is of a quarter
    without = np.delete(few.features, 2, axis=1)
    narrow = replace(learner, n_features=D - 1, columns=replace(COLUMNS, exponents=(1,) * (D - 1)))
    others = fit_pooled(narrow, ClientRows(without, few.targets))
    assert learner.exact_scores(model, few.features).tobytes() == narrow.exact_scores(others, without).tobytes()


def test_columns_that_follow_from_others_need_a_ridge() -> None:
    own = rows()
    own.features[:, 4] = own.features[:, 1]
    with pytest.raises(NotPositiveDefiniteError, match="use a ridge above 0"):
        fit_pooled(LINEAR, own)
    with pytest.raises(NotPositiveDefiniteError, match="a ridge above 0 where that is not enough"):
        fit_pooled(WHOLE, own)
    for learner in (replace(LINEAR, ridge=0.01), replace(WHOLE, shrinkage=0.0, ridge=0.01)):
        assert np.isfinite(fit_pooled(learner, own).weights).all()


@pytest.mark.parametrize("seed", range(6))
def test_equal_rows_need_a_ridge(seed: int) -> None:
    """No class scatters, and values near the format's largest make a system whose kernel float64 does not solve."""
    labels, features = np.random.default_rng(seed).integers(0, 3, 12), np.full((12, 2), 8 - 1 / 64)
    sites = {site: (features[site::2], labels[site::2]) for site in range(2)} | {2: (features[:2], labels[:2])}
    with pytest.raises(NotPositiveDefiniteError, match="use a ridge above 0, or more rows"):
        federate(sites, "lda", "plain", classes=(0, 1, 2))


def test_a_class_with_fewer_rows_than_features_needs_a_shrinkage() -> None:
    own = rows()
    few = own.taken(np.flatnonzero((own.targets != 1) | (np.cumsum(own.targets == 1) <= 5)))
    with pytest.raises(NotPositiveDefiniteError, match=r"within class 1, of 5 rows, .* use a shrinkage above 0"):
        fit_pooled(replace(WHOLE, shrinkage=0.0), few)
    assert np.isfinite(fit_pooled(WHOLE, few).weights).all()


def test_a_column_without_variance_needs_a_shrinkage_or_a_ridge() -> None:
    own = rows()
    own.features[own.targets == 1, 4] = 0.5
    with pytest.raises(NotPositiveDefiniteError, match=r"column 4 .* use a shrinkage above 0"):
        fit_pooled(replace(NAIVE, shrinkage=0.0), own)
    own.features[:, 4] = 0.5
    with pytest.raises(NotPositiveDefiniteError, match="a ridge above 0 where that is not enough"):
        fit_pooled(NAIVE, own)
    assert np.isfinite(fit_pooled(replace(NAIVE, ridge=0.01), own).weights).all()


# --- what a total gives away, and what no rows have ----------------------------------------------------------------


def test_the_total_gives_rows_away_that_ldas_hides_and_gates_say_so() -> None:
    """24 rows are too many for a lattice of 12 features, and 6 of a class are not."""
    rng, names = np.random.default_rng(1), {"n_features": 12, "columns": ColumnMap(exponents=(0,) * 12, intercept=0)}
    own = ClientRows(rng.integers(0, 8, (24, 12)).astype(float), np.arange(24) % C)
    parts = [own.taken(np.arange(24) % 8 == k) for k in range(8)]  # two clients a class
    found = {}
    for learner in (LDA(**SIZES | names), QDA(**SIZES | names)):
        step, total = total_of(learner, parts)
        found[learner.name] = LATTICE_ROWS.read(Reading.of(step.layout, total), None)
        statistics = learner.exact_total(step.model, step.spec.from_vector(total), 8)
    assert found["lda"] is None
    assert found["qda"].certified
    rebuilt = zip((found["qda"].rows / 2**11).tolist(), found["qda"].labels.tolist(), strict=True)
    assert sorted(rebuilt) == sorted(zip(own.features.tolist(), own.targets.tolist(), strict=True))
    with pytest.raises(ReleaseRefusedError) as refusal:
        ReleasePolicy(min_survivors=3).before_release(statistics, range(8))
    assert [(one.gate, one.message[:11]) for one in refusal.value.concerns] == [
        (gate, f"part {part} of 4") for part in range(1, 5) for gate in (Gate.SURVIVORS, Gate.ROWS, Gate.RANK)
    ]


@BY_CLASS
def test_a_class_of_few_rows_or_of_one_client_is_refused(learner: Any) -> None:
    """One client's class is that client's own statistics."""
    own = rows()
    parts = [
        own.taken(np.flatnonzero((own.targets == 3) == (k == 0))[k::5] if k else own.targets == 3) for k in range(6)
    ]
    step, total = total_of(learner, parts)
    statistics = learner.exact_total(step.model, step.spec.from_vector(total), 6)
    assert statistics[3].to_bytes() == learner.client_statistics(learner.init(), parts[0])[3].to_bytes()
    assert [one.n_clients for one in statistics] == [5, 5, 5, 1]
    with pytest.raises(ReleaseRefusedError, match=r"part 4 of 4 .* at least 5 clients and has 1"):
        ReleasePolicy().before_release(statistics, range(6))
    few = learner.exact_total(step.model, learner.client_statistics(learner.init(), rows(8 * D)), 6)
    with pytest.raises(ReleaseRefusedError, match=r"rank"):
        ReleasePolicy(min_survivors=3).before_release(few, range(6))


FAULTS: dict[str, tuple[Callable[[Statistics], Statistics], str]] = {
    "a square below zero": (lambda t: replace(t, gram=-t.gram), "sums of squares in 0 to"),
    "squares too large": (lambda t: replace(t, gram=t.gram << 12), "sums of squares in 0 to"),
    "sums too large": (lambda t: replace(t, cross=t.cross + (1 << 40)), "sums of columns that so many rows"),
    "sums beyond their squares": (lambda t: replace(t, gram=t.gram * 0 + (t.gram & 1)), "of at most the rows times"),
    "an odd sum of even squares": (lambda t: replace(t, cross=t.cross + 1), "both even or both odd"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_total_that_no_rows_have_is_refused(fault: str) -> None:
    """By naive Bayes; of the others, in ``test_total_check.py``."""
    tamper, needs = FAULTS[fault]
    spec, total = NAIVE.classes_spec.parts[3], NAIVE.client_statistics(NAIVE.init(), rows())[3]
    spec.check_total(total, 1)
    with pytest.raises(ImpossibleTotalError, match=needs):
        spec.check_total(tamper(total), 1)


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "changes", "message"),
    [
        (LINEAR, {"columns": None}, "lda has intercepts"),
        (LINEAR, {"target_sums": False}, "needs their counts"),
        (LINEAR, {"solver": NoisySolver()}, "no private form"),
        (LINEAR, {"target_format": FORMAT}, "lda is for class labels"),
        (WHOLE, {"target_format": FORMAT}, "qda is for class labels"),
        (WHOLE, {"columns": None}, "qda has intercepts"),
        (WHOLE, {"shrinkage": 1.5}, "from 0 to 1, not 1.5"),
        (WHOLE, {"shrinkage": float("nan")}, "from 0 to 1"),
        (WHOLE, {"lift": RandomMap(n_features=D, n_columns=9, feature_bound=8.0)}, "leave random features out"),
        (WHOLE, {"n_targets": 10**12}, "at most 10000 classes and not 1000000000000"),
    ],
)
def test_what_no_discriminant_can_be_is_refused(learner: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        replace(learner, **changes)


@EACH
def test_no_noise_and_one_class_a_row(learner: Any) -> None:
    with pytest.raises(SpecificationError, match=learner.name):
        PrivacyPlan(epsilon=1.0, delta=1e-5, min_noise_shares=2).apply(learner)
    with pytest.raises(InvalidRowsError, match=f"{learner.name} needs one class a row"):
        fit_pooled(learner, ClientRows(np.zeros((3, D)), np.eye(3, C, dtype=int)))


@BY_CLASS
def test_what_is_quadratic_in_a_row_has_no_layers(learner: Any) -> None:
    with pytest.raises(SpecificationError, match=f"scores of {learner.name} are quadratic in a row"):
        to_torch(learner, fit_pooled(learner, rows()))


@pytest.mark.parametrize("name", ["lda", "qda"])
def test_real_targets_are_refused_by_name(name: str) -> None:
    settings = LearnerSettings(
        n_features=D, n_classes=C, feature_format=FORMAT, max_rows=9, max_clients=2, target_format=FORMAT
    )
    with pytest.raises(UsageError, match=f"{name} is for class labels"):
        LEARNERS[name].build(settings)
