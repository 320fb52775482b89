"""Sums of embeddings of discrete values: how often two groups have two values in the same row, never through one-hot.

The one-hot matrix Phi, shape (n, E V), is never built. Its Gram counts how often two groups have two values in the
same row, and those counts come straight from the indices, by whichever of two ways is cheaper:

- a histogram of idx_i V + idx_j for each pair of groups: n steps a pair, whatever V, so it wins for many values;
- for few values, float32 products of a block's indicator columns of the values 1 to V - 1, exact below 2^24 rows a
  block; value 0 follows from the margins, which saves three quarters of the work for binary digits.

Both beat a float64 product of the one-hot columns. ANDed bit columns with popcounts do not, in numpy, and gathering
the rows of each value is slower than histograms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.bucketing import Digits
from analytic.checked_products import GramSum
from analytic.errors import InvalidRowsError, SpecificationError
from analytic.row_format import FloatMatrix, RowFormat
from analytic.shape_repr import shape_repr
from analytic.statistics import LABELS, IntMatrix, IntVector, check_labels
from analytic.tallies import checked_count, count_segment, refuse_impossible, too_many_rows
from analytic.total_check import exceeding_columns, is_semidefinite
from analytic.whole_numbers import INT64_MAX, settle_whole_numbers

MAX_CELLS = 2**14
"""Largest E V: beyond it the float64 Gram alone needs more than 2 GiB."""
HISTOGRAM_VALUES = 16
"""From this V on, histograms of pairs are cheaper than products."""
HISTOGRAM_ROWS = 8192
PRODUCT_ROWS = 2048
"""Rows taken at a time: long histograms amortise their calls, indicator columns must stay small."""
STRIP_CELLS = 128
"""Rows of the Gram that are completed at a time."""
CHECKED_CELLS = 2048
"""Up to here it is checked that a total's Gram is positive semidefinite, beside all that counts keep by themselves."""
EXACT_FLOAT32 = 2**24
"""Integers up to here, and so counts of as many rows, are exact in float32."""

Row = TypeVar("Row", int, IntVector)


def too_many_cells(n_groups: int, n_values: int, advice: str) -> SpecificationError:
    """Return the error for more cells than a Gram has room for; ``advice`` says what to do."""
    n_cells = n_groups * n_values
    return SpecificationError(
        f"{n_groups} groups of {n_values} values are {n_cells} cells, more than {MAX_CELLS}: their Gram would need "
        f"{gram_gib(n_cells):.1f} GiB; {advice}"
    )


