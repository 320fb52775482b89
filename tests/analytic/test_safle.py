"""SAFLe: counts without a one-hot matrix, the minimum-norm solve, and equality with the pooled model by bytes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.examples import examples

from analytic import counts as counts_module
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.counts import HISTOGRAM_VALUES, Counts, CountSpec
from analytic.errors import InvalidRowsError, SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.row_map import RowTerms
from analytic.safle import SAFLe, solve_counts
from analytic_secagg.federation import Step

QUANTILES = QuantileThresholds(low=0.0, high=4.0, n_bins=32)


def one_hot_rows(indices: NDArray[Any], n_values: int) -> NDArray[np.float64]:
    return np.concatenate([np.eye(n_values)[column] for column in indices.T], axis=1)


def all_cells(spec: CountSpec) -> NDArray[np.intp]:
    return np.arange(spec.n_cells)


@st.composite
def indexed_rows(draw: st.DrawFn, max_values: int = 20) -> tuple[CountSpec, NDArray[np.uint16], NDArray[np.int64]]:
    n, n_values = draw(st.integers(0, 40)), draw(st.integers(2, max_values))
    spec = CountSpec(n_groups=draw(st.integers(1, 6)), n_values=n_values, n_classes=3, max_rows=50)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    return spec, rng.integers(0, n_values, (n, spec.n_groups), dtype=np.uint16), rng.integers(0, 3, n)


@given(indexed_rows(), st.integers(1, 40))
def test_counts_are_the_products_of_the_one_hot_rows(rows: Any, block: int) -> None:
    spec, indices, labels = rows
    blocks = [(indices[i : i + block], labels[i : i + block]) for i in range(0, len(indices), block)]
    counts = Counts.from_blocks(spec, blocks)
    phi = one_hot_rows(indices, spec.n_values)
    assert np.array_equal(counts.gram(all_cells(spec)), phi.T @ phi)
    assert np.array_equal(counts.cross, phi.T @ np.eye(3)[labels])
    assert np.array_equal(counts.diagonal, phi.sum(axis=0))
    assert counts.count == len(indices)
    assert spec.to_vector(counts)[: -1 - 3 * spec.n_cells].tobytes() == (
        (phi.T @ phi)[np.triu_indices(spec.n_cells)].astype(np.int64).tobytes()
    )


@pytest.mark.parametrize("n_values", [2, 3, 8, 16])
def test_histograms_and_products_agree(n_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way at sizes with several strips, and with sums that must move out of float32 on the way."""
    rng = np.random.default_rng(n_values)
    indices = rng.integers(0, n_values, (300, 700 // n_values), dtype=np.uint16)
    labels = rng.integers(0, 2, 300)
    spec = CountSpec(n_groups=indices.shape[1], n_values=n_values, n_classes=2, max_rows=300)
    blocks = [(indices[i : i + 70], labels[i : i + 70]) for i in range(0, 300, 70)]
    found = []
    for limit, exact in ((1, 2**24), (10**6, 2**24), (10**6, 150)):
        monkeypatch.setattr(counts_module, "HISTOGRAM_VALUES", limit)
        monkeypatch.setattr(counts_module, "EXACT_FLOAT32", exact)
        found.append(Counts.from_blocks(spec, blocks).to_bytes())
    assert found[0] == found[1] == found[2]


def test_one_block_may_hold_more_rows_than_float32_counts() -> None:
    """2^24 + 1 is the first count that float32 does not have."""
    spec = CountSpec(n_groups=1, n_values=2, n_classes=1, max_rows=2**25)
    n = 2**24 + 1
    counts = Counts.from_blocks(spec, [(np.ones((n, 1), dtype=np.uint16), np.zeros(n, dtype=np.uint8))])
    assert counts.gram(all_cells(spec)).tolist() == [[0, 0], [0, n]]


@examples(4)
@given(indexed_rows(max_values=6), st.integers(-5, 5))
def test_counts_add_up_and_the_diagonal_comes_off_again(rows: Any, units: int) -> None:
    spec, indices, labels = rows
    whole = Counts.from_blocks(spec, [(indices, labels)])
    cut = len(indices) // 3
    parts = [Counts.from_blocks(spec, [(indices[p], labels[p])]) for p in (slice(0, cut), slice(cut, None))]
    assert (parts[0] + parts[1]).to_bytes() == whole.to_bytes()
    shifted = whole.with_diagonal(units)
    assert np.array_equal(shifted.gram(all_cells(spec)), whole.gram(all_cells(spec)) + units * np.eye(spec.n_cells))


@examples(4)
@given(indexed_rows(max_values=5), st.sampled_from([0.0, 0.25, 3.0]))
def test_the_solve_is_the_pseudo_inverse_or_ridge_solution(rows: Any, ridge: float) -> None:
    spec, indices, labels = rows
    phi, goals = one_hot_rows(indices, spec.n_values), np.eye(3)[labels]
    solution = solve_counts(Counts.from_blocks(spec, [(indices, labels)]), spec, ridge=ridge)
    gram = phi.T @ phi
    exact = (
        np.linalg.pinv(gram, rcond=1e-11, hermitian=True)
        if ridge == 0
        else np.linalg.inv(gram + ridge * np.eye(spec.n_cells))
    )
    # Non-zero eigenvalues of so small a Gram are above 1e-4 and below 240: 1e-8 leaves room for their ratio squared.
    assert np.abs(solution.weights - exact @ (phi.T @ goals)).max(initial=0.0) < 1e-8
    if ridge == 0:
        assert solution.rank == (np.linalg.matrix_rank(phi) if len(phi) else 0)


def small_learner(encoding: Encoding, thresholds: str) -> SAFLe:
    n_thresholds = 4 if encoding is Encoding.BINARY_OVERLAPPING else 3
    fixed = FixedThresholds.evenly(0.0, 4.0, n_thresholds)
    return SAFLe(
        n_features=4,
        n_classes=3,
        max_rows=60,
        thresholds=QUANTILES if thresholds == "quantile" else fixed,
        encoding=encoding,
        n_buckets=4,
        group_size=2,
    )


def some_rows(n: int, seed: int) -> ClientRows:
    rng = np.random.default_rng(seed)
    return ClientRows(rng.gamma(2.0, 0.7, (n, 4)), rng.integers(0, 3, n))


def test_a_row_scores_the_same_in_every_batch() -> None:
    learner, rows = small_learner(Encoding.BINARY_OVERLAPPING, "quantile"), some_rows(60, 1)
    model = fit_pooled(learner, rows)
    many = np.tile(rows.features, (80, 1))  # more than one block of rows
    scores = learner.decision_function(model, many)
    assert scores[-60:].tobytes() == learner.decision_function(model, rows.features).tobytes()
    assert scores[:1].tobytes() == learner.decision_function(model, rows.features[:1]).tobytes()


@pytest.mark.parametrize("encoding", Encoding)
def test_blocks_of_rows_leave_no_trace(encoding: Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, rows = small_learner(encoding, "quantile"), some_rows(60, 2)
    whole = learner.weights_bytes(fit_pooled(learner, rows))
    monkeypatch.setattr(counts_module, "HISTOGRAM_ROWS", 7)
    monkeypatch.setattr(counts_module, "PRODUCT_ROWS", 7)
    assert learner.weights_bytes(fit_pooled(learner, rows)) == whole


def test_bounds_fit_17_bits_and_are_reached() -> None:
    assert {
        bound.bit_length() + 1
        for _, _, bound in CountSpec(n_groups=2, n_values=2, n_classes=2, max_rows=60_000).segments[:-1]
    } == {17}
    spec = CountSpec(n_groups=2, n_values=2, n_classes=2, max_rows=5, diagonal_allowance=9)
    full = Counts.from_blocks(spec, [(np.ones((5, 2), dtype=np.uint16), np.ones(5, dtype=np.uint8))]).with_diagonal(9)
    bounds = np.concatenate([np.full(size, bound) for _, size, bound in spec.segments])
    vector = spec.to_vector(full)
    assert (np.abs(vector) <= bounds).all()
    start = 0
    for _, size, bound in spec.segments[:-1]:
        assert vector[start : start + size].max() == bound
        start += size


def test_a_bounded_sum_counts_rows_as_rows_and_solves_in_their_units() -> None:
    """The lattice is the entries', not the rows': limits and weights are what they are without it."""
    exact = replace(small_learner(Encoding.ONE_HOT, "fixed"), max_rows=30, ridge=0.5)
    learner = exact.bounded(RowTerms(fraction_bits=5))
    names, sizes, bounds = zip(*learner.spec.segments, strict=True)
    assert (names, sizes) == tuple(zip(*((name, size) for name, size, _ in exact.spec.segments), strict=True))
    assert bounds[:2] == (30 << 10, 30 << 5)
    assert learner.spec.client_bounds(20) == (20 << 10, 20 << 5, 20)
    too_many = some_rows(31, 1)
    with pytest.raises(InvalidRowsError, match="31 rows"):
        learner.client_statistics(learner.init(), too_many)
    given = some_rows(30, 1)
    sent = learner.client_statistics(learner.init(), given)
    step = Step.of(learner, learner.init(), max_client_rows=30)
    assert step is not None
    assert step.vector(given).tobytes() == sent.to_bytes()
    weights = learner.update(learner.init(), sent, 1).weights
    assert weights.tobytes() == fit_pooled(exact, given).weights.tobytes()
    noisy = Counts(n_cells=sent.n_cells, vector=sent.vector + 1)
    with pytest.raises(InvalidRowsError, match=r"holds noise.* take the learner of PrivacyPlan"):
        learner.update(learner.init(), noisy, 1)
    with pytest.raises(SpecificationError, match="5 rows on a lattice of 31 fraction bits"):
        CountSpec(n_groups=2, n_values=2, n_classes=2, max_rows=5, fraction_bits=31)


def test_totals_of_another_shape_are_refused() -> None:
    spec = CountSpec(n_groups=2, n_values=2, n_classes=2, max_rows=5)
    other = CountSpec(n_groups=1, n_values=2, n_classes=2, max_rows=5)
    mine, theirs = (Counts.from_blocks(s, []) for s in (spec, other))
    with pytest.raises(InvalidRowsError, match="2 groups of 2 values"):
        spec.to_vector(theirs)
    with pytest.raises(InvalidRowsError, match="of one shape"):
        _ = mine + theirs
    with pytest.raises(InvalidRowsError, match="below 2; one is 2"):
        Counts.from_blocks(other, [(np.array([[2]], dtype=np.uint16), np.array([0]))])
    with pytest.raises(InvalidRowsError, match="a label each"):
        Counts.from_blocks(other, [(np.array([[1]], dtype=np.uint16), np.array([0, 1]))])
    fixed = small_learner(Encoding.ONE_HOT, "fixed")
    with pytest.raises(SpecificationError, match="fixed thresholds need no histograms"):
        fixed.update(fixed.init(), small_histograms(), 1)


def small_histograms() -> Any:
    learner = small_learner(Encoding.ONE_HOT, "quantile")
    return learner.client_statistics(learner.init(), some_rows(3, 0))


def random_blocks(spec: CountSpec, n: int, step: int) -> Any:
    rng = np.random.default_rng(0)
    for _ in range(0, n, step):
        yield rng.integers(0, spec.n_values, (step, spec.n_groups), dtype=np.uint16), rng.integers(0, 10, step)


@pytest.mark.parametrize("n_values", [4, 32])
def test_memory_stays_near_one_gram(n_values: int) -> None:
    """Eight blocks of rows, with D = 2048: less than one int64 Gram (32 MiB) and one block's columns at a time.

    The one-hot matrix of all rows would be eight times those columns.
    """
    spec = CountSpec(n_groups=2048 // n_values, n_values=n_values, n_classes=10, max_rows=8192)
    square = 8 * spec.n_cells**2
    block = 1024 * spec.n_cells * (4 + 1) if n_values < HISTOGRAM_VALUES else 1024 * spec.n_groups * 8
    tracemalloc.start()
    try:
        Counts.from_blocks(spec, random_blocks(spec, 8192, 1024))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < square + block
