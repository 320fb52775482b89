"""Learners for noisy totals: exact without noise, bounded in every sum, and silent about what they clipped."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.composed import of_kind
from support.examples import examples
from support.learner_driver import steps

from analytic.afl import AFL, LinearModel
from analytic.deepafl import DeepAFL
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.estimators import AFLClassifier, DeepAFLClassifier, FedHiPClassifier, LogisticClassifier
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, canonical_context, fit_pooled
from analytic.logistic import RESIDUALS, Logistic, LogisticModel
from analytic.model_arrays import ModelFileError
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.noisy_solve import NoisySolver, noise_drowns
from analytic.row_format import RowFormat
from analytic.row_map import (
    CLIPPED_CONTRIBUTION,
    CLIPPED_ROWS,
    JointClip,
    LayerMap,
    MeanSpec,
    RowClip,
    RowMap,
    RowTerms,
)
from analytic.sensitivity import ADJACENCIES, UNITS, gradient_sensitivity, mean_sensitivity, noise_levels
from analytic.solve import Solution
from analytic.statistics import Statistics
from analytic.tallies import TallySpec
from analytic.torch_export import to_torch

FORMAT = RowFormat(integer_bits=1, fraction_bits=14)
CLIP = RowClip(bound=1.0, row_format=FORMAT, normalise=True)
EXACT = AFL(n_features=5, n_targets=3, feature_format=FORMAT, max_rows=200, ridge=0.1)
LINEAR = replace(EXACT, row_map=RowMap(clip=CLIP))
CENTRED = replace(EXACT, row_map=RowMap(clip=CLIP, centred=True))
BIAS = replace(EXACT, row_map=RowMap(clip=replace(CLIP, normalise=False, bias=0.4)))
BALLS = LayerMap()
DEEP = DeepAFL(
    n_features=5, n_targets=3, feature_bound=1.0, max_rows=200, n_layers=2, d_phi=9, d_f=7, ridge=1e-3, gamma=1e-3,
    row_map=BALLS,
)  # fmt: skip
ROUNDS = of_kind(Logistic, CENTRED, n_rounds=2)
KNOWING = CENTRED.with_noise([0.0], None)
PERSONAL = FedHiP(**{one.name: getattr(KNOWING, one.name) for one in fields(KNOWING)})
LEARNERS: list[Any] = [LINEAR, CENTRED, BIAS, ROUNDS, DEEP, replace(DEEP, fed_by_first=True), KNOWING, PERSONAL]
each = pytest.mark.parametrize(
    "learner", LEARNERS, ids=["afl", "centred", "bias", "rounds", "deep", "fed by first", "noisy solver", "fedhip"]
)


def rows(seed: int, n: int = 60) -> ClientRows:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return ClientRows(rng.normal(size=(n, 5)) + np.eye(3, 5)[labels] * 3 + 1, labels)


@each
@examples(20)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_without_noise_any_partition_gives_the_pooled_bytes(learner: Any, seed: int, cuts: list[int]) -> None:
    whole, model = rows(seed), learner.init()
    parts = [
        ClientRows(x, y)
        for x, y in zip(np.split(whole.features, sorted(cuts)), np.split(whole.targets, sorted(cuts)), strict=True)
    ]
    while (spec := learner.next_sum(model)) is not None:
        vectors = [spec.to_vector(learner.client_statistics(model, part)) for part in parts]
        model = learner.update(model, spec.from_vector(np.sum(vectors, axis=0)), len(parts))
    assert learner.weights_bytes(model) == learner.weights_bytes(fit_pooled(learner, whole))
    predicted = learner.decision_function(model, whole.features).argmax(axis=1)
    assert np.mean(predicted == whole.targets) > 0.7


@each
def test_no_sum_says_how_many_rows_there_are_or_leaves_its_ball(learner: Any) -> None:
    """One client with one row: its statistics are that row's, and their norms are what the noise covers."""
    one, all_rows = rows(1, 1), rows(2)
    model = learner.init()
    while (spec := learner.next_sum(model)) is not None:
        own = learner.client_statistics(model, one)
        if isinstance(spec, MeanSpec):
            assert sum(int(v) ** 2 for v in own) <= mean_sensitivity(spec, "add-remove").squared
        elif isinstance(spec, TallySpec):
            assert own["count"] == 0
            limit, ball = learner.row_map.last.limit, 1 << RESIDUALS.fraction_bits
            squared = sum(int(v) ** 2 for v in own["gradient"].ravel())
            assert 0 < squared <= gradient_sensitivity(limit, ball, "add-remove").squared
        else:
            assert own.count == 0
            limit = spec.feature_format.magnitude // 2 + 1
            assert sum(int(v) ** 2 for v in own.gram.ravel()) <= limit**4
            target = 1 if spec.target_format.fraction_bits == 0 else BALLS.residuals.limit
            assert sum(int(v) ** 2 for v in own.cross.ravel()) <= (limit * target) ** 2
        model = learner.update(model, learner.client_statistics(model, all_rows), 1)