def gram_gib(n_cells: int) -> float:
    """Return what a Gram of so many cells takes, 8 bytes an entry, in GiB."""
    return n_cells**2 / 2**27


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSpec:
    """The public shape of a sum of counts: how often two groups' values, and a value and a class, meet in a row.

    Args:
        n_groups: E, how many groups.
        n_values: V, values of a group.
        n_classes: c: classes, or columns of real targets.
        max_rows: largest number of rows that all clients together may hold.
        diagonal_allowance: largest total added to the Gram's diagonal (the RI process).
        diagonal_each: what each client adds of it.
        target_format: ``LABELS``, or the format of real targets, of which cells then have sums and not counts.
        fraction_bits: f of the lattice of rows whose ones are 2^f units long, whose number is withheld; 0 for counts.

    Raises:
        SpecificationError: E V is too large, or a bound leaves int64.
    """

    n_groups: int
    n_values: int
    n_classes: int
    max_rows: int
    diagonal_allowance: int = 0
    diagonal_each: int = 0
    target_format: RowFormat = LABELS
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_groups", "n_values", "n_classes", "max_rows", "diagonal_allowance")
        if min(self.n_groups, self.n_values - 1, self.n_classes, self.max_rows) < 1 or self.diagonal_allowance < 0:
            raise SpecificationError(
                "counts need at least one group, two values, one class, one row and a diagonal allowance >= 0, not "
                f"{self.n_groups}, {self.n_values}, {self.n_classes}, {self.max_rows} and {self.diagonal_allowance}"
            )
        if self.n_cells > MAX_CELLS:
            raise too_many_cells(self.n_groups, self.n_values, "use smaller groups or fewer buckets")
        if (self.max_rows << 2 * self.fraction_bits) + self.diagonal_allowance > INT64_MAX:
            raise SpecificationError(
                f"{self.max_rows} rows on a lattice of {self.fraction_bits} fraction bits and the diagonal's allowance "
                "must stay below 2^63 together; use a smaller gamma, fewer rows or fraction bits"
            )
        if self.max_rows * self.target_format.magnitude > INT64_MAX:
            raise SpecificationError(
                f"sums of {self.max_rows} targets in {self.target_format} must stay below 2^63; use fewer bits"
            )

    @property
    def n_cells(self) -> int:
        """D = E V, the length of a row of Phi."""
        return self.n_groups * self.n_values

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """The layout of ``to_vector``: (name, size, bound of the sum) a segment."""
        return (
            (
                "gram",
                self.n_cells * (self.n_cells + 1) // 2,
                (self.max_rows << 2 * self.fraction_bits) + self.diagonal_allowance,
            ),
            (
                "cross",
                self.n_cells * self.n_classes,
                self.max_rows * self.target_format.magnitude << self.fraction_bits,
            ),
            count_segment(self.max_rows),
        )

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most.

        The diagonal's allowance is left whole.
        """
        own = replace(self, max_rows=min(max_rows, self.max_rows))
        return (*(bound for _, _, bound in own.segments[:-1]), max_rows)

    @property
    def block_rows(self) -> int:
        """Rows that are best counted at a time."""
        return HISTOGRAM_ROWS if self.n_values >= HISTOGRAM_VALUES else PRODUCT_ROWS

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(size for _, size, _ in self.segments)

    def to_vector(self, statistics: Counts) -> IntVector:
        """The counts' own vector, read-only: the Gram's upper triangle by rows, the cross-correlation, the count.

        Raises:
            InvalidRowsError: another shape.
        """
        if statistics.vector.shape != (self.size,):
            raise InvalidRowsError(
                f"the specification has {self.size} counts ({self.n_groups} groups of {self.n_values} values), "
                f"{len(statistics.vector)} came"
            )
        return statistics.vector

    def from_vector(self, vector: IntVector) -> Counts:
        """The counts in a vector that ``to_vector`` wrote, or in a sum of such vectors; they share its memory.

        Raises:
            InvalidRowsError: another size or type, or a count that no total can have.
        """
        checked_count(vector, self.segments, self.max_rows)
        return Counts(n_cells=self.n_cells, vector=vector.view())

    def check_total(self, total: Counts, survivors: int) -> None:
        """Refuse a total that no rows of so many clients add up to.

        Every group has one value in every row. So a group's cells, and those of any two groups, count each row once;
        none is negative, and no two values of one group meet. Up to ``CHECKED_CELLS`` the Gram is positive semidefinite
        as well, without the first cells of all groups but one, which follow from the others.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        refuse_impossible(self._broken(total.with_diagonal(-survivors * self.diagonal_each)), total.count)

    def class_rows(self, total: Counts) -> IntVector | None:
        """The rows of each class; None of real targets."""
        if self.target_format != LABELS:
            return None
        rows: IntVector = total.cross[: self.n_values].sum(axis=0)
        return rows

    def _broken(self, total: Counts) -> Iterator[str]:
        """The conditions that fail, cheap ones first."""
        (triangle, cross), count = _parts(self.n_cells, total.vector), total.count
        diagonal = total.diagonal.reshape(self.n_groups, self.n_values)
        if (triangle < 0).any() or (diagonal.sum(axis=1) != count).any():
            yield "groups whose values count every row once"
        if not all(self._is_table(total, group, diagonal) for group in range(self.n_groups)):
            yield "pairs of groups whose values count every row once"
        sums = cross.reshape(self.n_groups, self.n_values, self.n_classes).sum(axis=1)
        if (sums != sums[0]).any():
            yield "the same sums of targets by every group"
        cells = np.arange(self.n_cells)
        cells = cells[(cells < self.n_values) | (cells % self.n_values > 0)]
        cells = cells[total.diagonal[cells] > 0]
        is_labels = self.target_format == LABELS
        if is_labels and ((cross < 0).any() or (cross > total.diagonal[:, None]).any()):
            yield "cells with no more rows of a class than rows"
        if len(cells) > CHECKED_CELLS:
            return
        gram = total.gram(cells).astype(np.int64)
        if not is_semidefinite(gram):
            yield "a positive semidefinite Gram"
        elif is_labels and exceeding_columns(gram, cross[cells], sums[0].tolist()):
            yield "a positive semidefinite Gram of cells beside each class"

    def _is_table(self, total: Counts, group: int, diagonal: IntMatrix) -> bool:
        """Whether a group's cells with its own and those of all later groups count each of its values' rows once."""
        (triangle, _), v = _parts(self.n_cells, total.vector), self.n_values
        rows = range(group * v, group * v + v)
        starts = [_row_start(row, self.n_cells) for row in rows]
        if any(triangle[start + 1 : start + v - place].any() for place, start in enumerate(starts)):
            return False
        later = [
            triangle[start + v - place : start + self.n_cells - row]
            for place, (row, start) in enumerate(zip(rows, starts, strict=True))
        ]
        tables = np.array(later).reshape(v, -1, v)
        by_value, by_other = tables.sum(axis=2), tables.sum(axis=0)
        return bool((by_value == diagonal[group][:, None]).all() and (by_other == diagonal[group + 1 :]).all())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """Phi^T Phi, Phi^T Y and the number of rows as counts: compare them by ``to_bytes()``.

    They are kept as the one vector that is summed, since at E V = 8192 a square int64 Gram is another 512 MiB.

    Args:
        n_cells: D, rows of Phi^T Phi.
        vector: upper triangle of Phi^T Phi by rows, Phi^T Y by rows, the count; int64.
    """

    n_cells: int
    vector: IntVector

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.vector.setflags(write=False)

    @classmethod
    def from_blocks(cls, spec: CountSpec, blocks: Iterable[tuple[Digits, NDArray[Any]]]) -> Counts:
        """The counts of (indices, targets) blocks: indices of shape (n, E) below V, labels (n,) or real targets (n, c).

        Raises:
            RowsOutsideFormatError: real targets outside their format.
            InvalidRowsError: shapes disagree, indices or labels out of range, more rows than ``max_rows``.
        """
        vector = np.zeros(spec.size, dtype=np.int64)
        triangle, cross = _parts(spec.n_cells, vector)
        pairs = (_PairHistograms if spec.n_values >= HISTOGRAM_VALUES else _IndicatorProducts)(spec, triangle)
        for indices, labels in blocks:
            _check_block(spec, indices, labels)
            if vector[-1] + len(indices) > spec.max_rows:
                raise too_many_rows(int(vector[-1]) + len(indices), spec.max_rows)
            vector[-1] += len(indices)
            pairs.add(indices)
            cross += (_class_counts if spec.target_format == LABELS else _target_sums)(indices, labels, spec)
        pairs.finish()
        return cls(n_cells=spec.n_cells, vector=vector)

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.vector[-1])

    @property
    def cross(self) -> IntMatrix:
        """Phi^T Y, shape (D, c)."""
        return _parts(self.n_cells, self.vector)[1]

    @property
    def diagonal(self) -> IntVector:
        """Number of occurrences of each cell (plus what was added to the diagonal), shape (D,)."""
        return self.vector[_row_start(np.arange(self.n_cells), self.n_cells)]

    def gram(self, cells: NDArray[np.intp]) -> FloatMatrix:
        """Phi^T Phi of the given ascending cells as float64, which holds counts exactly."""
        triangle, _ = _parts(self.n_cells, self.vector)
        gram = np.empty((len(cells), len(cells)))
        for place, cell in enumerate(cells):
            start = _row_start(int(cell), self.n_cells)
            gram[place, place:] = triangle[start + cells[place:] - cell]
            gram[place:, place] = gram[place, place:]
        return gram

    def with_diagonal(self, units: int) -> Counts:
        """These counts with ``units`` (may be negative) added to the Gram's diagonal."""
        if units == 0:
            return self
        vector = self.vector.copy()
        vector[_row_start(np.arange(self.n_cells), self.n_cells)] += units
        return Counts(n_cells=self.n_cells, vector=vector)

    def on_lattice(self, fraction_bits: int) -> Counts:
        """Phi^T Phi and Phi^T Y of rows whose ones are 2^f units long, and the number of rows withheld."""
        vector = self.vector.copy()
        triangle, cross = _parts(self.n_cells, vector)
        triangle <<= 2 * fraction_bits
        cross <<= fraction_bits
        vector[-1] = 0
        return Counts(n_cells=self.n_cells, vector=vector)

    def off_lattice(self, fraction_bits: int) -> Counts:
        """The counts that ``on_lattice`` moved there, or a sum of such.

        Raises:
            InvalidRowsError: entries that no count has there, as noise makes them.
        """
        vector = self.vector.copy()
        triangle, cross = _parts(self.n_cells, vector)
        triangle >>= 2 * fraction_bits
        cross >>= fraction_bits
        counts = Counts(n_cells=self.n_cells, vector=vector)
        if counts.on_lattice(fraction_bits).to_bytes() != self.to_bytes():
            raise InvalidRowsError(
                "this total of bounded counts holds noise, and the learner has no solver that knows how much: take the "
                "learner of PrivacyPlan.apply"
            )
        return counts

    def __add__(self, other: Counts) -> Counts:
        if (self.n_cells, len(self.vector)) != (other.n_cells, len(other.vector)):
            raise InvalidRowsError(
                f"only counts of one shape add up: {self.n_cells} and {other.n_cells} cells, vectors of "
                f"{len(self.vector)} and {len(other.vector)}"
            )
        return Counts(n_cells=self.n_cells, vector=self.vector + other.vector)

    def to_bytes(self) -> bytes:
        """One byte string for one value, to compare and to hash."""
        return self.vector.tobytes()


