"""AFL: federated and pooled weights are the same bytes, and the paper's pairwise law agrees with the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel, absolute_aggregation, dequantised
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.learner import AnalyticLearner, ClientRows, SumSpec, federate, fit_pooled
from analytic.row_format import FloatMatrix, RowFormat
from analytic.statistics import INT64_MAX, LABELS, IntVector, Statistics

Q = RowFormat.parse
UNIT = 2.0**-53
HUGE = float(2**35)  # 32 clients with gamma 2^35 in units of 2^-22 take 2^62, half of int64


def learner_of(d: int = 3, c: int = 3, **changes: Any) -> AFL:
    defaults = {"feature_format": Q("Q5.11"), "max_rows": 1000, "max_clients": 32}
    return AFL(n_features=d, n_targets=c, **{**defaults, **changes})


def dealt(rows: ClientRows, owners: NDArray[Any], n_clients: int) -> list[ClientRows]:
    return [ClientRows(rows.features[owners == k], rows.targets[owners == k]) for k in range(n_clients)]


@st.composite
def federations(draw: st.DrawFn) -> tuple[AFL, ClientRows, list[ClientRows]]:
    """A learner, rows, and the rows dealt to clients in any way: skewed, empty, in any order."""
    d, c = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    labels = draw(st.booleans())
    learner = learner_of(
        d,
        c,
        target_format=LABELS if labels else Q("Q3.8"),
        ridge=draw(st.sampled_from([0.0, 0.0, 1e-3, 1.0, 1e8])),
        ri_gamma=draw(st.sampled_from([0.0, 2.0**-22, 0.1, 1.0, 1e6, HUGE])),
    )
    rng, n = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.integers(0, 40))
    scale = draw(st.sampled_from([0.001, 1.0, 31.9]))
    features = rng.uniform(-scale, scale, (n, d)).astype(draw(st.sampled_from([np.float32, np.float64])))
    targets = rng.integers(0, c, n) if labels else rng.uniform(-8, 8, (n, c))
    n_clients = draw(st.integers(1, 32))
    owners = rng.integers(0, draw(st.integers(1, n_clients)), n)  # the clients beyond get nothing
    clients = dealt(ClientRows(features, targets), owners, n_clients)
    order = draw(st.permutations(range(n_clients)))
    return learner, ClientRows(features, targets), [clients[k] for k in order]


class TestEqualityOfBits:
    @given(federations())
    def test_federated_equals_pooled(self, federation: tuple[AFL, ClientRows, list[ClientRows]]) -> None:
        learner, rows, clients = federation
        model, survivors = federate(learner, clients)
        pooled = fit_pooled(learner, rows)
        assert learner.weights_bytes(model) == learner.weights_bytes(pooled)
        assert survivors == [list(range(len(clients)))]
        assert learner.next_sum(model) is None

    @given(federations())
    def test_the_ri_process_changes_nothing(self, federation: tuple[AFL, ClientRows, list[ClientRows]]) -> None:
        learner, rows, clients = federation
        without = learner_of(
            learner.n_features, learner.n_targets, target_format=learner.target_format, ridge=learner.ridge
        )
        assert federate(learner, clients)[0].weights.tobytes() == fit_pooled(without, rows).weights.tobytes()

    @given(federations(), st.data())
    def test_survivors_equal_their_pooled_rows(
        self, federation: tuple[AFL, ClientRows, list[ClientRows]], data: st.DataObject
    ) -> None:
        learner, _, clients = federation
        alive = sorted(data.draw(st.sets(st.integers(0, len(clients) - 1), min_size=1)))

        def lossy(spec: SumSpec[Any], contributions: list[Any]) -> tuple[IntVector, list[int]]:
            vectors = [contributions[k]() for k in alive]
            return np.sum(vectors, axis=0, dtype=np.int64), alive

        model, survivors = federate(learner, clients, lossy)
        pooled = fit_pooled(learner, ClientRows.pool([clients[k] for k in alive]))
        assert model.weights.tobytes() == pooled.weights.tobytes()
        assert survivors == [alive]

    def test_weights_do_change_with_one_row(self) -> None:
        """The equality above is not that of constants."""
        rng = np.random.default_rng(0)
        features, labels = rng.uniform(-1, 1, (20, 3)), rng.integers(0, 3, 20)
        learner = learner_of()
        whole, less = (fit_pooled(learner, ClientRows(features[:n], labels[:n])) for n in (20, 19))
        assert learner.weights_bytes(whole) != learner.weights_bytes(less)

    @given(federations())
    def test_no_contribution_leaves_its_bounds(self, federation: tuple[AFL, ClientRows, list[ClientRows]]) -> None:
        learner, _, clients = federation
        spec, total = learner.spec, np.zeros(sum(size for _, size, _ in learner.spec.segments), dtype=object)
        for rows in clients:
            total += spec.to_vector(learner.client_statistics(learner.init(), rows)).astype(object)
        bounds = np.concatenate([np.full(size, bound, dtype=object) for _, size, bound in spec.segments])
        assert (abs(total) <= bounds).all()


class TestAgainstTheDefinition:
    def test_is_least_squares_on_the_quantised_rows(self) -> None:
        rng = np.random.default_rng(1)
        features, targets = rng.uniform(-4, 4, (200, 5)), rng.uniform(-2, 2, (200, 2))
        learner = learner_of(5, 2, target_format=Q("Q3.12"), ridge=0.5)
        x = learner.feature_format.dequantise(learner.feature_format.quantise(features))
        y = learner.target_format.dequantise(learner.target_format.quantise(targets))
        by_qr = np.linalg.lstsq(np.vstack([x, np.sqrt(0.5) * np.eye(5)]), np.vstack([y, np.zeros((5, 2))]), rcond=None)[
            0
        ]
        model = fit_pooled(learner, ClientRows(features, targets))
        kappa = np.linalg.cond(x.T @ x + 0.5 * np.eye(5))
        # Cholesky moves W by at most 4 d (3 d + 1) u kappa |W| (Higham, Thm 10.4); the QR reference by no more.
        assert np.linalg.norm(model.weights - by_qr, 2) <= 2 * 4 * 5 * 16 * UNIT * kappa * np.linalg.norm(by_qr, 2)
        assert model.solution is not None
        assert model.solution.method == "cholesky"

    def test_decision_function_takes_features_as_they_are(self) -> None:
        learner = learner_of(2, 2)
        model = fit_pooled(learner, ClientRows(np.eye(2), np.array([0, 1])))
        assert learner.decision_function(model, np.array([[100, 0.25]])).tolist() == [[100.0, 0.25]]

    def test_dequantises_each_entry_once(self) -> None:
        total = Statistics(gram=np.array([[2**62 + 1]]), cross=np.array([[-3]]), count=1)
        gram, cross = dequantised(total, Q("Q5.11"), Q("Q1.3"))
        assert (gram[0, 0], cross[0, 0]) == (2.0**40, -3 * 2.0**-14)


Join = Callable[[FloatMatrix, FloatMatrix, FloatMatrix, FloatMatrix], tuple[FloatMatrix, FloatMatrix]]


def printed_law(
    weights_u: FloatMatrix, gram_u: FloatMatrix, weights_v: FloatMatrix, gram_v: FloatMatrix
) -> tuple[FloatMatrix, FloatMatrix]:
    """Eq. 7-8 with the last sign as the paper prints it, a minus."""
    joint = gram_u + gram_v

    def share(own: FloatMatrix, other: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        ratio = np.linalg.solve(own, other)
        return weights - ratio @ weights - ratio @ np.linalg.solve(joint, other @ weights)

    return share(gram_u, gram_v, weights_u) + share(gram_v, gram_u, weights_v), joint


def spectral(matrix: FloatMatrix) -> float:
    return float(np.linalg.norm(matrix, 2))


def aggregated(parts: list[tuple[FloatMatrix, FloatMatrix]], gamma: float, join: Join) -> tuple[FloatMatrix, float]:
    """The paper's server (eq. 11, 16): join all (G_k, H_k) pairwise with gamma, then restore; and its error bound.

    A solve with C errs by at most 8 d^2 u kappa(C) relative (LU: |E| <= 3 d u |L||U|, of norm <= 2 d |C| for the
    positive definite matrices here; products take the rest). A join errs by that for each of its solves, times what
    the ratio R_u C_v amplifies; earlier errors pass through (C_u + C_v)^-1 C_u, of norm <= kappa(C_u + C_v).
    """
    d = len(parts[0][0])
    solve_error = 8 * d**2 * UNIT
    weights, joint, bound = np.zeros((0, 0)), np.zeros((0, 0)), 0.0
    for gram, cross in parts:
        own = gram + gamma * np.eye(d)
        local = np.linalg.solve(own, cross)
        local_error = solve_error * np.linalg.cond(own) * spectral(local)
        if not weights.size:
            weights, joint, bound = local, own, local_error
            continue
        both = joint + own
        bound = np.linalg.cond(both) * (bound + local_error)
        for first, second, w in ((joint, own, weights), (own, joint, local)):
            ratio = spectral(np.linalg.inv(first)) * spectral(second)
            bound += solve_error * (np.linalg.cond(first) + np.linalg.cond(both)) * (1 + 2 * ratio) * spectral(w)
        weights, joint = join(weights, joint, local, own)
    pooled = joint - len(parts) * gamma * np.eye(d)
    restore = spectral(np.linalg.inv(pooled)) * spectral(joint)
    bound = restore * (bound + 2 * solve_error * (np.linalg.cond(pooled) + 1) * spectral(weights))
    return np.linalg.solve(pooled, joint @ weights), bound


class TestAbsoluteAggregationLaw:
    @pytest.mark.parametrize("gamma", [0.0, 1.0, 10.0])
    @pytest.mark.parametrize("seed", range(5))
    def test_agrees_with_the_sum_and_the_printed_sign_does_not(self, seed: int, gamma: float) -> None:
        rng, d = np.random.default_rng(seed), 4
        features, targets = rng.normal(0, 1, (90, d)), rng.normal(0, 1, (90, 2))
        learner = learner_of(d, 2, target_format=Q("Q5.11"), ri_gamma=gamma)
        clients = dealt(ClientRows(features, targets), rng.integers(0, 3, 90), 3)
        weights = federate(learner, clients)[0].weights
        parts = []
        for rows in clients:
            own = Statistics.from_rows(learner.spec, rows.features, rows.targets)
            parts.append(dequantised(own, learner.feature_format, learner.target_format))
        joined, bound = aggregated(parts, gamma, absolute_aggregation)
        assert bound < 1e-3 * spectral(weights)  # a bound that tells something
        assert spectral(joined - weights) <= bound
        misprinted, bound = aggregated(parts, gamma, printed_law)
        assert spectral(misprinted - weights) > 100 * bound


class TestContext:
    def test_differs_for_every_public_difference(self) -> None:
        base = learner_of()
        others = [
            learner_of(4),
            learner_of(3, 4),
            learner_of(feature_format=Q("UQ5.11")),
            learner_of(target_format=Q("UQ2.0")),
            learner_of(max_rows=1001),
            learner_of(max_clients=33),
            learner_of(ridge=1.0),
            learner_of(ri_gamma=1.0),
            learner_of(clip=True),
        ]
        contexts = [learner.context_bytes(learner.init()) for learner in (base, *others)]
        assert len(set(contexts)) == len(contexts)

    def test_equal_for_equal_public_state(self) -> None:
        assert learner_of(ridge=1).context_bytes(LinearModel()) == learner_of(ridge=1.0).context_bytes(LinearModel())
        assert learner_of(ridge=-0.0).context_bytes(LinearModel()) == learner_of().context_bytes(LinearModel())

    def test_binds_the_model(self) -> None:
        learner = learner_of(1, 2)
        models = [fit_pooled(learner, ClientRows(np.ones((n, 1)), np.arange(n) % 2)) for n in (2, 3)]
        contexts = {learner.context_bytes(model) for model in (learner.init(), *models)}
        assert len(contexts) == 3


class TestBadInput:
    def test_no_weights_before_the_total(self) -> None:
        learner = learner_of()
        with pytest.raises(NotReadyError, match="still needs the total"):
            learner.weights_bytes(learner.init())
        with pytest.raises(NotReadyError):
            learner.decision_function(learner.init(), np.zeros((1, 3)))

    @pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
    def test_refuses_gamma_and_ridge_that_are_no_penalties(self, value: float) -> None:
        with pytest.raises(SpecificationError, match="gamma must be a finite number >= 0"):
            learner_of(ri_gamma=value)
        with pytest.raises(SpecificationError, match="ridge must be a finite number >= 0"):
            learner_of(ridge=value)

    @pytest.mark.parametrize("gamma", [2.0**-24, 5e-324])
    def test_refuses_a_gamma_that_would_be_nothing(self, gamma: float) -> None:
        with pytest.raises(SpecificationError, match=r"below half a unit of the Gram, 2\^-22"):
            learner_of(ri_gamma=gamma)

    @pytest.mark.parametrize("gamma", [1.7e308, 2.0**41, 2.0**37])
    def test_refuses_a_gamma_that_int64_cannot_hold(self, gamma: float) -> None:
        with pytest.raises(SpecificationError, match=r"from 32 clients does not fit an int64 Gram"):
            learner_of(ri_gamma=gamma)

    def test_takes_the_largest_gamma_that_fits(self) -> None:
        learner = learner_of(1, 1, max_clients=1, max_rows=1, ri_gamma=2.0**40)
        assert INT64_MAX // 2 < learner.spec.gram_bound <= INT64_MAX
        clients = [ClientRows(np.ones((1, 1)), np.zeros(1, dtype=int))]
        assert federate(learner, clients)[0].weights.tolist() == [[1.0]]

    def test_refuses_an_empty_cohort(self) -> None:
        with pytest.raises(SpecificationError, match="at least one client"):
            learner_of(max_clients=0)

    def test_refuses_more_clients_than_the_ri_process_has_room_for(self) -> None:
        clients = [ClientRows(np.ones((1, 3)), np.zeros(1, dtype=int))] * 3
        with pytest.raises(InvalidRowsError, match="room for 2 clients and 3 took part"):
            federate(learner_of(max_clients=2, ri_gamma=1.0), clients)
        federate(learner_of(max_clients=2), clients)  # without an RI process nothing needs room

    def test_rows_outside_the_format_stop_the_client_unless_it_clips(self) -> None:
        rows = ClientRows(np.full((2, 3), 40.0), np.zeros(2, dtype=int))
        with pytest.raises(RowsOutsideFormatError, match="2 of 2 rows"):
            fit_pooled(learner_of(), rows)
        clipped = fit_pooled(learner_of(clip=True), rows)
        ends = fit_pooled(learner_of(), ClientRows(np.full((2, 3), 32 - 2.0**-11), rows.targets))
        assert clipped.weights.tobytes() == ends.weights.tobytes()

    def test_together_too_many_rows(self) -> None:
        clients = [ClientRows(np.ones((600, 3)), np.zeros(600, dtype=int))] * 2
        with pytest.raises(InvalidRowsError, match="1200 rows is outside 0 to 1000"):
            federate(learner_of(), clients)

    def test_formats_are_row_formats(self) -> None:
        for changes in ({"feature_format": "Q5.11"}, {"target_format": 5}):
            with pytest.raises(SpecificationError, match=r"formats are RowFormats.*RowFormat\.parse"):
                learner_of(**changes)

    @pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 3, 1)])
    def test_predicts_for_a_matrix_of_as_many_features(self, shape: tuple[int, ...]) -> None:
        model = fit_pooled(learner_of(), ClientRows(np.eye(3), np.arange(3)))
        with pytest.raises(InvalidRowsError, match=r"must have shape \(n, 3\)"):
            learner_of().decision_function(model, np.zeros(shape))

    def test_follows_the_interface(self) -> None:
        learner: AnalyticLearner[LinearModel] = learner_of()
        assert learner.name == "afl"
