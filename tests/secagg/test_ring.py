"""Ring vectors: what a layout allows goes round trip, sums do not depend on order, and overflow is loud."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from secagg.errors import MalformedMessageError, SumOutOfBoundsError
from secagg.layout import IntVector, Layout
from secagg.ring import RingVector

WIDTHS = range(1, 9)


def largest_bound(wire_bytes: int) -> int:
    """The largest bound whose entries take so many bytes."""
    return 2 ** (8 * wire_bytes - 1) - 1


def smallest_bound(wire_bytes: int) -> int:
    """The smallest one."""
    return 0 if wire_bytes == 1 else 2 ** (8 * (wire_bytes - 1) - 1)


bounds = st.integers(1, 8).flatmap(lambda w: st.integers(smallest_bound(w), largest_bound(w)))
layouts = st.lists(st.tuples(st.integers(1, 9), bounds), min_size=1, max_size=4).map(
    lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes))
)


def entries(bound: int) -> st.SearchStrategy[int]:
    """Values of [-bound, bound], extremes often."""
    return st.one_of(st.sampled_from([-bound, bound, 0, min(1, bound), -min(1, bound)]), st.integers(-bound, bound))


def vectors(layout: Layout, share: int = 1) -> st.SearchStrategy[IntVector]:
    """Vectors that fit a ``share``-th of the layout's bounds."""
    return st.tuples(*(entries(s.bound // share) for s in layout.segments for _ in range(s.size))).map(
        lambda values: np.array(values, dtype=np.int64)
    )


def slow_wire_form(layout: Layout, vector: IntVector) -> bytes:
    """The wire form from Python's integers, entry by entry."""
    return b"".join(
        int(value).to_bytes(segment.wire_bytes, "little", signed=True)
        for segment, place in layout.slices()
        for value in vector[place]
    )


@given(layouts.flatmap(lambda layout: st.tuples(st.just(layout), vectors(layout))))
def test_the_wire_form_is_twos_complement_little_endian(case: tuple[Layout, IntVector]) -> None:
    layout, vector = case
    encoded = RingVector.encode(layout, vector)
    assert encoded.decode().dtype == np.int64
    assert encoded.decode().tobytes() == vector.tobytes()
    wire = encoded.to_bytes()
    assert wire == slow_wire_form(layout, vector)
    assert len(wire) == layout.wire_bytes
    for data in (wire, memoryview(wire), memoryview(b"\0" + wire)[1:]):
        assert RingVector.from_bytes(layout, data).decode().tobytes() == vector.tobytes()


@given(st.data(), layouts)
def test_any_bytes_of_the_right_length_come_back(data: st.DataObject, layout: Layout) -> None:
    wire = data.draw(st.binary(min_size=layout.wire_bytes, max_size=layout.wire_bytes))
    assert RingVector.from_bytes(layout, wire).to_bytes() == wire


@examples(2)
@given(st.data(), layouts, st.integers(1, 7))
def test_sums_depend_on_neither_order_nor_grouping(data: st.DataObject, layout: Layout, n: int) -> None:
    parts = [data.draw(vectors(layout, share=n)) for _ in range(n)]
    exact = [sum(int(part[i]) for part in parts) for i in range(layout.size)]
    order = data.draw(st.permutations(range(n)))
    cut = data.draw(st.integers(0, n))

    def added(indices: list[int]) -> RingVector:
        total = RingVector.zeros(layout)
        for i in indices:
            total.add(RingVector.from_bytes(layout, RingVector.encode(layout, parts[i]).to_bytes()))
        return total

    in_turn = added(list(order))
    in_groups = added(list(order[:cut]))
    in_groups.add(added(list(order[cut:])))
    assert in_turn.decode().tolist() == exact
    assert in_groups.to_bytes() == in_turn.to_bytes() == added(list(range(n))).to_bytes()


@examples(2)
@given(st.data(), layouts)
def test_sums_wrap_on_the_way_and_come_out_right(data: st.DataObject, layout: Layout) -> None:
    """Masks take every intermediate sum anywhere in the ring; only the total must lie within its bound."""
    vector = data.draw(vectors(layout))
    noise = data.draw(st.binary(min_size=layout.wire_bytes, max_size=layout.wire_bytes))
    negative = b"".join(
        (-int.from_bytes(noise[start : start + width], "little") % 256**width).to_bytes(width, "little")
        for width, start in _entry_starts(layout)
    )
    total = RingVector.encode(layout, vector)
    total.add(RingVector.from_bytes(layout, noise))
    total.add(RingVector.from_bytes(layout, negative))
    assert total.decode().tobytes() == vector.tobytes()


def _entry_starts(layout: Layout) -> list[tuple[int, int]]:
    starts, at = [], 0
    for segment in layout.segments:
        for _ in range(segment.size):
            starts.append((segment.wire_bytes, at))
            at += segment.wire_bytes
    return starts


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("sign", [1, -1])
def test_one_beyond_the_bound_is_loud(width: int, sign: int) -> None:
    """For a bound that leaves room in its ring: one step past it is seen on either side."""
    bound = largest_bound(width) - 1
    layout = Layout.of([("first", 2, 3), ("s", 2, bound)])
    total = RingVector.encode(layout, np.array([0, 0, 0, sign * bound], dtype=np.int64))
    total.add(RingVector.encode(layout, np.array([0, 0, 0, sign], dtype=np.int64)))
    with pytest.raises(SumOutOfBoundsError, match="'s': 1 of 2"):
        total.decode()


@pytest.mark.parametrize("width", WIDTHS)
def test_the_ring_element_that_stands_for_nothing_is_loud(width: int) -> None:
    """-2^(8w - 1) has no positive twin, so no bound ever reaches it."""
    layout = Layout.of([("s", 1, largest_bound(width))])
    with pytest.raises(SumOutOfBoundsError):
        RingVector.from_bytes(layout, bytes(width - 1) + b"\x80").decode()


@pytest.mark.parametrize("change", [-1, 1])
@given(layout=layouts)
def test_another_number_of_bytes_is_refused(layout: Layout, change: int) -> None:
    with pytest.raises(MalformedMessageError, match=f"takes {layout.wire_bytes} bytes"):
        RingVector.from_bytes(layout, bytes(layout.wire_bytes + change))


def test_adding_leaves_the_other_vector_alone() -> None:
    layout = Layout.of([("a", 2, 9), ("b", 2, 2**40)])
    one = RingVector.encode(layout, np.array([1, 2, 3, 4], dtype=np.int64))
    other = RingVector.encode(layout, np.array([5, 6, 7, 8], dtype=np.int64))
    before = other.to_bytes()
    one.add(other)
    assert other.to_bytes() == before


def test_encoding_copies() -> None:
    """What a session does to its ring vector never reaches the caller's array."""
    layout = Layout.of([("a", 4, 2**63 - 1)])
    vector = np.array([1, 2, 3, 4], dtype=np.int64)
    encoded = RingVector.encode(layout, vector)
    encoded.add(encoded)
    assert encoded.decode().tolist() == [2, 4, 6, 8]
    assert vector.tolist() == [1, 2, 3, 4]
