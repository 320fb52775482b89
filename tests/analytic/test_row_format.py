"""The one lossy step: what it keeps, what it refuses, and attacks on its stated bound, judged in rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import CHUNK_ENTRIES, MAX_BITS, ColumnMap, RowFormat

ALL_FORMATS = [
    RowFormat(integer_bits=m, fraction_bits=f, signed=signed)
    for m in range(MAX_BITS + 1)
    for f in range(MAX_BITS + 1 - m)
    if m + f
    for signed in (True, False)
]
formats = st.sampled_from(ALL_FORMATS)
TINIEST = 5e-324


def exact_units(row_format: RowFormat, x: float) -> int | None:
    """Truncation toward zero in rational numbers; None for what the format does not hold."""
    limit = 2**row_format.integer_bits
    inside = -limit < Fraction(x) < limit if row_format.signed else 0 <= Fraction(x) < limit
    return int(Fraction(x) * 2**row_format.fraction_bits) if inside else None


def assert_quantised_or_refused(row_format: RowFormat, rows: NDArray[Any]) -> None:
    expected = [exact_units(row_format, float(x)) for x in rows.ravel()]
    if None in expected:
        with pytest.raises(RowsOutsideFormatError) as caught:
            row_format.quantise(rows)
        assert caught.value.n_rows == expected.count(None)
        assert caught.value.largest == max(abs(float(x)) for x in rows)
        return
    units = row_format.quantise(rows)
    assert units.dtype == np.float64
    assert units.tobytes() == np.array(expected, dtype=np.float64).tobytes()  # bytes: -0.0 would show


class TestNames:
    def test_printing_and_parsing_round_trip(self) -> None:
        for row_format in ALL_FORMATS:
            assert RowFormat.parse(str(row_format)) == row_format

    def test_reads_like_the_documentation(self) -> None:
        assert RowFormat.parse("Q5.11") == RowFormat(integer_bits=5, fraction_bits=11)
        assert RowFormat.parse("UQ5.11") == RowFormat(integer_bits=5, fraction_bits=11, signed=False)
        assert str(RowFormat.parse("Q05.11")) == "Q5.11"

    @pytest.mark.parametrize(
        "text",
        ["", "5.11", "q5.11", "Q5", "Q5.", "Q.11", "Q-5.11", "Q5.11 ", "Q5.11\n", "Q5,11", "QU5.11", "Q100.1", "Q٥.١"],
    )
    def test_refuses_other_texts(self, text: str) -> None:
        with pytest.raises(SpecificationError, match=r"reads like Q5\.11"):
            RowFormat.parse(text)

    @pytest.mark.parametrize(("m", "f"), [(0, 0), (-1, 5), (5, -1), (20, 7), (27, 0)])
    def test_refuses_bits_that_products_cannot_carry(self, m: int, f: int) -> None:
        with pytest.raises(SpecificationError, match="not exact"):
            RowFormat(integer_bits=m, fraction_bits=f)

    def test_numpy_integers_become_integers_that_never_wrap(self) -> None:
        wide = RowFormat(integer_bits=np.int8(10), fraction_bits=np.int8(10))  # type: ignore[arg-type]
        assert wide.magnitude**3 == (2**20 - 1) ** 3
        with pytest.raises(SpecificationError, match=r"fraction_bits must be a whole number, not 2\.0"):
            RowFormat(integer_bits=1, fraction_bits=2.0)  # type: ignore[arg-type]


class TestTruncation:
    @given(formats, st.floats(allow_nan=False, allow_infinity=False))
    @example(RowFormat.parse("Q5.11"), -0.0)
    @example(RowFormat.parse("UQ5.11"), -0.0)
    @example(RowFormat.parse("UQ5.11"), -TINIEST)
    @example(RowFormat.parse("Q5.11"), -TINIEST)
    @example(RowFormat.parse("Q5.11"), float(np.nextafter(32.0, 0.0)))
    @example(RowFormat.parse("Q5.11"), float(np.nextafter(-32.0, 0.0)))
    @example(RowFormat.parse("Q5.11"), -32.0)
    @example(RowFormat.parse("Q5.11"), 1.7976931348623157e308)
    def test_equals_rational_truncation_for_any_float(self, row_format: RowFormat, x: float) -> None:
        assert_quantised_or_refused(row_format, np.array([x]))

    @given(formats, st.floats(-1, 1), st.sampled_from([np.float16, np.float32, np.float64]))
    def test_inputs_near_the_ends_of_every_width(self, row_format: RowFormat, part: float, kind: type) -> None:
        limit = min(2.0**row_format.integer_bits, 2.0**15)  # float16 ends at 65504
        for x in (part * limit, limit, -limit):
            near = kind(x)
            for value in (near, np.nextafter(near, kind(0)), np.nextafter(near, kind(np.inf))):
                assert_quantised_or_refused(row_format, np.array([value], dtype=kind))

    @pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
    def test_integers_of_every_width(self, kind: type) -> None:
        ends = np.iinfo(kind)
        for row_format in (RowFormat.parse("Q7.0"), RowFormat.parse("UQ8.3"), RowFormat.parse("Q26.0")):
            for value in (ends.min, ends.max, 0, 1, 127, ends.max // 2):
                assert_quantised_or_refused(row_format, np.array([value], dtype=kind))

    def test_booleans_are_zero_and_one(self) -> None:
        units = RowFormat.parse("UQ1.3").quantise(np.array([True, False]))
        assert units.tolist() == [8.0, 0.0]

    @given(formats, st.lists(st.floats(-1, 1), min_size=1, max_size=8))
    def test_error_is_below_its_bound_and_no_entry_grows(self, row_format: RowFormat, parts: list[float]) -> None:
        rows = np.array(parts) * np.nextafter(2.0**row_format.integer_bits, 0.0)
        rows = rows if row_format.signed else np.abs(rows)
        back = row_format.dequantise(row_format.quantise(rows))
        for x, y in zip(rows.tolist(), back.tolist(), strict=True):
            assert abs(Fraction(x) - Fraction(y)) < Fraction(1, 2**row_format.fraction_bits)
            assert abs(y) <= abs(x)
            assert x * y >= 0

    def test_the_bound_is_tight(self) -> None:
        row_format = RowFormat.parse("Q5.11")
        x = np.nextafter(2.0**-11, 0.0)
        assert row_format.quantise(np.array([x])).tolist() == [0.0]
        assert x > 0.9999 * 2.0**-11


class TestShapesAndMemoryOrders:
    def test_every_memory_order_gives_the_same_units(self) -> None:
        row_format, rng = RowFormat.parse("Q3.9"), np.random.default_rng(0)
        rows = rng.uniform(-8, 8, (61, 7))
        expected = row_format.quantise(rows).tobytes()
        wide = np.zeros((122, 14))
        wide[::2, ::2] = rows
        read_only = rows.copy()
        read_only.setflags(write=False)
        for same in (np.asfortranarray(rows), wide[::2, ::2], rows[::-1][::-1], read_only, rows.astype(">f8")):
            assert np.ascontiguousarray(row_format.quantise(same)).tobytes() == expected
        assert read_only.tobytes() == rows.tobytes()

    def test_many_chunks_equal_single_rows(self) -> None:
        row_format, rng = RowFormat.parse("Q3.9"), np.random.default_rng(1)
        rows = rng.uniform(-8, 8, (300, CHUNK_ENTRIES // 100))
        whole = row_format.quantise(rows)
        assert whole.tobytes() == b"".join(row_format.quantise(row).tobytes() for row in rows)

    def test_writes_into_a_given_array(self) -> None:
        row_format, out = RowFormat.parse("Q3.9"), np.full((2, 2), np.nan)
        assert row_format.quantise(np.ones((2, 2)), out=out) is out
        assert (out == 512).all()

    @pytest.mark.parametrize("rows", [np.ones(2, dtype=complex), np.array(["1"]), np.array([1], dtype=object)])
    def test_refuses_what_is_no_real_number(self, rows: NDArray[Any]) -> None:
        with pytest.raises(InvalidRowsError, match="not " + str(rows.dtype)):
            RowFormat.parse("Q3.9").quantise(rows)

    @pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="no wider float here")
    def test_refuses_wider_floats_which_would_round_up_first(self) -> None:
        below_one = np.array([1 - np.longdouble(2) ** -60])
        with pytest.raises(InvalidRowsError, match=f"at most 64 bits, not {below_one.dtype}"):
            RowFormat.parse("Q3.9").quantise(below_one)

    @pytest.mark.parametrize("hidden", [[False, True], [False, False]])
    def test_refuses_masks(self, hidden: list[bool]) -> None:
        rows = np.ma.masked_array([1.0, np.nan], mask=hidden)
        for clip in (False, True):
            with pytest.raises(InvalidRowsError, match=r"a masked one of shape \(2,\)"):
                RowFormat.parse("Q3.9").quantise(rows, clip=clip)


class TestRefusal:
    def test_counts_rows_not_entries_and_names_the_largest(self) -> None:
        rows = np.zeros((6, 3))
        rows[1] = [40.0, np.nan, -1e308]
        rows[2, 2] = np.inf
        rows[4, 0] = -32.0
        for clip in (False, True):
            with pytest.raises(RowsOutsideFormatError, match=r"3 of 6 rows do not fit Q5\.11.*2 of them hold NaN") as e:
                RowFormat.parse("Q5.11").quantise(rows, clip=clip)
            assert (e.value.n_rows, e.value.largest) == (3, 1e308)

    def test_counts_over_all_chunks(self) -> None:
        rows = np.zeros((5 * CHUNK_ENTRIES, 1))
        rows[::CHUNK_ENTRIES] = 7.5
        rows[-1] = 9.0
        with pytest.raises(RowsOutsideFormatError) as caught:
            RowFormat.parse("Q2.3").quantise(rows)
        assert (caught.value.n_rows, caught.value.largest) == (6, 9.0)


class TestClipping:
    @given(formats, st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
    @example(RowFormat.parse("Q5.11"), [1.7e308, -1.7e308, 0.3])
    def test_takes_the_nearest_end_and_leaves_the_rest(self, row_format: RowFormat, values: list[float]) -> None:
        lowest = -row_format.magnitude if row_format.signed else 0
        units = row_format.quantise(np.array(values), clip=True)
        expected = [
            min(max(int(Fraction(x) * 2**row_format.fraction_bits), lowest), row_format.magnitude) for x in values
        ]
        assert units.tobytes() == np.array(expected, dtype=np.float64).tobytes()

    def test_does_not_round_the_end_up_in_half_precision(self) -> None:
        row_format = RowFormat.parse("Q5.11")
        assert row_format.quantise(np.array([1000.0], dtype=np.float16), clip=True).tolist() == [row_format.magnitude]


class TestCovering:
    @given(st.lists(st.floats(-1000, 1000), max_size=6), st.integers(10, MAX_BITS))
    def test_holds_all_rows_with_no_integer_bit_to_spare(self, values: list[float], bits: int) -> None:
        rows = np.array(values)
        row_format = RowFormat.covering(rows, bits=bits)
        row_format.quantise(rows)
        assert row_format.integer_bits + row_format.fraction_bits == bits
        assert row_format.signed == any(x < 0 for x in values)
        if row_format.integer_bits:
            tighter = RowFormat(integer_bits=row_format.integer_bits - 1, fraction_bits=row_format.fraction_bits)
            with pytest.raises(RowsOutsideFormatError):
                tighter.quantise(rows)

    @pytest.mark.parametrize("kind", [np.int8, np.int16])
    def test_the_smallest_integer_of_a_type(self, kind: type) -> None:
        rows = np.array([np.iinfo(kind).min], dtype=kind)
        assert RowFormat.covering(rows, bits=20).quantise(rows)[0] < 0

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_refuses_nan_and_infinity(self, bad: float) -> None:
        with pytest.raises(InvalidRowsError, match="NaN or infinity"):
            RowFormat.covering(np.array([1.0, bad]))

    def test_refuses_values_beyond_its_bits(self) -> None:
        with pytest.raises(SpecificationError, match="scale the features"):
            RowFormat.covering(np.array([2.0**16]), bits=16)
        assert str(RowFormat.covering(np.array([np.nextafter(2.0**16, 0)]), bits=16)) == "UQ16.0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exponents": (2000,)}, "exponent is from"),
        ({"exponents": (0, 0), "centres": (0.0,), "factors": (1.0, 1.0)}, "a finite centre and a factor above 0"),
        ({"exponents": (0,), "centres": (float("nan"),), "factors": (1.0,)}, "a finite centre"),
        ({"exponents": (0,), "centres": (0.0,), "factors": (0.0,)}, "the factors of columns are above 0"),
    ],
)
def test_maps_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        ColumnMap(**changes)


def test_no_map_covers_what_is_no_number() -> None:
    with pytest.raises(InvalidRowsError, match="no fixed-point format covers them"):
        ColumnMap.covering(np.array([[1.0, np.inf]]), None, intercept=None)
