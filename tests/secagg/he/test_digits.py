"""Digits add up to the total, within the bounds that the plan states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from secagg.encryption.digits import DigitPlan, SegmentDigits
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.layout import Layout, Segment
from secagg.ring import RingVector

bounds = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1), st.sampled_from([2**63 - 1, 2**62, 2**31 - 1]))
layouts = st.lists(st.tuples(st.integers(1, 5), bounds), min_size=1, max_size=3).map(
    lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes))
)


def plan_of(layout: Layout, n_clients: int, slot_bits: int, *, masked: bool) -> DigitPlan:
    """A plan for slots of a given width."""
    bound = 1 << slot_bits
    return DigitPlan(layout=layout, n_clients=n_clients, slot_bound=bound, slot_load=bound * n_clients, masked=masked)


def random_words(data: st.DataObject, layout: Layout) -> RingVector:
    """Any wire bytes at all, extremes often."""
    size = layout.wire_bytes
    raw = data.draw(st.one_of(st.binary(min_size=size, max_size=size), st.sampled_from([b"\xff", b"\0", b"\x80"])))
    return RingVector.from_bytes(layout, raw * (size if len(raw) == 1 and size > 1 else 1))


@examples(2)
@given(data=st.data(), layout=layouts, slot_bits=st.integers(8, 62), n_clients=st.integers(1, 8))
def test_masked_words_come_back_modulo_the_ring(
    data: st.DataObject, layout: Layout, slot_bits: int, n_clients: int
) -> None:
    plan = plan_of(layout, n_clients, slot_bits, masked=True)
    vectors = [random_words(data, layout) for _ in range(n_clients)]
    total, digits = RingVector.zeros(layout), np.zeros(plan.n_slots, dtype=np.int64)
    for vector in vectors:
        total.add(vector)
        split = plan.split(vector)
        assert n_clients * int(np.abs(split).max()) <= plan.needed_load
        digits += split
    assert int(np.abs(digits).max()) <= plan.needed_bound <= plan.slot_bound
    assert plan.join(digits).to_bytes() == total.to_bytes()


@examples(4)
@given(data=st.data(), layout=layouts, slot_bits=st.integers(8, 62), n_clients=st.integers(1, 8))
def test_integers_within_bounds_come_back(data: st.DataObject, layout: Layout, slot_bits: int, n_clients: int) -> None:
    plan = plan_of(layout, n_clients, slot_bits, masked=False)
    share = np.concatenate([np.full(s.size, s.bound // n_clients, dtype=np.int64) for s in layout.segments])
    rows = [
        np.array([data.draw(st.one_of(st.sampled_from([-b, b]), st.integers(-b, b))) for b in share.tolist()])
        for _ in range(n_clients)
    ]
    digits = np.zeros(plan.n_slots, dtype=np.int64)
    for row in rows:
        split = plan.split(RingVector.encode(layout, row.astype(np.int64)))
        assert n_clients * int(np.abs(split).max()) <= plan.needed_load
        digits += split
    assert int(np.abs(digits).max()) <= plan.needed_bound
    assert plan.join(digits).decode().tolist() == [sum(int(row[i]) for row in rows) for i in range(layout.size)]


def test_a_single_digit_is_the_entry_itself() -> None:
    layout = Layout.of([("s", 3, 1000)])
    plan = plan_of(layout, 5, 10, masked=False)
    assert plan.digits[0] == SegmentDigits(count=1, bits=11, client_bound=1000, sum_bound=1000)
    assert plan.split(RingVector.encode(layout, np.array([-1000, 0, 7]))).tolist() == [-1000, 0, 7]


def test_slots_too_narrow_for_the_cohort_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="do not fit slots"):
        DigitPlan(layout=Layout.of([("s", 1, 2**40)]), n_clients=1000, slot_bound=500, slot_load=2**40, masked=False)


def test_an_entry_beyond_its_bound_is_refused_unless_masked() -> None:
    layout = Layout((Segment(name="s", size=2, bound=10),))
    words = RingVector(layout, [np.array([3, 11], dtype=np.uint8)])
    with pytest.raises(InvalidVectorError, match="'s'"):
        plan_of(layout, 2, 20, masked=False).split(words)
    assert plan_of(layout, 2, 20, masked=True).split(words).tolist() == [3, 11]
