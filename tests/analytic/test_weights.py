"""Weighted rows: copies, bit for bit; balanced classes from a first sum; what heavy rows mean for gates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.utils.class_weight import compute_class_weight
from support.composed import choosing, of_kind, weighted

from analytic import (
    AFL,
    ClientRows,
    FedHiP,
    InvalidRowsError,
    NotReadyError,
    RowFormat,
    SpecificationError,
    fit_pooled,
)
from analytic.discriminant import QDA
from analytic.estimators import AFLClassifier, AFLRegressor
from analytic.learner import fit_in_the_clear
from analytic.logistic import Logistic
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.pipeline import Pipeline
from analytic.row_format import ColumnMap
from analytic.row_map import RowMap, RowTerms
from analytic.weights import Weights
from analytic_secagg import federate
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Federation, Step
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError
from secagg import InOneProcess, MaskedSum, new_session_id, run_in_memory
from secagg.dp import PrivacyError

D, C, N = 4, 3, 40
LINEAR = AFL(
    n_features=D, n_targets=C, feature_format=RowFormat.parse("Q3.12"), max_rows=2**20, max_clients=9, ridge=0.5
)
RNG = np.random.default_rng(7)
X = RNG.uniform(-7, 7, (N, D))
Y = RNG.choice(C, N, p=[0.7, 0.2, 0.1])
W = RNG.integers(0, 9, N)


def weighing(learner: Pipeline, **own: Any) -> Pipeline:
    """The learner whose rows weigh in another way."""
    assert learner.weights is not None
    return replace(learner, weights=replace(learner.weights, **own))


BALANCED = weighted(LINEAR, max_weight=8, class_weights="balanced", denominator=1024)


def clients(weights: np.ndarray | None = W) -> dict[int, ClientRows]:
    rows = ClientRows(X, Y, weights)
    return {k + 1: rows.taken(np.arange(N) % 5 == k) for k in range(5)}


def test_weights_beyond_what_all_rows_may_weigh_are_refused() -> None:
    """Products of such weights could leave int64, and a row would silently weigh nothing."""
    for change in ({"max_weight": 2**40}, {"max_weight": 2**32, "class_weights": (2**40, 1, 1)}):
        with pytest.raises(SpecificationError, match=r"a row may weigh .*, more than the"):
            weighing(BALANCED, **{"class_weights": (), **change})
    with pytest.raises(InvalidRowsError, match="fewer than 0 rows"):
        BALANCED.update(BALANCED.init(), {"classes": np.array([-2, 3, 4]), "count": np.array(5)}, 1)


def test_a_ridge_that_was_chosen_is_in_the_units_of_weights_as_they_are_meant() -> None:
    """Stated instead of chosen it gives the same weights; it came out 1 024 times as large."""
    learner = choosing(replace(BALANCED, head=replace(LINEAR, ridge=0.0)), n_folds=3)
    found = fit_pooled(learner, ClientRows(X, Y))
    stated = replace(BALANCED, head=replace(LINEAR, ridge=found.ridge))
    weights = stated.weights_bytes(fit_pooled(stated, ClientRows(X, Y)))
    assert learner.weights_bytes(found) == weights
    assert found.path.choice == found.ridge
    saved = model_from_bytes(model_to_bytes(learner, found))
    assert saved.model.ridge == found.ridge
    chosen = AFLClassifier(ridge="cv", class_weight="balanced").fit(X, Y)
    again = AFLClassifier(ridge=chosen.ridge_, class_weight="balanced").fit(X, Y)
    assert np.array_equal(chosen.coef_, again.coef_)
    assert chosen.path_ is not None
    assert chosen.path_.choice == chosen.ridge_


FEDHIP = FedHiP(n_features=D, n_targets=C, feature_format=LINEAR.feature_format, max_rows=2**20, ridge=0.5)


@pytest.mark.parametrize("learner", [LINEAR, FEDHIP], ids=["afl", "fedhip"])
def test_balanced_weights_are_those_of_scikit_learn_up_to_their_unit(learner: AFL) -> None:
    balanced = replace(BALANCED, head=learner)
    model = fit_in_the_clear(balanced, list(clients(None).values()))
    found = np.array(model.class_weights) / 1024
    wanted = compute_class_weight("balanced", classes=np.arange(C), y=Y)
    assert (found <= wanted).all()
    assert (wanted - found < 1 / 1024).all()
    weights = np.array(model.class_weights)[Y] / 1024
    ridge = Ridge(alpha=0.5, fit_intercept=False, solver="cholesky").fit(X, np.eye(C)[Y], sample_weight=weights)
    assert np.allclose(model.weights, ridge.coef_.T, atol=1e-3)  # rows are truncated to 2^-12
    assert balanced.weights_bytes(fit_pooled(balanced, ClientRows(X, Y))) == balanced.weights_bytes(model)
    content = model_to_bytes(balanced, model, with_totals=True)
    saved = model_from_bytes(content)
    assert (saved.model.class_weights, saved.learner) == (model.class_weights, balanced)
    assert balanced.context_bytes(saved.model) == balanced.context_bytes(model)
    assert balanced.exact_scores(model, X).tobytes() == learner.exact_scores(model.head, X).tobytes()
    assert repr(balanced.layers(model)) == repr(learner.layers(model.head))


WEIGHINGS = pytest.mark.parametrize(
    "learner",
    [
        weighing(BALANCED, class_weights=()),
        weighing(BALANCED, class_weights=(1, 2, 30)),
        weighing(BALANCED, class_weights=(0, 0, 0)),
        BALANCED,
        weighing(BALANCED, max_weight=1),
        choosing(replace(BALANCED, head=replace(LINEAR, ridge=0.0)), n_folds=2),
    ],
    ids=["own", "stated", "no", "balanced", "balanced alone", "balanced folds"],
)


def heaviest_rows(weights: Weights) -> dict[int, ClientRows]:
    return clients(None if weights.max_weight == 1 else np.full(N, weights.max_weight))


@WEIGHINGS
def test_a_client_may_hold_as_many_rows_as_agreed_whatever_they_weigh(learner: Any) -> None:
    """Every client holds eight; the bounds are those of eight rows of the largest weight, and not a unit more."""
    heavy = heaviest_rows(learner.weights)
    model = federate(heavy, learner, "masked", max_client_rows=8).model
    assert learner.weights_bytes(model) == learner.weights_bytes(federate(heavy, learner, "plain").model)
    with pytest.raises(InvalidRowsError, match=r"sites\[1\]: one client may hold 7 rows, and these 8 are more"):
        federate(heavy, learner, "masked", max_client_rows=7)


@WEIGHINGS
def test_an_equal_share_of_the_rows_is_one_whatever_they_weigh(learner: Any) -> None:
    """There is room for forty rows of the largest weight, eight for each client, which their bounds let through."""
    weights = learner.weights
    heaviest = weights.denominator if weights.is_balanced else max((1, *weights.stated))
    learner = replace(learner, head=replace(learner.head, max_rows=N * weights.max_weight * heaviest))
    heavy = heaviest_rows(weights)
    federation, too_many = Federation(learner, release=None, n_clients=5), ClientRows(X[:9], Y[:9])
    while (step := federation.next_sum) is not None:
        with pytest.raises(
            InvalidRowsError, match="8 rows, an equal share of the 40 of all 5 clients, and these 9 are"
        ):
            step.vector(too_many)
        protocol = MaskedSum(layout=step.layout, clients=tuple(heavy), session_id=new_session_id())
        vectors = {party: step.vector(rows) for party, rows in heavy.items()}
        federation.take(run_in_memory(InOneProcess(protocol=protocol), vectors).result)
    assert learner.weights_bytes(federation.model) == learner.weights_bytes(federate(heavy, learner, "plain").model)
    with pytest.raises(FederationError, match=r"5 clients of 9 rows each need room for 45 rows .* room for 40"):
        Federation(learner, release=None, n_clients=5, max_client_rows=9)


def test_the_bounds_of_a_client_are_those_of_its_rows_at_their_heaviest() -> None:
    learner = weighing(BALANCED, class_weights=(1, 2, 30), denominator=1)
    step = Step.of(learner, learner.init(), max_client_rows=8)
    assert step is not None
    bounds = {segment.name: segment.client_bound for segment in step.layout.segments}
    heaviest = 8 * 30
    assert (bounds["count"], bounds["weight squares"]) == (8 * heaviest, 8 * heaviest**2)
    assert bounds["gram"] == LINEAR.spec.client_bounds(8 * heaviest)[0]
    rows = ClientRows(X[:8], np.full(8, 2), np.full(8, 8))
    assert step.vector(rows)[[0, -1]].tolist() == [8 * heaviest**2, 8 * heaviest]
    counts = Step.of(BALANCED, BALANCED.init(), max_client_rows=8)
    assert counts is not None
    assert [segment.client_bound for segment in counts.layout.segments] == [64, 64]


def test_an_estimator_is_what_its_federation_is() -> None:
    estimator = AFLClassifier(feature_format="Q3.12", ridge=0.5, fit_intercept=False, class_weight="balanced")
    own = estimator.fit(X, Y, sample_weight=W)
    model = federate(clients(), BALANCED, "plain").model
    assert own.model_.weights.tobytes() == model.weights.tobytes()
    assert (AFLClassifier.from_model(BALANCED, model).predict(X) == own.predict(X)).all()
    chosen = choosing(replace(BALANCED, head=replace(LINEAR, ridge=0.0)), n_folds=2)
    by_folds = federate(clients(), chosen, "plain").model
    assert chosen.decision_function(by_folds, X).shape == (N, C)
    regressor = AFLRegressor().fit(X, X @ np.arange(D), sample_weight=W)
    assert regressor.score(X, X @ np.arange(D)) > 1 - 1e-9


def test_an_estimator_refuses_weights_of_no_class() -> None:
    for estimator, targets, message in (
        (AFLClassifier(class_weight="heavy"), Y, "balanced, a dict or None, not 'heavy'"),
        (AFLClassifier(class_weight="balanced"), np.eye(C, dtype=int)[Y], "one class a row, and these rows may have"),
        (AFLClassifier(), np.full((N, C), 7), "one class a row"),
    ):
        with pytest.raises((SpecificationError, InvalidRowsError), match=message):
            estimator.fit(X, targets)


def test_weighted_batches_are_weighted_rows() -> None:
    estimator = AFLClassifier(feature_format="Q3.12", class_weight={0: 1, 1: 5})
    whole = estimator.fit(X, Y, sample_weight=W).coef_.tobytes()
    batches = AFLClassifier(feature_format="Q3.12", class_weight={0: 1, 1: 5})
    for part in np.array_split(np.arange(N), 3):
        batches.partial_fit(X[part], Y[part], classes=range(C), sample_weight=W[part])
    assert batches.coef_.tobytes() == whole


def test_a_client_personalises_with_its_weighted_rows() -> None:
    learner, one = weighted(FEDHIP, max_weight=8), clients()[1]
    model = fit_in_the_clear(learner, list(clients().values()))
    assert one.weights is not None
    copies = ClientRows(np.repeat(one.features, one.weights, axis=0), np.repeat(one.targets, one.weights))
    (found,), (wanted,) = learner.personalise(model, one, [10.0]), FEDHIP.personalise(model.head, copies, [10.0])
    assert found.weights.tobytes() == wanted.weights.tobytes()


def test_a_personal_model_beside_a_chosen_penalty_has_its_weights() -> None:
    learner = weighted(choosing(replace(FEDHIP, ridge=0.0), n_folds=2), max_weight=8)
    model = fit_in_the_clear(learner, list(clients().values()))
    (personal,) = learner.personalise(model, clients()[1], [10.0])
    assert learner.weights_bytes(personal) == personal.weights.tobytes()


def test_rows_with_weights_are_refused_where_none_weighs() -> None:
    """A model of a client's own was of its rows of weight 1 alone, without a word."""
    learner, one = choosing(replace(FEDHIP, ridge=0.0), n_folds=2), clients()[1]
    halved = ClientRows(one.features, one.targets, np.arange(len(one)) % 2)
    model = fit_in_the_clear(learner, [rows.unweighted for rows in clients().values()])
    for asked in (learner.personalise, learner.choose_alpha):
        with pytest.raises(InvalidRowsError, match="counts every row once"):
            asked(model, halved, [0.0, 1.0])


