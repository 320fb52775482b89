"""Bucketing: what each encoding means, thresholds from histograms, the specified shuffle, and every refusal."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from analytic.bucketing import (
    Bucketing,
    Encoding,
    FixedThresholds,
    Grouping,
    QuantileThresholds,
    public_shuffle,
)
from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError

FINITE = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def thresholds(draw: st.DrawFn, n_thresholds: int) -> NDArray[np.float64]:
    n_features = draw(st.integers(1, 3))
    rows = st.lists(FINITE, min_size=n_thresholds, max_size=n_thresholds, unique=True).map(sorted)
    return np.array([draw(rows) for _ in range(n_features)])


@given(st.data(), st.sampled_from(Encoding), st.integers(2, 6))
def test_digits_are_what_the_encoding_says(data: st.DataObject, encoding: Encoding, n_buckets: int) -> None:
    bucketing = Bucketing(encoding=encoding, n_buckets=n_buckets)
    table = data.draw(thresholds(bucketing.n_thresholds))
    anywhere = st.one_of(FINITE, st.sampled_from(list(table.ravel())))
    features = data.draw(hnp.arrays(np.float64, (data.draw(st.integers(0, 4)), len(table)), elements=anywhere))
    expected = [
        [digit for x, row in zip(line, table, strict=True) for digit in _digits_of(x, row, bucketing)]
        for line in features
    ]
    digits = bucketing.digits(features, table)
    assert digits.shape == (len(features), len(table) * bucketing.digits_per_feature)
    assert digits.tolist() == expected
    assert not digits.size or digits.max() < bucketing.base


def _digits_of(x: float, row: NDArray[np.float64], bucketing: Bucketing) -> list[int]:
    reached = [int(x >= t) for t in row]
    if bucketing.encoding is Encoding.BINARY_OVERLAPPING:
        return reached
    if bucketing.encoding is Encoding.INTEGER:
        return [sum(reached)]
    return [int(number == sum(reached)) for number in range(bucketing.n_buckets)]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_without_a_bucket_are_counted_and_refused(bad: float) -> None:
    features = np.array([[1.0, 2.0], [bad, bad], [bad, 5.0]])
    grid = QuantileThresholds(low=0, high=8, n_bins=4)
    for refuse in (
        lambda: Bucketing(encoding=Encoding.INTEGER, n_buckets=2).digits(features, np.zeros((2, 1))),
        lambda: grid.histograms(features, 2),
    ):
        with pytest.raises(RowsOutsideFormatError, match="2 of 3 rows hold NaN or infinity") as caught:
            refuse()
        assert (caught.value.n_rows, caught.value.largest) == (2, 5.0)


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 40), st.just(2)), elements=st.floats(-2, 10)), st.integers(1, 6))
def test_quantile_thresholds_are_the_first_edges_above_their_share(
    features: NDArray[np.float64], n_thresholds: int
) -> None:
    grid = QuantileThresholds(low=0, high=8, n_bins=16)
    total = grid.histograms(features, 2)
    assert total["histograms"].sum() == 2 * len(features)
    table = grid.table(total, n_thresholds)
    edges = [0.5 * e for e in range(1, 16)]
    for column, found in zip(features.T, table, strict=True):
        free = edges
        for j, threshold in enumerate(found):
            candidates = free[: len(free) - (n_thresholds - 1 - j)]  # leave an edge for each threshold that follows
            enough = [
                e for e in candidates if np.count_nonzero(column < e) * (n_thresholds + 1) >= (j + 1) * len(column)
            ]
            expected = enough[0] if enough else candidates[-1]
            assert threshold == expected
            free = [e for e in edges if e > expected]
        assert (np.diff(found) > 0).all()


def test_histogram_bin_of_a_value_agrees_with_its_bucket() -> None:
    grid = QuantileThresholds(low=0.0, high=0.7, n_bins=7)  # edges that float64 cannot hold exactly
    counts = grid.histograms(grid.edges[:, None], 1)["histograms"][0]
    assert counts.tolist() == [0, 1, 1, 1, 1, 1, 1]


@given(st.integers(0, 2**64 - 1), st.integers(1, 200))
@example(2**64 - 1, 1000)
def test_shuffle_is_the_documented_one(seed: int, n: int) -> None:
    """A second implementation of the docstring, over one long byte string."""
    start = b"analytic.bucketing shuffle v1" + seed.to_bytes(8, "big") + n.to_bytes(4, "big")
    stream = b"".join(hashlib.sha256(start + i.to_bytes(4, "big")).digest() for i in range(n))
    words = iter(np.frombuffer(stream, dtype=">u4").tolist())
    expected = np.arange(n)
    for p in reversed(range(1, n)):
        word = next(words)
        while word >= 2**32 // (p + 1) * (p + 1):
            word = next(words)
        expected[[p, word % (p + 1)]] = expected[[word % (p + 1), p]]
    assert public_shuffle(seed, n) == tuple(expected)


def test_shuffle_known_answer() -> None:
    assert public_shuffle(0, 8) == KNOWN_SHUFFLE
    assert public_shuffle(1, 8) != KNOWN_SHUFFLE


@given(st.integers(2, 5), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99), st.data())
def test_indices_follow_equation_4(base: int, size: int, n_groups: int, seed: int, data: st.DataObject) -> None:
    grouping = Grouping(n_digits=size * n_groups, group_size=size, base=base, seed=seed)
    shape = (data.draw(st.integers(0, 4)), size * n_groups)
    digits = data.draw(hnp.arrays(np.uint16, shape, elements=st.integers(0, base - 1)))
    before = digits.tobytes()
    order = public_shuffle(seed, size * n_groups)
    expected = [
        [sum(int(row[order[j * size + i]]) * base**i for i in range(size)) for j in range(n_groups)] for row in digits
    ]
    assert grouping.indices(digits).tolist() == expected
    assert digits.tobytes() == before
    assert grouping.n_values == base**size


def test_the_largest_index_fits() -> None:
    grouping = Grouping(n_digits=16, group_size=16, base=2, seed=3)
    assert grouping.indices(np.ones((1, 16), dtype=np.uint16)).tolist() == [[2**16 - 1]]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Grouping(n_digits=12, group_size=5, base=2, seed=0), "group size of 1, 2, 3, 4, 6, 12"),
        (lambda: Grouping(n_digits=12, group_size=0, base=2, seed=0), "do not fit into groups of 0"),
        (lambda: Grouping(n_digits=34, group_size=17, base=2, seed=0), "more than 2\\^16 values"),
        (lambda: Grouping(n_digits=4, group_size=2, base=2, seed=2**64), "seed from 0"),
        (lambda: FixedThresholds(values=()), "one row a feature"),
        (lambda: FixedThresholds(values=((1.0, 2.0), (1.0,))), "of the same length"),
        (lambda: FixedThresholds(values=((1.0, 2.0), (3.0, 3.0))), "1 of 2 rows do not, the first is row 1"),
        (lambda: FixedThresholds(values=((2.0, 1.0),)), "ascend strictly"),
        (lambda: FixedThresholds(values=((1.0, float("nan")),)), "finite numbers"),
        (lambda: FixedThresholds.evenly(1.0, 1.0, 3), "cannot cut 1 to 1"),
        (lambda: QuantileThresholds(low=1, high=0), "finite range"),
        (lambda: QuantileThresholds(low=0, high=float("inf")), "finite range"),
        (lambda: QuantileThresholds(low=1.0, high=1.0 + 2**-50, n_bins=1024), "narrower than float64"),
    ],
)
def test_public_parameters_that_contradict_each_other_are_refused(build: Any, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        build()


def test_digits_refuse_thresholds_of_other_buckets() -> None:
    with pytest.raises(InvalidRowsError, match="have 2 thresholds a feature"):
        Bucketing(encoding=Encoding.INTEGER, n_buckets=3).digits(np.zeros((1, 1)), np.zeros((1, 3)))


def test_fixed_thresholds_are_shared_by_all_features() -> None:
    table = FixedThresholds.evenly(0.0, 4.0, 3).table(2, 3)
    assert table.tolist() == [[1.0, 2.0, 3.0]] * 2
    assert not table.flags.writeable


KNOWN_SHUFFLE = (0, 1, 7, 4, 3, 5, 6, 2)
