"""Masks: AES-256-CTR keystreams (NIST SP 800-38A), added to ring vectors piece by piece.

GCM encrypts with the same counter mode (NIST SP 800-38D, section 7.1): under an IV of zeros its keystream is CTR's from
the third block on. OpenSSL has faster code for it on processors with vector AES, so long streams are taken from there
where a short trial says that it pays. The bytes are the same either way, and GCM's tag is never asked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Segment
from secagg.primitives.derivation import derive_key
from secagg.ring import RingVector, Words

PIECE_BYTES = 1 << 18
"""Size of a piece of the vector, which stays in the cache while all masks are added."""

LONG_BYTES = 1 << 16
"""Streams of fewer bytes are CTR's, whose contexts are made faster."""

STREAMS_AT_ONCE = 256
_BLOCK_BYTES = 16
_GCM_STARTS = 2 * _BLOCK_BYTES
"""GCM's keystream begins at the counter 2: block 0 is its hash key's, block 1 its tag's."""

_ZEROS = bytes(PIECE_BYTES)

_StreamKey = tuple[bytes, int]
"""Key of one mask's keystream in one segment, and its sign."""


def add_masks(vector: RingVector, masks: Sequence[tuple[bytes, int]], digest: bytes) -> None:
    """Add (+1) or subtract (-1) the mask of each seed, in place.

    For each segment the mask is the keystream of a key derived from the seed, the configuration digest and the
    segment's name, size and width. A key is used for one stream, so the counter starts at zero.

    Args:
        vector: the vector, changed in place.
        masks: (32-byte seed, sign) pairs.
        digest: the session's configuration digest.
    """
    for segment, words in zip(vector.layout.segments, vector.words, strict=True):
        keys = [(_stream_key(seed, segment, digest), sign) for seed, sign in masks]
        add_keystreams(words, keys, by_gcm=words.nbytes >= LONG_BYTES and gcm_is_faster())


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
    start = min(len(words), _GCM_STARTS // words.itemsize) if by_gcm else len(words)
    for place in range(0, len(keys), STREAMS_AT_ONCE):
        group = keys[place : place + STREAMS_AT_ONCE]
        _add_streams(words[:start], group, modes.CTR(bytes(_BLOCK_BYTES)))
        _add_streams(words[start:], group, modes.GCM(bytes(12)))


def _add_streams(words: Words, keys: Sequence[_StreamKey], mode: modes.CTR | modes.GCM) -> None:
    if not len(words):
        return
    streams = [(Cipher(algorithms.AES(key), mode).encryptor(), sign) for key, sign in keys]
    count = min(len(words), PIECE_BYTES // words.itemsize)
    buffer = bytearray(count * words.itemsize + _BLOCK_BYTES - 1)
    masks: NDArray[np.unsignedinteger[Any]] = np.frombuffer(buffer, dtype=words.dtype, count=count)
    zeros = memoryview(_ZEROS)
    for start in range(0, len(words), len(masks)):
        piece = words[start : start + len(masks)]
        for stream, sign in streams:
            stream.update_into(zeros[: piece.nbytes], buffer)
            operation = np.add if sign > 0 else np.subtract
            operation(piece, masks[: len(piece)], out=piece)
