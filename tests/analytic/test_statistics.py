"""Exact statistics: equal to Python's big integers on the worst rows, whatever the blocks, batches and parts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.examples import examples

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import MAX_BITS, RowFormat
from analytic.statistics import APPENDED_TARGETS, BLOCK_ROWS, LABELS, Statistics, StatisticsSpec, one_hot
from analytic.whole_numbers import INT64_MAX

Q = RowFormat.parse


def spec_of(d: int = 3, c: int = 2, features: str = "Q5.11", **changes: Any) -> StatisticsSpec:
    return StatisticsSpec(
        **{"n_features": d, "n_targets": c, "feature_format": Q(features), "max_rows": 10_000, **changes}
    )


def no_rows(spec: StatisticsSpec) -> Statistics:
    return Statistics.from_batches(spec, ())


def big_integers(row_format: RowFormat, rows: NDArray[Any]) -> NDArray[Any]:
    """Units as Python integers, truncated in rational numbers."""
    units = [int(Fraction(float(x)) * 2**row_format.fraction_bits) for x in rows.ravel()]
    return np.array(units, dtype=object).reshape(rows.shape)


def oracle(spec: StatisticsSpec, features: NDArray[Any], targets: NDArray[Any]) -> bytes:
    """X^T X, X^T Y, Y^T 1 and Y^T Y in Python integers, which never overflow."""
    x = big_integers(spec.feature_format, features)
    y = np.eye(spec.n_targets, dtype=int)[targets] if targets.ndim == 1 else big_integers(spec.target_format, targets)
    parts = [x.T @ x, x.T @ y, y.sum(axis=0)] + ([] if spec.target_format == LABELS else [y.T @ y])
    return b"".join(part.astype(np.int64).tobytes() for part in parts) + len(x).to_bytes(8, "little")


@st.composite
def problems(draw: st.DrawFn, *, labels: bool | None = None) -> tuple[StatisticsSpec, NDArray[Any], NDArray[Any]]:
    """A specification and rows that favour the ends of its formats."""

    def a_format() -> RowFormat:
        bits = draw(st.integers(1, MAX_BITS) | st.sampled_from([24, 25, 26]))
        fraction = draw(st.integers(0, bits))
        return RowFormat(integer_bits=bits - fraction, fraction_bits=fraction, signed=draw(st.booleans()))

    with_labels = draw(st.booleans()) if labels is None else labels
    spec = StatisticsSpec(
        n_features=draw(st.integers(1, 5)),
        n_targets=draw(st.integers(1, 4) | st.sampled_from([APPENDED_TARGETS, APPENDED_TARGETS + 1])),
        feature_format=a_format(),
        target_format=LABELS if with_labels else a_format(),
        max_rows=200,
    )
    n, rng = draw(st.integers(0, 90)), np.random.default_rng(draw(st.integers(0, 2**32)))
    features = extreme_rows(rng, spec.feature_format, (n, spec.n_features))
    if with_labels:
        return spec, features, rng.integers(0, spec.n_targets, n)
    return spec, features, extreme_rows(rng, spec.target_format, (n, spec.n_targets))


def extreme_rows(rng: np.random.Generator, row_format: RowFormat, shape: tuple[int, ...]) -> NDArray[np.float64]:
    top = row_format.magnitude
    units = rng.choice([top, top, top, -top, 1, 0, top // 2, -1], size=shape)
    if rng.random() < 0.4:
        units = np.full(shape, top)
    units = units if row_format.signed else np.abs(units)
    return np.ldexp(units.astype(np.float64), -row_format.fraction_bits)


class TestExactness:
    @given(problems())
    def test_equals_python_integers_at_the_extremes(
        self, problem: tuple[StatisticsSpec, NDArray[Any], NDArray[Any]]
    ) -> None:
        spec, features, targets = problem
        assert Statistics.from_rows(spec, features, targets).to_bytes() == oracle(spec, features, targets)

    @pytest.mark.parametrize(("features", "targets"), [("Q13.13", "Q20.6"), ("UQ0.24", "Q0.3"), ("Q2.1", "Q13.13")])
    def test_more_rows_than_float64_sums_exactly(self, features: str, targets: str) -> None:
        spec = spec_of(2, 2, features, target_format=Q(targets), max_rows=501)
        x = np.full((501, 2), np.ldexp(float(spec.feature_format.magnitude), -spec.feature_format.fraction_bits))
        y = np.full((501, 2), np.ldexp(float(spec.target_format.magnitude), -spec.target_format.fraction_bits))
        if features != "Q2.1":
            assert spec.exact_rows < 501
            naive = np.ldexp(x, spec.feature_format.fraction_bits)
            assert int((naive.T @ naive)[0, 0]) != 501 * spec.feature_format.magnitude**2  # float64 alone would lose
        assert Statistics.from_rows(spec, x, y).to_bytes() == oracle(spec, x, y)

    def test_exact_rows_is_the_last_safe_number(self) -> None:
        for features, targets in (("Q13.13", "Q1.0"), ("Q5.11", "Q5.11"), ("Q1.0", "Q13.13"), ("UQ0.24", "UQ0.25")):
            spec = spec_of(features=features, target_format=Q(targets), max_rows=1)
            a = spec.feature_format.magnitude
            largest = a * max(a, spec.target_format.magnitude)
            assert spec.exact_rows * largest <= 2**53 < (spec.exact_rows + 1) * largest

    @pytest.mark.parametrize("n_targets", [1, APPENDED_TARGETS, APPENDED_TARGETS + 1])
    @pytest.mark.parametrize("labels", [False, True])
    def test_targets_beside_the_features_and_in_a_product_of_their_own(self, n_targets: int, labels: bool) -> None:
        rng, n = np.random.default_rng(9), BLOCK_ROWS + 17
        spec = spec_of(3, n_targets, target_format=LABELS if labels else Q("Q3.5"))
        features = rng.uniform(-32, 32, (n, 3)).astype(np.float32)
        targets = rng.integers(0, n_targets, n) if labels else rng.uniform(-8, 8, (n, n_targets))
        assert Statistics.from_rows(spec, features, targets).to_bytes() == oracle(spec, features, targets)

    def test_squares_of_targets_may_leave_int64(self) -> None:
        n = 3 * BLOCK_ROWS
        spec = spec_of(1, 1, "UQ1.0", target_format=Q("UQ26.0"), target_sums=False)
        features, targets = np.ones((n, 1)), np.full((n, 1), 2.0**26 - 1)
        assert n * (2**26 - 1) ** 2 > INT64_MAX
        own = Statistics.from_rows(spec, features, targets)
        assert own.cross.tolist() == [[n * (2**26 - 1)]]
        with pytest.raises(SpecificationError, match="target Gram"):
            replace(spec, target_sums=True)

    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.int64, np.bool_])
    def test_any_real_type(self, kind: type) -> None:
        rng = np.random.default_rng(4)
        features, labels = rng.integers(0, 30, (20, 3)).astype(kind), rng.integers(0, 2, 20).astype(np.uint8)
        assert Statistics.from_rows(spec_of(), features, labels).to_bytes() == oracle(
            spec_of(), features.astype(np.float64), labels
        )

    def test_memory_order_does_not_matter(self) -> None:
        rng, spec = np.random.default_rng(5), spec_of(6, 2)
        features, labels = rng.uniform(-32, 32, (500, 6)), rng.integers(0, 2, 500)
        expected = Statistics.from_rows(spec, features, labels).to_bytes()
        wide = np.zeros((1000, 12))
        wide[::2, ::2] = features
        for same in (np.asfortranarray(features), wide[::2, ::2], features[::-1]):
            other = labels[::-1] if same.base is features else labels
            assert Statistics.from_rows(spec, same, other).to_bytes() == expected

    def test_clips_features_and_targets_when_asked(self) -> None:
        spec = spec_of(1, 1, "Q1.2", target_format=Q("UQ1.1"))
        clipped = Statistics.from_rows(spec, np.array([[9.0]]), np.array([[-9.0]]), clip=True)
        assert (clipped.gram[0, 0], clipped.cross[0, 0]) == (49, 0)


class TestPartsAndBatches:
    @examples(4)
    @given(problems(), st.lists(st.integers(0, 90), max_size=8))
    def test_whole_batches_and_parts_agree(
        self, problem: tuple[StatisticsSpec, NDArray[Any], NDArray[Any]], cuts: list[int]
    ) -> None:
        spec, features, targets = problem
        x, y = np.split(features, sorted(cuts)), np.split(targets, sorted(cuts))
        whole = Statistics.from_rows(spec, features, targets).to_bytes()
        assert Statistics.from_batches(spec, iter(zip(x, y, strict=True))).to_bytes() == whole
        total = no_rows(spec)
        for part in zip(reversed(x), reversed(y), strict=True):
            total += Statistics.from_rows(spec, *part)
        assert total.to_bytes() == whole

    def test_no_batches_and_empty_batches_are_zero(self) -> None:
        spec = spec_of()
        zero = spec.from_vector(np.zeros(sum(size for _, size, _ in spec.segments), dtype=np.int64)).to_bytes()
        assert Statistics.from_batches(spec, iter(())).to_bytes() == zero
        for nothing in (np.zeros(0, dtype=int), np.zeros(0), np.zeros((0, 2))):
            assert Statistics.from_rows(spec, np.zeros((0, 3)), nothing).to_bytes() == zero

    def test_memory_does_not_grow_with_the_rows(self) -> None:
        spec = spec_of(32, 5, max_rows=10**6)

        def batches(n: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            for _ in range(n):
                yield np.ones((1500, 32)), np.zeros(1500, dtype=int)

        def peak(n: int) -> int:
            tracemalloc.start()
            Statistics.from_batches(spec, batches(n))
            top = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            return top

        peak(1)  # caches fill once
        few, many = peak(4), peak(100)
        one_batch = 1500 * 32 * 8
        assert many < few + one_batch / 2  # 96 more batches may not leave even half of one behind


class TestVectors:
    def test_upper_triangle_by_rows_then_cross_then_targets_then_count(self) -> None:
        spec = spec_of(3, 2, "Q5.0")
        vector = spec.to_vector(Statistics.from_rows(spec, np.array([[1, 2, 3], [4, 5, 6]]), np.array([1, 0])))
        assert vector.tolist() == [17, 22, 27, 29, 36, 45, 4, 1, 5, 2, 6, 3, 1, 1, 2]
        real = replace(spec, target_format=Q("Q26.0"), max_rows=1000)
        y = np.array([[-(2**26) + 1, 3], [2, -1]])
        own = Statistics.from_rows(real, np.array([[1, 2, 3], [4, 5, 6]]), y)
        assert real.to_vector(own)[12:].tolist() == [*y.sum(axis=0), y[:, 0] @ y[:, 0], y[:, 0] @ y[:, 1], 10, 2]
        assert own.target_squares == ((2**26 - 1) ** 2 + 4, 10)
        assert real.from_vector(real.to_vector(own)).to_bytes() == own.to_bytes()
        without = replace(spec, target_sums=False)
        bare = Statistics.from_rows(without, np.array([[1, 2, 3], [4, 5, 6]]), np.array([1, 0]))
        assert without.to_vector(bare).tolist() == [17, 22, 27, 29, 36, 45, 4, 1, 5, 2, 6, 3, 2]
        assert bare.target_squares is None
        with pytest.raises(InvalidRowsError, match="same sums of targets"):
            spec.to_vector(bare)

    @pytest.mark.parametrize(("features", "targets"), [("Q5.11", "UQ1.0"), ("UQ13.13", "Q20.6"), ("UQ0.1", "UQ0.1")])
    def test_bounds_are_reached(self, features: str, targets: str) -> None:
        n = 7
        spec = spec_of(2, 1, features, target_format=Q(targets), max_rows=n, diagonal_allowance=5)
        top = [np.ldexp(float(q.magnitude), -q.fraction_bits) for q in (spec.feature_format, spec.target_format)]
        largest = Statistics.from_rows(spec, np.full((n, 2), top[0]), np.full((n, 1), top[1])).with_diagonal(5)
        vector = spec.to_vector(largest)
        assert [vector[0], vector[3], vector[-1]] == [spec.gram_bound, spec.cross_bound, n]

    def test_refuses_statistics_of_another_specification(self) -> None:
        with pytest.raises(InvalidRowsError, match="3 features and 2 targets"):
            spec_of().to_vector(no_rows(spec_of(3, 3)))
        part = Statistics.from_rows(spec_of(), np.zeros((6000, 3)), np.zeros(6000, dtype=int))
        with pytest.raises(InvalidRowsError, match="12000 rows are more than the 10000"):
            spec_of().to_vector(part + part)

    def test_does_not_share_memory_with_the_vector(self) -> None:
        vector = np.ones(15, dtype=np.int64)
        statistics = spec_of().from_vector(vector)
        before = statistics.to_bytes()
        vector[:] = 0
        assert statistics.to_bytes() == before


class TestValues:
    def test_read_only(self) -> None:
        zero = no_rows(spec_of())
        for array in (zero.gram, zero.cross):
            with pytest.raises(ValueError, match="read-only"):
                array[0, 0] = 1

    def test_diagonal_is_added_and_taken_off_exactly(self) -> None:
        rows = Statistics.from_rows(spec_of(), np.ones((5, 3)), np.zeros(5, dtype=int))
        there = rows.with_diagonal(2**62)
        assert (there.gram - rows.gram).tolist() == (2**62 * np.eye(3, dtype=np.int64)).tolist()
        assert there.with_diagonal(-(2**62)).to_bytes() == rows.to_bytes()

    def test_only_one_shape_adds_up(self) -> None:
        with pytest.raises(InvalidRowsError, match="one shape"):
            _ = no_rows(spec_of()) + no_rows(spec_of(4))
        with pytest.raises(InvalidRowsError, match="one shape"):
            _ = no_rows(spec_of()) + no_rows(spec_of(3, 1))

    def test_refuses_other_types_and_shapes(self) -> None:
        square, cross = np.zeros((2, 2), dtype=np.int64), np.zeros((2, 1), dtype=np.int64)
        with pytest.raises(InvalidRowsError, match="int64, not float64"):
            Statistics(gram=np.zeros((2, 2)), cross=cross, count=0)  # type: ignore[arg-type]
        with pytest.raises(InvalidRowsError, match="square"):
            Statistics(gram=square[:1], cross=cross, count=0)
        with pytest.raises(InvalidRowsError, match="as many rows"):
            Statistics(gram=square, cross=cross[:1], count=0)


class TestBadInput:
    @pytest.mark.parametrize(
        ("features", "targets", "message"),
        [
            (np.zeros(3), np.zeros(3, dtype=int), r"shape \(n, 3\)"),
            (np.zeros((4, 3, 1)), np.zeros(4, dtype=int), r"shape \(n, 3\)"),
            (np.zeros((4, 3)), np.zeros(5, dtype=int), "as many targets"),
            (np.zeros((4, 3)), np.array(1), "as many targets"),
            (np.zeros((0, 4)), np.zeros(0, dtype=int), r"shape \(n, 3\)"),
            (np.zeros((4, 3)), np.zeros((4, 2, 1)), r"targets must have shape \(n, 2\)"),
            (np.zeros((4, 3)), np.array([0, 1, 2**63, 0], dtype=np.uint64), "1 of 4 labels"),
            (np.zeros((4, 3)), np.array(["a"] * 4), "must be integers"),
        ],
    )
    def test_says_what_was_needed(self, features: NDArray[Any], targets: NDArray[Any], message: str) -> None:
        with pytest.raises(InvalidRowsError, match=message):
            Statistics.from_rows(spec_of(), features, targets)

    def test_labels_of_all_batches_count_toward_the_largest_number_of_rows(self) -> None:
        batch = (np.zeros((6000, 3)), np.zeros(6000, dtype=int))
        with pytest.raises(InvalidRowsError, match="12000 rows are more than the 10000"):
            Statistics.from_batches(spec_of(), [batch, batch])

    def test_labels_do_not_pass_for_real_targets(self) -> None:
        spec = spec_of(3, 2, target_format=Q("Q5.11"))
        with pytest.raises(InvalidRowsError, match=r"targets in Q5\.11 must have shape \(n, 2\).*LABELS"):
            Statistics.from_rows(spec, np.zeros((4, 3)), np.zeros(4, dtype=int))

    @pytest.mark.parametrize("clip", [False, True])
    @pytest.mark.parametrize("c", [2, APPENDED_TARGETS + 1])
    def test_soft_labels_are_refused_where_they_would_be_cut_to_nothing(self, c: int, clip: bool) -> None:
        targets = np.zeros((2 * BLOCK_ROWS, c))
        targets[[0, -1], :2] = 0.9, 0.1
        features = np.zeros((len(targets), 3))
        with pytest.raises(InvalidRowsError, match=f"2 of {2 * BLOCK_ROWS} rows have a fraction.*fraction bits"):
            Statistics.from_rows(spec_of(3, c), features, targets, clip=clip)
        Statistics.from_rows(spec_of(3, c, target_format=Q("Q1.15")), features, targets)
        for hard in (targets.round(), targets.round().astype(bool), targets.round().astype(np.int8)):
            Statistics.from_rows(spec_of(3, c), features, hard)

    def test_masked_targets_are_refused(self) -> None:
        for targets in (np.ma.masked_array(np.zeros(4, dtype=int)), np.ma.masked_array(np.zeros((4, 2)))):
            with pytest.raises(InvalidRowsError, match="a masked one"):
                Statistics.from_rows(spec_of(), np.zeros((4, 3)), targets)

    def test_counts_the_bad_rows_of_all_blocks(self) -> None:
        features = np.zeros((3 * BLOCK_ROWS, 3))
        features[::BLOCK_ROWS] = 99.0
        features[-1] = np.nan
        with pytest.raises(RowsOutsideFormatError, match=f"4 of {3 * BLOCK_ROWS} rows") as caught:
            Statistics.from_rows(spec_of(), features, np.zeros(len(features), dtype=int))
        assert (caught.value.n_rows, caught.value.largest) == (4, 99.0)

    def test_counts_the_targets_outside_their_format(self) -> None:
        targets = np.zeros((2 * BLOCK_ROWS, 2))
        targets[[0, -1], 1] = 2.0, 3.0
        with pytest.raises(RowsOutsideFormatError, match=rf"2 of {2 * BLOCK_ROWS} rows do not fit UQ1\.0") as caught:
            Statistics.from_rows(spec_of(), np.zeros((2 * BLOCK_ROWS, 3)), targets)
        assert caught.value.largest == 3.0

    @pytest.mark.parametrize(
        "changes", [{"d": 0}, {"c": 0}, {"max_rows": 0}, {"max_rows": -1}, {"diagonal_allowance": -1}]
    )
    def test_refuses_an_empty_specification(self, changes: dict[str, int]) -> None:
        with pytest.raises(SpecificationError, match="at least one feature, target and row"):
            spec_of(**changes)

    def test_refuses_totals_that_int64_cannot_hold_and_takes_the_last_that_fit(self) -> None:
        magnitude = Q("Q13.13").magnitude
        last = INT64_MAX // magnitude**2
        for changes in ({"max_rows": last}, {"max_rows": 1, "diagonal_allowance": INT64_MAX - magnitude**2}):
            assert spec_of(features="Q13.13", **changes).gram_bound <= INT64_MAX
        with pytest.raises(SpecificationError, match=r"Gram total of .* can reach 2\^63"):
            spec_of(features="Q13.13", max_rows=last + 1)
        with pytest.raises(SpecificationError, match="Gram total"):
            spec_of(features="Q13.13", max_rows=1, diagonal_allowance=INT64_MAX)
        with pytest.raises(SpecificationError, match="cross-correlation total"):
            spec_of(features="Q1.0", target_format=Q("Q13.13"), max_rows=2**38)

    def test_numpy_integers_do_not_wrap_in_the_proof(self) -> None:
        """In int64 the bound of 2^39 rows of 26 bits wraps to a small number, and the proof would pass."""
        with pytest.raises(SpecificationError, match="Gram total of 549755813888 rows"):
            spec_of(features="Q13.13", max_rows=np.int64(2**39))
        spec = spec_of(np.int32(3), np.uint8(2), max_rows=np.int16(100), diagonal_allowance=np.int8(7))
        assert spec == spec_of(3, 2, max_rows=100, diagonal_allowance=7)
        assert {type(value) for value in (spec.n_features, spec.n_targets, spec.max_rows)} == {int}

    def test_parameters_are_whole_numbers(self) -> None:
        for changes in ({"d": 3.0}, {"max_rows": 1e4}, {"c": "2"}):
            with pytest.raises(SpecificationError, match=r"must be a whole number, not .*; convert it with int\(\)"):
                spec_of(**changes)

    def test_refuses_so_many_rows_that_their_count_could_wrap(self) -> None:
        assert spec_of(features="UQ1.0", max_rows=2**42).segments[-1] == ("count", 1, 2**62)
        with pytest.raises(SpecificationError, match=r"at most 2\^42"):
            _ = spec_of(features="UQ1.0", max_rows=2**42 + 1).segments


class TestOneHot:
    def test_rows_of_zeros_with_a_one(self) -> None:
        assert one_hot(np.array([2, 0], dtype=np.int8), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
        assert one_hot(np.array([True, False]), 2).tolist() == [[0, 1], [1, 0]]

    @pytest.mark.parametrize("labels", [np.array([0, 3]), np.array([-1]), np.array([0.0])])
    def test_refuses_other_labels(self, labels: NDArray[Any]) -> None:
        with pytest.raises(InvalidRowsError, match="labels"):
            one_hot(labels, 3)


def test_a_cohort_with_too_many_rows_is_refused_however_its_sums_wrap() -> None:
    """Each client is within ``max_rows``; together they are so far beyond that 8-bit entries wrap to small ones."""
    spec = StatisticsSpec(n_features=1, n_targets=1, feature_format=RowFormat.parse("UQ1.0"), max_rows=100)
    count_bound = spec.segments[-1][2]
    one = Statistics.from_rows(spec, np.ones((100, 1)), np.zeros(100, dtype=np.int64))
    for n_clients in (2, 3, 5, 1000):
        total = spec.to_vector(one) * n_clients
        assert total[-1] <= count_bound
        with pytest.raises(InvalidRowsError, match=f"{100 * n_clients} rows is outside 0 to 100"):
            spec.from_vector(total)
