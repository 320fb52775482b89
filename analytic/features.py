"""Random projections: public matrices of integers that anyone can draw again, bit for bit, from a seed.

Specification, version 2. Every step is integer arithmetic, so another implementation needs SHAKE-256 (FIPS 202) and
nothing else::

    stream = SHAKE256("analytic/projection/v2" || seed (8 bytes) || layer (4) || kind (1) || rows (4) || columns (4)
                      || distribution (1))

with big-endian unsigned integers; kind is "A" or "B" and distribution "U" or "N" in ASCII. The matrix is filled row
by row from consecutive pieces of the stream, each an integer n:

- "U", uniform on (-1, 1): n = 2 m + 1 - 2^32 in units of 2^-32, with m the next 4 bytes, little-endian;
- "N", mean 0 and variance 1 (to 2^-32): n = m_1 + ... + m_12 - 393210 in units of 2^-16, with m_i the next twelve
  2-byte little-endian integers. A sum of twelve uniforms is normal up to an excess kurtosis of -0.1 and never leaves
  (-6, 6); unlike an inverse normal distribution function it has no logarithm that libraries round differently.

The scale is the integer s = isqrt(floor(2^60 / rows)), which is 2^30 / sqrt(rows) rounded down, and every entry of the
matrix is a whole number of 2^-16, rounded to the nearest one (a half upward):

- ``linear``: "U", entry = floor((n s + 2^45) / 2^46), what deep-learning libraries give a linear layer by default;
- ``nin``: "N", entry = floor((n s + 2^29) / 2^30), which keeps the size of rows of unit entries;
- ``normal``: "N", entry = n.

Version 1 multiplied by 1 / sqrt(rows) in float64, so its entries had 53 bits and no product with them was exact.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from analytic.errors import SpecificationError
from analytic.integer_maps import FixedMatrix, IntMatrix

Projection = Literal["linear", "nin", "normal"]
"""Distribution and scale of a random projection."""

Kind = Literal["A", "B"]
"""The papers' letter: A lifts the input features, B the features of a layer."""

PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
PROJECTION_VERSION = "analytic/projection/v2"

FRACTION_BITS = 16
"""Entries of a projection are whole numbers of 2^-16."""


@lru_cache(maxsize=4)  # in a simulation every client asks for the same few
def random_projection(seed: int, layer: int, kind: Kind, shape: tuple[int, int], projection: Projection) -> FixedMatrix:
    """The public random matrix of the module's specification, read-only.

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
        units = _scaled(_uniform(_stream(seed, layer, kind, shape, b"U", 4)), shape[0], 46)
    else:
        units = _normal(_stream(seed, layer, kind, shape, b"N", 24))
        units = units if projection == "normal" else _scaled(units, shape[0], 30)
    values = np.ldexp(units.reshape(shape).astype(np.float64), -FRACTION_BITS)
    return FixedMatrix(values=values, fraction_bits=FRACTION_BITS)


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


def _uniform(stream: bytes) -> IntMatrix:
    """Units of 2^-32."""
    return 2 * np.frombuffer(stream, dtype="<u4").astype(np.int64) + (1 - 2**32)


def _normal(stream: bytes) -> IntMatrix:
    """Units of 2^-16."""
    sums: IntMatrix = np.frombuffer(stream, dtype="<u2").reshape(-1, 12).sum(axis=1, dtype=np.int64)
    return sums - 393210


def _scaled(numbers: IntMatrix, rows: int, bits: int) -> IntMatrix:
    """Each number times 2^(30 - bits) / sqrt(rows), to the nearest integer."""
    return (numbers * math.isqrt(2**60 // rows) + (1 << bits - 1)) >> bits
