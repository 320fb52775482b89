"""Masks: AES-256-CTR keystreams (NIST SP 800-38A), added to ring vectors piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Segment
from secagg.primitives.derivation import derive_key
from secagg.ring import RingVector, Words

PIECE_BYTES = 1 << 17
"""A piece of the vector stays in the cache while all masks are added to it."""

STREAMS_AT_ONCE = 256
_BLOCK_BYTES = 16
_ZEROS = bytes(PIECE_BYTES)


def add_masks(vector: RingVector, masks: Sequence[tuple[bytes, int]], digest: bytes) -> None:
    """Add (+1) or subtract (-1) the mask of each seed, in place.

    A seed's mask is, for each segment, the keystream of a key that is derived from the seed, the configuration
    digest and the segment's name, size and width. A key serves one stream, so the counter starts at zero.

    Args:
        vector: what is masked or unmasked.
        masks: (32-byte seed, sign) pairs.
        digest: the session's configuration digest.
    """
    for segment, words in zip(vector.layout.segments, vector.words, strict=True):
        for start in range(0, len(masks), STREAMS_AT_ONCE):
            group = masks[start : start + STREAMS_AT_ONCE]
            streams = [(_keystream(seed, segment, digest), sign) for seed, sign in group]
            _add_streams(words, streams)


def _keystream(seed: bytes, segment: Segment, digest: bytes) -> CipherContext:
    shape = segment.size.to_bytes(8, "big") + segment.word.itemsize.to_bytes(1, "big")
    key = derive_key(seed, "mask stream", digest, segment.name.encode(), shape)
    return Cipher(algorithms.AES(key), modes.CTR(bytes(_BLOCK_BYTES))).encryptor()


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
