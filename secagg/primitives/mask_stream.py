"""Mask streams: AES-256-CTR keystreams (NIST SP 800-38A), added to ring vectors in pieces."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Segment
from secagg.primitives.derivation import derive_key
from secagg.ring import RingVector, Words

PIECE_BYTES = 1 << 18
"""Size of a piece of the vector, which stays in the cache while all masks are added."""

PART_BYTES = 1 << 21
"""Smallest part for which a further thread is faster."""

MOST_THREADS = 2
"""Largest number of threads. OpenSSL holds the interpreter's lock and additions do not: one thread adds while the other
computes its keystream; a third would wait for the lock."""

STREAMS_AT_ONCE = 256
_BLOCK_BYTES = 16
_ZEROS = bytes(PIECE_BYTES)

_StreamKey = tuple[bytes, int]
"""Key of one mask's keystream in one segment, and its sign."""


def add_masks(
    vector: RingVector, masks: Sequence[tuple[bytes, int]], digest: bytes, *, max_threads: int = MOST_THREADS
) -> None:
    """Add (+1) or subtract (-1) the mask of each seed, in place.

    For each segment the mask is the keystream of a key derived from the seed, the configuration digest and the
    segment's name, size and width. A key is used for one stream, so the counter starts at zero.

    Args:
        vector: the vector, changed in place.
        masks: (32-byte seed, sign) pairs.
        digest: configuration digest of the session.
        max_threads: largest number of threads for a large segment.
    """
    for segment, words in zip(vector.layout.segments, vector.words, strict=True):
        keys = [(_stream_key(seed, segment, digest), sign) for seed, sign in masks]
        parts = _parts(words, max_threads)
        if len(parts) == 1:
            _add_keystreams(words, parts[0], keys)
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda part: _add_keystreams(words, part, keys), parts))  # noqa: B023  (ends in here)


def _stream_key(seed: bytes, segment: Segment, digest: bytes) -> bytes:
    shape = segment.size.to_bytes(8, "big") + segment.word.itemsize.to_bytes(1, "big")
    return derive_key(seed, "mask stream", digest, segment.name.encode(), shape)


def _parts(words: Words, max_threads: int) -> list[slice]:
    """Divide the words into parts of whole pieces, one for each worthwhile thread."""
    n_threads = min(max_threads, _usable_cores(), words.nbytes // PART_BYTES)
    piece = PIECE_BYTES // words.itemsize
    part = -(-len(words) // max(1, n_threads) // piece) * piece
    return [slice(start, start + part) for start in range(0, len(words), part)]


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _add_keystreams(words: Words, part: slice, keys: Sequence[_StreamKey]) -> None:
    """Add one part of each keystream; counter mode computes it without the preceding parts."""
    counter = (part.start * words.itemsize // _BLOCK_BYTES).to_bytes(_BLOCK_BYTES, "big")
    for start in range(0, len(keys), STREAMS_AT_ONCE):
        group = keys[start : start + STREAMS_AT_ONCE]
        streams = [(Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor(), sign) for key, sign in group]
        _add_streams(words[part], streams)


def _add_streams(words: Words, streams: Sequence[tuple[CipherContext, int]]) -> None:
    buffer = bytearray(PIECE_BYTES + _BLOCK_BYTES - 1)
    masks: NDArray[np.unsignedinteger[Any]] = np.frombuffer(
        buffer, dtype=words.dtype, count=PIECE_BYTES // words.itemsize
    )
    zeros = memoryview(_ZEROS)
    for start in range(0, len(words), len(masks)):
        piece = words[start : start + len(masks)]
        for stream, sign in streams:
            stream.update_into(zeros[: piece.nbytes], buffer)
            operation = np.add if sign > 0 else np.subtract
            operation(piece, masks[: len(piece)], out=piece)
