"""FedHiP: personal weights that do not depend on how the others' rows are dealt, checked against the paper's steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.examples import examples
from support.learner_driver import dealt, train
from support.rationals import in_flint

from analytic.afl import dequantised
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import FloatMatrix, RowFormat
from analytic.statistics import LABELS, Statistics

UNIT = 2.0**-53
ALPHAS = [0.0, 0.5, 1.0, 20.0, 1e4]


def learner_of(d: int, c: int = 3, **changes: Any) -> FedHiP:
    defaults = {"feature_format": RowFormat.parse("Q3.10"), "max_rows": 2000, "max_clients": 16, "ridge": 1.0}
    return FedHiP(n_features=d, n_targets=c, **{**defaults, **changes})


def random_rows(rng: np.random.Generator, n: int, d: int, c: int = 3) -> ClientRows:
    return ClientRows(rng.uniform(-2, 2, (n, d)), rng.integers(0, c, n))


def shuffled(rng: np.random.Generator, rows: ClientRows) -> ClientRows:
    order = rng.permutation(len(rows))
    return ClientRows(rows.features[order], rows.targets[order])


def statistics(learner: FedHiP, rows: ClientRows) -> tuple[FloatMatrix, FloatMatrix]:
    own = Statistics.from_rows(learner.spec, rows.features, rows.targets)
    return dequantised(own, learner.feature_format, learner.target_format)


def spectral(matrix: NDArray[Any]) -> float:
    return float(np.linalg.norm(matrix.astype(np.float64), 2))


def personal_bytes(learner: FedHiP, model: FedHiPModel, rows: ClientRows) -> list[bytes]:
    return [own.weights.tobytes() for own in learner.personalise(model, rows, ALPHAS)]


# ridge 0 with few rows in all: the total is singular.
shapes = st.sampled_from([(16, 2, 40), (16, 1, 16), (16, 3, 40), (3, 9, 30), (1, 4, 9), (16, 2, 5), (16, 6, 3)])


class TestHeterogeneityInvariance:
    @examples(8)
    @given(shapes, st.sampled_from([0.0, 1e-3, 1.0]), st.sampled_from([0.0, 1.0, 1e6]), st.integers(0, 2**32))
    def test_personal_weights_keep_their_bits_however_others_are_dealt(
        self, shape: tuple[int, int, int], ridge: float, ri_gamma: float, seed: int
    ) -> None:
        d, n_own, n_others = shape
        rng = np.random.default_rng(seed)
        learner = learner_of(d, ridge=ridge, ri_gamma=ri_gamma)
        own, others = random_rows(rng, n_own, d), random_rows(rng, n_others, d)
        found, global_weights = set(), set()
        for n_clients in (1, 4, 15):
            again = shuffled(rng, others)
            clients = dealt(again, rng.integers(0, n_clients, n_others), n_clients)
            clients.insert(int(rng.integers(0, n_clients + 1)), own)
            model = train(learner, clients)
            found.add(tuple(personal_bytes(learner, model, own)))
            global_weights.add(learner.weights_bytes(model))
        pooled = fit_pooled(learner, ClientRows.pool([own, others]))
        found.add(tuple(personal_bytes(learner, pooled, own)))
        found.add(tuple(personal_bytes(learner, pooled, shuffled(rng, own))))
        assert len(found) == 1
        assert global_weights == {learner.weights_bytes(pooled)}

    @pytest.mark.parametrize("n_own", [2, 5])
    def test_personal_weights_do_depend_on_the_rows(self, n_own: int) -> None:
        """The invariance above is not that of constants."""
        rng, learner = np.random.default_rng(0), learner_of(16)
        own, others = random_rows(rng, n_own, 16), random_rows(rng, 40, 16)
        model = fit_pooled(learner, ClientRows.pool([own, others]))
        less = fit_pooled(learner, ClientRows.pool([own, ClientRows(others.features[1:], others.targets[1:])]))
        seen = personal_bytes(learner, model, own)
        assert len(set(seen)) == len(ALPHAS)
        assert not set(seen) & set(personal_bytes(learner, less, own))
        assert not set(seen[1:]) & set(personal_bytes(learner, model, random_rows(rng, n_own, 16)))


class TestAgainstTheDefinition:
    @pytest.mark.parametrize(("n_own", "ridge"), [(0, 0.25), (1, 0.1), (3, 0.25), (30, 0.1)])
    def test_the_exact_solution_rounded_once(self, n_own: int, ridge: float) -> None:
        """(G + alpha G_k + beta I) P_k = H + alpha H_k in rational numbers, so alpha 0 gives the global weights."""
        rng, d = np.random.default_rng(n_own), 16
        learner = learner_of(d, ridge=ridge)
        own = random_rows(rng, n_own, d)
        model = fit_pooled(learner, ClientRows.pool([own, random_rows(rng, 40, d)]))
        assert model.total is not None
        gram, cross = dequantised(model.total, learner.feature_format, LABELS)
        own_gram, own_cross = statistics(learner, own)
        exact = np.vectorize(Fraction, otypes=[object])
        for alpha, personal in zip(ALPHAS, learner.personalise(model, own, ALPHAS), strict=True):
            matrix = exact(gram) + Fraction(alpha) * exact(own_gram) + Fraction(ridge) * np.eye(d, dtype=int)
            right = exact(cross) + Fraction(alpha) * exact(own_cross)
            solved = in_flint(matrix).solve(in_flint(right)).entries()
            assert personal.weights.ravel().tolist() == [int(x.p) / int(x.q) for x in solved]
            assert personal.solution is not None
            assert personal.solution.certified
            (alone,) = learner.personalise(model, own, [alpha])
            assert alone.weights.tobytes() == personal.weights.tobytes()
        assert learner.personalise(model, own, [0.0])[0].weights.tobytes() == model.weights.tobytes()

    @pytest.mark.parametrize("n_own", [2, 10])
    def test_agrees_with_the_papers_recursion(self, n_own: int) -> None:
        """Eq. 6-14 as printed, in float64: local models, S_K and M_K one client after another, then P_k."""
        rng, d, beta, alpha = np.random.default_rng(7), 16, 2.0, 5.0
        learner = learner_of(d, ridge=beta, ri_gamma=beta)
        clients = [random_rows(rng, n, d) for n in (n_own, 30, 40)]
        parts = [statistics(learner, rows) for rows in clients]
        eye, solve = np.eye(d), np.linalg.solve
        total, fusion, conditions = np.zeros((d, d)), np.zeros((d, 3)), 0.0
        for gram, cross in parts:
            regularised = gram + beta * eye  # eq. 6
            local = solve(regularised, cross)  # eq. 7
            joined = total + regularised  # eq. 9
            fusion = solve(joined, total @ fusion) + solve(joined, regularised @ local)  # eq. 10-11
            total = joined
            conditions += np.linalg.cond(regularised) + np.linalg.cond(joined)
        model = train(learner, clients)
        k, (own_gram, own_cross) = len(clients), parts[0]
        by_12 = solve(total - (k - 1) * beta * eye, total @ fusion)
        by_14 = solve(total + alpha * own_gram + beta * eye - k * beta * eye, total @ fusion + alpha * own_cross)
        personal = learner.personalise(model, clients[0], [alpha])[0]
        # Each of the recursion's solves errs by 8 d^2 u kappa relative, and each passes earlier errors on by at most
        # the condition number of the sum it solves with.
        amplified = 8 * d**2 * UNIT * conditions * np.linalg.cond(total) * 2
        assert amplified < 1e-6
        assert spectral(model.weights - by_12) <= amplified * spectral(by_12)
        assert spectral(personal.weights - by_14) <= amplified * spectral(by_14)
        assert spectral(personal.weights - by_12) > 100 * amplified * spectral(by_12)

    def test_a_singular_total_has_the_minimum_norm(self) -> None:
        rng, learner = np.random.default_rng(8), learner_of(16, ridge=0.0)
        own, others = random_rows(rng, 2, 16), random_rows(rng, 4, 16)
        model = fit_pooled(learner, ClientRows.pool([own, others]))
        personal = learner.personalise(model, own, [3.0])[0]
        assert personal.solution is not None
        assert (personal.solution.method, personal.solution.rank) == ("minimum norm", 6)
        q = learner.feature_format
        x = q.dequantise(q.quantise(np.vstack([own.features, own.features, others.features])))
        weighted = np.vstack([x[:2], np.sqrt(3.0) * x[2:4], x[4:]])
        y = np.eye(3)[np.concatenate([own.targets, own.targets, others.targets])]
        y[2:4] *= np.sqrt(3.0)
        expected = np.linalg.pinv(weighted) @ y
        singular_values = np.linalg.svd(weighted, compute_uv=False)[:6]
        # As in test_solve: eigenvectors of a matrix within (d + 32) eps of the Gram, on its six directions.
        relative = 2 * UNIT * (singular_values[0] / singular_values[-1]) ** 2 * (2 * (16 + 32) + 3 * 16)
        assert spectral(personal.weights - expected) <= 1.2 * relative * spectral(expected)


class TestBadInput:
    def test_personalising_before_the_total(self) -> None:
        learner = learner_of(2)
        with pytest.raises(NotReadyError, match="needs the total"):
            learner.personalise(learner.init(), random_rows(np.random.default_rng(0), 3, 2), [1.0])

    @pytest.mark.parametrize("alpha", [-1.0, -5e-324, np.nan, np.inf, -np.inf, 2.0**53])
    def test_refuses_an_alpha_that_is_no_weight(self, alpha: float) -> None:
        rng, learner = np.random.default_rng(0), learner_of(2)
        model = fit_pooled(learner, random_rows(rng, 5, 2))
        with pytest.raises(SpecificationError, match=r"from 0 to 2\^52"):
            learner.personalise(model, random_rows(rng, 3, 2), [1.0, alpha])

    def test_refuses_rows_that_do_not_fit(self) -> None:
        rng, learner = np.random.default_rng(0), learner_of(2)
        model = fit_pooled(learner, random_rows(rng, 5, 2))
        with pytest.raises(RowsOutsideFormatError, match="1 of 1 rows"):
            learner.personalise(model, ClientRows(np.full((1, 2), 8.0), np.zeros(1, dtype=int)), [1.0])
        with pytest.raises(InvalidRowsError, match=r"shape \(n, 2\)"):
            learner.personalise(model, random_rows(rng, 3, 4), [1.0])
