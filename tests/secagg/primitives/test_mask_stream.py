"""Mask streams: the published keystream, byte for byte, at every width and across every border."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

from slow_symmetric import ctr_keystream, derive_key

from secagg import MaskedSum
from secagg.layout import Layout, Segment
from secagg.primitives import mask_stream
from secagg.primitives.mask_stream import LONG_BYTES, STREAMS_AT_ONCE, add_masks, masked_pieces
from secagg.ring import PIECE_BYTES, RingVector

DIGEST = bytes(range(32))
WIDTH_BOUNDS = {1: 100, 2: 2**14, 3: 2**22, 4: 2**30, 5: 2**38, 6: 2**46, 7: 2**54, 8: 2**62}


def slow_stream_key(seed: bytes) -> bytes:
    """The documented derivation, by the slow implementation."""
    return derive_key(seed, "mask stream", DIGEST)


def library_keystream(key: bytes, n_bytes: int) -> bytes:
    """The same from the library, in one piece."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(15) + b"\2")).encryptor().update(bytes(n_bytes))


def slow_masked(layout: Layout, vector: list[int], masks: list[tuple[bytes, int]], slow: bool) -> bytes:
    """The wire form of vector + masks, entry by entry in Python's integers."""
    long = sum(segment.size * 8 + 16 for segment in layout.segments)
    keys = [(slow_stream_key(seed), sign) for seed, sign in masks]
    streams = [(ctr_keystream(key, long, 2) if slow else library_keystream(key, long), sign) for key, sign in keys]
    wire, start = b"", 0
    for segment, place in layout.slices():
        word, values = segment.word.itemsize, list(vector[place])
        for stream, sign in streams:
            for i in range(segment.size):
                first = start + i * word
                values[i] += sign * int.from_bytes(stream[first : first + word], "little")
        start += -(-segment.size * word // 16) * 16
        modulus = 256**segment.wire_bytes
        wire += b"".join((value % modulus).to_bytes(segment.wire_bytes, "little") for value in values)
    return wire


def masked(layout: Layout, vector: list[int], masks: list[tuple[bytes, int]]) -> bytes:
    """The wire form that the package makes, in either of its ways."""
    integers = np.array(vector, dtype=np.int64)
    ring = RingVector.encode(layout, integers)
    at_once = b"".join(masked_pieces(layout, ring, masks, DIGEST))
    add_masks(ring, masks, DIGEST)
    assert at_once == b"".join(masked_pieces(layout, integers, masks, DIGEST)) == ring.to_bytes()
    return at_once


@pytest.mark.parametrize("width", WIDTH_BOUNDS)
def test_masks_are_the_keystream_at_every_width(width: int) -> None:
    """Against the slow cipher: 13 entries, so that the last block of no width is full."""
    layout = Layout.of([("one", 13, WIDTH_BOUNDS[width]), ("two", 5, 3)])
    assert layout.segments[0].wire_bytes == width
    vector = [(-1) ** i * (WIDTH_BOUNDS[width] - i) for i in range(13)] + [3, -3, 0, 1, -1]
    masks = [(b"\1" * 32, 1), (b"\2" * 32, -1)]
    assert masked(layout, vector, masks) == slow_masked(layout, vector, masks, slow=True)


@pytest.mark.parametrize("gcm", [False, True], ids=["ctr", "gcm"])
@pytest.mark.parametrize("length", [LONG_BYTES, PIECE_BYTES, 2 * PIECE_BYTES])
@pytest.mark.parametrize("width", WIDTH_BOUNDS)
@pytest.mark.parametrize("beyond", [-1, 0, 1, 7])
def test_borders_of_pieces(width: int, beyond: int, length: int, gcm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors that end just before, at and after a border, of either cipher mode, alone and after another segment."""
    monkeypatch.setattr(mask_stream, "gcm_is_faster", lambda: gcm)
    segment = Segment(name="s", size=1, bound=WIDTH_BOUNDS[width])
    size = length // segment.word.itemsize + beyond
    segment = Segment(name="s", size=size, bound=segment.bound)
    seed = b"\7" * 32
    stream = library_keystream(slow_stream_key(seed), size * segment.word.itemsize + 16)
    for before in ((), (Segment(name="before", size=3, bound=2**14),)):
        ring = RingVector.zeros(Layout((*before, segment)))
        add_masks(ring, [(seed, 1)], DIGEST)
        start = 16 * len(before)
        assert ring.words[-1].tobytes() == stream[start : start + size * segment.word.itemsize]


def test_more_masks_than_streams_at_once() -> None:
    layout = Layout.of([("s", 3, 2**20)])
    masks = [(i.to_bytes(32, "big"), (-1) ** (i // 3)) for i in range(2 * STREAMS_AT_ONCE + 5)]
    assert masked(layout, [1, -2, 3], masks) == slow_masked(layout, [1, -2, 3], masks, slow=False)


seeds = st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from([1, -1])), max_size=6)
layouts = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(sorted(WIDTH_BOUNDS))), min_size=1, max_size=4).map(
    lambda shapes: Layout.of((f"s{i}", size, WIDTH_BOUNDS[width]) for i, (size, width) in enumerate(shapes))
)


@pytest.mark.parametrize(("size", "by_gcm"), [(2**13 - 4, False), (2**13, True), (2**33 - 4, True), (2**33 - 2, False)])
def test_gcm_is_taken_for_long_streams_as_far_as_it_goes(
    size: int, by_gcm: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 8 bytes an entry: from 64 KiB to the 64 GiB, less two blocks, after which it refuses to go on."""
    monkeypatch.setattr(mask_stream, "gcm_is_faster", lambda: True)
    halves = tuple(Segment(name=name, size=size // 2, bound=2**62) for name in "st")
    assert mask_stream._by_gcm(Layout(halves)) is by_gcm


@pytest.mark.parametrize("gcm", [False, True], ids=["ctr", "gcm"])
def test_many_short_segments_around_a_border(gcm: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of every width, of which some end a piece, begin one or go over its border."""
    monkeypatch.setattr(mask_stream, "gcm_is_faster", lambda: gcm)
    monkeypatch.setattr(mask_stream, "PIECE_BYTES", 128)
    monkeypatch.setattr(mask_stream, "LONG_BYTES", 0)
    for shift in range(1, 20):
        sizes = [shift, *(1 + (7 * place) % 23 for place in range(20))]
        layout = Layout.of((f"s{i}", size, WIDTH_BOUNDS[1 + i % 8]) for i, size in enumerate(sizes))
        vector, masks = [0] * layout.size, [(b"\1" * 32, 1), (b"\2" * 32, -1)]
        assert masked(layout, vector, masks) == slow_masked(layout, vector, masks, slow=False)


@given(layouts, seeds)
def test_masks_are_right_for_any_layout(layout: Layout, masks: list[tuple[bytes, int]]) -> None:
    vector = [int(v) for v in np.arange(layout.size) % 7 - 3]
    assert masked(layout, vector, masks) == slow_masked(layout, vector, masks, slow=False)


@given(layouts, seeds, st.randoms(use_true_random=False))
def test_what_is_added_is_taken_away_again_in_any_order(
    layout: Layout, masks: list[tuple[bytes, int]], random: object
) -> None:
    there_and_back = masks + [(seed, -sign) for seed, sign in masks]
    random.shuffle(there_and_back)  # type: ignore[attr-defined]
    assert masked(layout, [0] * layout.size, there_and_back) == bytes(layout.wire_bytes)


def test_segments_seeds_and_sessions_have_words_of_their_own() -> None:
    """Two segments of one shape, two seeds, two digests: none begins with the words of another."""
    streams = set()
    layout = Layout.of([("a", 4, 2**62), ("b", 4, 2**62)])
    for seed in (b"\1" * 32, b"\2" * 32):
        for digest in (DIGEST, bytes(32)):
            ring = RingVector.zeros(layout)
            add_masks(ring, [(seed, 1)], digest)
            streams |= {words.tobytes() for words in ring.words}
    assert len(streams) == 8


@pytest.mark.parametrize("change", [{"name": "b"}, {"size": 5}, {"bound": 2**61}, {"client_bound": 7}])
def test_no_two_layouts_share_a_stream(change: dict[str, Any]) -> None:
    """A key is bound to the configuration digest alone, which commits to names, sizes and bounds."""
    first = Segment(name="a", size=4, bound=2**62)
    digests = {
        MaskedSum(layout=Layout((one,)), clients=(1, 2, 3), session_id=bytes(16)).digest
        for one in (first, dataclasses.replace(first, **change))
    }
    assert len(digests) == 2
