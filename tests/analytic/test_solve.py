"""The solves from outside: errors, reports, bad input, the same bits under any load; exactness is in test_certified."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.examples import examples
from support.rationals import sandwiched
from threadpoolctl import threadpool_info

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.solve import certified, solve_ridge
from analytic.solve.certified import one_blas_thread
from analytic.solve.minimum_norm import sandwiched_least_squares

UNIT = 2.0**-53


class TestReports:
    def test_conditioning(self) -> None:
        # powers of two bring both diagonals to one; the factor is that of a matrix some 1e-14 away
        assert solve_ridge(np.diag([1.0, 4.0]), np.ones((2, 1))).reciprocal_condition == pytest.approx(1, abs=1e-12)
        near = solve_ridge(np.array([[1.0, 0.5], [0.5, 1.0]]), np.ones((2, 1)))
        assert near.reciprocal_condition == pytest.approx(1 / 3, abs=1e-12)


class TestIndefinite:
    def test_empty_columns_and_targets_are_zeros_that_nobody_computes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Dead random features, classes without rows: no digit decides an exact zero, and rationals take minutes."""
        rng = np.random.default_rng(0)
        rows, targets = rng.integers(-9, 9, (60, 12)), rng.integers(-9, 9, (60, 4))
        rows[:, [2, 7]] = targets[:, 1] = 0
        gram, cross = (rows.T @ rows).astype(np.int64), (rows.T @ targets).astype(np.int64)
        monkeypatch.setattr(certified, "whole", None)
        for ridge in (0.0, 0.5):
            found = solve_ridge(gram, cross, ridge=ridge)
            kept = np.ix_([k for k in range(12) if k not in (2, 7)], [0, 2, 3])
            of_kept = solve_ridge(gram[np.ix_(kept[0][:, 0], kept[0][:, 0])], cross[kept], ridge=ridge)
            assert found.weights[kept].tobytes() == of_kept.weights.tobytes()
            assert np.count_nonzero(found.weights) == of_kept.weights.size
            assert (found.certified, found.rank) == (True, 12 if ridge else 10)
        empty = solve_ridge(0 * gram, 0 * cross, ridge=1.0)
        assert (empty.rank, empty.method, empty.reciprocal_condition) == (12, "cholesky", 1.0)
        nothing = solve_ridge(gram, 0 * cross, ridge=1.0)
        assert (nothing.certified, nothing.rank, nothing.weights.any()) == (True, 12, False)

    def test_noise_below_zero_is_refused_and_a_ridge_cures_it(self) -> None:
        noisy, cross = np.diag([15.0, 3.0, -0.75]), np.ones((3, 1))
        with pytest.raises(NotPositiveDefiniteError, match=r"smallest eigenvalue is -0\.75 .* larger ridge"):
            solve_ridge(noisy, cross)
        with pytest.raises(NotPositiveDefiniteError):
            solve_ridge(noisy, cross, ridge=0.25)
        assert solve_ridge(noisy, cross, ridge=1.0).weights.ravel().tolist() == [1 / 16, 0.25, 4.0]

    def test_a_ridge_that_just_reaches_zero_leaves_that_direction_out(self) -> None:
        solution = solve_ridge(np.diag([15.0, -1.0]), np.ones((2, 1)), ridge=1.0)
        assert (solution.weights.ravel().tolist(), solution.method, solution.rank) == ([1 / 16, 0.0], "minimum norm", 1)


