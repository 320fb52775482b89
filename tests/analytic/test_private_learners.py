"""Learners for noisy totals: exact without noise, bounded in every sum, and silent about what they clipped."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.learner import ClientRows, federate, fit_pooled
from analytic.private_afl import CLIPPED_CONTRIBUTION, CLIPPED_ROWS, GramNoise, PrivateAFL
from analytic.private_deepafl import PrivateDeepAFL, noise_drowns
from analytic.private_mean import MeanSensitivity, MeanSpec
from analytic.row_format import RowFormat
from analytic.sensitivity import ADJACENCIES, JointClip, RowClip

FORMAT = RowFormat(integer_bits=1, fraction_bits=14)
CLIP = RowClip(bound=1.0, row_format=FORMAT, normalise=True)
AFL = PrivateAFL(n_given=5, n_targets=3, clip=CLIP, max_rows=200, ridge=0.1)
DEEP = PrivateDeepAFL(n_given=5, n_targets=3, max_rows=200, n_layers=2, d_phi=9, d_f=7)
LEARNERS = [AFL, replace(AFL, centred=True), replace(AFL, clip=replace(CLIP, normalise=False, bias=0.4)), DEEP]


def rows(seed: int, n: int = 60) -> ClientRows:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return ClientRows(rng.normal(size=(n, 5)) + np.eye(3, 5)[labels] * 3 + 1, labels)


@pytest.mark.parametrize("learner", LEARNERS, ids=["afl", "centred", "bias", "deep"])
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=3))
def test_without_noise_any_partition_gives_the_pooled_bytes(learner: PrivateAFL, seed: int, cuts: list[int]) -> None:
    whole = rows(seed)
    parts = [
        ClientRows(x, y)
        for x, y in zip(np.split(whole.features, sorted(cuts)), np.split(whole.targets, sorted(cuts)), strict=True)
    ]
    model, _ = federate(learner, parts)
    assert learner.weights_bytes(model) == learner.weights_bytes(fit_pooled(learner, whole))
    predicted = learner.decision_function(model, whole.features).argmax(axis=1)
    assert np.mean(predicted == whole.targets) > 0.7


@pytest.mark.parametrize("learner", LEARNERS, ids=["afl", "centred", "bias", "deep"])
def test_no_sum_says_how_many_rows_there_are_or_leaves_its_ball(learner: PrivateAFL) -> None:
    """One client with one row: its statistics are that row's, and their norms are what the noise covers."""
    one, all_rows = rows(1, 1), rows(2)
    model = learner.init()
    while (spec := learner.next_sum(model)) is not None:
        own = learner.client_statistics(model, one)
        if isinstance(spec, MeanSpec):
            assert sum(int(v) ** 2 for v in own) <= MeanSensitivity(spec=spec).squared
        else:
            assert own.count == 0
            limit = spec.feature_format.magnitude // 2 + 1
            assert sum(int(v) ** 2 for v in own.gram.ravel()) <= limit**4
            target = 1 if spec.target_format.fraction_bits == 0 else DEEP.residual_clip.limit
            assert sum(int(v) ** 2 for v in own.cross.ravel()) <= (limit * target) ** 2
        model = learner.update(model, learner.client_statistics(model, all_rows), 1)


@pytest.mark.parametrize("learner", LEARNERS, ids=["afl", "centred", "bias", "deep"])
@pytest.mark.parametrize("targets", [np.ones((60, 3)), np.ones((60, 3), dtype=int), np.eye(3)[[0] * 60]])
def test_target_rows_that_the_noise_does_not_cover_never_enter_a_sum(learner: PrivateAFL, targets: Any) -> None:
    """A row with a one in each of three classes has norm sqrt 3; the noise is for 1. No sum takes it."""
    model, given = learner.init(), rows(1)
    while learner.next_sum(model) is not None:
        with pytest.raises(InvalidRowsError, match=r"class labels of shape \(n,\).*noise covers target rows of norm 1"):
            learner.client_statistics(model, ClientRows(given.features, targets))
        model = learner.update(model, learner.client_statistics(model, given), 1)