def test_an_adopted_model_has_the_penalty_as_it_is_meant() -> None:
    """It had that of the sum, 1 024 times as large, which another fit took for the meant one."""
    rows = ClientRows(X, Y)
    for learner in (BALANCED, choosing(replace(BALANCED, head=replace(LINEAR, ridge=0.0)), n_folds=2)):
        model = fit_pooled(learner, rows)
        estimator = AFLClassifier.from_model(learner, model)
        assert estimator.ridge == getattr(model, "ridge", 0.5)
        assert estimator.class_weight == "balanced"
        again = clone(estimator).fit(X, Y)
        assert np.array_equal(again.coef_, estimator.coef_)
    rounds = of_kind(Logistic, LINEAR, n_rounds=1)
    moved = fit_pooled(rounds, rows)
    with pytest.raises(SpecificationError, match="takes models of AFL on class labels, not of this Logistic"):
        AFLClassifier.from_model(rounds, moved)
    with pytest.raises(SpecificationError, match="whole numbers or 'balanced', not 'balance'"):
        Weights(class_weights="balance")  # type: ignore[arg-type]


def test_gates_count_what_weights_are_worth() -> None:
    """Nine rows of weight one beside one of 1 000 are no thousand rows."""
    learner = weighted(LINEAR, max_weight=1000)
    rows = ClientRows(X[:10], Y[:10], np.array([1000] + [1] * 9))
    total = learner.client_statistics(learner.init(), rows)
    assert total[1].count == 1009
    assert learner.exact_total(learner.init(), total, 1).count == 1  # (sum w)^2 / sum w^2, rounded down


