"""No row is longer than promised, in exact integers, and no pair of neighbours costs more than the formulas say."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analytic.bucketing import Bucketing, Encoding, FixedThresholds
from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.learner import ClientRows
from analytic.noisy_solve import NoisySolver
from analytic.row_format import RowFormat
from analytic.row_map import CountMap, JointClip, RowClip, RowsBeyondBoundError, RowTerms
from analytic.safle import SAFLe
from analytic.sensitivity import (
    ADJACENCIES,
    ClientSensitivity,
    RecordSensitivity,
    noise_levels,
    record_shape,
    scales_for,
)
from analytic.statistics import Statistics, StatisticsSpec

any_float = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-3, 3),
    st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e308, -1e308, 0.6, 0.8]),
)
matrices = arrays(np.float64, st.tuples(st.integers(0, 6), st.integers(1, 5)), elements=any_float)
clips = st.builds(
    lambda bound, bits, normalise, bias: RowClip(
        bound=bound, row_format=RowFormat(integer_bits=2, fraction_bits=bits), normalise=normalise, bias=bias
    ),
    st.one_of(st.floats(0.3, 3.9), st.sampled_from([0.5, 1.0, 2.0])),
    st.integers(3, 20),
    st.booleans(),
    st.one_of(st.just(0.0), st.floats(1e-9, 0.999999)),
)


def integers(rows: np.ndarray, bits: int) -> list[list[int]]:
    """Rows as Python integers, which cannot overflow or round."""
    units = [[Fraction(value) * 2**bits for value in row] for row in rows.tolist()]
    assert all(unit.denominator == 1 for row in units for unit in row), "not on the lattice"
    return [[int(unit) for unit in row] for row in units]


@given(matrices, clips)
def test_no_row_is_longer_than_the_limit(features: np.ndarray, clip: RowClip) -> None:
    clipped = clip.apply(features)
    assert clipped.rows.shape == (len(features), clip.n_features(features.shape[1]))
    for row in integers(clipped.rows, clip.row_format.fraction_bits):
        assert sum(unit * unit for unit in row) <= clip.limit**2
    assert Fraction(clip.limit, 2**clip.row_format.fraction_bits) <= Fraction(clip.bound)


@given(arrays(np.float64, (4, 3), elements=st.floats(-0.5, 0.5)))
def test_rows_inside_only_lose_what_quantising_takes(features: np.ndarray) -> None:
    row_format = RowFormat(integer_bits=1, fraction_bits=12)
    clipped = RowClip(bound=1.0, row_format=row_format).apply(features)
    assert clipped.n_clipped == 0
    assert clipped.rows.tobytes() == row_format.dequantise(row_format.quantise(features)).tobytes()


def test_clipped_rows_are_counted_and_keep_their_direction() -> None:
    features = np.array([[3.0, 4.0], [0.6, 0.8], [0.0, 1.0], [0.6, 0.801], [1e300, 0.0]])
    clipped = RowClip(bound=1.0, row_format=RowFormat(integer_bits=1, fraction_bits=20)).apply(features)
    assert clipped.n_clipped == 3
    assert np.abs(clipped.rows[0] - [0.6, 0.8]).max() < 2.0**-18
    assert clipped.rows[2].tolist() == [0.0, 1.0], "a row on the ball's surface is inside"


def test_rows_beyond_are_refused_when_clipping_is_off() -> None:
    clip = RowClip(bound=1.0, row_format=RowFormat(integer_bits=1, fraction_bits=16), clip=False)
    with pytest.raises(RowsBeyondBoundError, match=r"1 of 2 rows .*clip=True") as caught:
        clip.apply(np.array([[1.0, 0.0], [1.0, 0.25]]))
    assert caught.value.n_rows == 1
    assert clip.apply(np.array([[1.0, 0.0]])).n_clipped == 0


@pytest.mark.parametrize("bias", [1.0, 1.5, -0.1, math.nan])
def test_a_bias_outside_the_ball_is_refused(bias: float) -> None:
    with pytest.raises(SpecificationError, match="inside the ball"):
        RowClip(bound=1.0, row_format=RowFormat(integer_bits=1, fraction_bits=16), bias=bias)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan, 2.0, 1e-9])
def test_bounds_that_do_not_fit_are_refused(bound: float) -> None:
    with pytest.raises(SpecificationError, match="bound"):
        RowClip(bound=bound, row_format=RowFormat(integer_bits=1, fraction_bits=16))


def test_rows_that_are_no_numbers_are_refused() -> None:
    clip = RowClip(bound=1.0, row_format=RowFormat(integer_bits=1, fraction_bits=16, signed=False))
    for bad in (math.nan, math.inf, -0.1):
        with pytest.raises(RowsOutsideFormatError):
            clip.apply(np.array([[bad]]))
    with pytest.raises(InvalidRowsError):
        clip.apply(np.array(["x"]))
    with pytest.raises(InvalidRowsError, match="a masked one"):
        clip.apply(np.ma.masked_array([[0.5, math.nan]], mask=[[False, True]]))


# --- worst pairs ---------------------------------------------------------------------------------------------------


def cost(x: np.ndarray, y: np.ndarray, x2: np.ndarray, y2: np.ndarray, gram: int, cross: int) -> Fraction:
    """The exact zCDP cost of two neighbours: what RecordSensitivity must never be below. Upper triangle, as sent."""
    change = [[int(a) * int(b) - int(c) * int(d) for b, d in zip(x, x2)] for a, c in zip(x, x2)]  # noqa: B905
    other = [[int(a) * int(b) - int(c) * int(d) for b, d in zip(y, y2)] for a, c in zip(x, x2)]  # noqa: B905
    n = len(x)
    total = sum((Fraction(change[i][i] ** 2, 2 * gram) for i in range(n)), Fraction(0))
    total += sum(Fraction(change[i][j] ** 2, gram) for i in range(n) for j in range(i + 1, n))
    return total + sum(Fraction(value**2, 2 * cross) for row in other for value in row)


def rows_within(limit: int, d: int, low: int) -> st.SearchStrategy[np.ndarray]:
    """Integer rows of norm at most ``limit``, the surface and the axes often."""
    free = arrays(np.int64, d, elements=st.integers(low, limit))
    return free.filter(lambda row: int((row**2).sum()) <= limit**2)


@given(st.data(), st.sampled_from(ADJACENCIES), st.booleans(), st.integers(2, 10**6), st.integers(1, 10**4))
def test_random_pairs_never_cost_more(
    data: st.DataObject, adjacency: str, nonnegative: bool, gram: int, cross: int
) -> None:
    limit, gram = 40, 2 * gram
    rows = rows_within(limit, 3, 0 if nonnegative else -limit)
    x, x2 = data.draw(rows), data.draw(rows)
    y, y2 = (np.eye(2, dtype=np.int64)[data.draw(st.integers(0, 1))] for _ in range(2))
    if adjacency == "add-remove":
        x2 = np.zeros_like(x2)
    claim = RecordSensitivity(squared_features=limit**2, adjacency=adjacency, nonnegative=nonnegative)  # type: ignore[arg-type]
    assert cost(x, y, x2, y2, gram, cross) <= claim.rho(gram, cross)


@pytest.mark.parametrize("ratio", [1, 30, 600, 3000, 40000])
@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_search_for_the_worst_replacement_comes_close_and_never_above(ratio: int, nonnegative: bool) -> None:
    """All angles of two rows on the ball's surface, same class: the formula is reached to rounding."""
    limit, gram, cross = 100, 2 * 10**6, 2 * 10**6 // ratio
    claim = RecordSensitivity(squared_features=limit**2, adjacency="replace-one", nonnegative=nonnegative).rho(
        gram, cross
    )
    y = np.array([1, 0])
    x = np.array([limit, 0])
    found = Fraction(0)
    for angle, classes in itertools.product(
        np.linspace(0, np.pi / (2 if nonnegative else 1), 721), (y, np.array([0, 1]))
    ):
        x2 = np.trunc(limit * np.array([np.cos(angle), np.sin(angle)]) * (1 - 1e-12)).astype(np.int64)
        found = max(found, cost(x, y, x2, classes, gram, cross))
    assert found <= claim
    assert found >= claim * Fraction(97, 100)