def _parts(n_cells: int, vector: IntVector) -> tuple[IntVector, IntMatrix]:
    size = n_cells * (n_cells + 1) // 2
    return vector[:size], vector[size:-1].reshape(n_cells, -1)


def _row_start(row: Row, n_cells: int) -> Row:
    """Return the place of the entry (row, row) in the triangle."""
    return row * n_cells - row * (row - 1) // 2


def _add_strip(triangle: IntVector, n_cells: int, first: int, strip: IntMatrix) -> None:
    """Add rows ``first``, first + 1, ... of a Gram, given from column ``first`` on, to its triangle."""
    for place, row in enumerate(strip):
        start = _row_start(first + place, n_cells)
        triangle[start : start + n_cells - first - place] += row[place:]


def _check_block(spec: CountSpec, indices: Digits, labels: NDArray[Any]) -> None:
    if indices.shape != (len(labels), spec.n_groups):
        raise InvalidRowsError(
            f"indices must have shape (n, {spec.n_groups}) and a label each; they have shape {indices.shape}, "
            f"the labels {labels.shape}"
        )
    if indices.size and int(indices.max()) >= spec.n_values:
        raise InvalidRowsError(f"indices must be below {spec.n_values}; one is {int(indices.max())}")
    if spec.target_format != LABELS:
        if labels.shape != (len(indices), spec.n_classes):
            raise InvalidRowsError(f"real targets must have shape (n, {spec.n_classes}), not {labels.shape}")
        return
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidRowsError(
            f"targets must be integer class labels of shape (n,), not {labels.dtype} of shape {labels.shape}"
        )
    check_labels(labels, spec.n_classes)