HEAVY = np.where(np.arange(44) == 40, 64, 1)
"""Of the third class one row of weight 64, and three of 1."""


@pytest.mark.parametrize("name", ["afl", "folds", "qda"])
def test_a_heavy_row_hides_in_no_class_behind_the_others(name: str) -> None:
    """67 is the sum of its class's weights, which are worth one row; of each other class the weights are worth 20."""
    inner: Any = {
        "afl": LINEAR,
        "folds": choosing(replace(LINEAR, ridge=0.0), n_folds=2),
        "qda": QDA(
            n_features=D,
            n_targets=C,
            feature_format=LINEAR.feature_format,
            max_rows=2**20,
            columns=ColumnMap(exponents=(0,) * D, intercept=0),
        ),
    }[name]
    rng, labels = np.random.default_rng(0), np.where(np.arange(44) < 40, np.arange(44) % 2, 2)
    learner = weighted(inner, max_weight=64)
    step = learner.next_sum(learner.init())
    assert step is not None
    sent = step.to_vector(
        learner.client_statistics(learner.init(), ClientRows(rng.normal(size=(44, D)), labels, HEAVY))
    )
    found: Any = learner.exact_total(learner.init(), step.from_vector(sent), 1)
    if name == "qda":
        assert [one.count for one in found] == [20, 20, 1]
    elif name == "afl":
        assert found.class_rows.tolist() == [20, 20, 1]
    else:
        assert max(one.class_rows[2] for one in found) <= 1
        assert sum(one.class_rows[0] for one in found) == 20
    with pytest.raises(ReleaseRefusedError, match="rows"):
        ReleasePolicy(min_rows=2, allow=frozenset({Gate.RANK})).before_release(found, range(9))


