"""The one contract of all learners: laws that hold for any rows, any partition, any survivors, by bytes.

The laws that make a learner federated are tried on every form of every learner. The other laws are tried on every
learner, and on a third of the other forms each (``some_forms``); wrong rows on every learner and on forms with real
targets, and one kind of them on every other form (``covering``). The nightly run tries every law on every form.

A learner joins by a line in ``CASES``, its public differences by one in ``DIFFERENCES`` and what must never exist by
lines in ``IMPOSSIBLE``. What only one learner promises is in its own file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import islice
from operator import mul
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.composed import choosing, scaled, weighted
from support.examples import examples
from support.learner_driver import dealt, steps, train
from support.pairs import covering, some_of

from analytic.afl import AFL
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import ABLATIONS, DeepAFL
from analytic.discriminant import LDA, QDA
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.fedhip import FedHiP
from analytic.integer_maps import ACTIVATIONS
from analytic.layers import Layered
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from analytic.logistic import Logistic
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.naive_bayes import NaiveBayes
from analytic.pipeline import Pipeline
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe
from analytic.scaling import Scaler
from analytic.selection import RidgeCV
from analytic.statistics import LABELS
from analytic_secagg.learners import LEARNERS

Q = RowFormat.parse
D, C = 5, 3
MAX_CLIENTS = 32
HUGE = float(2**35)  # 32 clients with gamma 2^35 in units of 2^-22 take 2^62, half of int64
SIZES: dict[str, Any] = {"n_features": D, "max_rows": 1000}
LINEAR = SIZES | {"n_targets": C, "feature_format": Q("Q5.11"), "max_clients": MAX_CLIENTS}
DEEP = DeepAFL(
    **SIZES | {"n_targets": C, "feature_bound": 32.0, "n_layers": 2, "d_phi": 12, "d_f": 9, "headroom_bits": 6},
    ridge=0.5,
    gamma=0.05,
    seed=11,
)
GRID = QuantileThresholds(low=-4.0, high=4.0, n_bins=32)
COUNTS = SAFLe(**SIZES, n_classes=C, thresholds=GRID, n_buckets=4, ridge=0.5)


@dataclass(frozen=True)
class Case:
    """One learner under the contract.

    Args:
        learner: the closed form, or one of its settings that takes another path.
        variations: settings to draw from, so that laws hold for them too.
        real_targets: whether targets are a real matrix instead of labels.
    """

    learner: Any
    variations: tuple[dict[str, Any], ...] = ({},)
    real_targets: bool = False

    def rows(self, rng: np.random.Generator, n: int, *, scale: float = 1.0, kind: type = np.float64) -> ClientRows:
        """Rows that fit every format: ``scale`` is at most 31.9."""
        features = rng.uniform(-scale, scale, (n, D)).astype(kind)
        return ClientRows(features, rng.uniform(-7, 7, (n, C)) if self.real_targets else rng.integers(0, C, n))


PENALTIES = tuple(
    {"ridge": ridge, "ri_gamma": gamma} for ridge in (0.0, 1e-3, 1.0, 1e8) for gamma in (0.0, 2.0**-22, 0.1, 1e6, HUGE)
)
DEPTHS = tuple({"activation": name, "fed_by_first": first} for name in sorted(ACTIVATIONS) for first in (False, True))
AUTHORS = {"projection": "affine", "input_activation": "tanh", "input_variance": 0.3, "block_variance": 3.0}
DEPTHS += (AUTHORS, *({"ablation": own, "d_f": 12, "headroom_bits": 9} for own in ABLATIONS))
BUCKETS = tuple(
    {"ri_gamma": gamma, "ridge": ridge, "max_clients": MAX_CLIENTS} for gamma in (0, 1000) for ridge in (0.0, 0.5)
)
COLUMNS = ColumnMap(exponents=tuple(range(3, 3 + D)), intercept=1)
ALIKE = LINEAR | {"feature_format": Q("Q0.20")}
FOLDS: dict[str, Any] = {"n_folds": 2, "ridges": (0.25, 4.0)}
STANDARDISED = Scaler(agreement="standardised", headroom=6)  # type: ignore[arg-type]
FEWER = examples(12)
"""A law of every learner in every form, of which there are 26."""

MAP = RandomMap(n_features=D, n_columns=9, feature_bound=32.0, fraction_bits=11, seed=4)
WAVE = replace(MAP, activation="sine", projection="fourier", fraction_bits=7, limit=127 / 128, variance=0.01)
LIFTS = tuple(
    {"feature_format": own.row_format, "lift": own}
    for own in (replace(MAP, projection="affine", activation="tanh"), replace(MAP, projection="normal", limit=40.0))
)
SCALES = st.sampled_from([0.001, 1.0, 31.9])
CASES = {
    "afl": Case(AFL(**LINEAR), PENALTIES),
    "afl-real": Case(AFL(**LINEAR, target_format=Q("Q3.8")), PENALTIES, real_targets=True),
    "afl-clip": Case(AFL(**LINEAR | {"feature_format": Q("Q0.8")}, clip=True)),
    "afl-columns": Case(AFL(**LINEAR, columns=COLUMNS), PENALTIES[::3]),
    "afl-columns-real": Case(
        AFL(**LINEAR, target_format=Q("Q3.8"), columns=replace(COLUMNS, target_exponents=(2,) * C)), real_targets=True
    ),
    "fedhip": Case(FedHiP(**LINEAR), PENALTIES),
    "fedhip-columns": Case(FedHiP(**LINEAR, columns=COLUMNS), PENALTIES[::3]),
    "chosen": Case(
        choosing(FedHiP(**LINEAR), **FOLDS),
        (
            {},
            {"selection": RidgeCV(**FOLDS, rule="one-standard-error", seed=3)},
            {"head": AFL(**LINEAR), "selection": RidgeCV(**FOLDS, criterion="classes")},
        ),
    ),
    "agreed": Case(
        scaled(AFL(**ALIKE, columns=replace(COLUMNS, exponents=(0,) * D)), headroom=6),
        (
            {"scaler": STANDARDISED},
            {"head": FedHiP(**ALIKE), "selection": RidgeCV(**FOLDS), "scaler": Scaler(headroom=6, fill=True)},
            {"head": replace(COUNTS, thresholds=replace(GRID, low=-1.0, high=1.0)), "scaler": STANDARDISED},
        ),
    ),
    "agreed-real": Case(
        scaled(AFL(**ALIKE, target_format=Q("Q0.20")), headroom=6),
        (
            {"scaler": STANDARDISED},
            {"head": replace(DEEP, feature_bound=1.0, target_format=Q("Q0.18")), "scaler": STANDARDISED},
        ),
        real_targets=True,
    ),
    "random": Case(AFL(**LINEAR | {"feature_format": MAP.row_format}, lift=MAP), (*PENALTIES[::3], *LIFTS)),
    "random-sine-real": Case(
        AFL(**LINEAR | {"feature_format": Q("Q0.7")}, target_format=Q("Q3.8"), lift=WAVE), real_targets=True
    ),
    "random-columns": Case(
        AFL(**LINEAR, columns=ColumnMap(exponents=(2,) * 9, intercept=1), lift=WAVE), PENALTIES[::3]
    ),
    "fedhip-random": Case(FedHiP(**LINEAR | {"feature_format": MAP.row_format}, lift=MAP)),
    "logistic": Case(
        Logistic(**LINEAR, ridge=0.5, n_rounds=2),
        ({}, {"step": 1.5, "scale": 3.0}, {"columns": COLUMNS}),
    ),
    "logistic-random": Case(Logistic(**LINEAR | {"feature_format": MAP.row_format}, lift=MAP, n_rounds=1)),
    "lda": Case(LDA(**LINEAR, ridge=0.5, columns=COLUMNS), tuple(own for own in PENALTIES[::3] if own["ridge"])),
    "qda": Case(
        QDA(**LINEAR, ridge=0.5, columns=COLUMNS),
        ({}, {"shrinkage": 0.0, "ri_gamma": 0.1}, {"shrinkage": 0.3, "ridge": 1e-3}, {"shrinkage": 1.0}),
    ),
    "naive-bayes": Case(
        NaiveBayes(**LINEAR, ridge=0.5, columns=COLUMNS),
        ({}, {"shrinkage": 0.0, "ri_gamma": 0.1}, {"shrinkage": 0.3, "ridge": 1e-3}, {"shrinkage": 1.0}),
    ),
    "deepafl": Case(DEEP, (*DEPTHS, {"ridge": 0.0, "gamma": 0.0, "headroom_bits": 9})),
    "deepafl-real": Case(replace(DEEP, target_format=Q("Q3.8")), real_targets=True),
    "deepafl-clip": Case(replace(DEEP, feature_bound=0.5, headroom_bits=0, clip=True)),
    "safle": Case(COUNTS, BUCKETS),
    "safle-fixed": Case(replace(COUNTS, thresholds=FixedThresholds.evenly(-4, 4, 4)), BUCKETS),
    "safle-one-hot": Case(replace(COUNTS, encoding=Encoding.ONE_HOT), BUCKETS),
    "safle-real": Case(replace(COUNTS, real_format=Q("Q3.8")), BUCKETS, real_targets=True),
    "safle-integer": Case(replace(COUNTS, encoding=Encoding.INTEGER, group_size=1), BUCKETS),
}
EACH = pytest.mark.parametrize("name", CASES)
PLAIN = {name: case for name, case in CASES.items() if case.learner.name == name}


def some_forms(third: int, names: Iterable[str] = tuple(CASES)) -> pytest.MarkDecorator:
    """Every learner, and one third of its other forms: each third has real targets, scaled columns, a random map."""
    names = list(names)
    others = [name for name in CASES if name not in PLAIN][third::3]
    return pytest.mark.parametrize("name", some_of(names, [*PLAIN, *others]))


REAL = [name for name, case in CASES.items() if case.real_targets]
WITH_RI = [name for name, case in CASES.items() if hasattr(case.learner, "ri_gamma") and "logistic" not in name]


def drawn(name: str, data: st.DataObject) -> tuple[Any, np.random.Generator]:
    """One of the case's learners, and a generator for its rows."""
    case = CASES[name]
    learner = replace(case.learner, **data.draw(st.sampled_from(case.variations)))
    return learner, np.random.default_rng(data.draw(st.integers(0, 2**32)))


