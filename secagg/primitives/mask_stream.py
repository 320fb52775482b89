"""Masks: AES-256 keystreams in counter mode (NIST SP 800-38A), added to ring vectors piece by piece.

The first counter block is 2, where GCM's keystream begins too under an IV of zeros (NIST SP 800-38D, section 7.1).
OpenSSL has faster code for GCM on processors with vector AES, so long streams are taken from there where a short trial
says that it pays. The bytes are the same either way, and GCM's tag is never asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Layout
from secagg.primitives.derivation import derive_key
from secagg.ring import PIECE_BYTES, ClientVector, RingVector, Words, pack

LONG_BYTES = 1 << 16
"""Streams of fewer bytes are CTR's, whose contexts are made faster."""

_MOST_OF_GCM = 2**36 - 32
"""Bytes after which GCM refuses to go on (NIST SP 800-38D, section 5.2.1.1)."""

STREAMS_AT_ONCE = 256
_BLOCK_BYTES = 16
_FIRST_COUNTER = (2).to_bytes(_BLOCK_BYTES, "big")

_ZEROS = bytes(PIECE_BYTES)

_Stream = tuple[CipherContext, int]
"""A keystream as far as it was used, and its sign."""

_Mask = tuple[bytes, int]
"""Seed of a mask, and its sign."""

_StreamKey = tuple[bytes, int]
"""Key of one mask's keystream, and its sign."""


def add_masks(vector: RingVector, masks: Sequence[_Mask], digest: bytes) -> None:
    """Add (+1) or subtract (-1) the mask of each seed, in place.

    The mask is one keystream, under a key derived from the seed and the configuration digest, which commits to the
    layout. A key is used for one stream, so the counter starts at one place. Each segment begins with a block.

    Args:
        vector: the vector, changed in place.
        masks: (32-byte seed, sign) pairs.
        digest: the session's configuration digest.
    """
    keys = _stream_keys(masks, digest)
    for first in range(0, len(keys), STREAMS_AT_ONCE):
        streams = Keystreams(keys[first : first + STREAMS_AT_ONCE], by_gcm=_by_gcm(vector.layout))
        for piece in _pieces(vector.layout):
            streams.add_to([vector.words[number][place] for number, place in piece.parts], is_last=piece.is_last)


def masked_pieces(layout: Layout, vector: ClientVector, masks: Sequence[_Mask], digest: bytes) -> Iterator[memoryview]:
    """Yield the wire form of a client's vector with these masks on it, a piece at a time.

    These are the bytes of ``RingVector.encode``, ``add_masks`` and ``to_bytes``, one after the other on one piece.
    """
    own = vector.words if isinstance(vector, RingVector) else [vector[place] for _, place in layout.slices()]
    streams = Keystreams(_stream_keys(masks, digest), by_gcm=_by_gcm(layout))
    for piece in _pieces(layout):
        segments = [layout.segments[number] for number, _ in piece.parts]
        words = [
            own[number][place].astype(segment.word, casting="unsafe")
            for segment, (number, place) in zip(segments, piece.parts, strict=True)
        ]
        streams.add_to(words, is_last=piece.is_last)
        for segment, part in zip(segments, words, strict=True):
            yield pack(segment, part)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring parts of a vector, (number of a segment, place in it), whose words fit into a piece's bytes."""

    parts: Sequence[tuple[int, slice]]
    is_last: bool


def _pieces(layout: Layout) -> Iterator[_Piece]:
    parts: list[tuple[int, slice]] = []
    room = PIECE_BYTES
    for number, segment in enumerate(layout.segments):
        size, start = segment.word.itemsize, 0
        while start < segment.size:
            if not room:
                yield _Piece(parts, is_last=False)
                parts, room = [], PIECE_BYTES
            stop = min(segment.size, start + room // size)
            parts.append((number, slice(start, stop)))
            room -= _whole_blocks((stop - start) * size)
            start = stop
    yield _Piece(parts, is_last=True)


def _whole_blocks(n_bytes: int) -> int:
    return -(-n_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _by_gcm(layout: Layout) -> bool:
    length = sum(_whole_blocks(segment.size * segment.word.itemsize) for segment in layout.segments)
    return LONG_BYTES <= length <= _MOST_OF_GCM and gcm_is_faster()


def _stream_keys(masks: Sequence[_Mask], digest: bytes) -> list[_StreamKey]:
    return [(derive_key(seed, "mask stream", digest), sign) for seed, sign in masks]


@lru_cache(maxsize=1)
def gcm_is_faster() -> bool:
    """Return whether GCM yields a piece of a keystream sooner than CTR on this machine, by a trial of each."""
    seconds = []
    for mode in (modes.CTR(_FIRST_COUNTER), modes.GCM(bytes(12))):
        stream, buffer, trials = Cipher(algorithms.AES(bytes(32)), mode).encryptor(), bytearray(PIECE_BYTES + 15), []
        for _ in range(5):
            start = time.perf_counter()
            stream.update_into(_ZEROS, buffer)
            trials.append(time.perf_counter() - start)
        seconds.append(min(trials))
    return seconds[1] < seconds[0]


class Keystreams:
    """Keystreams from the first counter on, which are added to one piece after the other.

    Args:
        keys: of the streams. Between pieces some 1.2 kB are held for each.
        by_gcm: take them from GCM.
    """

    def __init__(self, keys: Sequence[_StreamKey], *, by_gcm: bool) -> None:
        self._keys = keys
        self._mode = modes.GCM(bytes(12)) if by_gcm else modes.CTR(_FIRST_COUNTER)
        self._streams: Sequence[_Stream] | None = None
        self._buffer = bytearray()

    def add_to(self, parts: Sequence[Words], *, is_last: bool) -> None:
        """Add or subtract the next bytes of each stream, in place; each part begins with a block.

        Args:
            parts: words, together at most ``PIECE_BYTES`` in whole blocks.
            is_last: whether nothing comes after it.
        """
        starts = list(accumulate((_whole_blocks(part.nbytes) for part in parts), initial=0))
        if len(self._buffer) < starts[-1] + _BLOCK_BYTES - 1:
            self._buffer = bytearray(starts[-1] + _BLOCK_BYTES - 1)
        zeros = memoryview(_ZEROS)[: starts[-1]]
        masks: list[NDArray[np.unsignedinteger[Any]]] = [
            np.frombuffer(self._buffer, dtype=part.dtype, count=len(part), offset=start)
            for part, start in zip(parts, starts, strict=False)
        ]
        for stream, sign in self._opened(is_last=is_last):
            stream.update_into(zeros, self._buffer)
            for part, mask in zip(parts, masks, strict=True):
                (np.add if sign > 0 else np.subtract)(part, mask, out=part)

    def _opened(self, *, is_last: bool) -> Iterable[_Stream]:
        """The streams, each opened when it is reached where one piece is all."""
        if self._streams is not None:
            return self._streams
        opened = ((Cipher(algorithms.AES(key), self._mode).encryptor(), sign) for key, sign in self._keys)
        if is_last:
            return opened
        self._streams = list(opened)
        return self._streams
