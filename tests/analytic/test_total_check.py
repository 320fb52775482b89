"""Totals of rows pass, whatever the rows; a total that no rows have is refused before it is a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.composed import choosing, of_kind, scaled, weighted

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.discriminant import LDA, QDA
from analytic.errors import AnalyticError, ImpossibleTotalError
from analytic.fedhip import FedHiP
from analytic.learner import AnalyticLearner, ClientRows
from analytic.logistic import Logistic
from analytic.naive_bayes import NaiveBayes
from analytic.partial_labels import PartialLabels
from analytic.pipeline import Pipeline
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe
from analytic.scaling import agreed_format
from analytic.statistics import IntMatrix, IntVector, Statistics
from analytic.total_check import EXACT_SIZE, exceeding_columns, is_semidefinite
from analytic_secagg.federation import Federation
from analytic_secagg.in_process import run_federation
from analytic_secagg.modes import MODES
from secagg import SumResult

Q = RowFormat.parse
D, C = 4, 3
SIZES: dict[str, Any] = {"n_features": D, "n_targets": C, "feature_format": Q("Q2.6"), "max_rows": 900, "ridge": 0.5}
ONES = ColumnMap(exponents=(0,) * D, intercept=0)
PLAIN = AFL(**SIZES)
LEARNERS: dict[str, AnalyticLearner[Any]] = {
    "afl": PLAIN,
    "afl with an intercept": AFL(**SIZES, columns=ONES),
    "afl with the RI process": AFL(**SIZES, ri_gamma=1.5, max_clients=9),
    "afl without class counts": AFL(**SIZES, target_sums=False),
    "afl of real targets": AFL(**SIZES, target_format=Q("Q3.5"), columns=ONES),
    "afl without signs": AFL(**SIZES | {"feature_format": Q("UQ2.6")}),
    "fedhip": FedHiP(**SIZES),
    "random": AFL(
        **SIZES | {"feature_format": Q("UQ4.6")},
        lift=RandomMap(n_features=D, n_columns=9, feature_bound=4.0, fraction_bits=6),
    ),
    "lda": LDA(**SIZES, columns=ONES, ri_gamma=0.5, max_clients=9),
    "qda": QDA(**SIZES, columns=ONES, ri_gamma=0.5, max_clients=9),
    "naive-bayes": NaiveBayes(**SIZES, columns=ONES, ri_gamma=0.5, max_clients=9),
    "chosen": choosing(AFL(**SIZES | {"ridge": 0.0}), n_folds=2),
    "weighted": weighted(PLAIN, max_weight=4),
    "weighted lda": weighted(LDA(**SIZES, columns=ONES), max_weight=4),
    "weighted qda": weighted(QDA(**SIZES, columns=ONES, ri_gamma=0.5, max_clients=9), max_weight=4),
    "weighted chosen": weighted(choosing(AFL(**SIZES | {"ridge": 0.0}), n_folds=C), max_weight=4),
    "weighted safle": weighted(
        SAFLe(
            n_features=D,
            n_classes=C,
            max_rows=900,
            thresholds=FixedThresholds(values=((-1.0, 0.0, 1.0, 2.0),)),
            n_buckets=4,
        ),
        max_weight=4,
    ),
    "balanced": weighted(replace(PLAIN, max_rows=10**6), class_weights="balanced", denominator=4),
    "partial": of_kind(PartialLabels, PLAIN, patterns=((0, 1, 2), (0, 2))),
    "logistic": of_kind(Logistic, PLAIN, n_rounds=1),
    "agreed": scaled(AFL(**SIZES | {"feature_format": agreed_format(900)}), agreement="standardised"),  # type: ignore[arg-type]
    "deepafl": DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=900, n_layers=1, d_phi=7, d_f=5),
    "safle": SAFLe(
        n_features=D,
        n_classes=C,
        max_rows=900,
        thresholds=FixedThresholds(values=((-1.0, 0.0, 1.0, 2.0),)),
        n_buckets=4,
    ),
    "safle of quantiles": SAFLe(
        n_features=D,
        n_classes=C,
        max_rows=900,
        thresholds=QuantileThresholds(low=-4.0, high=4.0, n_bins=8),
        n_buckets=4,
        ri_gamma=2,
        max_clients=9,
    ),
    "safle of real targets": SAFLe(
        n_features=D,
        n_classes=C,
        max_rows=900,
        thresholds=FixedThresholds(values=((-1.0, 0.0, 1.0, 2.0),)),
        n_buckets=4,
        real_format=Q("Q3.5"),
    ),
}


def rows_for(name: str, rng: np.random.Generator, n: int) -> ClientRows:
    """Rows of all kinds: spread, few different ones, zeros, or the largest values of the format."""
    features = {
        0: lambda: rng.uniform(-3.9, 3.9, (n, D)),
        1: lambda: rng.integers(-1, 2, (n, D)).astype(float),
        2: lambda: np.full((n, D), 255 / 64) * rng.choice([-1, 1], (n, 1)),
        3: lambda: np.repeat(rng.integers(-3, 4, (n, 1)), D, axis=1) * rng.integers(0, 2, (1, D)) * 1.0,
    }[int(rng.integers(4))]()
    if name in ("afl without signs",):
        features = np.abs(features)
    labels = rng.integers(0, int(rng.integers(1, C + 1)), n)
    if "real" in name:
        return ClientRows(features, rng.uniform(-7, 7, (n, C)) * rng.integers(0, 2, C))
    if name == "partial":
        targets = rng.integers(0, 2, (n, C))
        targets[rng.integers(0, 2, n) == 1, 1] = -1
        return ClientRows(features, targets)
    if name in ("afl", "afl with an intercept", "random") and rng.integers(2):
        return ClientRows(features, rng.integers(0, 2, (n, C)).astype(float))  # several classes a row, or none
    weights = rng.integers(0, 5, n) if name.startswith("weighted") else None
    return ClientRows(features, labels, weights)


@pytest.mark.parametrize("name", LEARNERS)
@given(seed=st.integers(0, 2**32))
def test_totals_of_rows_pass(name: str, seed: int) -> None:
    rng, learner = np.random.default_rng(seed), LEARNERS[name]
    parts = [rows_for(name, rng, int(n)) for n in rng.integers(0, 30, 3)]
    if name == "agreed":
        parts.append(ClientRows(rng.uniform(-3, 3, (9, D)), rng.integers(0, C, 9)))
    model = learner.init()
    while (spec := learner.next_sum(model)) is not None:
        vectors = [spec.to_vector(learner.client_statistics(model, rows)) for rows in parts]
        total = spec.from_vector(np.sum(vectors, axis=0))
        spec.check_total(total, len(parts))
        try:
            model = learner.update(model, total, len(parts))
        except AnalyticError:  # too few rows for a model: another matter
            return


Tamper = Callable[[Statistics], Statistics]


def changed(matrix: IntMatrix, *places: tuple[int, int], by: int) -> IntMatrix:
    changed = matrix.copy()
    for place in places:
        changed[place] += by
    return changed


def apart(total: Statistics) -> Statistics:
    """Two classes as far apart in a column as the format lets them be, which is more than the column scatters."""
    gram, cross = total.gram.copy(), total.cross.copy()
    cross[2], gram[2, D], gram[D, 2] = [20 * 255, -20 * 255, 0], 0, 0
    return replace(total, gram=gram, cross=cross)


GRAM: dict[str, tuple[Tamper, str]] = {
    "a diagonal below zero": (lambda t: replace(t, gram=changed(t.gram, (1, 1), by=-(2**40))), "diagonal"),
    "a diagonal beyond all rows": (lambda t: replace(t, gram=changed(t.gram, (1, 1), by=2**40)), "diagonal"),
    "entries beyond Cauchy's": (lambda t: replace(t, gram=changed(t.gram, (0, 1), (1, 0), by=2**22)), "semidefinite"),
    "fewer rows": (lambda t: replace(t, count=t.count // 40), "diagonal|classes"),
}
CLASSES: dict[str, tuple[Tamper, str]] = {
    "a class below zero": (lambda t: replace(t, target_sum=t.target_sum * -1), "classes of 0 rows"),  # type: ignore[operator]
    "a class of more rows": (lambda t: replace(t, target_sum=t.target_sum + t.count), "classes of 0 rows"),  # type: ignore[operator]
    "a class's column beyond its rows": (lambda t: replace(t, cross=changed(t.cross, (0, 1), by=2**20)), "columns of"),
}
CONSTANT: dict[str, tuple[Tamper, str]] = {
    "an intercept of another count": (lambda t: replace(t, gram=changed(t.gram, (D, D), by=64**2)), "intercept"),
    "a sum of a column": (lambda t: replace(t, gram=changed(t.gram, (0, D), (D, 0), by=1)), "intercept"),
    "classes beside the intercept's": (lambda t: replace(t, cross=changed(t.cross, (D, 0), by=64)), "intercept"),
}
ONE_CLASS: dict[str, tuple[Tamper, str]] = {
    "classes that do not add up": (
        lambda t: replace(t, target_sum=t.target_sum - 1, cross=changed(t.cross, *[(D, k) for k in range(C)], by=-64)),  # type: ignore[operator]
        "add up to all of them",
    ),
    "columns that do not add up": (lambda t: replace(t, cross=changed(t.cross, (0, 1), by=1)), "column sums"),
    "classes that scatter by less than nothing": (lambda t: apart(t), "beside classes"),
}
REAL: dict[str, tuple[Tamper, str]] = {
    "targets that no such features explain": (
        lambda t: replace(t, cross=changed(t.cross, (0, 1), by=2**21)),
        "beside targets",
    ),
    "squares of targets below zero": (
        lambda t: replace(t, target_gram=changed(t.target_gram, (1, 1), by=-(2**40))),  # type: ignore[arg-type]
        "beside targets",
    ),
    "squares of targets beyond all rows": (
        lambda t: replace(t, target_gram=changed(t.target_gram, (1, 1), by=2**30)),  # type: ignore[arg-type]
        "squares of at most rows times",
    ),
    "sums beyond their squares": (
        lambda t: replace(
            t,
            target_sum=(high := t.target_sum + 10**5),  # type: ignore[operator]
            cross=np.concatenate([t.cross[:-1], 64 * high[None]]),
        ),
        "so many rows|beside targets",
    ),
}
KINDS = [
    *(("afl", kind, *case) for kind, case in {**GRAM, **CLASSES}.items()),
    *(("afl with an intercept", kind, *case) for kind, case in {**GRAM, **CLASSES, **CONSTANT}.items()),
    *(("afl of real targets", kind, *case) for kind, case in {**GRAM, **CONSTANT, **REAL}.items()),
    *(("lda", kind, *case) for kind, case in {**GRAM, **CLASSES, **CONSTANT, **ONE_CLASS}.items()),
    ("afl without signs", "an entry below zero", lambda t: replace(t, cross=-t.cross), "negative entries|columns"),
]


@pytest.mark.parametrize(("name", "kind", "tamper", "needs"), KINDS, ids=[f"{one[0]}, {one[1]}" for one in KINDS])
@given(seed=st.integers(0, 2**32))
def test_a_total_that_no_rows_have_is_refused(name: str, kind: str, tamper: Tamper, needs: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    learner: Any = replace(LEARNERS[name], ri_gamma=0.0)  # type: ignore[type-var]
    targets = rng.uniform(-7, 7, (60, C)) if "real" in name else np.arange(60) % C
    features = rng.uniform(0, 3.9, (60, D)) if name == "afl without signs" else rng.uniform(-3.9, 3.9, (60, D))
    total = learner.client_statistics(learner.init(), ClientRows(features, targets))
    learner.spec.check_total(total, 1)
    with pytest.raises(ImpossibleTotalError, match=needs) as refusal:
        learner.spec.check_total(tamper(total), 1)
    assert "a total of" in str(refusal.value)


SUMS: dict[str, Callable[[IntVector], None]] = {
    "qda": lambda vector: vector.__setitem__(C, -(2**30)),
    "naive-bayes": lambda vector: vector.__setitem__(C, vector[C] + 1),
    "chosen": lambda vector: vector.__setitem__(0, 2**40),
    "weighted": lambda vector: vector.__setitem__(1 + C, 2**40),
    "balanced": lambda vector: vector.__setitem__(0, vector[0] + 1),
    "weighted lda": lambda vector: vector.__setitem__(slice(0, 1 + C), 1),
    "weighted qda": lambda vector: vector.__setitem__(1, vector[1] * 2),
    "weighted chosen": lambda vector: vector.__setitem__(slice(0, 1 + C), 1),
    "weighted safle": lambda vector: vector.__setitem__(1, 1),
    "partial": lambda vector: vector.__setitem__(2, -5),
    "logistic": lambda vector: vector.__setitem__(0, -5),
    "agreed": lambda vector: vector.__setitem__(1, vector[1] + 1),
    "deepafl": lambda vector: vector.__setitem__(0, -5),
    "safle of quantiles": lambda vector: vector.__setitem__(0, vector[0] + 1),
}


@pytest.mark.parametrize("name", SUMS)
def test_the_first_total_of_every_learner_is_checked_in_a_federation(name: str) -> None:
    """What one client adds to its vector is refused when the model would be made, whatever hides the vector."""
    learner: Any = LEARNERS[name]
    own = rows_for(name, np.random.default_rng(8), 40)
    clients = {party: own.taken(np.arange(40) % 4 == party - 1) for party in range(1, 5)}
    run_federation(learner, clients, MODES["plain"])
    step = Federation(learner, release=None).next_sum
    assert step is not None
    total = np.sum([step.vector(rows) for rows in clients.values()], axis=0)
    SUMS[name](total)
    federation = Federation(learner, release=None)
    with pytest.raises(ImpossibleTotalError):
        federation.take(SumResult(total=total, survivors=tuple(clients)))
    assert federation.next_sum is not None


@pytest.mark.parametrize("columns", [None, ONES], ids=["no intercept", "an intercept"])
def test_targets_beyond_their_format_are_refused(columns: ColumnMap | None) -> None:
    """Rows of one site with targets of up to six times the largest value: all else of the total is of such rows."""
    rng = np.random.default_rng(1)
    learner = AFL(**SIZES, target_format=Q("Q3.5"), columns=columns)
    rows = ClientRows(rng.uniform(-3.9, 3.9, (200, D)), rng.uniform(-50, 50, (200, C)))
    wide = replace(learner, target_format=Q("Q8.5"))
    total = wide.client_statistics(wide.init(), rows)
    wide.spec.check_total(total, 5)
    with pytest.raises(ImpossibleTotalError, match=r"squares of at most rows times the largest square in Q3\.5"):
        learner.spec.check_total(total, 5)


def with_room(learner: Any) -> Any:
    if isinstance(learner, Pipeline):
        return replace(learner, head=with_room(learner.head))
    return replace(learner, max_rows=10**5)


SQUARES: dict[str, tuple[Callable[[IntVector], None], str]] = {
    "less than the weights": (lambda vector: vector.__setitem__(0, 1), "squares of weights from their sum"),
    "more than the heaviest allows": (lambda vector: vector.__setitem__(0, vector[0] * 1000), "to 1000 times it"),
    "of a class less": (lambda vector: vector.__setitem__(2, 1), "squares of each class's weights"),
    "of a class more than of all": (lambda vector: vector.__setitem__(2, vector[0] + 1), "0 to those of all"),
}


@pytest.mark.parametrize("kind", SQUARES)
@pytest.mark.parametrize("inner", ["afl", "lda", "qda", "chosen", "safle"])
def test_squares_that_no_whole_weights_have_are_refused(inner: str, kind: str) -> None:
    """Squares that are too small would make one heavy row, or a few, count as thousands to the gates."""
    learner: Any = weighted(with_room(LEARNERS[inner]), max_weight=1000)
    rng, tamper = np.random.default_rng(3), SQUARES[kind]
    rows = ClientRows(rng.uniform(-3.9, 3.9, (40, D)), np.arange(40) % C, np.array([1000] + [1] * 39))
    spec = learner.next_sum(learner.init())
    vector = spec.to_vector(learner.client_statistics(learner.init(), rows)).copy()
    spec.check_total(spec.from_vector(vector), 1)
    tamper[0](vector)
    with pytest.raises(ImpossibleTotalError, match=tamper[1]):
        spec.check_total(spec.from_vector(vector), 1)


@pytest.mark.parametrize("name", ["qda", "partial", "weighted qda"])
def test_no_more_sites_have_rows_of_a_part_than_took_part(name: str) -> None:
    """A site that adds more than one to a class' sites would let a class of one site pass for one of many."""
    learner: Any = LEARNERS[name]
    spec = learner.next_sum(learner.init())
    targets = np.eye(C, dtype=int)[np.arange(40) % C] if name == "partial" else np.arange(40) % C
    rows = ClientRows(np.random.default_rng(2).uniform(-3.9, 3.9, (40, D)), targets)
    vector = spec.to_vector(learner.client_statistics(learner.init(), rows)) * 5
    place = 1 + C if name.startswith("weighted") else 0
    assert vector[place] == 5
    spec.check_total(spec.from_vector(vector), 5)
    vector[place] = 9
    with pytest.raises(ImpossibleTotalError, match="at most the 5 sites that took part"):
        spec.check_total(spec.from_vector(vector), 5)