@each
@pytest.mark.parametrize("targets", [np.ones((60, 3)), np.ones((60, 3), dtype=int), np.eye(3)[[0] * 60]])
def test_target_rows_that_the_noise_does_not_cover_never_enter_a_sum(learner: Any, targets: Any) -> None:
    """A row with a one in each of three classes has norm sqrt 3; the noise is for 1. No sum takes it."""
    model, given = learner.init(), rows(1)
    while learner.next_sum(model) is not None:
        with pytest.raises(InvalidRowsError, match=r"class labels of shape \(n,\).*noise covers target rows of norm 1"):
            learner.client_statistics(model, ClientRows(given.features, targets))
        model = learner.update(model, learner.client_statistics(model, given), 1)


def test_what_was_clipped_stays_with_its_owner() -> None:
    clip, own = replace(CLIP, normalise=False), rows(3)
    learner = replace(EXACT, row_map=RowMap(clip=clip))
    learner.client_statistics(learner.init(), own)
    assert own.memory[CLIPPED_ROWS] == int((np.linalg.norm(own.features, axis=1) > 1).sum()) > 0
    joint = JointClip(limit=2**28, cross_weight=2**14)
    bounded = replace(EXACT, row_map=RowMap(clip=clip, client_bounds=(1000, joint)))
    statistics = bounded.client_statistics(bounded.init(), own)
    assert own.memory[CLIPPED_CONTRIBUTION] is True
    assert joint.squared_norm(statistics) <= 2**56


def test_the_ridge_follows_the_noise_that_is_really_there() -> None:
    assert NoisySolver(sigma=3.0, shares=16).realised(25) == pytest.approx(3.0 * 1.25)
    assert NoisySolver(sigma=3.0).realised(25) == 3.0
    assert NoisySolver(sigma=3.0).realised(25, fraction_bits=2) == 3.0 / 16
    total = LINEAR.client_statistics(LINEAR.init(), rows(4))
    noisy = LINEAR.with_noise([2.0**28], 4)
    few, many = (noisy.update(noisy.init(), total, n).weights.tobytes() for n in (4, 16))
    twice = LINEAR.with_noise([2.0**29], None)
    assert many == twice.update(twice.init(), total, 1).weights.tobytes() != few


def test_a_personal_model_weighs_its_own_rows_beside_a_noisy_total() -> None:
    """Alpha 0 is the global model whatever the noise; a copy of the total's rows beside it moves no class far."""
    noisy, own = PERSONAL.with_noise([2.0**20], 2), rows(4)
    *_, model = steps(noisy, [own, rows(5)])
    stored = model_from_bytes(model_to_bytes(noisy, model, with_totals=True)).model
    assert stored.survivors == model.survivors == 2
    with pytest.raises(ModelFileError, match="a total is of at least one client, and 0 came"):
        model_from_bytes(model_to_bytes(noisy, replace(model, survivors=0), with_totals=True))
    for known in (model, stored):
        nobody, heavy = noisy.personalise(known, ClientRows(own.features, own.targets), [0.0, 1e9])
        assert nobody.weights.tobytes() == model.weights.tobytes()
        assert nobody.centre is not None
        alone = noisy.client_statistics(model, own)
        unit = 2.0**-14
        gram, cross = alone.gram * unit**2, alone.cross * unit
        np.testing.assert_allclose(heavy.weights, np.linalg.lstsq(gram, cross)[0], rtol=1e-3, atol=1e-6)
        assert np.mean(noisy.decision_function(heavy, own.features).argmax(axis=1) == own.targets) > 0.9


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_mean_costs_no_more_than_its_formula_says(adjacency: str, nonnegative: bool) -> None:
    spec = MeanSpec(n_features=3, limit=60, row_format=FORMAT, max_rows=10)
    sensitivity = mean_sensitivity(spec, adjacency, nonnegative=nonnegative)  # type: ignore[arg-type]
    rng, worst = np.random.default_rng(5), 0
    for _ in range(4000):
        pair = rng.normal(size=(2, 3))
        pair = np.abs(pair) if nonnegative else pair
        if rng.random() < 0.3:
            pair[1] = np.roll(np.eye(3)[0], rng.integers(3))
            pair[0] = np.eye(3)[1] if nonnegative else -pair[1]
        units = np.trunc(60 * pair / np.linalg.norm(pair, axis=1, keepdims=True)) * 2.0**-14
        one, two = spec.sum_of(units[:1]), spec.sum_of(units[1:])
        change = one - two if adjacency == "replace-one" else one
        worst = max(worst, int((change**2).sum()))
    assert worst <= sensitivity.squared
    assert worst > 0.9 * sensitivity.squared
    scales = sensitivity.scales(Fraction(1, 37), gram_share=0.3)
    assert scales.rho == sensitivity.rho(*scales.variances) <= Fraction(1, 37)
    assert sensitivity.rho(scales.variances[0] - 1) > Fraction(1, 37)