def test_every_learner_is_under_the_contract() -> None:
    assert set(PLAIN) == set(LEARNERS)
    for name, case in PLAIN.items():
        learner: AnalyticLearner[Any] = case.learner
        assert learner.name == name
        assert isinstance(learner, Layered)


# --- the law ------------------------------------------------------------------------------------------------


def exact_terms(learner: Any, model: Any, features: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows and weights whose products, in fractions, are the scores."""
    if isinstance(learner, Pipeline):
        mapped = learner.mapped(model, ClientRows(features, np.zeros(len(features))))
        return exact_terms(learner.fitted_head(model), model.head, mapped.features)
    if learner.name == "safle":
        digits = learner.grouping.indices(learner.bucketing.digits(features, model.thresholds))
        phi = np.zeros((len(features), learner.spec.n_groups, learner.spec.n_values))
        np.put_along_axis(phi, digits[:, :, None].astype(np.intp), 1.0, axis=2)
        return phi.reshape(len(features), -1), model.weights
    if learner.name == "qda":
        own = learner.columns.features(features)
        pairs = [[Fraction(x) * Fraction(y) for x in row for y in row] for row in own.tolist()]
        forms = np.split(model.weights, C, axis=1)
        return np.array(pairs), np.stack([form.ravel() for form in forms], axis=1)
    if learner.name == "naive-bayes":
        own = learner.columns.features(features)
        squares = [[Fraction(x) ** 2 for x in row[:-1]] for row in own.tolist()]
        return np.concatenate([np.array(squares), own], axis=1), model.weights
    if learner.name != "deepafl":
        lifted = features if learner.lift is None else learner.lift.apply(features).values
        return lifted if learner.columns is None else learner.columns.features(lifted), model.weights
    rows = ClientRows(features, np.zeros((len(features), C) if learner.target_format != LABELS else len(features), int))
    learner.client_statistics(replace(model, classifiers=model.classifiers[:-1]), rows)  # of the last sum
    return rows.memory["deepafl"].features.values, model.classifiers[-1].weights


@EACH
@examples(20)
@given(data=st.data())
def test_exact_scores_are_fractions_rounded_once(name: str, data: st.DataObject) -> None:
    learner, rng = drawn(name, data)
    rows = CASES[name].rows(rng, 8, scale=data.draw(SCALES), kind=data.draw(st.sampled_from([np.float32, np.float64])))
    model = fit_pooled(learner, rows)
    terms = exact_terms(learner, model, rows.features)
    left, right = ([[Fraction(x) for x in line] for line in part.tolist()] for part in terms)
    exact = [[float(sum(map(mul, line, column))) for column in zip(*right, strict=True)] for line in left]
    power = 4.0 if name == "afl-columns-real" else 1.0
    if name == "agreed-real":
        power = 2.0 ** np.array(model.columns.exponents[D:])
    assert (learner.exact_scores(model, rows.features) / power).tolist() == exact


@EACH
@FEWER
@given(data=st.data())
def test_federated_equals_pooled_for_any_partition(name: str, data: st.DataObject) -> None:
    """Every layer, any skew, in any order, with clients that have nothing, in float32 and float64, by bytes."""
    learner, rng = drawn(name, data)
    n, n_clients = data.draw(st.integers(0, 40)), data.draw(st.integers(1, MAX_CLIENTS))
    kind = data.draw(st.sampled_from([np.float32, np.float64]))
    rows = CASES[name].rows(rng, n, scale=data.draw(SCALES), kind=kind)
    owners = rng.integers(0, data.draw(st.integers(1, n_clients)), n)  # the clients beyond get nothing
    clients = dealt(rows, owners, n_clients)
    model = train(learner, [clients[k] for k in rng.permutation(n_clients)])
    pooled = fit_pooled(learner, rows)
    assert learner.next_sum(model) is None
    assert learner.weights_bytes(model) == learner.weights_bytes(pooled)
    assert learner.context_bytes(model) == learner.context_bytes(pooled)
    assert learner.decision_function(model, rows.features).tobytes() == (
        learner.decision_function(pooled, rows.features).tobytes()
    )


@some_forms(0)
def test_a_row_of_weight_w_is_w_copies_of_it(name: str) -> None:
    """Whoever holds it, in every sum; a row of weight 0 is none. No learner passes over weights, or weighs an RI."""
    learner, rng = CASES[name].learner, np.random.default_rng(5)
    if name in WITH_RI:
        learner = replace(learner, ri_gamma=3, max_clients=4)
    rows, weights, owners = CASES[name].rows(rng, 24), rng.integers(0, 6, 24), rng.integers(0, 3, 24)
    weighing = weighted(learner, max_weight=5)
    copies = ClientRows(np.repeat(rows.features, weights, axis=0), np.repeat(rows.targets, weights, axis=0))
    heavy = ClientRows(rows.features, rows.targets, weights)
    model = train(weighing, dealt(heavy, owners, 4))
    pooled = train(learner, dealt(copies, np.repeat(owners, weights), 4))
    assert weighing.weights_bytes(model) == learner.weights_bytes(pooled)
    with pytest.raises(InvalidRowsError, match="counts every row once"):
        fit_pooled(learner, heavy)
    assert learner.weights_bytes(pooled) == weighing.weights_bytes(
        model_from_bytes(model_to_bytes(weighing, model)).model
    )


@EACH
def test_a_stored_model_is_the_model_and_its_federation_goes_on_from_it(name: str) -> None:
    """After every sum, by bytes, and in every variation."""
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(12), 30)
    for change in CASES[name].variations:
        other = replace(learner, **change)
        for model in steps(other, [rows]):
            saved = model_from_bytes(model_to_bytes(other, model, with_totals=True))
            assert saved.learner == other
            assert saved.learner.context_bytes(saved.model) == other.context_bytes(model)
    *_, complete = trained = list(steps(learner, [rows]))
    for model in trained:
        content = model_to_bytes(learner, model, with_totals=True)
        saved = model_from_bytes(content)
        assert saved.learner == learner
        assert type(saved.model) is type(model)
        assert model_to_bytes(saved.learner, saved.model, with_totals=True) == content
        assert saved.learner.next_sum(saved.model) == learner.next_sum(model)
        assert saved.learner.context_bytes(saved.model) == learner.context_bytes(model)
        if (spec := learner.next_sum(model)) is not None:
            vectors = (spec.to_vector(learner.client_statistics(one, rows)) for one in (model, saved.model))
            assert next(vectors).tobytes() == next(vectors).tobytes()
        if learner.name != "logistic":  # whose server needs the first total too, which is in no file of a model
            own = train(saved.learner, [replace(rows, memory={})], start=saved.model)
            assert learner.weights_bytes(own) == learner.weights_bytes(complete)
    scores = saved.learner.decision_function(saved.model, rows.features)
    assert scores.tobytes() == learner.decision_function(complete, rows.features).tobytes()


@EACH
@FEWER
@given(data=st.data())
def test_the_model_is_that_of_the_survivors_of_each_sum(name: str, data: st.DataObject) -> None:
    """Whoever drops out of whichever sum: pooled rows of those who took part, nothing kept between sums."""
    learner, rng = drawn(name, data)
    scale, n_sums = data.draw(SCALES), sum(1 for _ in steps(learner, [CASES[name].rows(rng, 9)])) - 1
    clients = [CASES[name].rows(rng, int(rng.integers(4, 12)), scale=scale) for _ in range(5)]
    chosen = [sorted(rng.permutation(5)[: rng.integers(2, 6)].tolist()) for _ in range(n_sums)]
    oracle = learner.init()
    for took_part in chosen:
        spec = learner.next_sum(oracle)
        pool = ClientRows.pool([ClientRows(clients[k].features, clients[k].targets) for k in took_part])
        vector = spec.to_vector(learner.client_statistics(oracle, pool))
        oracle = learner.update(oracle, spec.from_vector(vector), 1)
    assert learner.weights_bytes(train(learner, clients, chosen)) == learner.weights_bytes(oracle)


@EACH
def test_weights_change_with_one_row(name: str) -> None:
    """The twin of the laws above: they would hold for constants."""
    learner, rng = CASES[name].learner, np.random.default_rng(0)
    rows = CASES[name].rows(rng, 20)
    less = ClientRows(rows.features[:-1], rows.targets[:-1])
    assert learner.weights_bytes(fit_pooled(learner, rows)) != learner.weights_bytes(fit_pooled(learner, less))


@some_forms(1, WITH_RI)
@FEWER
@given(data=st.data())
def test_the_ri_process_changes_nothing(name: str, data: st.DataObject) -> None:
    learner, rng = drawn(name, data)
    rows = CASES[name].rows(rng, 30)
    clients = dealt(rows, rng.integers(0, 7, 30), 7)
    without = replace(learner, ri_gamma=0)
    assert learner.weights_bytes(train(replace(learner, max_clients=7), clients)) == (
        without.weights_bytes(fit_pooled(without, rows))
    )


NOTHING = [np.empty(0), np.empty(0, dtype=np.uint64), np.empty((0, C))]


@pytest.mark.parametrize(("name", "nothing"), covering(list(CASES), NOTHING, ids=["float", "uint64", "matrix"]))
def test_a_client_without_rows_changes_nothing_whatever_type_they_have(name: str, nothing: NDArray[Any]) -> None:
    learner, rng = CASES[name].learner, np.random.default_rng(1)
    if learner.name == "safle":
        nothing = nothing.reshape(0)  # counts take labels alone
    rows = CASES[name].rows(rng, 20)
    empty = ClientRows(np.zeros((0, D), dtype=np.float32), nothing)
    model = train(learner, [empty, rows, empty])
    assert learner.weights_bytes(model) == learner.weights_bytes(fit_pooled(learner, rows))
    assert np.isfinite(learner.decision_function(train(learner, [empty]), rows.features)).all()


# --- what a client computes -----------------------------------------------------------------------------------


@EACH
@FEWER
@given(data=st.data())
def test_no_total_leaves_the_bounds_of_its_layout(name: str, data: st.DataObject) -> None:
    learner, rng = drawn(name, data)
    clients = [CASES[name].rows(rng, int(rng.integers(0, 12))) for _ in range(4)]
    if data.draw(st.booleans()):
        learner = weighted(learner, max_weight=5)
        clients = [replace(rows, weights=np.full(len(rows), 5), memory={}) for rows in clients]
    for model in steps(learner, clients):
        if (spec := learner.next_sum(model)) is None:
            return
        vectors = [spec.to_vector(learner.client_statistics(model, rows)).astype(object) for rows in clients]
        for rows, vector in zip(clients, vectors, strict=True):
            ends = zip(spec.segments, spec.client_bounds(max(1, len(rows))), strict=True)
            own = np.concatenate([np.full(size, min(bound, most), dtype=object) for (_, size, bound), most in ends])
            assert (abs(vector) <= own).all()
        bounds = np.concatenate([np.full(size, bound, dtype=object) for _, size, bound in spec.segments])
        assert all(vector.shape == bounds.shape for vector in vectors)
        assert (abs(sum(vectors, start=0 * bounds)) <= bounds).all()


@some_forms(1)
def test_a_vector_reads_back_and_what_no_total_is_is_refused(name: str) -> None:
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(11), 30)
    for model in steps(learner, [rows]):
        if (spec := learner.next_sum(model)) is None:
            return
        vector = spec.to_vector(learner.client_statistics(model, rows))
        assert spec.to_vector(spec.from_vector(vector)).tobytes() == vector.tobytes()
        n, wrong = len(vector), vector.copy()
        for foreign in (vector[:-1], vector[:, None], vector.astype(float), vector.astype(np.int32), np.zeros(n, "u8")):
            with pytest.raises(InvalidRowsError, match=rf"int64 vector of shape \({n},\), not {foreign.dtype}"):
                spec.from_vector(foreign)
        for count in (-1, 1001, 2**63 - 1, -(2**63)):
            wrong[-1] = count
            with pytest.raises(InvalidRowsError, match=f"total of {count} rows is outside 0 to 1000"):
                spec.from_vector(wrong)


@some_forms(2)
def test_asking_twice_gives_the_same_bytes_and_leaves_rows_and_model_alone(name: str) -> None:
    """What a client remembers between sums changes nothing but the time."""
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(2), 30)
    before = rows.features.tobytes() + rows.targets.tobytes()
    for model in steps(learner, [rows]):
        if (spec := learner.next_sum(model)) is None:
            break
        context = learner.context_bytes(model)
        fresh = ClientRows(rows.features.copy(), rows.targets.copy())
        said = [spec.to_vector(learner.client_statistics(model, own)).tobytes() for own in (rows, rows, fresh)]
        assert said[0] == said[1] == said[2]
        assert learner.context_bytes(model) == context
    assert rows.features.tobytes() + rows.targets.tobytes() == before


@some_forms(0)
def test_a_model_is_immutable(name: str) -> None:
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(3), 30)
    seen = list(steps(learner, [rows]))
    assert len({id(model) for model in seen}) == len(seen)
    for matrix in matrices(seen[-1]):
        assert not matrix.flags.writeable


def matrices(value: Any) -> list[NDArray[Any]]:
    """Every array that a model holds."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, tuple):
        return [array for item in value for array in matrices(item)]
    held = fields(value) if hasattr(value, "__dataclass_fields__") else ()
    return [array for item in held for array in matrices(getattr(value, item.name))]


# --- the context that a session is bound to ---------------------------------------------------------------------

COMMON = {"n_features": 6, "max_rows": 999}
DIFFERENCES: dict[str, dict[str, Any]] = {
    "afl": COMMON
    | {"n_targets": 4, "feature_format": Q("UQ5.11"), "target_format": Q("UQ2.0"), "max_clients": 33, "ridge": 1.0}
    | {"ri_gamma": 1.0, "clip": True, "target_sums": False},
    "deepafl": COMMON
    | {"n_targets": 4, "feature_bound": 8.5, "target_format": Q("Q1.8"), "n_layers": 3, "d_phi": 13, "d_f": 8}
    | {"ridge": 0.25, "gamma": 0.06, "activation": "tanh", "projection": "normal", "seed": 12, "fed_by_first": True}
    | {"row_bits": 21, "headroom_bits": 1, "clip": True},
    "safle": COMMON
    | {"n_classes": 4, "thresholds": replace(GRID, high=5.0), "encoding": Encoding.ONE_HOT, "n_buckets": 6}
    | {"group_size": 4, "seed": 1, "ridge": 0.25, "ri_gamma": 1, "max_clients": 2},
}
DIFFERENCES["fedhip"] = DIFFERENCES["lda"] = DIFFERENCES["afl"]
DIFFERENCES["qda"] = DIFFERENCES["lda"] | {"shrinkage": 0.25}
FIXED: dict[str, set[str]] = {"random": {"n_features"}, "lda": {"n_features", "target_format", "target_sums"}}
DIFFERENCES["naive-bayes"] = DIFFERENCES["qda"]
FIXED["naive-bayes"] = FIXED["qda"] = FIXED["lda"]
"""Fields that another field decides."""
DIFFERENCES["logistic"] = DIFFERENCES["afl"] | {"n_rounds": 3, "step": 2.0, "scale": 1.0, "first_share": 0.5}
FIXED["logistic"] = {"target_format", "ri_gamma"}
LIFTED: dict[str, Any] = {"n_columns": 10, "feature_bound": 33.0, "fraction_bits": 10, "limit": 3.0, "seed": 5}
LIFTED |= {"activation": "tanh", "projection": "affine", "variance": 2.0}


@pytest.mark.parametrize("name", PLAIN)
def test_every_public_difference_is_another_context(name: str) -> None:
    """A session derives its keys from these bytes, so a client with another seed or format adds only noise."""
    learner, changes = PLAIN[name].learner, DIFFERENCES["afl" if name == "random" else name]
    assert set(changes) == {field.name for field in fields(learner) if "optional" not in field.metadata}
    others = [{field: change} for field, change in changes.items() if field not in FIXED.get(name, ())]
    if learner.name == "random":
        assert {*LIFTED, "n_features", "version"} == {field.name for field in fields(RandomMap)}
        others += [{"lift": replace(MAP, **{field: change})} for field, change in LIFTED.items()]
    model = learner.init()
    contexts = [learner.context_bytes(model)]
    contexts += [replace(learner, **change).context_bytes(model) for change in others]
    assert len(set(contexts)) == 1 + len(others)


@pytest.mark.parametrize("name", PLAIN)
def test_equal_public_state_is_one_context_whatever_types_name_it(name: str) -> None:
    learner, model = PLAIN[name].learner, PLAIN[name].learner.init()
    same = {"n_features": np.int64(D), "max_rows": np.int32(1000), "ridge": np.float32(learner.ridge)}
    if hasattr(learner, "seed"):
        same["seed"] = np.uint64(learner.seed)
    if name == "logistic":
        learner, same = replace(learner, step=8.0), same | {"n_rounds": np.int64(2), "step": np.float32(8)}
    assert replace(learner, **same).context_bytes(model) == learner.context_bytes(model)
    assert replace(learner, ridge=-0.0).context_bytes(model) == replace(learner, ridge=0).context_bytes(model)


def test_no_two_learners_share_a_context() -> None:
    contexts = {case.learner.context_bytes(case.learner.init()) for case in CASES.values()}
    assert len(contexts) == len(CASES)


@EACH
def test_everything_received_is_bound(name: str) -> None:
    case, contexts = CASES[name], []
    for seed in (4, 5):
        rows = case.rows(np.random.default_rng(seed), 30, scale=seed - 3.0)
        own = [case.learner.context_bytes(model) for model in steps(case.learner, [rows])]
        assert [len(one) for one in own] == sorted({len(one) for one in own}), "so a journal sees a run go on"
        contexts += own
    first_ones = {contexts[0], contexts[len(contexts) // 2]}
    assert len(first_ones) == 1
    assert len(set(contexts)) == len(contexts) - 1


# --- refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "bad"), covering(list(CASES), [np.nan, np.inf, -np.inf]))
def test_rows_that_are_no_numbers_are_counted_and_refused(name: str, bad: float) -> None:
    """With ``clip`` too: NaN and infinity are never clipped."""
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(6), 30)
    rows.features[[4, 9], 1] = bad
    with pytest.raises(RowsOutsideFormatError, match=r"2 of (30 rows|them) hold NaN or infinity"):
        learner.client_statistics(learner.init(), rows)


@pytest.mark.parametrize("name", ["afl", "fedhip", "random", "deepafl"])
def test_rows_beyond_the_format_are_refused_before_anything_is_sent(name: str) -> None:
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(7), 30)
    rows.features[4] = 1e5
    with pytest.raises(RowsOutsideFormatError, match="1 of 30 rows"):
        learner.client_statistics(learner.init(), rows)


def next_model(learner: Any, model: Any, rows: ClientRows) -> Any:
    """The model after one sum of one client."""
    _, after, *_ = islice(steps(learner, [rows], start=model), 2)
    return after


WRONG_ROWS: dict[str, tuple[NDArray[Any], NDArray[Any], str]] = {
    "features": (np.zeros((3, D + 1)), np.zeros(3, dtype=int), rf"\(n, {D}\)"),
    "labels": (
        np.zeros((3, D)),
        np.array([0, C, -1]),
        rf"2 of 3 labels lie outside 0 to {C - 1}|must have shape|label",
    ),
    "negative": (np.zeros((3, D)), np.array([0, -1, 1]), rf"1 of 3 labels lie outside 0 to {C - 1}|must have shape"),
    "floats": (np.zeros((3, D)), np.zeros(3), "integer|must have shape"),
    "matrix": (np.zeros((3, D)), np.zeros((3, C + 1)), "shape|integer class labels"),
    "whole matrix": (np.zeros((3, D)), np.zeros((3, C + 1), dtype=int), "shape|integer class labels"),
    "too many": (np.zeros((1001, D)), np.zeros(1001, dtype=int), "1001 rows are more than the 1000|must have shape"),
    "complex": (np.zeros((3, D), dtype=complex), np.zeros(3, dtype=int), "complex|real numbers|must have shape"),
}


@pytest.mark.parametrize(("name", "wrong"), covering(list(CASES), list(WRONG_ROWS), whole=[*PLAIN, *REAL]))
def test_rows_of_another_shape_or_type_are_refused(name: str, wrong: str) -> None:
    """In the first sum that reads them, and in every later one of a client that was not in the first."""
    learner, (features, targets, message) = CASES[name].learner, WRONG_ROWS[wrong]
    for model in [*steps(learner, [CASES[name].rows(np.random.default_rng(8), 30)])][1:-1]:
        with pytest.raises(InvalidRowsError, match=f"{message}|1001 rows is outside 0 to 1000"):
            next_model(learner, model, ClientRows(features, targets))
    with pytest.raises(InvalidRowsError, match=message):
        train(learner, [ClientRows(features, targets)])


@some_forms(1)
def test_a_cohort_with_too_many_rows_is_refused(name: str) -> None:
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(9), 600)
    with pytest.raises(InvalidRowsError, match="1200 rows is outside 0 to 1000"):
        train(learner, [rows, rows])