def test_a_light_row_is_a_row_to_gates() -> None:
    """Beside heavy ones a fold, or a class in it, of one light row is worth a fraction, which is not nobody."""
    inner = replace(LINEAR, ridge=0.0)
    learner = weighted(choosing(inner, n_folds=2), max_weight=1000)
    rows = ClientRows(X[:12], np.array([0] * 11 + [1]), np.array([1000, *[1] * 11]))
    total = learner.client_statistics(learner.init(), rows)
    found: Any = learner.exact_total(learner.init(), total, 1)
    raw = total[1]
    assert [own.count > 0 for own in raw] == [own.count > 0 for own in found]
    for own, worth in zip(raw, found, strict=True):
        assert ((own.class_rows > 0) == (worth.class_rows > 0)).all()
    assert sum(own.class_rows[1] for own in found) == 1


def test_low_bits_of_a_total_are_those_of_the_light_class() -> None:
    """Why class weights are agreed on: beside a class of weight 2^20 another's Gram shows modulo 2^20."""
    labels = np.arange(N) % 2
    learner = weighted(replace(LINEAR, n_targets=2, max_rows=2**26), class_weights=(1, 2**20))
    _, total = learner.client_statistics(learner.init(), ClientRows(X, labels))
    light = replace(LINEAR, n_targets=2).own_statistics(ClientRows(X[labels == 0], labels[labels == 0]))
    assert (total.gram % 2**20 == light.gram % 2**20).all()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(N, 0.5), "whole numbers of at least 0, and 40 of 40"),
        (np.full(N, -1), "whole numbers of at least 0"),
        (np.full(N, np.nan), "whole numbers"),
        (np.ones(N - 1), "one for each of 40 rows"),
        (np.full(N, 9), "40 of 40 rows weigh more than the 8"),
    ],
)
def test_other_weights_are_refused(weights: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidRowsError, match=message):
        fit_pooled(weighted(LINEAR, max_weight=8), ClientRows(X, Y, weights))


