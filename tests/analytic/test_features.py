"""A row's features have the same bits whatever batch, order, memory layout or place it comes in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from analytic.activations import ACTIVATIONS, activation_named
from analytic.errors import InvalidRowsError
from analytic.features import COLUMN_MULTIPLE, TILE_ROWS, add_mapped_rows, map_rows

NAMES = sorted(ACTIVATIONS)
SIZES = [1, 2, 3, 7, 8, 9, 31, 64, 100, 257]
"""Inputs and outputs: single ones, odd ones, and those at the edges of kernels."""


def _problem(seed: int, n: int, d: int, m: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * 3.0, rng.standard_normal((d, m)) / np.sqrt(d)


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 2 * TILE_ROWS + 5),
    d=st.sampled_from(SIZES),
    m=st.sampled_from(SIZES),
    name=st.sampled_from(NAMES),
    data=st.data(),
)
def test_any_split_gives_the_same_bits(seed: int, n: int, d: int, m: int, name: str, data: st.DataObject) -> None:
    rows, matrix = _problem(seed, n, d, m)
    whole = map_rows(rows, matrix, activation_named(name))
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    parts = [map_rows(part, matrix, activation_named(name)) for part in np.split(rows, cuts)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@given(seed=st.integers(0, 2**32), n=st.integers(1, 300), d=st.sampled_from(SIZES), name=st.sampled_from(NAMES))
def test_any_order_gives_the_same_bits(seed: int, n: int, d: int, name: str) -> None:
    rows, matrix = _problem(seed, n, d, 33)
    order = np.random.default_rng(seed).permutation(n)
    whole = map_rows(rows, matrix, activation_named(name))
    assert map_rows(rows[order], matrix, activation_named(name)).tobytes() == whole[order].tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d", [1, 5, 64, 512])
def test_one_row_has_the_bits_it_has_in_every_place_of_a_tile(name: str, d: int) -> None:
    rows, matrix = _problem(d, TILE_ROWS + 1, d, 48)
    alone = map_rows(rows[:1], matrix, activation_named(name))
    everywhere = map_rows(np.repeat(rows[:1], 2 * TILE_ROWS + 1, axis=0), matrix, activation_named(name))
    assert {row.tobytes() for row in everywhere} == {alone.tobytes()}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_type_and_memory_layout_leave_no_trace(dtype: type) -> None:
    rng = np.random.default_rng(5)
    rows = rng.integers(0, 200, (230, 37)).astype(dtype)
    _, matrix = _problem(1, 1, 37, 19)
    gelu = activation_named("gelu")
    expected = map_rows(rows.astype(np.float64), matrix, gelu).tobytes()
    wide = np.zeros((461, 76), dtype=dtype)
    wide[1::2, 1:75:2] = rows
    reversed_twice = np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1]
    shifted = np.frombuffer(b"\0" * rows.itemsize + rows.tobytes(), dtype=dtype)[1:].reshape(rows.shape)
    for layout in (rows, np.asfortranarray(rows), wide[1::2, 1:75:2], reversed_twice, shifted):
        assert map_rows(layout, matrix, gelu).tobytes() == expected
    assert map_rows(rows, np.asfortranarray(matrix), gelu).tobytes() == expected


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), offset=st.integers(0, 250), n=st.integers(0, 250))
def test_slices_at_odd_offsets_equal_the_slice_of_the_whole(seed: int, offset: int, n: int) -> None:
    rows, matrix = _problem(seed, 500, 65, 130)
    for name in NAMES:
        whole = map_rows(rows, matrix, activation_named(name))
        part = map_rows(rows[offset : offset + n], matrix, activation_named(name))
        assert part.tobytes() == whole[offset : offset + n].tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("d", [*SIZES, 512, 768, 1000, 1024, 2048])
@pytest.mark.parametrize("m", [*SIZES, 512, 1000, 1024])
def test_many_shapes_in_any_order_and_split(d: int, m: int) -> None:
    rows, matrix = _problem(d * m, 3 * TILE_ROWS + 17, d, m)
    rng = np.random.default_rng(d + m)
    for name in NAMES:
        whole = map_rows(rows, matrix, activation_named(name))
        order = rng.permutation(len(rows))
        parts = np.split(rows[order], sorted(rng.integers(0, len(rows), 4)))
        again = np.concatenate([map_rows(part, matrix, activation_named(name)) for part in parts])
        assert again.tobytes() == whole[order].tobytes()


@given(seed=st.integers(0, 2**32), n=st.integers(0, 300), d=st.sampled_from(SIZES), m=st.sampled_from(SIZES))
def test_integers_multiply_exactly(seed: int, n: int, d: int, m: int) -> None:
    """Products below 2^53 are exact in any order, so they must equal Python's integers."""
    rng = np.random.default_rng(seed)
    rows, matrix = rng.integers(-99, 99, (n, d)), rng.integers(-99, 99, (d, m))
    assert map_rows(rows, matrix.astype(np.float64)).tolist() == (rows @ matrix).tolist()


def test_adding_in_place_equals_adding_the_map() -> None:
    rows, matrix = _problem(0, 200, 20, 11)
    start = np.random.default_rng(1).standard_normal((200, 11))
    out = start.copy()
    add_mapped_rows(out, rows, matrix)
    assert out.tobytes() == (start + map_rows(rows, matrix)).tobytes()


def test_a_bad_row_spoils_itself_only() -> None:
    rows, matrix = _problem(0, 10, 6, 5)
    clean = map_rows(rows, matrix, activation_named("gelu"))
    rows[3, 2], rows[7, 0] = np.nan, np.inf
    spoilt = map_rows(rows, matrix, activation_named("gelu"))
    others = [0, 1, 2, 4, 5, 6, 8, 9]
    assert spoilt[others].tobytes() == clean[others].tobytes()
    assert not np.isfinite(spoilt[3]).any()


def test_no_rows_give_no_features() -> None:
    assert map_rows(np.zeros((0, 4)), np.ones((4, 3))).shape == (0, 3)


def test_the_tile_has_no_remainder_for_any_common_kernel() -> None:
    assert all(TILE_ROWS % unrolled == 0 for unrolled in (2, 4, 6, 8, 12, 16, 24, 32))
    assert COLUMN_MULTIPLE > 1


@pytest.mark.parametrize(
    "rows", [np.zeros(4), np.zeros((2, 5)), np.zeros((2, 4), dtype=complex), np.zeros((2, 4), "U1")]
)
def test_rows_that_are_no_matrix_of_real_numbers_are_refused(rows: NDArray[np.generic]) -> None:
    with pytest.raises(InvalidRowsError, match="features must"):
        map_rows(rows, np.ones((4, 3)))