@pytest.mark.parametrize(("encoding", "n_buckets", "group_size"), [("binary-overlapping", 3, 2), ("integer", 4, 1)])
def test_every_row_of_counts_costs_what_is_said_and_a_replaced_one_no_more(
    encoding: str, n_buckets: int, group_size: int
) -> None:
    """E ones a row: each lone row attains the price of add-remove, and one that differs in every group that of both."""
    n_thresholds = Bucketing(encoding=Encoding(encoding), n_buckets=n_buckets).n_thresholds
    exact = SAFLe(
        n_features=4,
        n_classes=3,
        max_rows=9,
        thresholds=FixedThresholds.evenly(-1.0, 1.0, n_thresholds),
        encoding=Encoding(encoding),
        n_buckets=n_buckets,
        group_size=group_size,
    )
    learner, rng, variances = exact.bounded(RowTerms()), np.random.default_rng(1), (400, 200, 30)
    of = {own: learner.bounded_sums("record", own)[0] for own in ADJACENCIES}

    def price(change: np.ndarray) -> Fraction:
        levels = of["add-remove"].levels
        assert not change[levels == 0].any()
        return sum(
            (Fraction(int(v) ** 2, 2 * variances[at - 1]) for v, at in zip(change, levels, strict=True) if at),
            Fraction(0),
        )

    def vector(row: np.ndarray, label: int) -> np.ndarray:
        own = ClientRows(row[None], np.array([label]))
        return learner.spec.to_vector(learner.client_statistics(learner.init(), own))

    claimed = {
        own: cast("RecordSensitivity", of[own].sensitivity).rho(variances[0], variances[2]) for own in ADJACENCIES
    }
    lowest, highest = vector(np.full(4, -5.0), 0), vector(np.full(4, 5.0), 1)
    assert price(lowest - highest) == claimed["replace-one"] == 2 * claimed["add-remove"]
    for _ in range(60):
        one, other = (vector(rng.normal(size=4), int(rng.integers(3))) for _ in range(2))
        assert price(one) == claimed["add-remove"]
        assert price(one - other) <= claimed["replace-one"]
    for refused in (
        lambda: learner.bounded_sums("client", "add-remove"),
        lambda: exact.bounded_sums("record", "add-remove"),
    ):
        with pytest.raises(SpecificationError, match="is by record only"):
            refused()
    with pytest.raises(SpecificationError, match="needs the map of the private form"):
        replace(exact, solver=NoisySolver(sigma=1.0))
    with pytest.raises(SpecificationError, match="a lattice of 0 to 12 fraction bits, not 13"):
        CountMap(fraction_bits=13)


