"""Symmetric matrices and their triangles, in squares that caches hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

SQUARE = 64
"""Entries of a side of the squares in which a triangle is converted and mirrored."""

IntMatrix = NDArray[np.int64]
IntVector = NDArray[np.int64]
Matrix = TypeVar("Matrix", bound=NDArray[Any])


def write_triangle(matrix: IntMatrix, triangle: IntVector) -> None:
    """Write the upper triangle by rows."""
    for row, place in enumerate(_triangle_rows(len(matrix))):
        triangle[place] = matrix[row, row:]


def symmetric(triangle: IntVector, d: int) -> IntMatrix:
    """The matrix whose upper triangle this is."""
    matrix = np.empty((d, d), dtype=np.int64)
    for row, place in enumerate(_triangle_rows(d)):
        matrix[row, row:] = triangle[place]
    return mirrored(matrix.T).T


def mirrored(matrix: Matrix) -> Matrix:
    """Copy the lower triangle to the upper one, in place."""
    below = np.tri(SQUARE, dtype=bool)
    for start in range(0, len(matrix), SQUARE):
        stop = start + SQUARE
        square = matrix[start:stop, start:stop]
        square[...] = np.where(below[: len(square), : len(square)], square, square.T)
        for other in range(stop, len(matrix), SQUARE):
            matrix[start:stop, other : other + SQUARE] = matrix[other : other + SQUARE, start:stop].T
    return matrix


def to_integers(matrix: NDArray[Any]) -> IntMatrix:
    """Convert a lower triangle of whole float64 numbers in their own memory; the array that was given is used up."""
    integers: IntMatrix = matrix.view(np.int64)
    for start in range(0, len(matrix), SQUARE):
        stop = start + SQUARE
        integers[start:stop, :stop] = matrix[start:stop, :stop].astype(np.int64)
    return integers


def _triangle_rows(d: int) -> Iterable[slice]:
    start = 0
    for row in range(d):
        yield slice(start, start + d - row)
        start += d - row