def test_a_lone_gradient_fills_its_bound_and_no_pair_leaves_theirs() -> None:
    """A row of the ball's norm that W gets wrong, and its opposite."""
    centre, weights = np.zeros((1, 5)), np.zeros((5, 3))
    weights[0] = [0.0, 400.0, -400.0]
    solution = Solution(weights=weights, method="given", rank=5, reciprocal_condition=1.0)
    model = LogisticModel(solution=solution, centre=centre)
    row = np.array([[1.0, 0.0, 0.0, 0.0, 0.0]])
    one, other = (
        ROUNDS.client_statistics(model, ClientRows(given, np.array([label])))["gradient"]
        for given, label in ((row, 2), (-row, 2))
    )
    alone = sum(int(v) ** 2 for v in one.ravel())
    worst = sum(int(v) ** 2 for v in (one - other).ravel())
    bounds = {own: gradient_sensitivity(2**14, 2**15, own).squared for own in ADJACENCIES}
    assert 0.99 * bounds["add-remove"] < alone <= bounds["add-remove"]
    assert alone <= worst <= bounds["replace-one"] == 4 * bounds["add-remove"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_map": None, "solver": None, "ri_gamma": 1.0}, "no RI process"),
        ({"n_rounds": 0}, "at least one round, and a step and a scale above 0, not 0"),
        ({"step": float("nan")}, "at least one round"),
        ({"first_share": 1.0}, "lies between 0 and 1, not 1.0"),
    ],
)
def test_rounds_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        replace(ROUNDS, **changes)


def test_rounds_need_their_first_sum_and_are_bounded_by_record() -> None:
    plain, own = of_kind(Logistic, EXACT, n_rounds=2), ClientRows(rows(3).features / 8, rows(3).targets)
    first, second, *_, last = steps(plain, [own])
    assert (plain.sums_made(first), plain.sums_made(second), plain.sums_made(last)) == (0, 1, 3)
    stored = model_from_bytes(model_to_bytes(plain, second)).model
    gradient = plain.client_statistics(second, own)
    with pytest.raises(NotReadyError, match="the Gram of the first sum, which this party has not seen"):
        plain.update(stored, gradient, 1)
    judged = plain.exact_total(second, gradient, 1)
    assert isinstance(judged, Statistics)
    assert (judged.count, judged.gram.size) == (len(own), 0)
    with pytest.raises(SpecificationError, match="bounded by record only"):
        ROUNDS.bounded(RowTerms(client_rows=40))
    assert ROUNDS.unbounded() == replace(ROUNDS, row_map=None, solver=None)


def test_a_clients_sum_for_the_mean_is_bounded() -> None:
    spec = MeanSpec(n_features=2, limit=2**14, row_format=FORMAT, max_rows=100, client_limit=2**15)
    total = spec.sum_of(np.tile([0.6, 0.8], (50, 1)))
    assert sum(int(v) ** 2 for v in total) <= 2**30
    assert spec.mean(total)[0] == pytest.approx([0.6, 0.8], abs=0.01)
    assert mean_sensitivity(spec, "replace-one").squared == 4 * 2**30


