"""Mask streams: the published keystream, byte for byte, at every width and across every border."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

from slow_symmetric import ctr_keystream, derive_key

from secagg.layout import Layout, Segment
from secagg.primitives import mask_stream
from secagg.primitives.mask_stream import LONG_BYTES, STREAMS_AT_ONCE, add_masks
from secagg.ring import PIECE_BYTES, RingVector

DIGEST = bytes(range(32))
WIDTH_BOUNDS = {1: 100, 2: 2**14, 3: 2**22, 4: 2**30, 5: 2**38, 6: 2**46, 7: 2**54, 8: 2**62}


def slow_stream_key(seed: bytes, segment: Segment, digest: bytes) -> bytes:
    """The documented derivation, by the slow implementation."""
    shape = segment.size.to_bytes(8, "big") + bytes([segment.word.itemsize])
    return derive_key(seed, "mask stream", digest, segment.name.encode(), shape)


def library_keystream(key: bytes, n_bytes: int) -> bytes:
    """The same from the library, in one piece."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(n_bytes))


def slow_masked(layout: Layout, vector: list[int], masks: list[tuple[bytes, int]], slow: bool) -> bytes:
    """The wire form of vector + masks, entry by entry in Python's integers."""
    stream_of = ctr_keystream if slow else library_keystream
    wire = b""
    for segment, place in layout.slices():
        word, values = segment.word.itemsize, list(vector[place])
        for seed, sign in masks:
            stream = stream_of(slow_stream_key(seed, segment, DIGEST), segment.size * word)
            for i in range(segment.size):
                values[i] += sign * int.from_bytes(stream[i * word : (i + 1) * word], "little")
        modulus = 256**segment.wire_bytes
        wire += b"".join((value % modulus).to_bytes(segment.wire_bytes, "little") for value in values)
    return wire


def masked(layout: Layout, vector: list[int], masks: list[tuple[bytes, int]]) -> bytes:
    """The wire form that the package makes."""
    ring = RingVector.encode(layout, np.array(vector, dtype=np.int64))
    add_masks(ring, masks, DIGEST)
    return ring.to_bytes()


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
    """Vectors that end just before, at and after a border, of either cipher mode."""
    monkeypatch.setattr(mask_stream, "gcm_is_faster", lambda: gcm)
    segment = Segment(name="s", size=1, bound=WIDTH_BOUNDS[width])
    size = length // segment.word.itemsize + beyond
    layout = Layout((Segment(name="s", size=size, bound=segment.bound),))
    seed = b"\7" * 32
    ring = RingVector.zeros(layout)
    add_masks(ring, [(seed, 1)], DIGEST)
    stream = library_keystream(slow_stream_key(seed, layout.segments[0], DIGEST), size * segment.word.itemsize)
    assert ring.words[0].tobytes() == stream


def test_more_masks_than_streams_at_once() -> None:
    layout = Layout.of([("s", 3, 2**20)])
    masks = [(i.to_bytes(32, "big"), (-1) ** (i // 3)) for i in range(2 * STREAMS_AT_ONCE + 5)]
    assert masked(layout, [1, -2, 3], masks) == slow_masked(layout, [1, -2, 3], masks, slow=False)


seeds = st.lists(st.tuples(st.binary(min_size=32, max_size=32), st.sampled_from([1, -1])), max_size=6)
layouts = st.lists(st.tuples(st.integers(1, 40), st.sampled_from(sorted(WIDTH_BOUNDS))), min_size=1, max_size=4).map(
    lambda shapes: Layout.of((f"s{i}", size, WIDTH_BOUNDS[width]) for i, (size, width) in enumerate(shapes))
)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100])
@pytest.mark.parametrize("width", WIDTH_BOUNDS)
def test_either_cipher_mode_gives_the_same_stream(width: int, size: int) -> None:
    """Of vectors shorter than where GCM's keystream begins, and longer."""
    word = Segment(name="s", size=1, bound=WIDTH_BOUNDS[width]).word
    keys = [(bytes([place]) * 32, sign) for place, sign in enumerate((1, -1, 1))]
    by_ctr, by_gcm = np.zeros(size, dtype=word), np.zeros(size, dtype=word)
    mask_stream.add_keystreams(by_ctr, keys, by_gcm=False)
    mask_stream.add_keystreams(by_gcm, keys, by_gcm=True)
    assert by_ctr.any()
    assert by_ctr.tobytes() == by_gcm.tobytes()


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


def test_segments_seeds_and_sessions_have_streams_of_their_own() -> None:
    """Two segments of one shape, two seeds, two digests, two sizes: no stream is a prefix of another."""
    streams = set()
    for layout in (Layout.of([("a", 4, 2**62), ("b", 4, 2**62)]), Layout.of([("a", 5, 2**62)])):
        for seed in (b"\1" * 32, b"\2" * 32):
            for digest in (DIGEST, bytes(32)):
                ring = RingVector.zeros(layout)
                add_masks(ring, [(seed, 1)], digest)
                streams |= {words[:4].tobytes() for words in ring.words}
    assert len(streams) == 12