def test_the_known_values_and_the_common_mistake() -> None:
    """B = w = 1: Delta = sqrt 2 for add-remove, 2.1213 for replace-one; sqrt 2 times the first would be 2.0."""
    limit, gram = 2**16, 2 * 2**60
    cross = gram // limit**2

    def delta(**how: object) -> float:
        rho = RecordSensitivity(squared_features=limit**2, **how).rho(gram, cross)  # type: ignore[arg-type]
        return math.sqrt(2 * rho * gram) / limit**2

    assert delta() == pytest.approx(math.sqrt(2))
    assert delta(adjacency="replace-one") == pytest.approx(math.sqrt(4.5))
    assert delta(adjacency="replace-one", nonnegative=True) == pytest.approx(2.0)


@given(st.integers(3, 2**20), st.floats(1e-4, 2), st.floats(0.01, 0.99), st.sampled_from(ADJACENCIES))
def test_scales_keep_their_budget_and_use_it(limit: int, rho: float, share: float, adjacency: str) -> None:
    sensitivity = RecordSensitivity(squared_features=limit**2, adjacency=adjacency)  # type: ignore[arg-type]
    scales = sensitivity.scales(Fraction(rho), gram_share=share)
    gram, off_diagonal, cross = scales.variances
    assert scales.rho == sensitivity.rho(gram, cross) <= Fraction(rho)
    assert gram == 2 * off_diagonal
    if limit > 1000:
        assert scales.rho > Fraction(rho) * Fraction(99, 100)
        if adjacency == "add-remove":
            assert limit**4 / (2 * gram) / rho == pytest.approx(share, rel=0.02)


