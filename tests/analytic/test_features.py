"""Public feature maps: projections as specified, activations as in textbooks, and bits that no batch changes."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.features import (
    ACTIVATIONS,
    COLUMN_MULTIPLE,
    PROJECTIONS,
    TILE_ROWS,
    Projection,
    activation_named,
    add_mapped_rows,
    map_rows,
    random_projection,
)

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


# --- activations

TEXTBOOK: dict[str, Callable[[float], float]] = {
    "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
    "relu": lambda z: max(z, 0.0),
    "leaky_relu": lambda z: z if z > 0 else z / 100,
    "tanh": math.tanh,
    "hardswish": lambda z: 0.0 if z <= -3 else z if z >= 3 else z * (z + 3) / 6,
    "softshrink": lambda z: z - 0.5 if z > 0.5 else z + 0.5 if z < -0.5 else 0.0,
    "none": lambda z: z,
}


def test_every_activation_of_the_paper_is_there() -> None:
    assert set(ACTIVATIONS) == set(TEXTBOOK)


@given(st.sampled_from(sorted(TEXTBOOK)), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_values_are_the_textbook_ones(name: str, values: list[float]) -> None:
    """Four operations, each rounded once, and erf or tanh within 4 ulp: absolute error below 8 eps max(|z|, 1)."""
    found = activation_named(name).function(np.array(values))
    for z, value in zip(values, found.tolist(), strict=True):
        assert abs(value - TEXTBOOK[name](z)) <= 8 * 2.0**-52 * max(abs(z), 1.0)


@given(st.sampled_from(sorted(TEXTBOOK)), st.lists(st.floats(-1e300, 1e300), min_size=1))
def test_no_activation_grows_a_value(name: str, values: list[float]) -> None:
    activation, z = activation_named(name), np.array(values)
    limit = np.minimum(np.abs(z), activation.ceiling)
    assert np.all(np.abs(activation.function(z)) <= limit * (1 + 4 * 2.0**-52))


def test_gelu_is_the_exact_one() -> None:
    """The tanh approximation is off by up to 5e-4."""
    assert activation_named("gelu").function(np.array([1.0]))[0] == pytest.approx(0.8413447460685429, abs=1e-15)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SpecificationError, match=r"gelu, relu.*not 'swish'"):
        activation_named("swish")


# --- projections


def _specified(seed: int, layer: int, kind: str, shape: tuple[int, int], projection: str) -> list[float]:
    """The module's docstring, entry by entry."""
    rows, columns = shape
    distribution = b"U" if projection == "linear" else b"N"
    header = b"analytic/projection/v1" + seed.to_bytes(8, "big") + layer.to_bytes(4, "big") + kind.encode()
    header += rows.to_bytes(4, "big") + columns.to_bytes(4, "big") + distribution
    entry_bytes = 4 if projection == "linear" else 24
    stream = hashlib.shake_256(header).digest(entry_bytes * rows * columns)
    scale = 1.0 if projection == "normal" else 1.0 / math.sqrt(rows)
    entries = []
    for start in range(0, len(stream), entry_bytes):
        piece = stream[start : start + entry_bytes]
        if projection == "linear":
            exact = Fraction(2 * int.from_bytes(piece, "little") + 1 - 2**32, 2**32)
        else:
            total = sum(int.from_bytes(piece[i : i + 2], "little") for i in range(0, 24, 2))
            exact = Fraction(total - 393210, 2**16)
        entries.append(float(exact) * scale)
    return entries


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["A", "B"]),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from(PROJECTIONS),
)
def test_a_second_implementation_draws_the_same_bits(seed, layer, kind, shape, projection) -> None:
    drawn = random_projection(seed, layer, kind, shape, projection)
    assert drawn.ravel().tolist() == _specified(seed, layer, kind, shape, projection)
    assert drawn.shape == shape
    assert drawn.dtype == np.float64


KNOWN: dict[Projection, list[str]] = {
    "linear": ["0x1.b324820200000p-2", "0x1.4184210000000p-9", "-0x1.f93ac9da00000p-2"],
    "nin": ["0x1.7352000000000p-2", "0x1.f4d0000000000p-4", "0x1.4e9b000000000p-1"],
    "normal": ["0x1.7352000000000p-1", "0x1.f4d0000000000p-3", "0x1.4e9b000000000p+0"],
}


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_known_answers_of_version_1(projection: Projection) -> None:
    """These may never change under the label v1: models are public by their seed."""
    known = [float.fromhex(text) for text in KNOWN[projection]]
    assert random_projection(2026, 3, "B", (4, 3), projection).ravel()[:3].tolist() == known
    assert _specified(2026, 3, "B", (4, 3), projection)[:3] == known


def test_each_part_of_the_address_gives_another_matrix() -> None:
    addresses = itertools.product((0, 1), (0, 1), ("A", "B"), ((4, 4), (2, 8)), PROJECTIONS)
    drawn = {random_projection(*address).tobytes() for address in addresses}
    assert len(drawn) == 2 * 2 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("projection", "variance", "bound"), [("linear", 1 / 300, 0.1), ("nin", 0.01, 0.6), ("normal", 1.0, 6.0)]
)
def test_moments_are_those_of_the_law(projection: Projection, variance: float, bound: float) -> None:
    """The draw is fixed, so this cannot flake; the limits are five standard errors of 100 x 400 entries."""
    entries = random_projection(7, 0, "A", (100, 400), projection).ravel()
    assert abs(entries.mean()) < 5 * math.sqrt(variance / entries.size)
    assert abs(entries.var() / variance - 1) < 5 * math.sqrt(2 / entries.size)
    assert np.abs(entries).max() < bound


def test_a_projection_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        random_projection(0, 0, "A", (2, 2), "nin")[0, 0] = 1.0


def test_any_integer_type_names_the_same_matrix() -> None:
    drawn = random_projection(np.uint64(5), 1, "A", (2, 3), "nin")
    assert drawn.ravel().tolist() == _specified(5, 1, "A", (2, 3), "nin")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, "A", (2, 2), "nin"), "seed"),
        ((2**64, 0, "A", (2, 2), "nin"), "seed"),
        ((0, -1, "A", (2, 2), "nin"), "layer"),
        ((0, 0, "A", (0, 2), "nin"), "sizes"),
        ((0, 0, "A", (2, 2), "orthogonal"), "linear, nin, normal"),
    ],
)
def test_an_impossible_address_is_refused(arguments, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        random_projection(*arguments)