def test_what_was_clipped_stays_with_its_owner() -> None:
    learner = PrivateAFL(n_given=5, n_targets=3, clip=replace(CLIP, normalise=False), max_rows=200, ridge=0.1)
    own = rows(3)
    learner.client_statistics(learner.init(), own)
    assert own.memory[CLIPPED_ROWS] == int((np.linalg.norm(own.features, axis=1) > 1).sum()) > 0
    bounded = replace(learner, client_bounds=(1000, JointClip(limit=2**28, cross_weight=2**14)))
    statistics = bounded.client_statistics(bounded.init(), own)
    assert own.memory[CLIPPED_CONTRIBUTION] is True
    assert bounded.client_bounds is not None
    assert bounded.client_bounds[1].squared_norm(statistics) <= 2**56


def test_the_ridge_follows_the_noise_that_is_really_there() -> None:
    assert GramNoise(sigma=3.0, shares=16).realised(25) == pytest.approx(3.0 * 1.25)
    assert GramNoise(sigma=3.0).realised(25) == 3.0
    total = AFL.client_statistics(AFL.init(), rows(4))
    noisy = replace(AFL, noise=GramNoise(sigma=2.0**28, shares=4))
    few, many = (noisy.update(noisy.init(), total, n).weights for n in (4, 16))
    assert np.abs(many).sum() < np.abs(few).sum()


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_mean_costs_no_more_than_its_formula_says(adjacency: str, nonnegative: bool) -> None:
    spec = MeanSpec(n_features=3, limit=60, row_format=FORMAT, max_rows=10)
    sensitivity = MeanSensitivity(spec=spec, adjacency=adjacency, nonnegative=nonnegative)  # type: ignore[arg-type]
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
    variance = sensitivity.variance_for(Fraction(1, 37))
    assert sensitivity.rho(variance) <= Fraction(1, 37) < sensitivity.rho(variance - 1)


def test_a_clients_sum_for_the_mean_is_bounded() -> None:
    spec = MeanSpec(n_features=2, limit=2**14, row_format=FORMAT, max_rows=100, client_limit=2**15)
    total = spec.sum_of(np.tile([0.6, 0.8], (50, 1)))
    assert sum(int(v) ** 2 for v in total) <= 2**30
    assert spec.mean(total)[0] == pytest.approx([0.6, 0.8], abs=0.01)
    assert MeanSensitivity(spec=spec, adjacency="replace-one").squared == 4 * 2**30


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
    sensitivity = MeanSensitivity(spec=MeanSpec(n_features=2, limit=60, row_format=FORMAT, max_rows=1))
    with pytest.raises(SpecificationError, match="budget above 0"):
        sensitivity.variance_for(Fraction(0))


def test_residuals_are_clipped_and_counted() -> None:
    """Noise has blown the classifier up: residuals far outside the ball enter the sum on its surface."""
    own, model = rows(6), DEEP.init()
    model = DEEP.update(model, DEEP.client_statistics(model, own), 1)
    wild = replace(model, classifiers=(model.classifiers[0] * 1000,))
    statistics = DEEP.client_statistics(wild, own)
    assert own.memory[CLIPPED_ROWS] == 60
    norm = DEEP.row_clip.limit * DEEP.residual_clip.limit * 60
    assert int(np.abs(statistics.cross).max()) <= norm


def test_deep_sums_are_counted_and_the_rule_says_when_depth_drowns() -> None:
    assert DEEP.n_sums == 5
    assert noise_drowns(n_rows=1000, row_norm=1.0, sigma_gram=10.0, n_features=64)
    assert not noise_drowns(n_rows=10**6, row_norm=1.0, sigma_gram=10.0, n_features=64)
    labels, residuals = DEEP.sensitivities(adjacency="add-remove")
    assert labels.target_norm == 1
    assert residuals.target_norm == 2 * 2**16


def test_a_model_without_its_totals_predicts_nothing() -> None:
    for learner in (AFL, DEEP):
        with pytest.raises(NotReadyError):
            learner.decision_function(learner.init(), np.zeros((1, 5)))


def test_bad_parameters_are_refused() -> None:
    for make in (
        lambda: GramNoise(sigma=-1.0),
        lambda: GramNoise(sigma=1.0, shares=0),
        lambda: replace(AFL, ridge=math.nan),
        lambda: replace(DEEP, n_layers=-1),
        lambda: replace(DEEP, gamma=-1.0),
        lambda: replace(DEEP, residual_bound=0.0),
    ):
        with pytest.raises(SpecificationError):
            make()
