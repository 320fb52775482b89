"""Public feature maps of private rows: random projections, activations, and products whose bits no batch changes.

**Bits.** BLAS picks its kernels by the shape of a product, so row i of ``X @ A`` may change in its last bit with the
number of rows in X; vectorised functions have the same freedom at the end of an array. A partition of the rows would
then leave traces in the features. Here every product and every activation runs on tiles of ``TILE_ROWS`` rows, the last
one filled up with zero rows, on one BLAS thread: each row meets the same kernels in the same order of additions,
wherever it stands. The equality holds within one machine's BLAS; two processors may differ in the last bit.

**Projections** are matrices that anyone can draw again, bit for bit, from a seed.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.solve import one_blas_thread

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """An elementwise function that never grows a value.

    Args:
        function: sigma, elementwise on float64.
        ceiling: largest |sigma(z)| over all z; infinity when there is none.
    """

    function: Callable[[FloatMatrix], FloatMatrix]
    ceiling: float = math.inf


def activation_named(name: str) -> Activation:
    """The activation of that name.

    Raises:
        SpecificationError: unknown name.
    """
    if name not in ACTIVATIONS:
        raise SpecificationError(f"an activation is one of {', '.join(ACTIVATIONS)}, not {name!r}")
    return ACTIVATIONS[name]


def _gelu(z: FloatMatrix) -> FloatMatrix:
    """The exact function, z times the normal distribution function, not its tanh approximation."""
    return 0.5 * z * (1.0 + erf(z * math.sqrt(0.5)))


def _relu(z: FloatMatrix) -> FloatMatrix:
    return np.maximum(z, 0.0)


def _leaky_relu(z: FloatMatrix) -> FloatMatrix:
    return np.where(z > 0, z, 0.01 * z)


def _hardswish(z: FloatMatrix) -> FloatMatrix:
    return z * np.clip(z + 3.0, 0.0, 6.0) / 6.0


def _softshrink(z: FloatMatrix) -> FloatMatrix:
    return z - np.clip(z, -0.5, 0.5)


def _identity(z: FloatMatrix) -> FloatMatrix:
    return z


ACTIVATIONS: dict[str, Activation] = {
    "gelu": Activation(function=_gelu),
    "relu": Activation(function=_relu),
    "leaky_relu": Activation(function=_leaky_relu),
    "tanh": Activation(function=np.tanh, ceiling=1.0),
    "hardswish": Activation(function=_hardswish),
    "softshrink": Activation(function=_softshrink),
    "none": Activation(function=_identity),
}
"""DeepAFL's table 5, with PyTorch's default slopes and thresholds."""

TILE_ROWS = 192
"""A multiple of the row unrolling of every common kernel (2, 4, 6, 8, 12, 16, 24, 32): no tile has a remainder."""

COLUMN_MULTIPLE = 8
"""Matrices are filled up to this multiple of columns: a single column would go through another BLAS routine."""


def map_rows(rows: NDArray[Any], matrix: FloatMatrix, activation: Activation | None = None) -> FloatMatrix:
    """sigma(X M) in float64, each row's bits a function of that row and M alone.

    Args:
        rows: X, shape (n, d), any real type and memory order; n may be 0.
        matrix: M, shape (d, m).
        activation: sigma; None for the product itself.

    Returns:
        Shape (n, m), C order.

    Raises:
        InvalidRowsError: rows that are not real numbers of shape (n, d).
    """
    out = np.zeros((len(rows), matrix.shape[1]))
    add_mapped_rows(out, rows, matrix, activation)
    return out


def add_mapped_rows(
    out: FloatMatrix, rows: NDArray[Any], matrix: FloatMatrix, activation: Activation | None = None
) -> None:
    """Add ``map_rows(rows, matrix, activation)`` to ``out`` in place, without a second array of its size."""
    _check_rows(rows, matrix)
    padded = _fill_up_columns(matrix)
    tile = np.zeros((TILE_ROWS, padded.shape[0]))
    product = np.empty((TILE_ROWS, padded.shape[1]))
    # NaN and infinity stay in their row, and the row format refuses them with a count: no warning before that
    with one_blas_thread(), np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, len(rows), TILE_ROWS):
            part = rows[start : start + TILE_ROWS]
            tile[: len(part)] = part
            tile[len(part) :] = 0.0
            np.matmul(tile, padded, out=product)
            mapped = product if activation is None else activation.function(product)
            out[start : start + len(part)] += mapped[: len(part), : matrix.shape[1]]


def _check_rows(rows: NDArray[Any], matrix: FloatMatrix) -> None:
    if rows.ndim != 2 or rows.shape[1] != len(matrix):
        raise InvalidRowsError(f"features must have shape (n, {len(matrix)}), not {rows.shape}")
    if not (np.issubdtype(rows.dtype, np.floating) or np.issubdtype(rows.dtype, np.integer) or rows.dtype == np.bool_):
        raise InvalidRowsError(f"features must be real numbers, not {rows.dtype}")


def _fill_up_columns(matrix: FloatMatrix) -> FloatMatrix:
    missing = -matrix.shape[1] % COLUMN_MULTIPLE
    return np.ascontiguousarray(np.pad(matrix, ((0, 0), (0, missing))) if missing else matrix)
