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

With a factor v of the law's variance (1 unless stated) the scale is the integer s = isqrt(floor(2^60 v / rows)), which
is 2^30 sqrt(v / rows) rounded down, and every entry of the matrix is a whole number of 2^-16, rounded to the nearest
one (a half upward):

- ``linear``: "U", entry = floor((n s + 2^45) / 2^46), what deep-learning libraries give a linear layer by default;
- ``affine``: the same, with a bias for each column;
- ``nin``: "N", entry = floor((n s + 2^29) / 2^30), which keeps the size of rows of unit entries;
- ``fourier``: the same, with a phase for each column, uniform over a whole turn;
- ``normal``: "N", like ``nin`` with 1 in place of ``rows`` in s, so that entry = n where v = 1.

Biases are of one more stream, of the kind "a" or "b" and the distribution "U", with one n a column:

- ``affine``: entry = floor((n s + 2^45) / 2^46), with the weights' own s;
- ``fourier``: entry = floor((n p + 2^43) / 2^44), p = 843314857, which is 2^28 pi to the nearest.

Version 1 multiplied by 1 / sqrt(rows) in float64, so its entries had 53 bits and no product with them was exact.
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

import numpy as np

from analytic.errors import SpecificationError
from analytic.integer_maps import FixedMatrix, IntMatrix
from analytic.row_format import FloatMatrix

Projection = Literal["linear", "nin", "normal", "affine", "fourier"]
"""Distribution and scale of a random projection, and of its biases."""

Kind = Literal["A", "B"]
"""The papers' letter: A lifts the input features, B the features of a layer."""

PROJECTIONS: tuple[Projection, ...] = get_args(Projection)
BIASED: frozenset[Projection] = frozenset({"affine", "fourier"})
"""Those with biases."""
PROJECTION_VERSION = "analytic/projection/v2"

FRACTION_BITS = 16
"""Entries of a projection are whole numbers of 2^-16."""


WIDEST_SCALE = 2**31
"""Scales below it keep every n s an int64."""

PI = 843314857
"""Pi in units of 2^-28."""


@lru_cache(maxsize=4)  # in a simulation every client asks for the same few
def random_projection(
    seed: int, layer: int, kind: Kind, shape: tuple[int, int], projection: Projection, variance: float = 1.0
) -> FixedMatrix:
    """The public random matrix of the module's specification, read-only, with its biases where the law has some.

    Args:
        seed: 0 to 2^64 - 1; public, it protects nothing.
        layer: t, the layer that uses the matrix.
        kind: "A" or "B".
        shape: (inputs, outputs), both at least 1.
        projection: distribution and scale.
        variance: what the law's variance is multiplied by.

    Raises:
        SpecificationError: a seed, layer, shape, choice or variance outside these.
    """
    if not (0 <= layer < 2**32 and all(1 <= size < 2**32 for size in shape)):
        raise SpecificationError(f"a projection needs a layer >= 0 and sizes from 1 to 2^32 - 1, not {layer}, {shape}")
    scale = check_projection(seed, projection, inputs=shape[0], variance=variance)
    if projection in ("linear", "affine"):
        units = _rounded(_uniform(_stream(seed, layer, kind, shape, b"U", 4)), scale, 46)
    else:
        units = _rounded(_normal(_stream(seed, layer, kind, shape, b"N", 24)), scale, 30)
    biases = None
    if projection in BIASED:
        numbers = _uniform(_stream(seed, layer, kind.lower(), shape, b"U", 4, n=shape[1]))
        biases = _real(_rounded(numbers, scale, 46) if projection == "affine" else _rounded(numbers, PI, 44))
    return FixedMatrix(values=_real(units.reshape(shape)), fraction_bits=FRACTION_BITS, biases=biases)


def check_projection(seed: int, projection: str, *, inputs: int = 1, variance: float = 1.0) -> int:
    """The law's scale s for so many inputs, unless ``random_projection`` cannot draw from it.

    Raises:
        SpecificationError: a seed that is no unsigned 64-bit integer, an unknown projection, or a variance that is no
            number above 0 or whose scale no int64 product holds.
    """
    if not 0 <= seed < 2**64:
        raise SpecificationError(f"a seed is an integer from 0 to 2^64 - 1, not {seed}")
    if projection not in PROJECTIONS:
        raise SpecificationError(f"a projection is one of {', '.join(PROJECTIONS)}, not {projection!r}")
    rows = 1 if projection == "normal" else inputs
    usable = math.isfinite(variance) and variance > 0
    scale = math.isqrt(math.floor(2**60 * Fraction(variance) / rows)) if usable else 0
    if not 0 < scale < WIDEST_SCALE:
        raise SpecificationError(
            f"a projection's variance is multiplied by a number above 0 and below {4 * rows}, not {variance}"
        )
    return scale


def _stream(
    seed: int, layer: int, kind: str, shape: tuple[int, int], distribution: bytes, size: int, n: int | None = None
) -> bytes:
    """``n`` pieces of ``size`` bytes; a piece for each entry where no number is stated."""
    numbers = int(seed).to_bytes(8, "big") + layer.to_bytes(4, "big") + kind.encode()
    sizes = b"".join(length.to_bytes(4, "big") for length in shape)
    generator = hashlib.shake_256(PROJECTION_VERSION.encode() + numbers + sizes + distribution)
    return generator.digest(size * (shape[0] * shape[1] if n is None else n))


def _uniform(stream: bytes) -> IntMatrix:
    """Units of 2^-32."""
    return 2 * np.frombuffer(stream, dtype="<u4").astype(np.int64) + (1 - 2**32)


def _normal(stream: bytes) -> IntMatrix:
    """Units of 2^-16."""
    sums: IntMatrix = np.frombuffer(stream, dtype="<u2").reshape(-1, 12).sum(axis=1, dtype=np.int64)
    return sums - 393210


def _rounded(numbers: IntMatrix, factor: int, bits: int) -> IntMatrix:
    """Each number times factor 2^-bits, to the nearest integer."""
    return (numbers * factor + (1 << bits - 1)) >> bits


def _real(units: IntMatrix) -> FloatMatrix:
    return np.ldexp(units.astype(np.float64), -FRACTION_BITS)