class TestInput:
    @pytest.mark.parametrize("ridge", [-1.0, -5e-324, np.nan, np.inf, -np.inf])
    def test_refuses_a_ridge_that_is_no_penalty(self, ridge: float) -> None:
        with pytest.raises(SpecificationError, match="finite number >= 0"):
            solve_ridge(np.eye(2), np.ones((2, 1)), ridge=ridge)

    @pytest.mark.parametrize(("gram", "cross"), [((2, 3), (2, 1)), ((2, 2), (3, 1)), ((2, 2), (2,)), ((4,), (4, 1))])
    def test_refuses_shapes_that_disagree(self, gram: tuple[int, ...], cross: tuple[int, ...]) -> None:
        with pytest.raises(InvalidRowsError, match=r"shape \(d, d\)"):
            solve_ridge(np.ones(gram), np.ones(cross))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("place", [(0, 2), (2, 0), (1, 1)])
    def test_one_bad_entry_anywhere_shows_in_the_norm(self, place: tuple[int, int], bad: float) -> None:
        gram = np.eye(3)
        gram[place] = bad
        for same in (gram, np.asfortranarray(gram)):
            with pytest.raises(InvalidRowsError, match="finite"):
                solve_ridge(same, np.ones((3, 1)))
        with pytest.raises(InvalidRowsError, match="finite"):
            solve_ridge(np.eye(3), np.full((3, 1), bad))

    def test_finite_entries_whose_norm_overflows_are_not_called_infinite(self) -> None:
        solution = solve_ridge(np.full((2, 2), 1e308), np.zeros((2, 1)))
        assert (solution.method, solution.weights.tolist()) == ("minimum norm", [[0.0], [0.0]])

    def test_leaves_its_input_alone_and_returns_read_only_weights(self) -> None:
        gram, cross = np.diag([2.0, 3.0]), np.ones((2, 2))
        before = gram.tobytes() + cross.tobytes()
        solution = solve_ridge(gram, cross, ridge=1.0)
        assert gram.tobytes() + cross.tobytes() == before
        with pytest.raises(ValueError, match="read-only"):
            solution.weights[0, 0] = 1.0


SCRIPT = """
import hashlib, numpy as np
from threadpoolctl import threadpool_info
from analytic.solve import solve_ridge
rng = np.random.default_rng(0)
for n in (450, 100):
    x = rng.integers(-2**15, 2**15, (n, 150)).astype(np.float64)
    solution = solve_ridge(x.T @ x, x.T @ rng.integers(0, 2, (n, 10)).astype(np.float64))
    print(solution.method, hashlib.sha256(solution.weights.tobytes()).hexdigest())
print("threads", {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"})
"""