def test_a_mean_of_noise_stays_in_the_ball() -> None:
    spec = MeanSpec(n_features=2, limit=2**14, row_format=FORMAT, max_rows=100)
    mean = spec.mean(np.array([10**9, -(10**9), -500], dtype=np.int64))
    assert float(np.linalg.norm(mean)) <= 1.0 + 1e-12
    with pytest.raises(InvalidRowsError):
        spec.from_vector(np.zeros(2, dtype=np.int64))
    with pytest.raises(InvalidRowsError):
        spec.sum_of(np.zeros((101, 2)))
    with pytest.raises(SpecificationError):
        MeanSpec(n_features=2, limit=2, row_format=FORMAT, max_rows=1)


def test_a_mean_needs_a_bound_and_a_budget() -> None:
    with pytest.raises(SpecificationError, match="bound is at least one unit, not 0"):
        MeanSpec(n_features=2, limit=60, row_format=FORMAT, max_rows=1, client_limit=0)
    sensitivity = mean_sensitivity(MeanSpec(n_features=2, limit=60, row_format=FORMAT, max_rows=1), "add-remove")
    with pytest.raises(SpecificationError, match="budget above 0"):
        sensitivity.scales(Fraction(0), gram_share=0.3)


def test_residuals_are_clipped_and_counted() -> None:
    """Noise has blown the classifier up: residuals far outside the ball enter the sum on its surface."""
    own, model = rows(6), DEEP.init()
    model = DEEP.update(model, DEEP.client_statistics(model, own), 1)
    weights = model.classifiers[0].weights * 1000
    wild = replace(model, classifiers=(replace(model.classifiers[0], weights=weights),))
    statistics = DEEP.client_statistics(wild, own)
    assert own.memory[CLIPPED_ROWS] == 60
    norm = BALLS.features.limit * BALLS.residuals.limit * 60
    assert int(np.abs(statistics.cross).max()) <= norm


def test_the_rule_says_when_depth_drowns() -> None:
    assert noise_drowns(n_rows=1000, row_norm=1.0, sigma_gram=10.0, n_features=64)
    assert not noise_drowns(n_rows=10**6, row_norm=1.0, sigma_gram=10.0, n_features=64)


@each
def test_a_learner_prices_every_sum_that_it_asks_for(learner: Any) -> None:
    """In order, with a noise level for each entry of its vector; the count is withheld and so is always zero."""
    model, own = learner.init(), rows(2)
    for priced in learner.bounded_sums("record", "add-remove"):
        spec = learner.next_sum(model)
        assert len(priced.levels) == sum(size for _, size, _ in spec.segments)
        assert priced.preparatory == isinstance(spec, MeanSpec)
        if isinstance(spec, TallySpec):
            assert priced.levels.tolist() == [1] * 15 + [0]
            assert priced.sensitivity == gradient_sensitivity(2**14, 2**15, "add-remove")
        elif not priced.preparatory:
            assert priced.levels.tolist() == noise_levels(spec).tolist()
            norm, target = spec.feature_format.magnitude // 2 + 1, spec.target_format.magnitude // 2 + 1
            assert (priced.sensitivity.squared_features, priced.sensitivity.squared_targets) == (norm**2, target**2)
        vector = spec.to_vector(learner.client_statistics(model, own))
        assert not vector[priced.levels == 0].any()
        assert priced.fraction_bits == learner.bounded(RowTerms()).bounded_sums("record", "add-remove")[0].fraction_bits
        model = learner.update(model, spec.from_vector(vector), 1)
    assert learner.next_sum(model) is None


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("centred", [False, True])
def test_terms_make_the_map_that_their_unit_needs(unit: Any, centred: bool) -> None:
    terms = RowTerms(nonnegative=True, centred=centred, client_rows=9 if unit == "client" else None)
    bounded, other = EXACT.bounded(terms), UNITS[unit == "record"]
    assert bounded.bounded(RowTerms()) is bounded
    assert [own.label for own in bounded.bounded_sums(unit, "replace-one")] == ["mean"] * centred + ["statistics"]
    with pytest.raises(SpecificationError, match=f"noise for a {other} needs a row map that bounds one {other}"):
        bounded.bounded_sums(other, "replace-one")
    with pytest.raises(SpecificationError, match="is not there: take the map that bounded"):
        EXACT.bounded_sums(unit, "replace-one")


