"""AFL: least squares on quantised rows, and the paper's pairwise law agrees with the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.learner_driver import dealt, train

from analytic.afl import AFL, dequantised
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import FloatMatrix, RowFormat
from analytic.statistics import Statistics

Q = RowFormat.parse
UNIT = 2.0**-53


def absolute_aggregation(
    weights_u: FloatMatrix, gram_u: FloatMatrix, weights_v: FloatMatrix, gram_v: FloatMatrix
) -> tuple[FloatMatrix, FloatMatrix]:
    """Join two clients' weights into those of their pooled rows, pairwise (AFL eq. 7-8, sign corrected).

    W = W_u' W_u + W_v' W_v with W_u' = I - R_u C_v + R_u C_v (C_u + C_v)^-1 C_v; the paper prints the last
    sign as minus. It needs each client's matrices in the clear and so is a cross-check, not the way to sum.

    Args:
        weights_u: (d, c), the first client's weights.
        gram_u: (d, d), its Gram, regular.
        weights_v: (d, c), the second client's weights.
        gram_v: (d, d), its Gram, regular.

    Returns:
        The joint weights (d, c) and the joint Gram (d, d).
    """
    joint = gram_u + gram_v

    def share(own: FloatMatrix, other: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        ratio = np.linalg.solve(own, other)
        return weights - ratio @ weights + ratio @ np.linalg.solve(joint, other @ weights)

    return share(gram_u, gram_v, weights_u) + share(gram_v, gram_u, weights_v), joint


def learner_of(d: int = 3, c: int = 3, **changes: Any) -> AFL:
    defaults = {"feature_format": Q("Q5.11"), "max_rows": 1000, "max_clients": 32}
    return AFL(n_features=d, n_targets=c, **{**defaults, **changes})


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
        weights = train(learner, clients).weights
        parts = []
        for rows in clients:
            own = Statistics.from_rows(learner.spec, rows.features, rows.targets)
            parts.append(dequantised(own, learner.feature_format, learner.target_format))
        joined, bound = aggregated(parts, gamma, absolute_aggregation)
        assert bound < 1e-3 * spectral(weights)  # a bound that tells something
        assert spectral(joined - weights) <= bound
        misprinted, bound = aggregated(parts, gamma, printed_law)
        assert spectral(misprinted - weights) > 100 * bound


class TestEnds:
    def test_clipped_rows_are_those_at_the_ends_of_the_format(self) -> None:
        rows = ClientRows(np.full((2, 3), 40.0), np.zeros(2, dtype=int))
        ends = ClientRows(np.full((2, 3), 32 - 2.0**-11), rows.targets)
        clipped = fit_pooled(learner_of(clip=True), rows)
        assert clipped.weights.tobytes() == fit_pooled(learner_of(), ends).weights.tobytes()
