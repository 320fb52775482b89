"""Public random projections: matrices that anyone can draw again, bit for bit, from a seed.

Specification, version 1. Every step is integer arithmetic or one correctly rounded float64 operation, so another
implementation needs SHAKE-256 (FIPS 202) and nothing else::

    stream = SHAKE256("analytic/projection/v1" || seed (8 bytes) || layer (4) || kind (1) || rows (4) || columns (4)
                      || distribution (1))

with big-endian unsigned integers; kind is "A" or "B" and distribution "U" or "N" in ASCII. The matrix is filled row
by row from consecutive pieces of the stream:

- "U", uniform on (-1, 1): entry = (2 m + 1 - 2^32) / 2^32 with m the next 4 bytes, little-endian;
- "N", mean 0 and variance 1 (to 2^-32): entry = (m_1 + ... + m_12 - 393210) / 2^16 with m_i the next twelve 2-byte
  little-endian integers. A sum of twelve uniforms is normal up to an excess kurtosis of -0.1 and never leaves
  (-6, 6); unlike an inverse normal distribution function it has no logarithm that libraries round differently.

Each entry is exact in float64. It is then multiplied by the scale of its choice, rounded once:

- ``linear``: "U" times 1 / sqrt(rows), what deep-learning libraries give a linear layer by default;
- ``nin``: "N" times 1 / sqrt(rows), which keeps the size of rows of unit entries;
- ``normal``: "N" unscaled.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from analytic.errors import SpecificationError
from analytic.row_format import FloatMatrix

Projection = Literal["linear", "nin", "normal"]
"""Distribution and scale of a random projection."""

Kind = Literal["A", "B"]
"""The papers' letter: A lifts the input features, B the features of a layer."""

PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
PROJECTION_VERSION = "analytic/projection/v1"


@lru_cache(maxsize=4)  # in a simulation every client asks for the same few
def random_projection(seed: int, layer: int, kind: Kind, shape: tuple[int, int], projection: Projection) -> FloatMatrix:
    """The public random matrix of the module's specification, read-only float64.

    Args:
        seed: 0 to 2^64 - 1; public, it protects nothing.
        layer: t, the layer that uses the matrix.
        kind: "A" or "B".
        shape: (inputs, outputs), both at least 1.
        projection: distribution and scale.

    Raises:
        SpecificationError: a seed, layer, shape or choice outside these.
    """
    check_projection(seed, projection)
    if not (0 <= layer < 2**32 and all(1 <= size < 2**32 for size in shape)):
        raise SpecificationError(f"a projection needs a layer >= 0 and sizes from 1 to 2^32 - 1, not {layer}, {shape}")
    if projection == "linear":
        matrix = _uniform(_stream(seed, layer, kind, shape, b"U", 4), shape)
    else:
        matrix = _normal(_stream(seed, layer, kind, shape, b"N", 24), shape)
    if projection != "normal":
        matrix *= 1.0 / math.sqrt(shape[0])
    matrix.setflags(write=False)
    return matrix


def check_projection(seed: int, projection: str) -> None:
    """Refuse what ``random_projection`` cannot draw from.

    Raises:
        SpecificationError: a seed that is no unsigned 64-bit integer, or an unknown projection.
    """
    if not 0 <= seed < 2**64:
        raise SpecificationError(f"a seed is an integer from 0 to 2^64 - 1, not {seed}")
    if projection not in PROJECTIONS:
        raise SpecificationError(f"a projection is one of {', '.join(PROJECTIONS)}, not {projection!r}")


def _stream(seed: int, layer: int, kind: Kind, shape: tuple[int, int], distribution: bytes, entry_bytes: int) -> bytes:
    numbers = int(seed).to_bytes(8, "big") + layer.to_bytes(4, "big") + kind.encode()
    sizes = b"".join(size.to_bytes(4, "big") for size in shape)
    generator = hashlib.shake_256(PROJECTION_VERSION.encode() + numbers + sizes + distribution)
    return generator.digest(entry_bytes * shape[0] * shape[1])


def _uniform(stream: bytes, shape: tuple[int, int]) -> FloatMatrix:
    integers = np.frombuffer(stream, dtype="<u4").astype(np.float64).reshape(shape)
    matrix: FloatMatrix = np.ldexp(2.0 * integers + (1.0 - 2.0**32), -32)
    return matrix


def _normal(stream: bytes, shape: tuple[int, int]) -> FloatMatrix:
    sums = np.frombuffer(stream, dtype="<u2").reshape(*shape, 12).sum(axis=2, dtype=np.int64)
    matrix: FloatMatrix = np.ldexp((sums - 393210).astype(np.float64), -16)
    return matrix