def _class_counts(indices: Digits, labels: NDArray[Any], spec: CountSpec) -> IntMatrix:
    """Phi^T Y of a block, shape (D, c)."""
    classes = labels.astype(np.intp)
    size = spec.n_values * spec.n_classes
    by_group = [np.bincount(column.astype(np.intp) * spec.n_classes + classes, minlength=size) for column in indices.T]
    return np.concatenate(by_group).reshape(spec.n_cells, spec.n_classes)


def _target_sums(indices: Digits, targets: NDArray[Any], spec: CountSpec) -> IntMatrix:
    """Phi^T Y of a block of real targets in units of their format, shape (D, c); float64 adds so few exactly."""
    units = spec.target_format.quantise(targets)
    sums = [
        [np.bincount(column, weights=own, minlength=spec.n_values) for own in units.T]
        for column in indices.T.astype(np.intp)
    ]
    return np.array(sums).astype(np.int64).swapaxes(1, 2).reshape(spec.n_cells, spec.n_classes)


class _PairHistograms:
    """Adds Phi^T Phi of blocks of indices to a triangle by a histogram for each pair of groups."""

    def __init__(self, spec: CountSpec, triangle: IntVector) -> None:
        self._spec, self._triangle = spec, triangle

    def add(self, indices: Digits) -> None:
        n_values = self._spec.n_values
        columns = np.ascontiguousarray(indices.T, dtype=np.intp)
        pairs = np.empty(len(indices), dtype=np.intp)
        for i, column in enumerate(columns):
            base = column * n_values
            strip = np.empty((n_values, len(columns) - i, n_values), dtype=np.int64)
            for place, other in enumerate(columns[i:]):
                np.add(base, other, out=pairs)
                strip[:, place] = np.bincount(pairs, minlength=n_values**2).reshape(n_values, n_values)
            _add_strip(self._triangle, self._spec.n_cells, i * n_values, strip.reshape(n_values, -1))

    def finish(self) -> None:
        """Nothing is pending."""