def test_weights_are_for_those_who_agreed_and_have_room() -> None:
    rows = ClientRows(X, Y, W)
    with pytest.raises(InvalidRowsError, match=r"counts every row once: agree on Pipeline\(head"):
        fit_pooled(LINEAR, rows)
    with pytest.raises(InvalidRowsError, match=r"add up to .* more than the 10 "):
        fit_pooled(weighted(replace(LINEAR, max_rows=10), max_weight=8), rows)
    with pytest.raises(SpecificationError, match="a max_rows of"):
        fit_pooled(replace(BALANCED, head=replace(LINEAR, max_rows=1000)), rows)
    with pytest.raises(InvalidRowsError, match=r"add up to .* more than max_rows=10"):
        fit_pooled(weighing(replace(BALANCED, head=replace(LINEAR, max_rows=10)), denominator=1), rows)
    with pytest.raises(InvalidRowsError, match=r"one class a row, labels of shape \(n,\), not \(40, 3\)"):
        fit_pooled(BALANCED, ClientRows(X, np.eye(C)[Y], W))
    with pytest.raises(NotReadyError, match="the total of the class counts, which has not arrived"):
        BALANCED.weights_of(BALANCED.init(), rows)
    with pytest.raises(SpecificationError, match="weighted-afl makes no personal models; take fedhip"):
        weighted(LINEAR).personalise(weighted(LINEAR).init(), rows, [1.0])
    with pytest.raises(SpecificationError, match="3 classes need as many whole numbers"):
        weighted(LINEAR, class_weights=(1, 2))
    with pytest.raises(SpecificationError, match="power of two"):
        weighing(BALANCED, denominator=1000)
    with pytest.raises(SpecificationError, match="real targets have no classes"):
        replace(BALANCED, head=replace(LINEAR, target_format=RowFormat.parse("Q3.8")))


def test_noise_is_for_rows_that_count_once() -> None:
    plan = PrivacyPlan(epsilon=1.0, min_noise_shares=5)
    with pytest.raises(PrivacyError, match="no private form"):
        plan.apply(weighted(LINEAR, max_weight=8))
    bounded = replace(LINEAR, row_map=RowMap.of(RowTerms(fraction_bits=8)))
    with pytest.raises(SpecificationError, match="noise is made for rows that"):
        weighted(bounded, max_weight=8)
    with pytest.raises(InvalidRowsError, match="counts every row once"):
        fit_pooled(bounded, ClientRows(X, Y, W))