@pytest.mark.parametrize("name", [name for name in PLAIN if name in WITH_RI])
def test_more_clients_than_the_ri_process_has_room_for_are_refused(name: str) -> None:
    """Their diagonals could wrap around, and the model would silently be wrong."""
    learner = replace(CASES[name].learner, max_clients=2, ri_gamma=27)
    clients = [CASES[name].rows(np.random.default_rng(seed), 5) for seed in range(3)]
    with pytest.raises(InvalidRowsError, match="room for 2 clients and 3 took part"):
        train(learner, clients)
    train(replace(learner, ri_gamma=0), clients)  # without an RI process nothing needs room


@some_forms(2)
def test_a_model_predicts_when_it_is_complete_and_for_its_own_features(name: str) -> None:
    learner, rows = CASES[name].learner, CASES[name].rows(np.random.default_rng(10), 30)
    *unfinished, complete = steps(learner, [rows])
    for model in unfinished:
        with pytest.raises(NotReadyError, match="still needs"):
            learner.decision_function(model, rows.features)
        with pytest.raises(NotReadyError, match="still needs"):
            learner.exact_scores(model, rows.features)
    if learner.name != "deepafl":  # whose weights are those of the layers so far
        with pytest.raises(NotReadyError, match="still needs"):
            learner.weights_bytes(unfinished[0])
    for scores in (learner.decision_function, learner.exact_scores):
        assert scores(complete, rows.features).shape == (30, C)
        assert scores(complete, rows.features[:0]).shape == (0, C)
        for shape in ((D,), (2, D + 1), (2, D, 1)):
            with pytest.raises(InvalidRowsError, match=rf"must have shape \(n, {D}\)"):
                scores(complete, np.zeros(shape))
    with pytest.raises((InvalidRowsError, RowsOutsideFormatError), match="NaN or infinity"):
        learner.exact_scores(complete, np.full((2, D), np.inf))