@pytest.mark.parametrize(
    "place",
    [0, 1, 2, 4, -2, -4],
    ids=["a group's cells", "two of a group", "two of a group", "a table", "a class", "another class"],
)
@given(by=st.sampled_from([-1, 1]))
def test_one_count_more_or_less_of_safle_is_refused(place: int, by: int) -> None:
    learner: Any = LEARNERS["safle"]
    rows = rows_for("safle", np.random.default_rng(1), 40)
    vector = learner.spec.to_vector(learner.client_statistics(learner.init(), rows)).copy()
    learner.spec.check_total(learner.spec.from_vector(vector), 1)
    vector[place] += by
    with pytest.raises(ImpossibleTotalError):
        learner.spec.check_total(learner.spec.from_vector(vector), 1)


@given(seed=st.integers(0, 2**32), singular=st.booleans(), spread=st.booleans())
def test_the_least_change_of_a_singular_gram_is_seen(seed: int, singular: bool, spread: bool) -> None:
    """One unit in 2^40 makes a Gram of dependent columns indefinite, which float64 cannot see."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-(2**17), 2**17, (50, 6))
    if spread:
        rows[:, 0] //= 2**15
    rows = np.hstack([rows, rows[:, :2].sum(axis=1, keepdims=True)]) if singular else rows
    gram = rows.T @ rows
    assert is_semidefinite(gram)
    less = gram.copy()
    less[-1, -1] -= 1
    assert is_semidefinite(less) is not singular


@pytest.mark.parametrize("size", [40, EXACT_SIZE + 44])
def test_sizes_on_both_sides_of_exact_arithmetic(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = rng.integers(-(2**10), 2**10, (size // 2, size))
    gram = rows.T @ rows
    assert is_semidefinite(gram)
    gram[3, 3] -= 2**15
    assert not is_semidefinite(gram)
    gram[3, 3] = -1
    assert not is_semidefinite(gram)


def test_a_column_that_is_explained_beyond_its_square_is_counted() -> None:
    rng = np.random.default_rng(0)
    rows, labels = rng.integers(-100, 100, (80, 5)), np.eye(2, dtype=np.int64)[rng.integers(0, 2, 80)]
    gram, cross, counts = rows.T @ rows, rows.T @ labels, labels.sum(axis=0).tolist()
    assert exceeding_columns(gram, cross, counts) == 0
    assert exceeding_columns(gram, cross * np.array([1, 8]), counts) == 1
    assert exceeding_columns(gram * 0, cross, counts) == 2
    indicator = np.eye(2, dtype=np.int64)[np.arange(80) % 2]  # columns that are the classes: explained in full
    assert exceeding_columns(indicator.T @ indicator, indicator.T @ indicator, [40, 40]) == 0
    assert exceeding_columns(indicator.T @ indicator, indicator.T @ indicator, [39, 40]) == 1
