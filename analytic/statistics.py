"""Exact sufficient statistics of rows: Gram matrix, cross-correlation and count, in integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.row_format import FloatMatrix, RowFormat

IntMatrix = NDArray[np.int64]
IntVector = NDArray[np.int64]

LABELS = RowFormat(integer_bits=1, fraction_bits=0, signed=False)
"""The format of one-hot labels: they are integers already."""

INT64_MAX = 2**63 - 1
EXACT_FLOAT64 = 2**53
BLOCK_ROWS = 4096
"""Rows quantised at a time, so that memory does not grow with the number of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsSpec:
    """The public shape of a sum of statistics, and the proof that it is exact.

    Building one checks that products of rows are exact in float64 (2^53), that some block of rows sums exactly
    before it moves to int64, and that no total over ``max_rows`` rows leaves int64.

    Args:
        n_features: d, columns of a feature row.
        n_targets: c, columns of a target row.
        feature_format: fixed-point format of features.
        target_format: fixed-point format of targets; ``LABELS`` for one-hot class labels.
        max_rows: largest number of rows that all clients together may hold.
        diagonal_allowance: largest total added to the Gram's diagonal, in its units (the RI process).

    Raises:
        SpecificationError: names the condition that fails and what would satisfy it.
    """

    n_features: int
    n_targets: int
    feature_format: RowFormat
    target_format: RowFormat = LABELS
    max_rows: int
    diagonal_allowance: int = 0

    def __post_init__(self) -> None:
        if min(self.n_features, self.n_targets, self.max_rows) < 1 or self.diagonal_allowance < 0:
            raise SpecificationError(
                "statistics need at least one feature, target and row and a diagonal allowance >= 0, not "
                f"{self.n_features}, {self.n_targets}, {self.max_rows} and {self.diagonal_allowance}"
            )
        for what, bound in (("Gram", self.gram_bound), ("cross-correlation", self.cross_bound)):
            if bound > INT64_MAX:
                raise SpecificationError(
                    f"a {what} total of {self.max_rows} rows in {self.feature_format} x {self.target_format} can "
                    f"reach 2^{bound.bit_length()} and must stay below 2^63: allow fewer rows or fewer bits"
                )

    @property
    def gram_bound(self) -> int:
        """Largest absolute value of an entry of the total Gram, in its units of 2^-2f."""
        return self.max_rows * self.feature_format.magnitude**2 + self.diagonal_allowance

    @property
    def cross_bound(self) -> int:
        """Largest absolute value of an entry of the total cross-correlation, in units of 2^-(f + f_target)."""
        return self.max_rows * self.feature_format.magnitude * self.target_format.magnitude

    @property
    def exact_rows(self) -> int:
        """Rows whose statistics sum exactly in float64."""
        widest = max(self.feature_format.magnitude, self.target_format.magnitude)
        return EXACT_FLOAT64 // (self.feature_format.magnitude * widest)

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """The layout of ``to_vector``: (name, size, bound of the sum) a segment."""
        triangle = self.n_features * (self.n_features + 1) // 2
        return (
            ("gram", triangle, self.gram_bound),
            ("cross", self.n_features * self.n_targets, self.cross_bound),
            ("count", 1, self.max_rows),
        )

    def to_vector(self, statistics: Statistics) -> IntVector:
        """Statistics as one int64 vector: the Gram's upper triangle by rows, the cross-correlation, the count.

        Raises:
            InvalidRowsError: another shape, or more rows than ``max_rows``.
        """
        d, c = self.n_features, self.n_targets
        if statistics.gram.shape != (d, d) or statistics.cross.shape != (d, c):
            raise InvalidRowsError(
                f"the specification has {d} features and {c} targets, these statistics have "
                f"gram {statistics.gram.shape} and cross {statistics.cross.shape}"
            )
        if statistics.count > self.max_rows:
            raise InvalidRowsError(
                f"{statistics.count} rows are more than the {self.max_rows} that the specification allows for "
                "all clients together; agree on a larger max_rows or use fewer rows"
            )
        vector = np.empty(d * (d + 1) // 2 + d * c + 1, dtype=np.int64)
        for row, place in enumerate(_triangle_rows(d)):
            vector[place] = statistics.gram[row, row:]
        vector[-1 - d * c : -1] = statistics.cross.ravel()
        vector[-1] = statistics.count
        return vector

    def from_vector(self, vector: IntVector) -> Statistics:
        """The statistics that ``to_vector`` wrote, or a sum of such vectors.

        Raises:
            InvalidRowsError: another size or type, or a count that no total can have.
        """
        d, c = self.n_features, self.n_targets
        size = d * (d + 1) // 2 + d * c + 1
        if vector.dtype != np.int64 or vector.shape != (size,):
            raise InvalidRowsError(f"statistics need an int64 vector of shape ({size},), not {vector.shape}")
        if not 0 <= vector[-1] <= self.max_rows:
            raise InvalidRowsError(f"a total of {int(vector[-1])} rows is outside 0 to {self.max_rows}")
        gram = np.empty((d, d), dtype=np.int64)
        for row, place in enumerate(_triangle_rows(d)):
            gram[row, row:] = vector[place]
            gram[row:, row] = vector[place]
        return Statistics(gram=gram, cross=vector[-1 - d * c : -1].reshape(d, c).copy(), count=int(vector[-1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Sums over rows, exact: compare them by ``to_bytes()``.

    Args:
        gram: X^T X, shape (d, d), int64, in units of 2^-2f.
        cross: X^T Y, shape (d, c), int64, in units of 2^-(f + f_target).
        count: number of rows.
    """

    gram: IntMatrix
    cross: IntMatrix
    count: int

    def __post_init__(self) -> None:
        self.gram.setflags(write=False)
        self.cross.setflags(write=False)

    @classmethod
    def zero(cls, spec: StatisticsSpec) -> Statistics:
        """The statistics of no rows."""
        d, c = spec.n_features, spec.n_targets
        return cls(gram=np.zeros((d, d), dtype=np.int64), cross=np.zeros((d, c), dtype=np.int64), count=0)

    @classmethod
    def from_rows(
        cls, spec: StatisticsSpec, features: NDArray[Any], targets: NDArray[Any], *, clip: bool = False
    ) -> Statistics:
        """Statistics of arrays, a block of rows at a time.

        Args:
            spec: the public specification.
            features: shape (n, d), any real type.
            targets: shape (n, c), or integer class labels of shape (n,) in 0 to c - 1.
            clip: clip features and targets into their format instead of refusing them.

        Raises:
            InvalidRowsError: shapes disagree, labels out of range, too many rows.
            RowsOutsideFormatError: NaN, infinity or values outside the format.
        """
        return cls.from_batches(spec, _blocks(features, targets), clip=clip)

    @classmethod
    def from_batches(
        cls, spec: StatisticsSpec, batches: Iterable[tuple[NDArray[Any], NDArray[Any]]], *, clip: bool = False
    ) -> Statistics:
        """Statistics of (features, targets) batches in one pass; memory does not grow with their number."""
        accumulator = _Accumulator(spec, clip=clip)
        for features, targets in batches:
            for block, block_targets in _blocks(features, targets):
                accumulator.add(block, block_targets)
        return accumulator.finish()

    def __add__(self, other: Statistics) -> Statistics:
        if self.gram.shape != other.gram.shape or self.cross.shape != other.cross.shape:
            raise InvalidRowsError(
                f"only statistics of one shape add up: gram {self.gram.shape} and {other.gram.shape}, "
                f"cross {self.cross.shape} and {other.cross.shape}"
            )
        return Statistics(gram=self.gram + other.gram, cross=self.cross + other.cross, count=self.count + other.count)

    def with_diagonal(self, units: int) -> Statistics:
        """These statistics with ``units`` (in the Gram's units, may be negative) added to the diagonal."""
        gram = self.gram.copy()
        gram.flat[:: len(gram) + 1] += units
        return Statistics(gram=gram, cross=self.cross, count=self.count)

    def to_bytes(self) -> bytes:
        """One byte string for one value, to compare and to hash."""
        return self.gram.tobytes() + self.cross.tobytes() + self.count.to_bytes(8, "little")


class _Accumulator:
    """Sums blocks in float64 while that is exact, then moves the sum to int64."""

    def __init__(self, spec: StatisticsSpec, *, clip: bool) -> None:
        self._spec, self._clip = spec, clip
        d, c = spec.n_features, spec.n_targets
        self._gram = np.zeros((d, d), dtype=np.int64)
        self._cross = np.zeros((d, c), dtype=np.int64)
        self._count = 0
        self._pending: tuple[FloatMatrix, FloatMatrix, int] | None = None

    def add(self, features: NDArray[Any], targets: NDArray[Any]) -> None:
        count = self._count + len(features)
        if count > self._spec.max_rows:
            raise InvalidRowsError(
                f"at least {count} rows are more than the {self._spec.max_rows} that the specification allows for "
                "all clients together; agree on a larger max_rows or use fewer rows"
            )
        if len(features) == 0:
            return
        rows, goals = self._quantised(features, targets)
        for start in range(0, len(rows), self._spec.exact_rows):
            stop = start + self._spec.exact_rows
            self._multiply(rows[start:stop], goals[start:stop])
        self._count = count

    def finish(self) -> Statistics:
        self._flush()
        lower = np.tril_indices(len(self._gram), -1) if len(self._gram) < 512 else None
        gram = self._gram
        if lower is not None:
            gram[lower] = gram.T[lower]
        else:
            for row in range(len(gram)):
                gram[row:, row] = gram[row, row:]
        return Statistics(gram=gram, cross=self._cross, count=self._count)

    def _quantised(self, features: NDArray[Any], targets: NDArray[Any]) -> tuple[FloatMatrix, FloatMatrix]:
        spec = self._spec
        if features.ndim != 2 or features.shape[1] != spec.n_features or len(targets) != len(features):
            raise InvalidRowsError(
                f"features must have shape (n, {spec.n_features}) and as many targets; "
                f"they have shape {features.shape}, the targets {targets.shape}"
            )
        rows = spec.feature_format.quantise(features, clip=self._clip)
        if targets.ndim == 1:
            return rows, one_hot(targets, spec.n_targets)
        if targets.shape[1:] != (spec.n_targets,):
            raise InvalidRowsError(f"targets must have shape (n, {spec.n_targets}), not {targets.shape}")
        return rows, spec.target_format.quantise(targets, clip=self._clip)

    def _multiply(self, rows: FloatMatrix, goals: FloatMatrix) -> None:
        if self._pending is not None and self._pending[2] + len(rows) > self._spec.exact_rows:
            self._flush()
        if self._pending is None:
            d, c = self._cross.shape
            self._pending = (np.zeros((d, d), order="F"), np.zeros((d, c)), 0)
        gram, cross, n_rows = self._pending
        gram = blas.dsyrk(1.0, rows.T, beta=1.0, c=gram, overwrite_c=True)
        cross += rows.T @ goals
        self._pending = (gram, cross, n_rows + len(rows))

    def _flush(self) -> None:
        if self._pending is not None:
            self._gram += np.triu(self._pending[0]).astype(np.int64)
            self._cross += self._pending[1].astype(np.int64)
            self._pending = None


def one_hot(labels: NDArray[Any], n_classes: int) -> FloatMatrix:
    """Integer labels of shape (n,) as rows of zeros with a one, shape (n, n_classes).

    Raises:
        InvalidRowsError: labels that are no integers or lie outside 0 to n_classes - 1.
    """
    if not (np.issubdtype(labels.dtype, np.integer) or labels.dtype == np.bool_):
        raise InvalidRowsError(
            f"class labels must be integers, not {labels.dtype}; pass regression targets as a matrix of shape (n, c)"
        )
    outside = int(np.count_nonzero((labels < 0) | (labels >= n_classes)))
    if outside:
        raise InvalidRowsError(
            f"{outside} of {len(labels)} labels lie outside 0 to {n_classes - 1}; state the number of classes anew "
            "or repair the labels"
        )
    rows = np.zeros((len(labels), n_classes))
    rows[np.arange(len(labels)), labels.astype(np.intp)] = 1.0
    return rows


def _blocks(features: NDArray[Any], targets: NDArray[Any]) -> Iterable[tuple[NDArray[Any], NDArray[Any]]]:
    if len(features) != len(targets):
        raise InvalidRowsError(f"{len(features)} feature rows came with {len(targets)} targets; each row needs one")
    for start in range(0, len(features), BLOCK_ROWS):
        yield features[start : start + BLOCK_ROWS], targets[start : start + BLOCK_ROWS]


def _triangle_rows(d: int) -> Iterable[slice]:
    start = 0
    for row in range(d):
        yield slice(start, start + d - row)
        start += d - row
