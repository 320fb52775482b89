"""Public feature maps of private rows, row by row: a row's bits do not depend on the rows around it.

BLAS picks its kernels by the shape of a product, so row i of ``X @ A`` may change in its last bit with the number
of rows in X; vectorised functions have the same freedom at the end of an array. A partition of the rows would then
leave traces in the features. Here every product and every activation runs on tiles of ``TILE_ROWS`` rows, the last
one filled up with zero rows, on one BLAS thread: each row meets the same kernels in the same order of additions,
wherever it stands. The equality holds within one machine's BLAS; two processors may differ in the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.activations import Activation
from analytic.errors import InvalidRowsError
from analytic.row_format import FloatMatrix
from analytic.solve import one_blas_thread

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