class _IndicatorProducts:
    """Adds Phi^T Phi of blocks of indices to a triangle by float32 products, whose sums are integers below 2^24."""

    def __init__(self, spec: CountSpec, triangle: IntVector) -> None:
        self._spec, self._triangle = spec, triangle
        self._start()

    def _start(self) -> None:
        size = self._spec.n_groups * (self._spec.n_values - 1)
        self._inner = GramSum(size, np.float32)
        self._margins = np.zeros(size, dtype=np.int64)
        self._rows = 0

    def add(self, indices: Digits) -> None:
        for start in range(0, len(indices), EXACT_FLOAT32):
            self._add(indices[start : start + EXACT_FLOAT32])

    def _add(self, indices: Digits) -> None:
        if self._rows + len(indices) > EXACT_FLOAT32:
            self.finish()
            self._start()
        columns = indices[:, :, None] == np.arange(1, self._spec.n_values, dtype=indices.dtype)
        columns = columns.reshape(len(indices), len(self._margins))
        self._margins += np.count_nonzero(columns, axis=0)
        self._rows += len(indices)
        self._inner.add(columns.astype(np.float32))

    def finish(self) -> None:
        """Move what is pending to the triangle."""
        n_groups, n_values = self._spec.n_groups, self._spec.n_values
        self._inner.check()
        inner = self._inner.matrix.reshape(n_groups, n_values - 1, n_groups, n_values - 1)
        margins = np.empty((n_groups, n_values), dtype=np.int64)
        margins[:, 1:] = self._margins.reshape(n_groups, -1)
        margins[:, 0] = self._rows - margins[:, 1:].sum(axis=1)
        step = max(1, STRIP_CELLS // n_values)
        for i in range(0, n_groups, step):
            table = _completed(inner[i : i + step, :, i:], margins[i : i + step], margins[i:])
            strip = table.reshape(-1, (n_groups - i) * n_values)
            _add_strip(self._triangle, self._spec.n_cells, i * n_values, strip)


def _completed(inner: NDArray[Any], left: IntMatrix, right: IntMatrix) -> NDArray[np.int64]:
    """Contingency tables (groups, values, groups, values) from their entries for values >= 1 and their margins."""
    table = np.empty((len(left), left.shape[1], len(right), right.shape[1]), dtype=np.int64)
    table[:, 1:, :, 1:] = inner
    table[:, 1:, :, 0] = left[:, 1:, None] - table[:, 1:, :, 1:].sum(axis=3)
    table[:, 0] = right - table[:, 1:].sum(axis=1)
    return table
