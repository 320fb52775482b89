"""A BLAS that multiplies wrongly is found out, whatever it does wrong, and one whose syrk is wrong is worked around."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import blas

from analytic import AFL, ClientRows, RowFormat, SAFLe, checked_products
from analytic.bucketing import FixedThresholds
from analytic.checked_products import GramSum, P, check_product, digit_product, whole_product
from analytic.errors import WrongProductError
from analytic.learner import fit_in_the_clear
from analytic.solve.digits import Digits, digit_bits

ROWS = ClientRows(np.random.default_rng(3).integers(-4, 5, size=(90, 6)).astype(float), np.arange(90) % 3)
LEARNERS: dict[str, Any] = {
    "dsyrk": AFL(
        n_features=6, n_targets=3, feature_format=RowFormat(integer_bits=4, fraction_bits=2), max_rows=90, max_clients=1
    ),
    "ssyrk": SAFLe(n_features=6, n_classes=3, max_rows=90, thresholds=FixedThresholds.evenly(-4.5, 4.5, 8)),
}


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    checked_products._syrk_works.cache_clear()
    yield
    checked_products._syrk_works.cache_clear()


def fitted(name: str) -> bytes:
    learner = LEARNERS[name]
    found: bytes = learner.weights_bytes(fit_in_the_clear(learner, [ROWS]))
    return found


def zeros_as_on_the_m4(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *said, **more: 0.0 * right(*said, **more)


@pytest.mark.parametrize("kernel", LEARNERS)
def test_a_wrong_syrk_is_replaced(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted(kernel)
    monkeypatch.setattr(blas, kernel, zeros_as_on_the_m4(getattr(blas, kernel)))
    checked_products._syrk_works.cache_clear()
    assert fitted(kernel) == expected


@pytest.mark.parametrize("kernel", LEARNERS)
@pytest.mark.parametrize("wrong", ["all", "one entry"])
def test_a_syrk_that_is_wrong_later_is_found_out(kernel: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(blas, kernel)

    def off_by_one(*said: Any, **more: Any) -> Any:
        found = right(*said, **more)
        found[2, 5] += 1
        return found

    fitted(kernel)
    monkeypatch.setattr(blas, kernel, zeros_as_on_the_m4(right) if wrong == "all" else off_by_one)
    with pytest.raises(WrongProductError, match=r"BLAS of this machine .* multiplies whole numbers wrongly"):
        fitted(kernel)


@given(st.data())
def test_no_entry_of_a_gram_can_be_wrong(data: st.DataObject) -> None:
    n, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 30))
    exact = data.draw(st.integers(1, width))
    kind: Any = data.draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    sums = GramSum(width, kind, exact)
    for _ in range(3):
        sums.add(rng.integers(-8, 9, size=(n, width)).astype(kind))
    sums.check()
    row = data.draw(st.integers(0, exact - 1))
    sums.matrix[row, data.draw(st.integers(row, width - 1))] += data.draw(st.sampled_from([-1, 1, 1000]))
    with pytest.raises(WrongProductError):
        sums.check()
    sums.clear()
    sums.check()


@given(st.lists(st.one_of(st.integers(-(2**53), 2**53), st.sampled_from([2**53, -(2**53), 2**53 - 1])), min_size=1))
def test_remainders_are_exact_up_to_the_largest_whole_floats(values: list[int]) -> None:
    near = [k * P + r for k in (2**53 // P, 2**37, -(2**37), 1) for r in range(-3, 4) if abs(k * P + r) <= 2**53]
    values += near
    found = checked_products._reduced(np.array(values, dtype=np.float64))
    for value, remainder in zip(values, found.tolist(), strict=True):
        assert abs(remainder) <= P + 2
        assert (value - int(remainder)) % P == 0


def test_the_largest_entries_are_checked_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_products, "CHECKED_ENTRIES", 300)
    monkeypatch.setattr(checked_products, "CHECKED_STRIP", 300)
    block = np.full((2, 100), 2.0**26 - 1)
    sums = GramSum(100, np.float64)
    sums.add(block)
    sums.check()
    many = GramSum(3, np.float32)
    many.add(np.ones((5000, 3), dtype=np.float32))
    many.check()


@pytest.mark.parametrize("width", [1, 3], ids=["one column", "three"])
def test_a_wrong_product_of_digits_is_found_out(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).integers(-(2**40), 2**40, size=(7, 9))
    left, right = Digits.of(values, digit_bits(9)), Digits.of(values[:width].T, digit_bits(9))
    multiply = blas.dgemm

    def off_by_one(*said: Any, **more: Any) -> Any:
        found = multiply(*said, **more)
        found[-1, -1] += 1
        return found

    assert (left @ right).integers()[0][0] == sum(int(value) ** 2 for value in values[0])
    monkeypatch.setattr(blas, "dgemm", off_by_one)
    with pytest.raises(WrongProductError, match=r"shapes \(7, 9\)"):
        _ = left @ right
    with pytest.raises(WrongProductError):
        digit_product(np.eye(4), np.ones((4, width)))


AS_THEY_LIE: dict[str, Callable[[Any], Any]] = {
    "by rows": np.ascontiguousarray,
    "by columns": np.asfortranarray,
    "every second": lambda whole: np.repeat(np.repeat(whole, 2, axis=0), 2, axis=1)[::2, ::2],
}


@pytest.mark.parametrize("of_right", AS_THEY_LIE)
@pytest.mark.parametrize("of_left", AS_THEY_LIE)
@pytest.mark.parametrize("shape", [(4, 3, 5), (1, 1, 1), (1, 6, 2), (3, 1, 4), (0, 3, 2), (3, 0, 2), (2, 3, 0)])
def test_products_of_any_shape_and_order(shape: tuple[int, int, int], of_left: str, of_right: str) -> None:
    n, inner, columns = shape
    left, right = np.arange(n * inner).reshape(n, inner) - 5, np.arange(inner * columns).reshape(inner, columns) - 7
    there = AS_THEY_LIE[of_left](left.astype(np.float64)), AS_THEY_LIE[of_right](right.astype(np.float64))
    assert np.array_equal(whole_product(*there), left @ right)
    for place in range(columns):
        assert np.array_equal(whole_product(there[0], there[1][:, place]), left @ right[:, place])


def test_a_wrong_product_of_any_integers_is_found_out() -> None:
    left, right = np.arange(12).reshape(3, 4) << 40, np.arange(8).reshape(4, 2) << 20
    product = left @ right
    check_product(left, right, product)
    for place in np.ndindex(product.shape):
        wrong = product.copy()
        wrong[place] -= 1
        with pytest.raises(WrongProductError):
            check_product(left, right, wrong)
