"""QDA: Friedman's regularised discriminants of the rows of the sum, exact, and what its total tells of a class."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from analytic.discriminant import LDA, NEVER, QDA
from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.solve.certified import log_determinant
from analytic.solve.digits import Digits, digit_bits
from analytic.torch_export import to_torch
from analytic_secagg.errors import UsageError
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
WHOLE = QDA(**SIZES, columns=COLUMNS)


def rows(n: int = 400) -> ClientRows:
    """Rows of classes that differ in their means and in their spread."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, C, n)
    return ClientRows(rng.normal(size=(n, D)) * (1 + labels[:, None]) + 0.3 * labels[:, None], labels)


@pytest.mark.parametrize(("shrinkage", "ridge"), [(0.0, 0.0), (0.1, 0.0), (0.5, 3.0), (1.0, 0.25)])
def test_scores_are_friedmans_on_the_rows_of_the_sum(shrinkage: float, ridge: float) -> None:
    learner, own = replace(WHOLE, shrinkage=shrinkage, ridge=ridge), rows()
    held = FORMAT.dequantise(FORMAT.quantise(COLUMNS.features(own.features)))[:, :D]
    groups = [held[own.targets == label] for label in range(C)]
    scatters = [(group - group.mean(axis=0)).T @ (group - group.mean(axis=0)) for group in groups]
    expected = []
    for group, scatter in zip(groups, scatters, strict=True):
        within = (1 - shrinkage) * scatter + shrinkage * sum(scatters) + ridge * np.eye(D)
        covariance = within / ((1 - shrinkage) * len(group) + shrinkage * len(held))
        far, (_, log_det) = held - group.mean(axis=0), np.linalg.slogdet(covariance)
        distances = np.einsum("ni,ni->n", far, np.linalg.solve(covariance, far.T).T)
        expected.append(np.log(len(group) / len(held)) - (distances + log_det) / 2)
    model = fit_pooled(learner, own)
    scores = learner.decision_function(model, 2 * held)  # columns are halved on their way into the sum
    np.testing.assert_allclose(scores, np.array(expected).T, rtol=1e-10, atol=1e-10)
    assert model.solution is not None
    assert model.solution.certified
    if shrinkage == 1.0:
        linear = LDA(**SIZES, columns=COLUMNS, ridge=ridge)
        difference = scores - linear.decision_function(fit_pooled(linear, own), 2 * held)
        np.testing.assert_allclose(difference, difference[:, :1] @ np.ones((1, C)), atol=1e-9)


def test_a_class_without_rows_is_never_chosen_and_columns_of_zeros_weigh_nothing() -> None:
    own = rows()
    own.features[:, 2] = 0.0
    few = own.taken(own.targets != 3)
    model = fit_pooled(WHOLE, few)
    forms = np.split(model.weights, C, axis=1)
    assert not any(form[2].any() or form[:, 2].any() for form in forms)
    assert (WHOLE.decision_function(model, own.features)[:, 3] == NEVER).all()
    without = np.delete(few.features, 2, axis=1)
    narrow = replace(WHOLE, n_features=D - 1, columns=replace(COLUMNS, exponents=(1,) * (D - 1)))
    others = fit_pooled(narrow, ClientRows(without, few.targets))
    assert WHOLE.exact_scores(model, few.features).tobytes() == narrow.exact_scores(others, without).tobytes()


def test_a_class_with_fewer_rows_than_features_needs_a_shrinkage() -> None:
    own = rows()
    few = own.taken(np.flatnonzero((own.targets != 1) | (np.cumsum(own.targets == 1) <= 5)))
    with pytest.raises(NotPositiveDefiniteError, match=r"within class 1, of 5 rows, .* use a shrinkage above 0"):
        fit_pooled(replace(WHOLE, shrinkage=0.0), few)
    own.features[:, 4] = own.features[:, 1]
    with pytest.raises(NotPositiveDefiniteError, match="a ridge above 0 where that is not enough"):
        fit_pooled(WHOLE, own)
    for learner, those in ((WHOLE, few), (replace(WHOLE, shrinkage=0.0, ridge=0.01), own)):
        assert np.isfinite(fit_pooled(learner, those).weights).all()


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


def total_of(learner: Any, parts: list[ClientRows]) -> tuple[Federation[Any], Any]:
    """The total of clients, as an adversary has it."""
    federation = Federation(learner, release=None)
    step = federation.next_sum
    assert step is not None
    return step, sum((step.vector(own) for own in parts), start=np.zeros(step.layout.size, dtype=np.int64))


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


def test_a_class_of_one_client_is_that_clients_own_statistics_and_is_refused() -> None:
    own = rows()
    parts = [
        own.taken(np.flatnonzero((own.targets == 3) == (k == 0))[k::5] if k else own.targets == 3) for k in range(6)
    ]
    step, total = total_of(WHOLE, parts)
    alone = WHOLE.client_statistics(WHOLE.init(), parts[0])[3]
    statistics = WHOLE.exact_total(step.model, step.spec.from_vector(total), 6)
    assert statistics[3].to_bytes() == alone.to_bytes()
    with pytest.raises(ReleaseRefusedError, match=r"part 4 of 4 .* at least 5 clients and has 1"):
        ReleasePolicy().before_release(statistics, range(6))
    assert [one.n_clients for one in statistics] == [5, 5, 5, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shrinkage": 1.5}, "from 0 to 1, not 1.5"),
        ({"shrinkage": float("nan")}, "from 0 to 1"),
        ({"lift": RandomMap(n_features=D, n_columns=9, feature_bound=8.0)}, "leave random features out"),
        ({"columns": None}, "qda has intercepts"),
        ({"n_targets": 10**12}, "at most 10000 classes and not 1000000000000"),
        ({"target_format": FORMAT}, "qda is for class labels"),
    ],
)
def test_what_qda_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        replace(WHOLE, **changes)


def test_no_noise_no_real_targets_no_layers_and_one_class_a_row() -> None:
    with pytest.raises(SpecificationError, match="qda"):
        PrivacyPlan(epsilon=1.0, delta=1e-5, min_noise_shares=2).apply(WHOLE)
    settings = LearnerSettings(
        n_features=D, n_classes=C, feature_format=FORMAT, max_rows=9, max_clients=2, target_format=FORMAT
    )
    with pytest.raises(UsageError, match="qda is for class labels"):
        LEARNERS["qda"].build(settings)
    with pytest.raises(SpecificationError, match="quadratic in a row, and no layer is"):
        to_torch(WHOLE, fit_pooled(WHOLE, rows()))
    with pytest.raises(InvalidRowsError, match="qda needs one class a row"):
        fit_pooled(WHOLE, ClientRows(np.zeros((3, D)), np.eye(3, C, dtype=int)))
