"""The certified solve against rational arithmetic: every entry is the exact solution, rounded once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.rationals import fractions_of, pseudo_inverse_times, rational

from analytic.solve import Solution, minimum_norm, solve_ridge
from analytic.solve.digits import Digits, bits_beside, digit_bits, fewest_bits, rounds_to_high


def assert_exact(solution: Solution, gram: NDArray[Any], cross: NDArray[Any], ridge: float) -> None:
    weights, rank = pseudo_inverse_times(gram, cross, ridge)
    assert solution.weights.tobytes() == weights.tobytes()
    assert solution.certified
    assert (solution.rank, solution.method) == (rank, "cholesky" if rank == len(gram) else "minimum norm")


@st.composite
def integer_rows(draw: st.DrawFn) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """X and Y of integers: too few rows, repeated columns and columns that follow from others among them."""
    d, n = draw(st.integers(1, 8)), draw(st.integers(0, 12))
    largest = draw(st.sampled_from([1, 3, 50, 2**16, 2**24]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.integers(-largest, largest + 1, (n, d))
    if draw(st.booleans()):
        x[:, rng.integers(d)] = x[:, rng.integers(d)]
    if draw(st.booleans()):
        x = x @ rng.integers(-2, 3, (d, d))
    return x, rng.integers(-9, 10, (n, draw(st.integers(1, 3))))


RIDGES = st.sampled_from([0.0, 0.5, 1e-3, 1e-12, 1e6, 5e-324, 1e300])


class TestAgainstRationals:
    @given(integer_rows(), RIDGES)
    @example((np.array([[0, 0, 1], [1, 0, 1]]), np.array([[1], [2]])), 0.0)
    @example((np.array([[-77, 805, 1534], [1936, 576, -199]]), np.array([[1], [2]])), 0.0)
    def test_statistics(self, rows: tuple[NDArray[np.int64], NDArray[np.int64]], ridge: float) -> None:
        x, y = rows
        gram, cross = x.T @ x, x.T @ y
        assert_exact(solve_ridge(gram, cross, ridge=ridge), gram, cross, ridge)

    @given(integer_rows(), st.integers(0, 2**32))
    def test_targets_that_no_rows_gave(self, rows: tuple[NDArray[np.int64], NDArray[np.int64]], seed: int) -> None:
        """Outside the range of G the pseudo-inverse takes the part of H that is inside."""
        gram = rows[0].T @ rows[0]
        cross = np.random.default_rng(seed).integers(-99, 100, (len(gram), 2))
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)

    @given(st.integers(2, 7), st.integers(0, 2**32), st.integers(0, 50))
    def test_any_condition_number(self, d: int, seed: int, spread: int) -> None:
        """Hilbert-like systems and ones whose features differ by powers of two, as float64 with all its bits."""
        rng = np.random.default_rng(seed)
        root = np.tril(rng.standard_normal((d, d))) * 2.0 ** -rng.integers(0, spread + 1, d)
        scaled = np.ldexp(root @ root.T, 20)
        gram = np.rint(scaled) + np.diag(np.ldexp(1.0, rng.integers(4, 10, d)))
        cross = rng.standard_normal((d, 2))
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)

    @pytest.mark.parametrize("classes", [(6, 4, 4), (4, 5, 5), (1, 1)])
    def test_columns_that_are_large_multiples_of_others(self, classes: tuple[int, ...]) -> None:
        """Two equal columns of 2^26 beside classes: float64 loses I in I + K^T K of the kernel [-K; I]."""
        x = np.hstack([np.full((sum(classes), 2), 2**26 - 2**17), np.repeat(np.eye(len(classes)), classes, axis=0)])
        rows = x.astype(np.int64)
        gram, cross = rows.T @ rows, rows.T @ np.arange(2 * len(rows)).reshape(-1, 2)
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)

    @pytest.mark.parametrize("d", [4, 9, 14])
    def test_beyond_what_float64_can_factor(self, d: int) -> None:
        """Hilbert matrices in whole numbers; at 14 the condition number is some 1e18."""
        multiple = int(np.lcm.reduce(np.arange(1, 2 * d)))
        gram = np.array([[multiple // (i + j + 1) for j in range(d)] for i in range(d)])
        cross = np.arange(1, 2 * d + 1).reshape(d, 2)
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)

    def test_a_condition_of_1e14_at_some_size(self) -> None:
        rng = np.random.default_rng(4)
        rows = rng.integers(-(2**10), 2**10, (120, 90))
        rows[:, 1] = rows[:, 0] + (np.arange(120) == 7)
        gram, cross = rows.T @ rows * 2**8, rows.T @ rng.integers(0, 2, (120, 3))
        gram[5] //= 2**6
        gram[:, 5] = gram[5]
        gram[5, 5] = 2**50
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)


class TestWhatDigitsCannotDecide:
    def test_zeros_and_ties_are_exact(self) -> None:
        """A zero, and two ties that round to even, down and up."""
        mixing = np.array([[2, 1, 1], [1, 3, 1], [1, 1, 4]])
        weights = np.array([[0], [2**53 + 1], [2**53 + 3]], dtype=object)
        gram, cross = mixing.astype(np.int64), (mixing.astype(object) @ weights).astype(np.int64)
        found = solve_ridge(gram, cross)
        assert found.weights.ravel().tolist() == [0.0, 2.0**53, 2.0**53 + 4]
        assert_exact(found, gram, cross, 0.0)

    def test_a_zero_between_thirds(self) -> None:
        """W = (5/3, 0, -5/3): neither has an end in binary, so no residual ever is zero."""
        gram = np.array([[3, 1, 0], [1, 3, 0], [0, 0, 7]]) + np.ones((3, 3), dtype=np.int64)
        cross = gram @ np.array([[1], [0], [-1]]) * 5
        assert solve_ridge(gram * 3, cross).weights[1, 0] == 0.0
        assert_exact(solve_ridge(gram * 3, cross), gram * 3, cross, 0.0)

    @pytest.mark.parametrize("scale", [2.0**-540, 2.0**-500, 2.0**480])
    def test_weights_at_the_ends_of_float64(self, scale: float) -> None:
        """Some are below 2^-1022, where a float has fewer digits."""
        rng = np.random.default_rng(3)
        gram = np.array([[5.0, 2.0], [2.0, 7.0]]) / scale
        cross = rng.standard_normal((2, 2)) * scale
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)


class TestWithoutAProof:
    def test_a_rank_that_costs_too_much_to_prove_is_said_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(minimum_norm, "BUDGET", 0)
        x = np.random.default_rng(0).integers(-99, 99, (5, 9))
        solution = solve_ridge(x.T @ x, x.T @ x[:, :1])
        assert (solution.certified, solution.rank) == (False, 5)
        assert "not certified" in solution.method

    def test_one_hot_groups_need_no_elimination(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(minimum_norm, "BUDGET", 0)
        rng = np.random.default_rng(0)
        x = np.hstack([np.eye(4, dtype=int)[rng.integers(0, 4, 60)] for _ in range(3)])
        gram, cross = x.T @ x, x.T @ rng.integers(0, 2, (60, 2))
        assert_exact(solve_ridge(gram, cross), gram, cross, 0.0)


class TestDigits:
    @given(st.integers(1, 40), st.integers(0, 2**32), st.integers(0, 400))
    def test_arithmetic_is_that_of_fractions(self, inner: int, seed: int, spread: int) -> None:
        rng, bits = np.random.default_rng(seed), digit_bits(inner)
        left = rng.standard_normal((3, inner)) * 2.0 ** rng.integers(-spread, spread + 1, (3, inner))
        right = rng.integers(-(2**63), 2**63 - 1, (inner, 2))
        a, b, factor = Digits.of(left, bits), Digits.of(right, bits), float(rng.standard_normal())
        assert fractions_of(a) == rational(left).ravel().tolist()
        assert fractions_of(b) == rational(right).ravel().tolist()
        exact = rational(left) @ rational(right)
        assert fractions_of(a @ b) == exact.ravel().tolist()
        assert fractions_of(a @ b - (a @ b).times(factor)) == (exact * (1 - Fraction(factor))).ravel().tolist()
        high, low, slack = (a @ b).parts()
        assert (abs(exact - rational(high) - rational(low)) <= rational(slack)).all()
        assert (abs(exact - rational((a @ b).floats())) <= Fraction(2) ** -51 * abs(exact)).all()

    @pytest.mark.parametrize("inner", [1, 2, 64, 512, 2048, 8192])
    def test_products_of_the_widest_digits_stay_below_2_to_the_53(self, inner: int) -> None:
        widest = 2 ** (digit_bits(inner) - 1)
        assert inner * widest**2 <= 2**53 < 4 * inner * (2 * widest) ** 2
        for bits in range(17, digit_bits(inner) + 1):
            assert inner * 2 ** (bits - 1 + bits_beside(inner, bits) - 1) <= 2**53

    @given(st.integers(1, 40), st.integers(0, 2**32), st.integers(1, 62), st.integers(17, 26))
    def test_digits_of_two_widths_multiply_exactly(self, inner: int, seed: int, magnitude: int, bits: int) -> None:
        rng = np.random.default_rng(seed)
        left, right = (rng.integers(-(2**magnitude), 2**magnitude, shape) for shape in ((2, inner), (inner, 3)))
        a, b = Digits.of(left, min(bits, digit_bits(inner))), Digits.of(right, bits)
        b = b.in_bits(bits_beside(inner, a.bits))
        assert fractions_of(b) == rational(right).ravel().tolist()
        assert (a @ b).bits == a.bits
        assert fractions_of(a @ b) == (rational(left) @ rational(right)).ravel().tolist()
        assert (
            fractions_of(a @ b + b[[0, inner - 1]])
            == (rational(left) @ rational(right) + rational(right)[[0, inner - 1]]).ravel().tolist()
        )

    @given(st.integers(1, 60), st.lists(st.integers(-(2**60), 2**60), min_size=1))
    def test_the_fewest_bits_take_no_more_digits(self, d: int, values: list[int]) -> None:
        matrix = np.resize(np.array(values), (d, d))
        bits, widest = fewest_bits(matrix), digit_bits(d)
        n = len(Digits.of(matrix, bits).planes)
        assert n == len(Digits.of(matrix, widest).planes)
        assert bits == min(17, widest) or bits_beside(d, bits) == 26 or len(Digits.of(matrix, bits - 1).planes) > n


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("high", [1.0, 1.0 + 2.0**-52, 2.0 - 2.0**-52, 1.5, 2.0**-300, 3.0 * 2.0**200])
def test_an_interval_is_decided_where_both_of_its_ends_round_to_the_same_float(high: float, sign: float) -> None:
    """Below a power of two floats are twice as close: Fraction's own rounding says which numbers come to ``high``."""
    high, unit = sign * high, np.spacing(high)
    for low in (unit * part for part in (0.0, 0.2, 0.26, 0.4, 0.6, -0.2, -0.26, -0.4, -0.6)):
        for error in (0.0, 0.04 * unit, 0.2 * unit):
            ends = (float(Fraction(high) + Fraction(low) + Fraction(by)) for by in (error, -error))
            found = rounds_to_high(np.array([high]), np.array([low]), np.array([error]))
            assert found[0] == all(end == high for end in ends), (high, low / unit, error / unit)
