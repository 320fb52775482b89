"""Masks: AES-256-CTR keystreams (NIST SP 800-38A), added to ring vectors piece by piece.

GCM encrypts with the same counter mode (NIST SP 800-38D, section 7.1): under an IV of zeros its keystream is CTR's from
the third block on. OpenSSL has faster code for it on processors with vector AES, so long streams are taken from there
where a short trial says that it pays. The bytes are the same either way, and GCM's tag is never asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Layout, Segment
from secagg.primitives.derivation import derive_key
from secagg.ring import PIECE_BYTES, ClientVector, RingVector, Words, pack, pieces

LONG_BYTES = 1 << 16
"""Streams of fewer bytes are CTR's, whose contexts are made faster."""

STREAMS_AT_ONCE = 256
_BLOCK_BYTES = 16
_GCM_STARTS = 2 * _BLOCK_BYTES
"""GCM's keystream begins at the counter 2: block 0 is its hash key's, block 1 its tag's."""

_ZEROS = bytes(PIECE_BYTES)

_Stream = tuple[CipherContext, int]
"""A keystream as far as it was used, and its sign."""

_Mask = tuple[bytes, int]
"""Seed of a mask, and its sign."""

_StreamKey = tuple[bytes, int]
"""Key of one mask's keystream in one segment, and its sign."""


def add_masks(vector: RingVector, masks: Sequence[_Mask], digest: bytes) -> None:
    """Add (+1) or subtract (-1) the mask of each seed, in place.

    For each segment the mask is the keystream of a key derived from the seed, the configuration digest and the
    segment's name, size and width. A key is used for one stream, so the counter starts at zero.

    Args:
        vector: the vector, changed in place.
        masks: (32-byte seed, sign) pairs.
        digest: the session's configuration digest.
    """
    for segment, words in zip(vector.layout.segments, vector.words, strict=True):
        add_keystreams(words, _stream_keys(segment, masks, digest), by_gcm=_by_gcm(segment))


def masked_pieces(layout: Layout, vector: ClientVector, masks: Sequence[_Mask], digest: bytes) -> Iterator[memoryview]:
    """Yield the wire form of a client's vector with these masks on it, a piece at a time.

    These are the bytes of ``RingVector.encode``, ``add_masks`` and ``to_bytes``, one after the other on one piece.
    """
    parts = vector.words if isinstance(vector, RingVector) else [vector[place] for _, place in layout.slices()]
    for segment, own in zip(layout.segments, parts, strict=True):
        streams = Keystreams(_stream_keys(segment, masks, digest), by_gcm=_by_gcm(segment))
        for piece in pieces(segment):
            words = own[piece].astype(segment.word, casting="unsafe")
            streams.add_to(words, is_last=piece.stop == segment.size)
            yield pack(segment, words)


def _by_gcm(segment: Segment) -> bool:
    return segment.size * segment.word.itemsize >= LONG_BYTES and gcm_is_faster()


def _stream_keys(segment: Segment, masks: Sequence[_Mask], digest: bytes) -> list[_StreamKey]:
    return [(_stream_key(seed, segment, digest), sign) for seed, sign in masks]


def _stream_key(seed: bytes, segment: Segment, digest: bytes) -> bytes:
    shape = segment.size.to_bytes(8, "big") + segment.word.itemsize.to_bytes(1, "big")
    return derive_key(seed, "mask stream", digest, segment.name.encode(), shape)


@lru_cache(maxsize=1)
def gcm_is_faster() -> bool:
    """Return whether GCM yields a piece of a keystream sooner than CTR on this machine, by a trial of each."""
    seconds = []
    for mode in (modes.CTR(bytes(_BLOCK_BYTES)), modes.GCM(bytes(12))):
        stream, buffer, trials = Cipher(algorithms.AES(bytes(32)), mode).encryptor(), bytearray(PIECE_BYTES + 15), []
        for _ in range(5):
            start = time.perf_counter()
            stream.update_into(_ZEROS, buffer)
            trials.append(time.perf_counter() - start)
        seconds.append(min(trials))
    return seconds[1] < seconds[0]


def add_keystreams(words: Words, keys: Sequence[_StreamKey], *, by_gcm: bool) -> None:
    """Add or subtract the keystream of each key from counter 0 on, in place."""
    step = PIECE_BYTES // words.itemsize
    for place in range(0, len(keys), STREAMS_AT_ONCE):
        streams = Keystreams(keys[place : place + STREAMS_AT_ONCE], by_gcm=by_gcm)
        for start in range(0, len(words), step):
            streams.add_to(words[start : start + step], is_last=start + step >= len(words))


class Keystreams:
    """Keystreams from counter 0 on, which are added to one piece after the other.

    Args:
        keys: of the streams. Between pieces some 1.2 kB are held for each.
        by_gcm: take them from GCM, which yields all but the first two blocks; those are CTR's.
    """

    def __init__(self, keys: Sequence[_StreamKey], *, by_gcm: bool) -> None:
        self._keys, self._by_gcm = keys, by_gcm
        self._streams: Sequence[_Stream] | None = None
        self._buffer = bytearray()

    def add_to(self, words: Words, *, is_last: bool) -> None:
        """Add or subtract the next words of each stream, in place; after the last piece there are none."""
        if len(self._buffer) < words.nbytes + _BLOCK_BYTES - 1:
            self._buffer = bytearray(words.nbytes + _BLOCK_BYTES - 1)
        if self._streams is not None:
            self._add(words, self._streams)
            return
        start = min(len(words), _GCM_STARTS // words.itemsize) if self._by_gcm else 0
        self._add(words[:start], self._opened(modes.CTR(bytes(_BLOCK_BYTES))))
        rest = self._opened(modes.GCM(bytes(12)) if self._by_gcm else modes.CTR(bytes(_BLOCK_BYTES)))
        if is_last:
            self._add(words[start:], rest)
        else:
            self._streams = list(rest)
            self._add(words[start:], self._streams)

    def _opened(self, mode: modes.CTR | modes.GCM) -> Iterator[_Stream]:
        return ((Cipher(algorithms.AES(key), mode).encryptor(), sign) for key, sign in self._keys)

    def _add(self, words: Words, streams: Iterable[_Stream]) -> None:
        if not len(words):
            return
        zeros = memoryview(_ZEROS)[: words.nbytes]
        masks: NDArray[np.unsignedinteger[Any]] = np.frombuffer(self._buffer, dtype=words.dtype, count=len(words))
        for stream, sign in streams:
            stream.update_into(zeros, self._buffer)
            (np.add if sign > 0 else np.subtract)(words, masks, out=words)
