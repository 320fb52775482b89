"""Solving from noisy statistics: the known noise sets the ridge, and that beats what ignores it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.noisy_solve import NoisySolver, noise_ridge, shrunk
from analytic.solve import solve_ridge
from analytic.solve.minimum_norm import Solution


def problem(seed: int, n: int = 600, d: int = 20, c: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.linspace(0.05, 1, d)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    truth = rng.normal(size=(d, c))
    return rows, rows @ truth + 0.1 * rng.normal(size=(n, c)), truth


def solve_noisy(gram: np.ndarray, cross: np.ndarray, *, sigma_gram: float, ridge: float = 0.0) -> Solution:
    return NoisySolver(sigma=sigma_gram).solve(gram, cross, survivors=1, fraction_bits=0, ridge=ridge)


def ensemble(d: int, sigma: float, rng: np.random.Generator) -> np.ndarray:
    upper = np.triu(rng.normal(size=(d, d)), 1) * sigma / math.sqrt(2)
    return upper + upper.T + np.diag(rng.normal(size=d)) * sigma


@examples(8)
@given(st.integers(0, 2**32), st.floats(0.1, 10))
def test_without_noise_it_is_the_ridge_solution(seed: int, ridge: float) -> None:
    """Two algorithms for one well-conditioned system: they agree to its condition number times a few rounding units."""
    rows, targets, _ = problem(seed % 1000)
    gram, cross = rows.T @ rows, rows.T @ targets
    found = solve_noisy(gram, cross, sigma_gram=0.0, ridge=ridge).weights
    exact = solve_ridge(gram, cross, ridge=ridge).weights
    condition = (np.linalg.norm(gram, 2) + ridge) / ridge
    assert np.abs(found - exact).max() <= 1e3 * condition * np.finfo(float).eps * np.abs(exact).max()


@pytest.mark.parametrize("d", [64, 300])
def test_the_ridge_is_the_noises_operator_norm(d: int) -> None:
    """Edge of the semicircle; its fluctuations are of order d^-2/3 of it (Tracy and Widom): 10 % is 4 of them."""
    noise = ensemble(d, 3.0, np.random.default_rng(1))
    assert np.linalg.norm(noise, 2) == pytest.approx(noise_ridge(3.0, d), rel=0.1)


def test_indefinite_grams_are_solved_and_only_the_symmetric_part_counts() -> None:
    rng = np.random.default_rng(2)
    gram, cross = ensemble(12, 5.0, rng), rng.normal(size=(12, 3))
    assert np.linalg.eigvalsh(gram)[0] < 0
    skew = rng.normal(size=(12, 12))
    solution = solve_noisy(gram, cross, sigma_gram=5.0)
    other = solve_noisy(gram + skew - skew.T, cross, sigma_gram=5.0)
    assert np.abs(solution.weights - other.weights).max() < 1e-12
    assert solution.rank < 12
    values, vectors = np.linalg.eigh(gram)
    kept = shrunk(values, 5 * math.sqrt(24)) + 0.35 * 5 * math.sqrt(24)
    expected = vectors @ ((vectors.T @ cross) / kept[:, None])
    assert np.abs(solution.weights - expected).max() < 1e-12


def test_eigenvalues_are_what_they_were_before_the_noise() -> None:
    """Spikes from 0.6 R on stand outside the bulk; their spread under noise is sigma, 3 of which are 13 % of R / 2."""
    radius, spikes = noise_ridge(2.0, 300), np.array([0.6, 1.0, 2.0, 8.0])
    noisy = ensemble(300, 2.0, np.random.default_rng(7)) + np.diag(np.append(np.zeros(296), spikes * radius))
    found = shrunk(np.linalg.eigvalsh(noisy), radius) / radius
    assert np.abs(found[-4:] - spikes).max() < 0.15
    assert np.abs(np.linalg.eigvalsh(noisy)[-4] / radius - spikes[0]) > 0.3, "left as it is, it counts for more"
    assert found[:290] == pytest.approx(0.5)
    assert shrunk(np.array([-1.0, 0.0, 3.0]), 0.0).tolist() == [0.0, 0.0, 3.0]


def fixed_ridge(gram: np.ndarray, cross: np.ndarray, ridge: float) -> np.ndarray:
    """Sufficient-statistics perturbation as it is often done, whatever the noise (Foulds et al. 2016)."""
    return np.linalg.solve((gram + gram.T) / 2.0 + ridge * np.eye(len(gram)), cross)


def adassp_ridge(smallest_eigenvalue: float, *, sigma_eigenvalue: float, sigma_gram: float, n_features: int) -> float:
    """AdaSSP's ridge from a third, noisy release of the smallest eigenvalue (Wang 2018, Algorithm 2), beta = 0.05."""
    lower = max(0.0, smallest_eigenvalue - sigma_eigenvalue * math.sqrt(2.0 * math.log(6.0 / 0.05)))
    return max(0.0, sigma_gram * math.sqrt(n_features * math.log(2.0 * n_features**2 / 0.05)) - lower)


def test_it_beats_the_naive_solver_and_adassp_where_noise_is_large() -> None:
    """Error of predictions on the same rows, 20 draws of noise each; medians, since the naive one may explode."""
    rows, targets, _ = problem(3)
    gram, cross, d = rows.T @ rows, rows.T @ targets, rows.shape[1]
    sigma, rng = 8.0, np.random.default_rng(4)
    errors: dict[str, list[float]] = {"noisy": [], "naive": [], "adassp": []}
    smallest = float(np.linalg.eigvalsh(gram)[0])
    for _ in range(20):
        noisy_gram, noisy_cross = gram + ensemble(d, sigma, rng), cross + 2.0 * rng.normal(size=cross.shape)
        thirds = math.sqrt(3 / 2)  # AdaSSP's third release leaves less for these two
        for_ada = gram + thirds * (noisy_gram - gram), cross + thirds * (noisy_cross - cross)
        ridge = adassp_ridge(
            smallest + sigma * rng.normal(), sigma_eigenvalue=sigma, sigma_gram=thirds * sigma, n_features=d
        )
        for name, weights in (
            ("noisy", solve_noisy(noisy_gram, noisy_cross, sigma_gram=sigma).weights),
            ("naive", fixed_ridge(noisy_gram, noisy_cross, 1.0)),
            ("adassp", fixed_ridge(*for_ada, ridge)),
        ):
            errors[name].append(float(np.mean((rows @ weights - targets) ** 2)))
    medians = {name: float(np.median(values)) for name, values in errors.items()}
    assert medians["noisy"] < medians["adassp"]
    assert medians["noisy"] < medians["naive"]


def test_bad_input_is_refused() -> None:
    eye = np.eye(3)
    with pytest.raises(SpecificationError, match="noise scale"):
        noise_ridge(-1.0, 3)
    with pytest.raises(InvalidRowsError, match="shape"):
        solve_noisy(eye, np.ones((2, 1)), sigma_gram=1.0)
    with pytest.raises(InvalidRowsError, match="finite"):
        solve_noisy(eye * np.nan, np.ones((3, 1)), sigma_gram=1.0)
    with pytest.raises(NotPositiveDefiniteError, match="ridge above 0"):
        solve_noisy(-eye, np.ones((3, 1)), sigma_gram=0.0)
