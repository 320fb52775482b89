"""DeepAFL: every layer's bits are those of the pooled rows, every format is proven, and depth never hurts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from analytic import deepafl, row_bounds
from analytic.deepafl import DeepAFL, DeepModel
from analytic.errors import (
    InvalidRowsError,
    NotPositiveDefiniteError,
    NotReadyError,
    RowsOutsideFormatError,
    SpecificationError,
)
from analytic.features import ACTIVATIONS, activation_named, map_rows, random_projection
from analytic.learner import ClientRows, SumRunner, federate, fit_pooled
from analytic.row_format import RowFormat
from analytic.solve import sandwiched_least_squares
from analytic.statistics import one_hot

FLOAT64 = float(np.finfo(np.float64).eps)
BOUND = 8.0
"""The feature_bound of ``_learner``: made rows stay inside it."""


def _learner(**changes: Any) -> DeepAFL:
    small = DeepAFL(
        n_features=5,
        n_targets=3,
        feature_bound=BOUND,
        max_rows=1000,
        n_layers=2,
        d_phi=12,
        d_f=9,
        ridge=0.5,
        gamma=0.05,
        seed=11,
    )
    return dataclasses.replace(small, **changes)


def _rows(seed: int, n: int, learner: DeepAFL | None = None) -> ClientRows:
    learner = learner or _learner()
    rng = np.random.default_rng(seed)
    features = np.clip(rng.standard_normal((n, learner.n_features)) * 2.0, -BOUND, BOUND)
    return ClientRows(features, rng.integers(0, learner.n_targets, n))


def _after(learner: DeepAFL, rows: ClientRows, n_sums: int) -> DeepModel:
    """The model after some of its sums."""
    model = learner.init()
    for _ in range(n_sums):
        model = learner.update(model, learner.client_statistics(model, rows), 1)
    return model


def _dealt(rows: ClientRows, owners: NDArray[np.int64], n_clients: int) -> list[ClientRows]:
    return [ClientRows(rows.features[owners == k], rows.targets[owners == k]) for k in range(n_clients)]


def _digits() -> tuple[ClientRows, ClientRows]:
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1200], order[1200:]
    return ClientRows(features[train] / 16, labels[train]), ClientRows(features[test] / 16, labels[test])


def _digits_learner(**changes: Any) -> DeepAFL:
    learner = DeepAFL(
        n_features=64, n_targets=10, feature_bound=1.0, max_rows=2000, n_layers=2, d_phi=96, d_f=96, gamma=0.1
    )
    return dataclasses.replace(learner, **changes)


class TestFederatedEqualsPooled:
    @given(
        seed=st.integers(0, 2**32),
        n=st.integers(0, 40),
        n_clients=st.integers(1, 12),
        activation=st.sampled_from(sorted(ACTIVATIONS)),
        fed_by_first=st.booleans(),
        regularised=st.booleans(),
    )
    def test_any_partition_gives_every_layer_the_pooled_bits(
        self, seed: int, n: int, n_clients: int, activation: str, fed_by_first: bool, regularised: bool
    ) -> None:
        """More clients than rows are dealt to, so empty clients are common; n = 0 leaves them all empty."""
        learner = _learner(activation=activation, fed_by_first=fed_by_first)
        if not regularised:
            learner = dataclasses.replace(learner, ridge=0.0, gamma=0.0)
        rows = _rows(seed, n)
        owners = np.random.default_rng(seed + 1).integers(0, n_clients, n)
        pooled = fit_pooled(learner, rows)
        federated, survivors = federate(learner, _dealt(rows, owners, n_clients))
        assert learner.weights_bytes(federated) == learner.weights_bytes(pooled)
        assert learner.context_bytes(federated) == learner.context_bytes(pooled)
        assert len(survivors) == 2 * learner.n_layers + 1

    @pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
    @pytest.mark.parametrize("fed_by_first", [False, True])
    def test_real_rows_of_a_hundred_clients(self, activation: str, fed_by_first: bool) -> None:
        train, _ = _digits()
        learner = _digits_learner(activation=activation, fed_by_first=fed_by_first, d_phi=32, d_f=40)
        owners = np.sort(np.random.default_rng(3).integers(0, 100, len(train)) ** 2 // 100)
        federated, _ = federate(learner, _dealt(train, owners, 100))
        assert learner.weights_bytes(federated) == learner.weights_bytes(fit_pooled(learner, train))

    def test_a_client_without_rows_adds_nothing_whatever_type_its_labels_have(self) -> None:
        learner, rows = _learner(), _rows(0, 20)
        empty = ClientRows(np.zeros((0, 5), dtype=np.float32), np.array([]))
        federated, _ = federate(learner, [empty, rows, empty])
        assert learner.weights_bytes(federated) == learner.weights_bytes(fit_pooled(learner, rows))

    @given(seed=st.integers(0, 2**32), n_clients=st.integers(1, 5))
    def test_real_targets(self, seed: int, n_clients: int) -> None:
        learner = _learner(n_targets=1, target_format=RowFormat(integer_bits=3, fraction_bits=15))
        rng = np.random.default_rng(seed)
        rows = ClientRows(rng.uniform(-BOUND, BOUND, (30, 5)).astype(np.float32), rng.uniform(-7, 7, (30, 1)))
        federated, _ = federate(learner, _dealt(rows, rng.integers(0, n_clients, 30), n_clients))
        pooled = fit_pooled(learner, rows)
        assert learner.weights_bytes(federated) == learner.weights_bytes(pooled)
        assert learner.decision_function(pooled, rows.features).shape == (30, 1)

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(7))
    @pytest.mark.parametrize("n_clients", [1, 2, 7, 100, 1300])
    def test_many_deals_of_real_rows(self, seed: int, n_clients: int) -> None:
        train, _ = _digits()
        learner = _digits_learner(n_layers=3, seed=seed, activation=sorted(ACTIVATIONS)[seed % len(ACTIVATIONS)])
        owners = np.random.default_rng(seed).integers(0, n_clients, len(train))
        federated, _ = federate(learner, _dealt(train, owners, n_clients))
        assert learner.weights_bytes(federated) == learner.weights_bytes(fit_pooled(learner, train))


def _only(chosen: list[list[int]]) -> SumRunner:
    """Sums in which only the chosen clients take part, another choice for each sum."""
    remaining = iter(chosen)

    def run(spec: Any, contributions: list[Any]) -> tuple[NDArray[np.int64], list[int]]:
        took_part = next(remaining)
        parts = [contributions[k]() for k in took_part]
        return sum(parts[1:], start=parts[0]), took_part

    return run


def _pooled_over(learner: DeepAFL, clients: list[ClientRows], chosen: list[list[int]]) -> DeepModel:
    """The closed form on the pooled rows of those who took part in each sum, nothing kept between sums."""
    model = learner.init()
    for took_part in chosen:
        own = [ClientRows(clients[k].features, clients[k].targets) for k in took_part]
        spec = learner.next_sum(model)
        assert spec is not None
        vector = spec.to_vector(learner.client_statistics(model, ClientRows.pool(own)))
        model = learner.update(model, spec.from_vector(vector), 1)
    assert learner.next_sum(model) is None
    return model


class TestPartialParticipation:
    @given(seed=st.integers(0, 2**32), consistent=st.booleans(), fed_by_first=st.booleans())
    def test_the_model_is_that_of_the_survivors_of_each_sum(
        self, seed: int, consistent: bool, fed_by_first: bool
    ) -> None:
        """Appendix M: one cohort for both sums of a layer, or another one for each (eq. 84 and 85)."""
        learner = _learner(fed_by_first=fed_by_first, headroom_bits=5)
        rng = np.random.default_rng(seed)
        clients = [_rows(seed + k, int(rng.integers(0, 12))) for k in range(6)]
        drawn = [sorted(rng.permutation(6)[: rng.integers(3, 7)].tolist()) for _ in range(5)]
        chosen = [drawn[i // 2 * 2] if consistent else drawn[i] for i in range(5)]
        federated, survivors = federate(learner, clients, _only(chosen))
        assert survivors == chosen
        assert learner.weights_bytes(federated) == learner.weights_bytes(_pooled_over(learner, clients, chosen))

    def test_dropping_clients_changes_the_model(self) -> None:
        """The twin of the law above: it would hold for a learner that ignores its sums."""
        learner, clients = _learner(), [_rows(k, 20) for k in range(3)]
        some, _ = federate(learner, clients, _only([[0, 1, 2], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1, 2]]))
        everybody, _ = federate(learner, clients)
        assert learner.weights_bytes(some) != learner.weights_bytes(everybody)


class TestWhatAClientKeeps:
    def test_kept_features_give_the_bits_of_fresh_ones_at_every_sum(self) -> None:
        for fed_by_first in (False, True):
            learner, rows = _learner(n_layers=3, fed_by_first=fed_by_first), _rows(0, 30)
            model = learner.init()
            while (spec := learner.next_sum(model)) is not None:
                own = learner.client_statistics(model, rows)
                again = learner.client_statistics(model, rows)
                fresh = learner.client_statistics(model, ClientRows(rows.features, rows.targets))
                assert own.to_bytes() == again.to_bytes() == fresh.to_bytes()
                model = learner.update(model, spec.from_vector(spec.to_vector(own)), 1)

    def test_one_federation_costs_three_products_a_layer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """O(T): Phi_0 once, then F_t, R_t and Phi_{t+1} once a layer. The real map runs, and is counted."""
        for n_layers in (1, 4):
            learner, calls = _learner(n_layers=n_layers), []

            def counted(real: Any, calls: list[int] = calls) -> Any:
                return lambda *args: (calls.append(1), real(*args))[1]

            with monkeypatch.context() as patch:
                patch.setattr(deepafl, "map_rows", counted(deepafl.map_rows))
                patch.setattr(deepafl, "add_mapped_rows", counted(deepafl.add_mapped_rows))
                fit_pooled(learner, _rows(0, 30))
            assert len(calls) == 1 + 3 * n_layers

    @pytest.mark.parametrize(
        "change", [{"seed": 12}, {"activation": "relu"}, {"projection": "linear"}, {"fed_by_first": True}]
    )
    def test_another_configuration_never_reuses_them(self, change: dict[str, Any]) -> None:
        rows, other = _rows(0, 30), _learner(**change)
        _after(_learner(), rows, 2)  # the client holds F_0 of the one configuration
        assert rows.memory["deepafl"].hidden is not None
        after = fit_pooled(other, rows)
        assert other.weights_bytes(after) == other.weights_bytes(fit_pooled(other, _rows(0, 30)))

    def test_another_federation_of_the_same_configuration_never_reuses_them(self) -> None:
        """Two models may agree on the seed and differ in Omega_1."""
        learner, rows = _learner(), _rows(0, 30)
        _after(learner, rows, 3)  # the client holds Phi_1 of the one federation
        part_way = _after(learner, _rows(1, 50), 3)
        fresh = learner.client_statistics(part_way, _rows(0, 30))
        assert learner.client_statistics(part_way, rows).to_bytes() == fresh.to_bytes()

    def test_other_features_in_the_same_object_never_reuse_them(self) -> None:
        learner, rows, others = _learner(), _rows(0, 30), _rows(1, 30)
        model = learner.init()
        learner.client_statistics(model, rows)
        rows.features, rows.targets = others.features, others.targets
        fresh = learner.client_statistics(model, others)
        assert learner.client_statistics(model, rows).to_bytes() == fresh.to_bytes()


class TestPublicFormats:
    @given(
        seed=st.integers(0, 2**32),
        n=st.integers(1, 40),
        outlier=st.floats(0.0, BOUND),
        fed_by_first=st.booleans(),
        projection=st.sampled_from(["linear", "nin", "normal"]),
        activation=st.sampled_from(sorted(ACTIVATIONS)),
    )
    def test_no_row_of_the_sums_leaves_the_proven_bounds(
        self, seed: int, n: int, outlier: float, fed_by_first: bool, projection: str, activation: str
    ) -> None:
        """Small rows and one large one are the hardest case; ROOM is switched off, so only the proof is left."""
        learner = _learner(projection=projection, activation=activation, fed_by_first=fed_by_first)
        rows = _rows(seed, n)
        rows.features[:] *= 1e-3
        rows.features[0] = outlier * np.where(rows.features[0] < 0, -1.0, 1.0)
        targets, model = one_hot(rows.targets, 3), learner.init()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(row_bounds, "ROOM", 0.0)
            while learner.next_sum(model) is not None:
                own = learner.client_statistics(model, rows)  # would raise if a row left its format
                kept = rows.memory["deepafl"]
                if model.awaits_block:
                    residuals = targets - map_rows(kept.features, model.classifiers[-1].weights)
                    assert np.abs(residuals).max() <= model.bounds.residuals
                    assert np.abs(kept.hidden).max() <= model.bounds.hidden[model.layer if fed_by_first else 0]
                else:
                    assert np.all(np.abs(kept.features).max(axis=0) <= model.bounds.features)
                model = learner.update(model, own, 1)

    def test_rows_beyond_the_stated_bound_are_refused_before_anything_is_sent(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        rows.features[4] *= 1e4
        with pytest.raises(
            RowsOutsideFormatError, match=r"features or targets of layer 0: 1 of 30.*feature_bound \(8\)"
        ):
            learner.client_statistics(learner.init(), rows)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_rows_that_are_no_numbers_are_refused_even_with_clip(self, bad: float) -> None:
        rows = _rows(0, 30)
        rows.features[4, 1] = bad
        for learner in (_learner(), _learner(clip=True)):
            with pytest.raises(RowsOutsideFormatError, match="NaN or infinity"):
                learner.client_statistics(learner.init(), rows)

    def test_rows_of_a_late_client_that_leave_a_deeper_format_are_refused(self) -> None:
        """The proof covers rows of the earlier sums; a client that missed them may hold larger ones."""
        learner, small, large = _learner(), _rows(0, 30), _rows(1, 5)
        small.features[:] *= 1e-4
        model = _after(learner, small, 1)
        learner.client_statistics(learner.init(), large)  # inside the format of layer 0
        with pytest.raises(RowsOutsideFormatError, match=r"hidden features or residuals of layer 0.*headroom_bits"):
            learner.client_statistics(model, large)
        roomy = dataclasses.replace(learner, headroom_bits=8)
        assert roomy.client_statistics(model, large).count == 5

    def test_clip_is_a_choice_and_keeps_every_bit_of_the_law(self) -> None:
        learner, rows = _learner(clip=True), _rows(0, 60)
        rows.features[::7] *= 1e4
        federated, _ = federate(learner, _dealt(rows, np.arange(60) % 7, 7))
        assert learner.weights_bytes(federated) == learner.weights_bytes(fit_pooled(learner, rows))

    def test_bits_that_no_exact_sum_allows_are_refused(self) -> None:
        with pytest.raises(SpecificationError, match="allow fewer rows"):
            _learner(max_rows=2**20)
        _learner(max_rows=2**20, row_bits=20)

    def test_a_bound_beyond_all_bits_is_refused_before_the_first_sum(self) -> None:
        with pytest.raises(SpecificationError, match="row_bits allows 22"):
            _learner(feature_bound=1e9).init()


class TestSandwichedLeastSquares:
    @given(
        seed=st.integers(0, 2**32),
        sizes=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4)),
        gamma=st.sampled_from([0.01, 1.0, 100.0]),
    )
    def test_it_solves_the_normal_equations(self, seed: int, sizes: tuple[int, int, int], gamma: float) -> None:
        """(W W^T (x) F^T F + gamma I) vec(Omega) = vec(F^T R W^T), solved as one dense system.

        Both solutions are backward stable: off by about n eps cond |F^T R| |W| / (smallest eigenvalue) at most, with n
        the unknowns of the system; 50 stands for the constants.
        """
        d_f, d_phi, c = sizes
        rng = np.random.default_rng(seed)
        F, R, W = rng.standard_normal((20, d_f)), rng.standard_normal((20, c)), rng.standard_normal((d_phi, c))
        system = np.kron(W @ W.T, F.T @ F) + gamma * np.eye(d_f * d_phi)
        dense = np.linalg.solve(system, (F.T @ R @ W.T).ravel(order="F")).reshape((d_f, d_phi), order="F")
        found = sandwiched_least_squares(F.T @ F, F.T @ R, W, gamma=gamma).transform
        largest = np.linalg.norm(F.T @ R) * np.linalg.norm(W) / np.linalg.eigvalsh(system)[0]
        assert np.linalg.norm(found - dense) <= 50 * d_f * d_phi * FLOAT64 * np.linalg.cond(system) * largest

    @given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1]))
    def test_the_thin_decomposition_equals_the_full_one_of_the_paper(self, seed: int, gamma: float) -> None:
        """Equation 8 with all d_Phi columns of U; the paper's division, where U's null space has nothing to divide."""
        rng = np.random.default_rng(seed)
        F, R, W = rng.standard_normal((40, 7)), rng.standard_normal((40, 3)), rng.standard_normal((9, 3))
        values, V = np.linalg.eigh(F.T @ F)
        strengths, U = np.linalg.eigh(W @ W.T)
        rotated = V.T @ (F.T @ R) @ W.T @ U
        rotated[:, :6], strengths[:6] = 0.0, 1.0  # rank 3: six eigenvalues are zero
        paper = V @ (rotated / (gamma + np.outer(values, strengths))) @ U.T
        found = sandwiched_least_squares(F.T @ F, F.T @ R, W, gamma=gamma).transform
        condition = np.linalg.cond(F.T @ F) * np.linalg.cond(W.T @ W)
        largest = np.linalg.norm(F.T @ R) * np.linalg.norm(W) / (gamma + values[0] * strengths[6:].min())
        assert np.linalg.norm(found - paper) <= 50 * 7 * 9 * FLOAT64 * condition * largest

    def test_without_gamma_a_singular_problem_has_its_minimum_norm_solution(self) -> None:
        rng = np.random.default_rng(0)
        F = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 8))
        W = rng.standard_normal((6, 1)) @ np.array([[1.0, 2.0, 0.0]])
        R = rng.standard_normal((30, 3))
        block = sandwiched_least_squares(F.T @ F, F.T @ R, W)
        assert block.rank == 4
        expected = np.linalg.pinv(F) @ R @ np.linalg.pinv(W, rcond=1e-10)
        # the Gram squares the condition of F: 1e-16 times that leaves ten digits here
        np.testing.assert_allclose(block.transform, expected, rtol=0, atol=1e-10 * np.abs(expected).max())

    def test_an_eigenvalue_below_zero_is_refused_unless_gamma_outweighs_it(self) -> None:
        gram, cross, weights = np.diag([1.0, -0.1]), np.ones((2, 1)), np.ones((3, 1))
        with pytest.raises(NotPositiveDefiniteError, match="use a larger gamma"):
            sandwiched_least_squares(gram, cross, weights, gamma=0.1)
        assert np.isfinite(sandwiched_least_squares(gram, cross, weights, gamma=1.0).transform).all()

    @pytest.mark.parametrize("gamma", [-1.0, math.nan, math.inf])
    def test_gamma_must_be_a_finite_number_that_is_not_negative(self, gamma: float) -> None:
        with pytest.raises(SpecificationError, match="gamma must be"):
            sandwiched_least_squares(np.eye(2), np.ones((2, 1)), np.ones((3, 1)), gamma=gamma)


class TestRepresentationLearning:
    @pytest.mark.parametrize("fed_by_first", [False, True])
    def test_training_risk_never_rises_with_depth(self, fed_by_first: bool) -> None:
        """Theorem 2 with lambda = gamma = 0. Quantising is the one lossy step, and this is all it can add.

        Writing X = X' + E for quantised rows X', with |E|_F < 2^-f sqrt(n d), and W for a minimiser on X':
        |Y - X W| <= |Y - X' W| + |E W| <= |Y - X' V| + |E W| <= |Y - X V| + |E| (|V| + |W|) for every V.
        The classifier's step has V = W_t; the transform's has V = 0, and the residuals' own error on both sides.
        Rounding in float64 is smaller by 2^-52 / 2^-f times the condition, which the test checks is harmless.
        """
        train, _ = _digits()
        learner = _digits_learner(n_layers=5, ridge=0.0, gamma=0.0, d_phi=80, d_f=80, fed_by_first=fed_by_first)
        risks, sizes, units = [], [], []
        model = learner.init()
        while (spec := learner.next_sum(model)) is not None:
            own = learner.client_statistics(model, train)
            units.append((spec.feature_format.fraction_bits, spec.target_format.fraction_bits))
            model = learner.update(model, own, 1)
            if model.awaits_block:
                W = model.classifiers[-1].weights
                assert model.classifiers[-1].reciprocal_condition > 1e-12
                risks.append(np.linalg.norm(one_hot(train.targets, 10) - train.memory["deepafl"].features @ W))
                sizes.append(np.linalg.norm(W, 2))
            else:
                sizes.append(np.linalg.norm(model.blocks[-1].transform @ model.classifiers[-1].weights, 2))
        n, d, c = len(train), 80, 10
        for t in range(5):
            residual_unit, next_unit = 2.0 ** -units[2 * t + 1][1], 2.0 ** -units[2 * t + 2][0]
            transform = (
                2 * residual_unit * math.sqrt(n * c) + 2.0 ** -units[2 * t + 1][0] * math.sqrt(n * d) * sizes[2 * t + 1]
            )
            classifier = next_unit * math.sqrt(n * d) * (sizes[2 * t] + sizes[2 * t + 2])
            assert risks[t + 1] <= risks[t] + transform + classifier
            assert transform + classifier < 0.1 * risks[t]  # the tolerance says something
        assert risks[5] < 0.8 * risks[0]

    def test_digits_get_better_with_depth(self) -> None:
        train, test = _digits()
        learner = _digits_learner(n_layers=5, d_phi=64, d_f=64, gamma=0.01)
        model = fit_pooled(learner, train)
        scores = list(learner.layer_scores(model, test.features))
        accuracy = [float(np.mean(score.argmax(axis=1) == test.targets)) for score in scores]
        assert len(accuracy) == 6
        assert accuracy[0] < accuracy[2] < accuracy[5]
        assert accuracy[0] > 0.9
        assert learner.decision_function(model, test.features).tobytes() == scores[-1].tobytes()

    def test_algorithm_2_by_hand(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        model = fit_pooled(learner, rows)
        gelu = activation_named("gelu").function
        phi = gelu(rows.features @ random_projection(11, 0, "A", (5, 12), "nin"))
        for layer, block in enumerate(model.blocks):
            phi = phi + gelu(phi @ random_projection(11, layer, "B", (12, 9), "nin")) @ block.transform
        scores = phi @ model.classifiers[-1].weights
        # two ways to round the same few sums of at most 12 terms; entries and weights are below 1e3
        np.testing.assert_allclose(learner.decision_function(model, rows.features), scores, rtol=0, atol=1e-9)

    def test_a_shallower_learner_is_the_start_of_a_deeper_one(self) -> None:
        rows = _rows(0, 30)
        deep, shallow = (fit_pooled(_learner(n_layers=n), rows) for n in (3, 1))
        start = dataclasses.replace(deep, classifiers=deep.classifiers[:2], blocks=deep.blocks[:1])
        assert _learner().weights_bytes(start) == _learner().weights_bytes(shallow)


class TestContext:
    def test_every_field_of_the_configuration_is_bound(self) -> None:
        """A session derives its keys from these bytes, so a client with another seed or format adds only noise."""
        changes: dict[str, Any] = {
            "n_features": 6,
            "n_targets": 4,
            "feature_bound": 8.5,
            "target_format": RowFormat(integer_bits=1, fraction_bits=8),
            "max_rows": 999,
            "n_layers": 3,
            "d_phi": 13,
            "d_f": 8,
            "ridge": 0.25,
            "gamma": 0.06,
            "activation": "tanh",
            "projection": "normal",
            "seed": 12,
            "fed_by_first": True,
            "row_bits": 21,
            "headroom_bits": 1,
            "clip": True,
        }
        assert set(changes) == {field.name for field in dataclasses.fields(DeepAFL)}
        learners = [_learner(), *(_learner(**{key: change}) for key, change in changes.items())]
        same_model = _learner().init()
        contexts = {learner.context_bytes(same_model) for learner in learners}
        assert len(contexts) == 1 + len(changes)
        assert _learner(seed=np.int64(11)).context_bytes(same_model) in contexts

    def test_everything_received_is_bound(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        model, contexts = learner.init(), []
        while (spec := learner.next_sum(model)) is not None:
            contexts.append(learner.context_bytes(model))
            model = learner.update(model, learner.client_statistics(model, rows), 1)
            assert spec is not None
        other = fit_pooled(learner, _rows(1, 30))
        contexts.append(learner.context_bytes(model))
        contexts.append(learner.context_bytes(dataclasses.replace(model, bounds=other.bounds)))
        swapped = (other.classifiers[0], *model.classifiers[1:])
        contexts.append(learner.context_bytes(dataclasses.replace(model, classifiers=swapped)))
        contexts.append(learner.context_bytes(dataclasses.replace(model, blocks=(model.blocks[0], other.blocks[1]))))
        assert len(set(contexts)) == len(contexts) == 5 + 4


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"n_features": 0}, "at least one feature"),
            ({"d_phi": 0}, "at least one feature"),
            ({"n_layers": -1}, "n_layers"),
            ({"headroom_bits": -1}, "headroom_bits"),
            ({"ridge": -1.0}, "ridge must be"),
            ({"ridge": math.nan}, "ridge must be"),
            ({"gamma": math.inf}, "gamma must be"),
            ({"feature_bound": 0.0}, "feature_bound"),
            ({"feature_bound": math.inf}, "feature_bound"),
            ({"activation": "swish"}, "an activation is one of"),
            ({"projection": "haar"}, "a projection is one of"),
            ({"seed": -1}, "a seed is"),
            ({"row_bits": 27}, "a row format needs"),
        ],
    )
    def test_an_unsafe_configuration_never_exists(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(SpecificationError, match=message):
            _learner(**change)

    def test_an_unfinished_model_does_not_predict(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        model = learner.init()
        with pytest.raises(NotReadyError, match=r"0 of 3 classifiers and 0 of 2 transforms"):
            learner.decision_function(model, rows.features)
        with pytest.raises(NotReadyError, match="1 of 3 classifiers"):
            learner.decision_function(_after(learner, rows, 1), rows.features)

    def test_a_complete_model_takes_no_further_sum(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        with pytest.raises(SpecificationError, match="complete"):
            learner.client_statistics(fit_pooled(learner, rows), rows)

    def test_rows_of_another_shape_are_refused(self) -> None:
        learner = _learner()
        with pytest.raises(InvalidRowsError, match="shape"):
            learner.client_statistics(learner.init(), ClientRows(np.zeros((3, 4)), np.zeros(3, dtype=int)))
        with pytest.raises(InvalidRowsError, match="labels lie outside"):
            learner.client_statistics(learner.init(), ClientRows(np.zeros((3, 5)), np.full(3, 3)))
        part_way = _after(learner, _rows(0, 9), 1)
        for targets in (np.full(3, 3), np.zeros((3, 2))):
            with pytest.raises(InvalidRowsError, match=r"outside|shape"):
                learner.client_statistics(part_way, ClientRows(np.zeros((3, 5)), targets))

    def test_no_layers_give_a_linear_model_of_random_features(self) -> None:
        learner, rows = _learner(n_layers=0), _rows(0, 30)
        model = fit_pooled(learner, rows)
        assert len(model.classifiers) == 1
        assert model.blocks == ()
        assert learner.decision_function(model, rows.features).shape == (30, 3)
