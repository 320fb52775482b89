"""Layouts: widths follow from bounds, and what does not fit is refused without being told."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.by_hand import ByHand

from secagg import MaskedSum, PlainSum
from secagg.dp.noise import CoordinateNoise
from secagg.errors import (
    ConfigurationError,
    InvalidVectorError,
    RemoteProtocolError,
    SumOutOfBoundsError,
)
from secagg.layout import MAX_BOUND, MAX_SIZE, Layout, Segment
from secagg.wire import MessageType

names = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)
segments = st.builds(
    Segment,
    name=names,
    size=st.integers(1, MAX_SIZE),
    bound=st.integers(0, MAX_BOUND),
)
layouts = st.lists(segments, min_size=1, max_size=5, unique_by=lambda s: s.name).map(lambda s: Layout(tuple(s)))


@given(st.integers(0, MAX_BOUND))
def test_bits_are_the_fewest_that_tell_all_values_apart(bound: int) -> None:
    bits = Segment(name="s", size=1, bound=bound).bits
    values = 2 * bound + 1
    assert 2**bits >= values
    assert bits == 1 or 2 ** (bits - 1) < values


@given(st.integers(0, MAX_BOUND))
def test_words_hold_wire_entries_and_are_the_smallest_that_do(bound: int) -> None:
    segment = Segment(name="s", size=1, bound=bound)
    assert segment.wire_bytes == (segment.bits + 7) // 8
    assert segment.word.itemsize in (1, 2, 4, 8)
    assert segment.word.itemsize >= segment.wire_bytes
    assert segment.word.itemsize == 1 or segment.word.itemsize // 2 < segment.wire_bytes
    assert segment.word.kind == "u"
    assert segment.word.newbyteorder("<") == segment.word


@given(layouts)
def test_sizes_add_up_and_slices_tile_the_vector(layout: Layout) -> None:
    places = [place for _, place in layout.slices()]
    assert places[0].start == 0
    assert all(a.stop == b.start for a, b in pairwise(places))
    assert places[-1].stop == layout.size == sum(s.size for s in layout.segments)
    assert layout.wire_bytes == sum(s.size * s.wire_bytes for s in layout.segments)


@given(layouts)
def test_canonical_bytes_can_be_read_back(layout: Layout) -> None:
    """Which is why the map is injective: a decoder exists."""
    rest, read = layout.canonical(), []
    while rest:
        length = rest[0]
        name, rest = rest[1 : 1 + length].decode(), rest[1 + length :]
        size, bound, rest = int.from_bytes(rest[:8], "big"), int.from_bytes(rest[8:16], "big"), rest[16:]
        read.append(Segment(name=name, size=size, bound=bound))
    assert Layout(tuple(read)) == layout


def test_canonical_bytes_of_what_is_no_shape_follow_a_length_that_no_name_has() -> None:
    shape = Layout.of([("a", 3, 5)])
    assert Layout(shape.segments, agreed=b"noise").canonical() == shape.canonical() + b"\0noise"
    assert Layout.of([("a", 3, 5, 2)]).canonical() == shape.canonical() + b"\xff" + bytes(7) + b"\2"


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "x" * 65},
        {"name": "größe"},
        {"name": "line\nbreak"},
        {"size": 0},
        {"size": -1},
        {"size": MAX_SIZE + 1},
        {"bound": -1},
        {"bound": MAX_BOUND + 1},
    ],
    ids=[
        "no name",
        "65 characters",
        "not ASCII",
        "not printable",
        "no size",
        "size -1",
        "2^32 + 1",
        "bound -1",
        "2^63",
    ],
)
def test_unsafe_segments_do_not_exist(change: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        Segment(**({"name": "s", "size": 1, "bound": 1} | change))  # type: ignore[arg-type]


def test_the_smallest_and_the_largest_segments_exist() -> None:
    """One step further each of these is refused: see above."""
    Segment(name="x", size=1, bound=0, client_bound=0)
    Segment(name="x" * 64, size=MAX_SIZE, bound=MAX_BOUND, client_bound=MAX_BOUND)


def test_layouts_need_segments_with_different_names() -> None:
    with pytest.raises(ConfigurationError, match="at least one"):
        Layout(())
    with pytest.raises(ConfigurationError, match="differ"):
        Layout.of([("s", 1, 1), ("s", 2, 1)])


@pytest.mark.parametrize("triples", [[("s", 1)], [("s", 1, 1, 1, 1)], ["s"]], ids=str)
def test_a_layout_reads_triples(triples: list[tuple[str, int, int]]) -> None:
    with pytest.raises(ConfigurationError, match="state all three"):
        Layout.of(triples)


class TestCheck:
    layout = Layout.of([("small", 2, 5), ("large", 3, MAX_BOUND)])

    @pytest.mark.parametrize(
        "vector",
        [[5, -5, 0, MAX_BOUND, -MAX_BOUND], [0, 0, 0, 0, 0]],
        ids=["extremes", "zeros"],
    )
    def test_what_fits_passes(self, vector: list[int]) -> None:
        self.layout.check(np.array(vector, dtype=np.int64), 1)

    @pytest.mark.parametrize(
        "vector",
        [
            np.zeros(5, dtype=np.int32),
            np.zeros(5, dtype=np.uint64),
            np.zeros(5, dtype=np.float64),
            np.zeros(5, dtype=bool),
            np.zeros(5, dtype=object),
            np.zeros(5, dtype=">i8"),
            np.zeros(4, dtype=np.int64),
            np.zeros(6, dtype=np.int64),
            np.zeros((5, 1), dtype=np.int64),
            np.zeros((1, 5), dtype=np.int64),
            np.int64(0),
            [0, 0, 0, 0, 0],
            None,
            "00000",
            b"\0" * 40,
        ],
        ids=lambda v: f"{type(v).__name__} {getattr(v, 'dtype', '')} {getattr(v, 'shape', '')}",
    )
    def test_another_type_or_shape_is_refused(self, vector: object) -> None:
        with pytest.raises(InvalidVectorError, match=r"int64 of shape \(5,\)"):
            self.layout.check(vector, 1)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("vector", "segment"),
        [
            ([6, 0, 0, 0, 0], "small"),
            ([0, -6, 0, 0, 0], "small"),
            ([2**62, 0, 0, 0, 0], "small"),
            ([0, 0, -(2**63), 0, 0], "large"),
        ],
    )
    def test_one_beyond_the_bound_is_refused(self, vector: list[int], segment: str) -> None:
        with pytest.raises(InvalidVectorError, match=f"'{segment}': 1 of"):
            self.layout.check(np.array(vector, dtype=np.int64), 1)

    @given(st.integers(0, 2**40), st.integers(-(2**63), 2**63 - 1), st.integers(0, 9))
    def test_the_error_says_how_many_and_not_which(self, bound: int, value: int, place: int) -> None:
        assume(abs(value) > bound and abs(value) > 10**6)
        vector = np.zeros(10, dtype=np.int64)
        vector[place] = value
        with pytest.raises(InvalidVectorError) as caught:
            Layout.of([("s", 10, bound)]).check(vector, 1)
        assert "1 of 10" in str(caught.value)
        assert str(abs(value)) not in str(caught.value)

    def test_strided_vectors_are_vectors(self) -> None:
        self.layout.check(np.arange(-9, 1, dtype=np.int64)[::2][::-1].clip(-5, 5), 1)


def test_sizes_bounds_and_segments_come_in_plain_types() -> None:
    """What looks alike and is written otherwise would give two parties two digests of one layout."""
    with pytest.raises(ConfigurationError, match="plain ints"):
        Segment(name="s", size=np.int64(3), bound=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="plain ints"):
        Segment(name="s", size=3, bound=True)
    with pytest.raises(ConfigurationError, match="a digest of at most 64 bytes"):
        Layout(segments=(Segment(name="s", size=3, bound=5),), agreed=bytes(65))
    with pytest.raises(ConfigurationError, match="tuple"):
        Layout(segments=[Segment(name="s", size=3, bound=5)])  # type: ignore[arg-type]


# What one client may send


def test_a_client_sends_no_more_than_its_share() -> None:
    layout = Layout.of([("gram", 2, 100, 10), ("count", 1, 50)])
    layout.check(np.array([10, -10, 16]), 3)
    with pytest.raises(InvalidVectorError, match="'gram': 1 of 2 entries lie beyond the bound for one client 10; have"):
        layout.check(np.array([10, -11, 16]), 3)
    with pytest.raises(InvalidVectorError, match=r"'count': 1 .* 16, an equal share of the sum's 50 for each of 3"):
        layout.check(np.array([10, 10, -17]), 3)
    with pytest.raises(InvalidVectorError, match="bound for one client 10"):
        MaskedSum(layout=layout, clients=(1, 2, 3), session_id=bytes(16)).client(1, np.array([11, 0, 0]))


def test_clients_within_their_bounds_fit_the_sum_unless_its_maker_knows_that_they_do() -> None:
    for own, n in ((50, 2), (33, 3), (0, 100)):
        Layout.of([("gram", 1, 100, own)]).check_cohort(n)
    layout = Layout.of([("count", 1, 0), ("gram", 1, 100, 34)])
    with pytest.raises(ConfigurationError, match=r"'gram': 3 clients of at most 34 .* client_bound of at most 33 or a"):
        PlainSum(layout=layout, clients=(1, 2, 3), session_id=bytes(16))
    known = replace(layout, sum_fits=True)
    known.check_cohort(3)
    with pytest.raises(InvalidVectorError, match="bound for one client 34; have"):
        known.check(np.array([0, 35]), 3)
    whole = Layout.of([("gram", 1, 100)], sum_fits=True)
    whole.check(np.array([100]), 3)
    with pytest.raises(InvalidVectorError, match="bound for one client 100; have"):
        whole.check(np.array([101]), 3)
    assert known.canonical() == layout.canonical()


def test_a_total_beyond_the_shares_of_its_survivors_is_refused() -> None:
    layout = Layout.of([("gram", 1, 100)])
    layout.check_total(np.array([-99]), 3, 3)
    layout.check_total(np.array([66]), 2, 3)
    with pytest.raises(SumOutOfBoundsError, match="2 clients of at most 33 each"):
        layout.check_total(np.array([67]), 2, 3)


@pytest.mark.parametrize("own", [-1, 101, 1.0, True])
def test_a_share_is_a_part_of_the_sum(own: object) -> None:
    with pytest.raises(ConfigurationError, match="the bound for one client must be a plain int"):
        Segment(name="gram", size=2, bound=100, client_bound=own)  # type: ignore[arg-type]


def test_whoever_believes_in_another_share_is_in_another_sum() -> None:
    one = [[("a", 1, 9)], [("a", 1, 9, 9)], [("a", 1, 9, 8)]]
    forms = [*one, [("a", 1, 9, 9), ("b", 1, 9)], [("a", 1, 9), ("b", 1, 9, 9)]]
    assert len({Layout.of(form).canonical() for form in forms}) == len(forms)


@pytest.mark.parametrize(
    ("kind", "due", "error", "said"),
    [
        (
            PlainSum,
            MessageType.PLAIN_INPUT,
            RemoteProtocolError,
            "party 2: its vector is beyond what one client may send",
        ),
        (
            MaskedSum,
            MessageType.MASKED_INPUT,
            SumOutOfBoundsError,
            "beyond what 2 clients of at most 10 each can add up",
        ),
    ],
)
def test_a_client_that_lies_to_its_own_library_is_refused_where_it_is_seen(
    monkeypatch: pytest.MonkeyPatch, kind: Any, due: MessageType, error: type[Exception], said: str
) -> None:
    """A server that sees single vectors names it; under masks the total shows it, and is not released."""
    layout = Layout.of([("gram", 1, 100, 10)])
    with monkeypatch.context() as lie:
        lie.setattr(Layout, "check", lambda self, vector, n_clients: None)
        hand = ByHand(kind(layout=layout, clients=(1, 2), session_id=bytes(16)), {1: np.array([10]), 2: np.array([11])})
        hand.until(due)
    with pytest.raises(error, match=said):
        hand.finish()
    assert hand.server.result is None


def test_noise_of_a_client_has_room_beside_its_share() -> None:
    noise = CoordinateNoise(levels=np.ones(1, dtype=np.uint8), variances=(4,))
    (segment,) = noise.widened(Layout.of([("gram", 1, 100, 10)]), 3).segments
    assert segment.client_bound == 10 + noise.radius(slice(0, 1))
    assert segment.bound == 100 + 3 * noise.radius(slice(0, 1))
    wide = noise.widened(Layout.of([("gram", 1, 100)], sum_fits=True), 3)
    assert wide.sum_fits
    equal = noise.widened(Layout.of([("gram", 1, 100)]), 3)
    assert equal.client_bound(equal.segments[0], 3) == 33 + noise.radius(slice(0, 1))