def test_levels_are_where_the_vector_has_its_entries() -> None:
    spec = StatisticsSpec(
        n_features=4,
        n_targets=3,
        feature_format=RowFormat(integer_bits=1, fraction_bits=3),
        max_rows=9,
        target_sums=False,
    )
    marked = Statistics(
        gram=np.where(np.eye(4, dtype=bool), 1, 2).astype(np.int64), cross=np.full((4, 3), 3, dtype=np.int64), count=0
    )
    assert noise_levels(spec).tolist() == spec.to_vector(marked).tolist()
    with pytest.raises(SpecificationError, match="target_sums=False"):
        noise_levels(replace(spec, target_sums=True))


# --- clients -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**9), st.integers(1, 10**6), st.integers(0, 2**32), st.integers(0, 55))
def test_a_joint_clip_holds_in_exact_integers(limit: int, weight: int, seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    half = rng.integers(-(2**bits), 2**bits, (3, 3), endpoint=True)
    own = Statistics(gram=half + half.T, cross=rng.integers(-(2**bits), 2**bits, (3, 2), endpoint=True), count=5)
    clip = JointClip(limit=limit, cross_weight=weight)
    clipped, was = clip.apply(own)
    assert clip.squared_norm(clipped) <= limit**2
    assert was == (clip.squared_norm(own) > limit**2)
    if not was:
        assert clipped is own
    assert (np.abs(clipped.gram) <= np.abs(own.gram)).all()


@given(st.integers(0, 2**32), st.sampled_from(ADJACENCIES))
def test_clients_never_cost_more_than_their_bound(seed: int, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    clip = JointClip(limit=1000, cross_weight=7)

    def contribution() -> Statistics:
        half = rng.integers(-(10**6), 10**6, (3, 3))
        sign = rng.choice([-1, 1])
        gram, cross = (half + half.T) * rng.integers(0, 2), rng.integers(-(10**6), 10**6, (3, 2))
        return clip.apply(Statistics(gram=sign * gram, cross=sign * cross, count=0))[0]

    one, other = contribution(), contribution()
    if adjacency == "add-remove":
        other = Statistics(gram=0 * one.gram, cross=0 * one.cross, count=0)
    gram, cross = 2 * 10**5, 2 * 10**5 // 49 + 3
    change, moved = one.gram - other.gram, one.cross - other.cross
    real = Fraction(int((change**2).sum()), 2 * gram) + Fraction(int((moved**2).sum()), 2 * cross)
    assert real <= ClientSensitivity(clip=clip, adjacency=adjacency).rho(gram, cross)  # type: ignore[arg-type]


def test_numpy_integers_do_not_wrap_in_what_a_release_costs() -> None:
    """L^4 of a norm of 2^16 is 0 in int64: such a release would seem to cost next to nothing."""
    by_norm = RecordSensitivity(squared_features=np.int64(2**32), squared_targets=np.int64(1))  # type: ignore[arg-type]
    assert by_norm.rho(2, 2) == Fraction(2**64 + 2**32, 4)
    clip = JointClip(limit=np.int64(2**32), cross_weight=np.int64(1))  # type: ignore[arg-type]
    assert ClientSensitivity(clip=clip).rho(2, 2) == 2**62


def test_bad_parameters_are_refused() -> None:
    for make in (
        lambda: RecordSensitivity(squared_features=0),
        lambda: RecordSensitivity(squared_features=25, adjacency="swap"),  # type: ignore[arg-type]
        lambda: ClientSensitivity(clip=JointClip(limit=5, cross_weight=1), adjacency="x"),  # type: ignore[arg-type]
        lambda: JointClip(limit=0, cross_weight=1),
        lambda: record_shape(100, 1, 1.0),
        lambda: scales_for(RecordSensitivity(squared_features=25), Fraction(0), cross_to_gram=Fraction(1)),
    ):
        with pytest.raises(SpecificationError):
            make()
