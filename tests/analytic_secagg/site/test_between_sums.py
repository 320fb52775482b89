"""What a client that is lost between the sums of one run gives away, which is why the run ends there for a site."""

from __future__ import annotations

import numpy as np
from scipy.linalg import null_space

from analytic import ClientRows, DeepAFL
from analytic.afl import dequantised
from analytic.learner import AnalyticLearner
from analytic.row_format import FloatMatrix

RNG = np.random.default_rng(0)
CLIENTS = [ClientRows(RNG.normal(size=(30, 6)).clip(-3, 3), RNG.integers(0, 3, 30)) for _ in range(6)]
LOST = CLIENTS[0]


def deep() -> DeepAFL:
    return DeepAFL(n_features=6, n_targets=3, feature_bound=4.0, max_rows=500, n_layers=1, d_phi=16, d_f=16)


def gram_of(learner: DeepAFL, model: object, clients: list[ClientRows]) -> FloatMatrix:
    """The Gram matrix of a layer's total, and the model with it."""
    spec = learner.next_sum(model)  # type: ignore[arg-type]
    assert spec is not None
    total = sum(spec.to_vector(learner.client_statistics(model, rows)) for rows in clients)  # type: ignore[arg-type]
    return dequantised(spec.from_vector(np.asarray(total)), spec.feature_format, spec.target_format)[0]


def after(learner: AnalyticLearner[object], clients: list[ClientRows], n_sums: int) -> object:
    model = learner.init()
    for _ in range(n_sums):
        spec = learner.next_sum(model)
        assert spec is not None
        total = np.sum([spec.to_vector(learner.client_statistics(model, rows)) for rows in clients], axis=0)
        model = learner.update(model, spec.from_vector(total), len(clients))
    return model


def test_a_client_lost_between_deepafl_s_layers_gives_its_gram_matrix_away() -> None:
    """On 13 of 16 directions the next layer's Gram matrix is this one's, to the rounding of its format.

    An entry of a row is rounded by less than 2^-b, b being the fraction bits, so an entry of 180 rows' Gram matrix, of
    entries below 2, by less than 180 (4 2^-b + 4^-b); a direction of norm 1 takes at most 16 times that.
    """
    learner = deep()
    second = after(learner, CLIENTS, 2)
    kept = null_space(second.blocks[0].transform)  # type: ignore[attr-defined]
    assert kept.shape == (16, 13)
    first_layer, second_layer = learner.init(), second
    difference = kept.T @ (gram_of(learner, first_layer, CLIENTS) - gram_of(learner, second_layer, CLIENTS[1:])) @ kept
    own = kept.T @ gram_of(learner, first_layer, [LOST]) @ kept
    bits = min(learner.next_sum(model).feature_format.fraction_bits for model in (first_layer, second_layer))  # type: ignore
    rounding = 2 * 16 * 180 * (4 * 2.0**-bits + 4.0**-bits)
    assert np.abs(difference - own).max() < rounding
    assert np.abs(own).max() > 50 * rounding