NO_FORMATS = (("feature_format", "Q5.11"), ("target_format", 5))
NO_PENALTY = (-1.0, np.nan, np.inf)
IMPOSSIBLE: dict[str, list[tuple[dict[str, Any], str]]] = {
    "afl": [
        *(({"ridge": value}, "ridge must be a finite number >= 0") for value in NO_PENALTY),
        *(({"ri_gamma": value}, "gamma must be a finite number >= 0") for value in NO_PENALTY),
        *(({"ri_gamma": gamma}, r"below half a unit of the Gram, 2\^-22") for gamma in (2.0**-24, 5e-324)),
        *(({"ri_gamma": gamma}, "from 32 clients does not fit an int64 Gram") for gamma in (1.7e308, 2.0**41, 2.0**37)),
        ({"max_clients": 0}, "at least one client"),
        *(({field: text}, r"formats are RowFormats.*RowFormat\.parse") for field, text in NO_FORMATS),
        ({"n_features": 5.0}, "n_features must be a whole number"),
        ({"columns": ColumnMap(exponents=(0,))}, f"an exponent for each of {D} features"),
        ({"columns": replace(COLUMNS, target_exponents=(0,) * C)}, "real targets or none"),
        *(({"columns": replace(COLUMNS, intercept=power)}, "does not hold a column of") for power in (-5, 12)),
    ],
    "random": [
        ({"lift": replace(MAP, n_features=4)}, "rows of 4 features came, and n_features=5"),
    ],
    "deepafl": [
        *(({name: 0}, "at least one feature") for name in ("n_features", "n_targets", "d_phi", "d_f", "n_layers")),
        ({"headroom_bits": -1}, "headroom_bits"),
        ({"input_activation": "swish"}, "an activation is one of"),
        *(({name: 0.0}, "variance is multiplied by a number above 0") for name in ("input_variance", "block_variance")),
        ({"ablation": "no-bias"}, "no-skip, no-projection, no-transform, not 'no-bias'"),
        ({"ablation": "no-transform"}, "d_f must be d_phi, not 9 and 12"),
        ({"ablation": "no-projection"}, "d_f must be d_phi, not 9 and 12"),
        ({"ablation": "no-skip", "fed_by_first": True}, "leave fed_by_first, or the ablation, out"),
        *(({name: value}, f"{name} must be") for name in ("ridge", "gamma") for value in NO_PENALTY),
        *(({"feature_bound": bound}, "feature_bound") for bound in (0.0, np.inf)),
        ({"activation": "swish"}, "an activation is one of"),
        ({"projection": "haar"}, "a projection is one of"),
        ({"seed": -1}, "a seed is"),
        ({"row_bits": 27}, "a row format needs"),
        ({"max_rows": 2**20}, "allow fewer rows"),
    ],
    "safle": [
        ({"group_size": 3}, "20 digits do not fit into groups of 3"),
        ({"group_size": 10, "n_buckets": 40}, "20480 cells, more than 16384.*; n_buckets=32 fits: 16384 cells"),
        ({"n_buckets": 1}, "buckets, not 1"),
        ({"encoding": "unary"}, "one of integer, one-hot, binary-overlapping, not 'unary'"),
        ({"thresholds": FixedThresholds.evenly(0.0, 1.0, 3)}, "need 4 thresholds for each of 5 features"),
        ({"thresholds": replace(GRID, n_bins=4)}, "too few for 4 thresholds"),
        ({"seed": -1}, "seed from 0"),
        *(({"ri_gamma": gamma}, "whole number") for gamma in (0.5, -1)),
        ({"ri_gamma": 2**63}, r"below 2\^63"),
        *(({"ridge": value}, "ridge must be") for value in (-1.0, np.nan)),
        ({"n_features": 0}, "at least one feature"),
        ({"max_clients": 0}, "one client"),
        ({"n_classes": 0}, "class"),
        ({"max_rows": 0}, "row"),
    ],
}
IMPOSSIBLE["fedhip"] = IMPOSSIBLE["afl"][::9]  # an AFL with another name


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [pytest.param(name, *line, id=f"{name}-{line[0]}") for name, lines in IMPOSSIBLE.items() for line in lines],
)
def test_a_configuration_that_cannot_work_never_exists(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        replace(PLAIN[name].learner, **change)