class TestDeterminism:
    def test_same_bits_whatever_the_number_of_blas_threads(self) -> None:
        outputs = []
        for threads in ("1", "2"):
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads}
            run = subprocess.run(
                [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
            )
            outputs.append(run.stdout.splitlines())
        assert [line.split()[0] for line in outputs[0][:2]] == ["cholesky", "minimum"]
        assert outputs[0][:2] == outputs[1][:2]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if cores > 1:
            assert outputs[0][2] != outputs[1][2]  # the setting did reach BLAS

    @pytest.mark.parametrize("n", [200, 40])
    def test_same_bits_whatever_float64_finds(self, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Threads and kernels change what float64 finds; here it is wrong by a millionth, and weights are the same."""
        rng = np.random.default_rng(8)
        x, y = rng.integers(-999, 999, (n, 70)), rng.integers(0, 2, (n, 5))
        expected, right, calls = solve_ridge(x.T @ x, x.T @ y), certified.Inverse.__call__, []

        def disturbed(self: certified.Inverse, residual: np.ndarray) -> np.ndarray:
            calls.append(1)
            found = right(self, residual)
            return found * (1 + 1e-6 * rng.standard_normal(found.shape))

        monkeypatch.setattr(certified.Inverse, "__call__", disturbed)
        found = solve_ridge(x.T @ x, x.T @ y)
        assert calls
        assert found.certified
        assert found.weights.tobytes() == expected.weights.tobytes()
        assert found.reciprocal_condition == expected.reciprocal_condition

    @pytest.mark.parametrize("n", [200, 40])
    def test_same_bits_in_any_memory_order_and_at_any_address(self, n: int) -> None:
        rng = np.random.default_rng(1)
        x, y = rng.integers(-999, 999, (n, 70)).astype(np.float64), rng.integers(0, 2, (n, 5)).astype(np.float64)
        gram, cross = x.T @ x, x.T @ y
        expected = solve_ridge(gram, cross).weights.tobytes()
        assert solve_ridge(np.asfortranarray(gram), np.asfortranarray(cross)).weights.tobytes() == expected
        assert solve_ridge(gram.astype(np.int64), cross.astype(np.int64)).weights.tobytes() == expected  # type: ignore[arg-type]
        for offset in range(1, 8):
            moved = np.empty(gram.size + offset)[offset:].reshape(gram.shape)
            moved[:] = gram
            assert solve_ridge(moved, cross).weights.tobytes() == expected

    def test_same_bits_in_any_memory_order_where_rounding_left_the_gram_not_quite_symmetric(self) -> None:
        rng = np.random.default_rng(3)
        x = rng.standard_normal((200, 70))
        gram, cross = x.T @ x, x.T @ rng.standard_normal((200, 5))
        gram = np.tril(gram) + np.triu(np.nextafter(gram, 0.0), 1)
        assert (gram != gram.T).any()
        wide = np.zeros((140, 140))
        wide[::2, ::2] = gram
        expected = solve_ridge(gram, cross).weights.tobytes()
        for same in (np.asfortranarray(gram), wide[::2, ::2], gram.T.copy().T):
            assert solve_ridge(same, cross).weights.tobytes() == expected

    def test_same_bits_from_several_python_threads_and_the_setting_comes_back(self) -> None:
        rng = np.random.default_rng(2)
        x = rng.integers(-999, 999, (300, 150)).astype(np.float64)
        gram, cross = x.T @ x, x.T @ x[:, :3]
        before = [pool["num_threads"] for pool in threadpool_info()]
        with ThreadPoolExecutor(4) as pool:
            solutions = list(pool.map(lambda _: solve_ridge(gram, cross).weights.tobytes(), range(16)))
        assert len(set(solutions)) == 1
        assert [pool["num_threads"] for pool in threadpool_info()] == before

    def test_one_thread_inside_and_nested(self) -> None:
        with one_blas_thread(), one_blas_thread():
            assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}

    def test_python_threads_enter_one_at_a_time(self) -> None:
        """Overlapping, the first to leave would give the second its threads back in the middle of a solve."""
        inside = threading.Event()

        def enter() -> None:
            with one_blas_thread():
                inside.set()

        other = threading.Thread(target=enter)
        with one_blas_thread():
            other.start()
            assert not inside.wait(0.2)
        assert inside.wait(10)
        other.join()


@st.composite
def blocks(draw: st.DrawFn) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """F^T F and F^T R of integers and a classifier W, dependent columns and rows of zeros among them."""
    d_f, c = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    d_phi = draw(st.integers(1, min(8, 32 // d_f)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    largest = draw(st.sampled_from([3, 1000, 2**20]))
    rows = rng.integers(-largest, largest + 1, (draw(st.integers(1, 20)), d_f))
    if draw(st.booleans()):
        rows[:, rng.integers(d_f)] = 0
    if draw(st.booleans()):
        rows = rows @ rng.integers(-2, 3, (d_f, d_f))
    targets = rng.integers(-999, 1000, (len(rows), c))
    weights = rng.standard_normal((d_phi, c)) * 10.0 ** rng.integers(-draw(st.integers(0, 5)), 1, (d_phi, 1))
    if draw(st.booleans()):
        weights[:, -1] = weights[:, 0] * draw(st.sampled_from([0.0, -1.0, 1 + 1e-9]))
    return rows.T @ rows, rows.T @ targets, weights


class TestSandwichedAgainstRationals:
    @given(blocks(), st.sampled_from([2.0**-10, 0.01, 1.0, 1e5]))
    def test_every_entry_is_the_exact_solution_rounded_once(
        self, block: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], gamma: float
    ) -> None:
        gram, cross, weights = block
        gamma *= float(gram.max() + 1) * 2.0**-20
        found = sandwiched_least_squares(gram, cross, weights, gamma=gamma)
        assert found.certified
        assert found.transform.tobytes() == sandwiched(gram, cross, weights, gamma).tobytes()

    @given(st.integers(0, 2**32), st.integers(1, 2))
    def test_without_gamma_where_nothing_is_singular(self, seed: int, c: int) -> None:
        rng = np.random.default_rng(seed)
        rows = rng.integers(-999, 1000, (20, 4))
        gram, cross, weights = rows.T @ rows, rows.T @ rng.integers(-9, 10, (20, c)), rng.standard_normal((c, c))
        found = sandwiched_least_squares(gram, cross, weights)
        assert found.certified
        assert found.transform.tobytes() == sandwiched(gram, cross, weights, 0.0).tobytes()

    @pytest.mark.parametrize("scale", [0, 500, -200])
    def test_powers_of_two_change_no_digit(self, scale: int) -> None:
        rng = np.random.default_rng(5)
        gram, cross, weights = np.diag([9.0, 7.0, 0.5]), rng.standard_normal((3, 2)), rng.standard_normal((4, 2))
        expected = sandwiched_least_squares(gram, cross, weights, gamma=0.1)
        moved = sandwiched_least_squares(np.ldexp(gram, scale), np.ldexp(cross, scale), weights, gamma=0.1 * 2.0**scale)
        assert (expected.certified, moved.certified) == (True, True)
        assert moved.transform.tobytes() == expected.transform.tobytes()

    def test_a_gram_with_a_negative_eigenvalue_that_gamma_outweighs(self) -> None:
        """The proof asks no total to be a Gram."""
        gram, cross, weights = np.diag([1.0, -0.1]), np.array([[1.0], [3.0]]), np.array([[1.0], [0.3], [0.7]])
        found = sandwiched_least_squares(gram, cross, weights, gamma=1.0)
        assert found.certified
        assert found.transform.tobytes() == sandwiched(gram, cross, weights, 1.0).tobytes()

    def test_nothing_to_explain_is_explained_by_zeros(self) -> None:
        for cross, weights in ((np.zeros((2, 1)), np.ones((3, 1))), (np.ones((2, 1)), np.zeros((3, 1)))):
            found = sandwiched_least_squares(np.eye(2), cross, weights, gamma=1.0)
            assert (found.certified, found.transform.tobytes()) == (True, bytes(48))

    def test_ties_go_to_the_even_multiple_where_digits_hold_the_solution(self) -> None:
        """Omega = diag(C / 2): its largest entry is 1, so multiples are of 2^-52."""
        cross = np.array([[2.0, 0.0], [0.0, 2.0**-53 * 2], [0.0, 2.0**-53 * 6]])
        found = sandwiched_least_squares(np.eye(3), cross, np.eye(2), gamma=1.0)
        assert found.certified
        assert found.transform.tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 2.0**-51]]

    @pytest.mark.parametrize(
        ("gram", "weights", "gamma"),
        [
            (np.ones((2, 2)), np.array([[1.0], [3.0]]), 0.0),
            (np.eye(2), np.array([[1.0, 2.0], [2.0, 4.0]]), 0.0),
            (np.ones((2, 2)), np.array([[1.0], [3.0]]), 1e-30),
        ],
    )
    def test_what_is_singular_without_a_gamma_to_speak_of_is_not_certified(
        self, gram: NDArray[Any], weights: NDArray[Any], gamma: float
    ) -> None:
        cross = np.array([[1.0, 1.0], [1.0, 1.0]])[:, : weights.shape[1]]
        found = sandwiched_least_squares(gram, cross, weights, gamma=gamma)
        assert not found.certified
        assert np.isfinite(found.transform).all()


class TestSandwichedLeastSquares:
    @examples(8)
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
        assert np.linalg.norm(found - paper) <= 50 * 7 * 9 * (2 * UNIT) * condition * largest

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

    @pytest.mark.parametrize("gamma", [-1.0, np.nan, np.inf])
    def test_gamma_must_be_a_finite_number_that_is_not_negative(self, gamma: float) -> None:
        with pytest.raises(SpecificationError, match="gamma must be"):
            sandwiched_least_squares(np.eye(2), np.ones((2, 1)), np.ones((3, 1)), gamma=gamma)