def test_a_deep_learner_bounds_records_only() -> None:
    exact = replace(DEEP, row_map=None)
    assert exact.bounded(RowTerms(fraction_bits=12)).row_map == LayerMap(fraction_bits=12)
    for refused in (
        lambda: exact.bounded(RowTerms(client_rows=5)),
        lambda: DEEP.bounded_sums("client", "add-remove"),
        lambda: exact.bounded_sums("record", "add-remove"),
    ):
        with pytest.raises(SpecificationError, match=r"bounded by record only|bounds no clients|has none"):
            refused()


def test_a_row_map_changes_what_parties_agree_on_and_its_absence_changes_nothing() -> None:
    contexts = {learner.context_bytes(learner.init()) for learner in (EXACT, *LEARNERS)}
    assert len(contexts) == len(LEARNERS) + 1
    for without in (canonical_context(EXACT), canonical_context(replace(DEEP, row_map=None))):
        assert b"row_map" not in without
        assert b"solver" not in without


def test_a_centre_is_part_of_what_was_learned() -> None:
    model, own = CENTRED.init(), rows(7)
    model = CENTRED.update(model, CENTRED.client_statistics(model, own), 1)
    assert model.centre is not None
    assert not model.centre.flags.writeable
    assert CENTRED.context_bytes(model) != CENTRED.context_bytes(CENTRED.init())
    with pytest.raises(NotReadyError):
        CENTRED.weights_bytes(model)
    whole = CENTRED.update(model, CENTRED.client_statistics(model, own), 1)
    assert CENTRED.weights_bytes(whole) == model.centre.tobytes() + whole.weights.tobytes()


def test_gates_judge_exact_totals_of_raw_features_only() -> None:
    exact = replace(EXACT, clip=True)
    total = exact.client_statistics(exact.init(), rows(8))
    with_ri = replace(exact, ri_gamma=1.0, max_clients=3)
    sent = with_ri.client_statistics(with_ri.init(), rows(8))
    judged = with_ri.exact_total(with_ri.init(), sent, 1)
    assert isinstance(judged, Statistics)
    assert judged.to_bytes() == total.to_bytes()
    for learner in LEARNERS:
        assert learner.exact_total(learner.init(), total, 1) is None


@each
def test_a_map_is_never_left_behind(learner: Any) -> None:
    """Layers alone would be given rows that went through no map; stored models and estimators take it along."""
    given = rows(9)
    *_, model = stages = list(steps(learner, [given]))
    for without in (to_torch, lambda learner, model: learner.exact_scores(model, given.features)):
        with pytest.raises(SpecificationError, match="no place for the row map of"):
            without(learner, model)
    for stage in stages:
        stored = model_from_bytes(model_to_bytes(learner, stage, with_totals=True))
        assert stored.learner == learner
        assert learner.context_bytes(stored.model) == learner.context_bytes(stage)
    scores = learner.decision_function(model, given.features)
    assert stored.learner.decision_function(stored.model, given.features).tobytes() == scores.tobytes()
    kinds: dict[str, Any] = {"deepafl": DeepAFLClassifier, "logistic": LogisticClassifier, "fedhip": FedHiPClassifier}
    adopted = kinds.get(learner.name, AFLClassifier).from_model(learner, model)
    assert adopted.decision_function(given.features).tobytes() == scores.tobytes()


def test_a_model_without_its_totals_predicts_nothing() -> None:
    for learner in LEARNERS:
        with pytest.raises(NotReadyError):
            learner.decision_function(learner.init(), np.zeros((1, 5)))
    with pytest.raises(NotReadyError):
        _ = LinearModel(centre=np.zeros((1, 5))).weights


def test_bad_parameters_are_refused() -> None:
    for make in (
        lambda: NoisySolver(sigma=-1.0),
        lambda: NoisySolver(sigma=1.0, shares=0),
        lambda: NoisySolver(factor=math.nan),
        lambda: replace(LINEAR, ridge=math.nan),
        lambda: replace(LINEAR, ri_gamma=1.0),
        lambda: replace(LINEAR, target_format=FORMAT),
        lambda: replace(EXACT, solver=NoisySolver()),
        lambda: replace(DEEP, row_map=None, block_solver=NoisySolver()),
        lambda: replace(DEEP, target_format=FORMAT),
        lambda: replace(DEEP, n_layers=-1),
        lambda: replace(DEEP, gamma=-1.0),
        lambda: LayerMap(residual_bound=0.0),
    ):
        with pytest.raises(SpecificationError):
            make()
