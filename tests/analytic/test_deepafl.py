"""DeepAFL: every layer's bits are those of the pooled rows, every format is proven, and depth never hurts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from support.examples import examples
from support.learner_driver import dealt, train

from analytic import deepafl, integer_maps, random_map
from analytic.deepafl import DeepAFL, DeepModel
from analytic.errors import (
    RowsOutsideFormatError,
    SpecificationError,
)
from analytic.features import random_projection
from analytic.integer_maps import ACTIVATIONS, activation_named, scores
from analytic.layers import Linear
from analytic.learner import ClientRows, fit_pooled
from analytic.statistics import one_hot

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


def _digits() -> tuple[ClientRows, ClientRows]:
    features, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    known, new = order[:1200], order[1200:]
    return ClientRows(features[known] / 16, labels[known]), ClientRows(features[new] / 16, labels[new])


def _digits_learner(**changes: Any) -> DeepAFL:
    learner = DeepAFL(
        n_features=64, n_targets=10, feature_bound=1.0, max_rows=2000, n_layers=2, d_phi=96, d_f=96, gamma=0.1
    )
    return dataclasses.replace(learner, **changes)


def test_federated_equals_pooled_on_real_rows_of_a_hundred_clients() -> None:
    """Of sines: a solve of theirs is rounded to a float only with further digits."""
    rows, _ = _digits()
    learner = _digits_learner(activation="sine", fed_by_first=True, d_phi=32, d_f=40)
    owners = np.sort(np.random.default_rng(3).integers(0, 100, len(rows)) ** 2 // 100)
    federated = train(learner, dealt(rows, owners, 100))
    assert learner.weights_bytes(federated) == learner.weights_bytes(fit_pooled(learner, rows))


class TestWhatAClientKeeps:
    def test_one_federation_costs_three_products_a_layer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """O(T): Phi_0 once, then F_t, R_t and Phi_{t+1} once a layer. The real map runs, and is counted."""
        for n_layers in (1, 4):
            learner, calls = _learner(n_layers=n_layers), []

            def counted(real: Any, calls: list[int] = calls) -> Any:
                return lambda *args: (calls.append(1), real(*args))[1]

            with monkeypatch.context() as patch:
                for name in ("map_rows", "scores", "add_mapped_rows"):
                    patch.setattr(deepafl, name, counted(getattr(deepafl, name)))
                patch.setattr(random_map, "map_rows", counted(random_map.map_rows))
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
    @examples(8)
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
            patch.setattr(integer_maps, "ROOM", 0.0)
            while learner.next_sum(model) is not None:
                own = learner.client_statistics(model, rows)  # would raise if a row left its format
                kept = rows.memory["deepafl"]
                if model.awaits_block:
                    residuals = targets - scores(kept.features, model.classifiers[-1].weights)
                    assert np.abs(residuals).max() <= model.bounds.residuals
                    assert np.abs(kept.hidden.values).max() <= model.bounds.hidden[model.layer if fed_by_first else 0]
                else:
                    assert np.all(np.abs(kept.features.values).max(axis=0) <= model.bounds.features)
                model = learner.update(model, own, 1)

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

    def test_bits_that_no_exact_sum_allows_are_refused_and_none_are_the_most_that_one_allows(self) -> None:
        most = {rows: _learner(max_rows=rows, row_bits=0).row_bits for rows in (8, 2**19, 2**19 + 1, 2**40)}
        assert most == {8: 22, 2**19: 22, 2**19 + 1: 21, 2**40: 11}
        for rows, bits in most.items():
            if bits < 22:
                with pytest.raises(SpecificationError, match="allow fewer rows"):
                    _learner(max_rows=rows, row_bits=bits + 1)

    def test_a_bound_beyond_all_bits_is_refused_before_the_first_sum(self) -> None:
        with pytest.raises(SpecificationError, match="row_bits allows 22"):
            _learner(feature_bound=1e9).init()


class TestRepresentationLearning:
    @pytest.mark.parametrize("fed_by_first", [False, True])
    def test_training_risk_never_rises_with_depth(self, fed_by_first: bool) -> None:
        """Theorem 2 with lambda = gamma = 0. Quantising is the one lossy step, and this is all it can add.

        Writing X = X' + E for quantised rows X', with |E|_F < 2^-f sqrt(n d), and W for a minimiser on X':
        |Y - X W| <= |Y - X' W| + |E W| <= |Y - X' V| + |E W| <= |Y - X V| + |E| (|V| + |W|) for every V.
        The classifier's step has V = W_t; the transform's has V = 0, and the residuals' own error on both sides.
        Rounding in float64 is smaller by 2^-52 / 2^-f times the condition, which the test checks is harmless.
        """
        rows, _ = _digits()
        learner = _digits_learner(n_layers=5, ridge=0.0, gamma=0.0, d_phi=80, d_f=80, fed_by_first=fed_by_first)
        risks, sizes, units = [], [], []
        model = learner.init()
        while (spec := learner.next_sum(model)) is not None:
            own = learner.client_statistics(model, rows)
            units.append((spec.feature_format.fraction_bits, spec.target_format.fraction_bits))
            model = learner.update(model, own, 1)
            if model.awaits_block:
                W = model.classifiers[-1].weights
                assert model.classifiers[-1].reciprocal_condition > 1e-12
                risks.append(np.linalg.norm(one_hot(rows.targets, 10) - rows.memory["deepafl"].features.values @ W))
                sizes.append(np.linalg.norm(W, 2))
            else:
                sizes.append(np.linalg.norm(model.blocks[-1].transform @ model.classifiers[-1].weights, 2))
        n, d, c = len(rows), 80, 10
        for t in range(5):
            residual_unit, next_unit = 2.0 ** -units[2 * t + 1][1], 2.0 ** -units[2 * t + 2][0]
            transform = (
                2 * residual_unit * math.sqrt(n * c) + 2.0 ** -units[2 * t + 1][0] * math.sqrt(n * d) * sizes[2 * t + 1]
            )
            classifier = next_unit * math.sqrt(n * d) * (sizes[2 * t] + sizes[2 * t + 2])
            assert risks[t + 1] <= risks[t] + transform + classifier
            assert transform + classifier < 0.1 * risks[t]  # the tolerance says something
        assert risks[5] < 0.8 * risks[0]

    def test_algorithm_2_by_hand(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        model = fit_pooled(learner, rows)
        gelu = activation_named("gelu").function
        phi = gelu(rows.features @ random_projection(11, 0, "A", (5, 12), "nin").values)
        for layer, block in enumerate(model.blocks):
            phi = phi + gelu(phi @ random_projection(11, layer, "B", (12, 9), "nin").values) @ block.transform
        scores = phi @ model.classifiers[-1].weights
        # rows of 30 bits at a bound of 45 have units of 2^-24, and here no map grows an error by more than 2^6
        np.testing.assert_allclose(learner.decision_function(model, rows.features), scores, rtol=0, atol=2.0**-18)

    def test_without_projections_every_block_takes_its_rows_as_they_are(self) -> None:
        """The paper's ablation (2), E.3.6: B_t is the identity, so F_t = sigma(Phi_t) without a random matrix."""
        learner, rows = _learner(ablation="no-projection", d_f=12), _rows(3, 60)
        model = fit_pooled(learner, rows)
        features = rows.features
        for layer in learner.first_map.layers():
            features = (
                features @ layer.matrix if isinstance(layer, Linear) else activation_named("gelu").function(features)
            )
        for block in model.blocks:
            features = features + activation_named("gelu").function(features) @ block.transform
        expected = features @ model.classifiers[-1].weights
        np.testing.assert_allclose(learner.exact_scores(model, rows.features), expected, rtol=0, atol=1e-3)
        assert learner.weights_bytes(model) != learner.weights_bytes(fit_pooled(_learner(d_f=12), rows))

    def test_a_shallower_learner_is_the_start_of_a_deeper_one(self) -> None:
        rows = _rows(0, 30)
        deep, shallow = (fit_pooled(_learner(n_layers=n), rows) for n in (3, 1))
        start = dataclasses.replace(deep, classifiers=deep.classifiers[:2], blocks=deep.blocks[:1])
        assert _learner().weights_bytes(start) == _learner().weights_bytes(shallow)


class TestRefusals:
    def test_a_complete_model_takes_no_further_sum(self) -> None:
        learner, rows = _learner(), _rows(0, 30)
        with pytest.raises(SpecificationError, match="complete"):
            learner.client_statistics(fit_pooled(learner, rows), rows)
