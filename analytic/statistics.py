"""Exact sufficient statistics of rows: Gram matrix, cross-correlation, the targets' own sums and count, in integers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.checked_products import GramSum, check_product, digit_product
from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import MAX_BITS, FloatMatrix, RowFormat, refuse_mask
from analytic.shape_repr import shape_repr
from analytic.tallies import checked_count, count_segment, too_many_rows
from analytic.total_check import check_statistics
from analytic.triangles import SQUARE, mirrored, symmetric, to_integers, write_triangle
from analytic.whole_numbers import INT64_MAX, settle_whole_numbers

IntMatrix = NDArray[np.int64]
IntVector = NDArray[np.int64]

LABELS = RowFormat(integer_bits=1, fraction_bits=0, signed=False)
"""The format of one-hot labels: they are integers already."""

EXACT_FLOAT64 = 2**53
UNKNOWN = -1
"""The entry of a target row for a class that the row says nothing of; 0 says no and 1 says yes."""
BLOCK_ROWS = 1024
"""Rows multiplied at a time, so that memory does not grow with the number of rows."""
HALF = MAX_BITS // 2
"""Bits of half a unit: 1 024 products of halves add up exactly in float64."""
APPENDED_TARGETS = 32
"""Up to so many targets stand beside the features in one product; more of them get a cheaper product of their own."""


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
        diagonal_each: what each client adds of it.
        constant: what every row has in the last column, in units of its format (an intercept); 0 where rows differ.
        one_class: whether a row is of one class, which is known then, and not of several or none.
        target_sums: whether the targets' own sums are there, from which a model's error follows: of labels the rows of
            each class, of real targets the sum and Y^T Y.

    Raises:
        SpecificationError: names the condition that fails and what would satisfy it.
    """

    n_features: int
    n_targets: int
    feature_format: RowFormat
    target_format: RowFormat = LABELS
    max_rows: int
    diagonal_allowance: int = 0
    diagonal_each: int = 0
    constant: int = 0
    one_class: bool = False
    target_sums: bool = True

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_targets", "max_rows", "diagonal_allowance")
        if min(self.n_features, self.n_targets, self.max_rows) < 1 or self.diagonal_allowance < 0:
            raise SpecificationError(
                "statistics need at least one feature, target and row and a diagonal allowance >= 0, not "
                f"{self.n_features}, {self.n_targets}, {self.max_rows} and {self.diagonal_allowance}"
            )
        bounds = {"Gram": self.gram_bound, "cross-correlation": self.cross_bound}
        if self.target_sums:
            bounds["target Gram"] = self.target_bound
        for what, bound in bounds.items():
            if bound > INT64_MAX:
                raise SpecificationError(
                    f"a {what} total of {self.max_rows} rows in {self.feature_format} (targets {self.target_format}, "
                    f"diagonal allowance {self.diagonal_allowance}) can reach 2^{bound.bit_length() - 1} and must stay "
                    "below 2^63: allow fewer rows, fewer bits or a smaller gamma"
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
    def target_bound(self) -> int:
        """Largest entry of the total Y^T Y, in units of 2^-2f_target."""
        return self.max_rows * self.target_format.magnitude**2

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
            *self._target_segments,
            count_segment(self.max_rows),
        )

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most.

        The diagonal's allowance is left whole.
        """
        own = replace(self, max_rows=min(max_rows, self.max_rows))
        return (*(bound for _, _, bound in own.segments[:-1]), max_rows)

    @property
    def _target_segments(self) -> tuple[tuple[str, int, int], ...]:
        """The targets' sum, then the upper triangle of Y^T Y, which for labels of one class has nothing to add."""
        if not self.target_sums:
            return ()
        own = ("target_sum", self.n_targets, self.max_rows * self.target_format.magnitude)
        if self.target_format == LABELS:
            return (own,)
        return own, ("target_gram", self.n_targets * (self.n_targets + 1) // 2, self.target_bound)

    def to_vector(self, statistics: Statistics) -> IntVector:
        """Statistics as one int64 vector: the Gram's upper triangle by rows, the cross-correlation, the targets' sums
        where they are there (that of their Gram by its upper triangle), the count.

        Raises:
            InvalidRowsError: another shape, or more rows than ``max_rows``.
        """
        d, c = self.n_features, self.n_targets
        own = (None if part is None else part.shape for part in (statistics.target_sum, statistics.target_gram))
        there = len(self._target_segments)
        wanted = (d, d), (d, c), (c,) if there > 0 else None, (c, c) if there > 1 else None
        if (statistics.gram.shape, statistics.cross.shape, *own) != wanted:
            raise InvalidRowsError(
                f"the specification has {d} features and {c} targets, these statistics have "
                f"gram {statistics.gram.shape} and cross {statistics.cross.shape}, and both must have the same sums of "
                "targets"
            )
        if statistics.count > self.max_rows:
            raise too_many_rows(statistics.count, self.max_rows)
        vector = np.empty(sum(size for _, size, _ in self.segments), dtype=np.int64)
        gram, cross, *targets, count = self._split(vector)
        write_triangle(statistics.gram, gram)
        cross[:], count[:] = statistics.cross.ravel(), statistics.count
        if statistics.target_sum is not None:
            targets[0][:] = statistics.target_sum
        if statistics.target_gram is not None:
            write_triangle(statistics.target_gram, targets[1])
        return vector

    def from_vector(self, vector: IntVector) -> Statistics:
        """The statistics that ``to_vector`` wrote, or a sum of such vectors.

        Raises:
            InvalidRowsError: another size or type, or a count that no total can have.
        """
        d, c = self.n_features, self.n_targets
        count = checked_count(vector, self.segments, self.max_rows)
        gram, cross, *targets, _ = self._split(vector)
        return Statistics(
            gram=symmetric(gram, d),
            cross=cross.reshape(d, c).copy(),
            count=count,
            target_sum=targets[0].copy() if len(targets) > 0 else None,
            target_gram=symmetric(targets[1], c) if len(targets) > 1 else None,
        )

    def check_total(self, total: Statistics, survivors: int) -> None:
        """Refuse a total that no rows of so many clients add up to (``analytic.total_check``).

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        check_statistics(total.with_diagonal(-survivors * self.diagonal_each), self)

    def class_rows(self, total: Statistics) -> IntVector | None:
        """The rows of each class; None of real targets, and where nobody counts them."""
        if total.target_sum is None and self.one_class and self.n_targets == 1:
            return np.array([total.count])
        return total.class_rows

    def _split(self, vector: IntVector) -> list[IntVector]:
        """Views of a vector's segments."""
        return np.split(vector, np.cumsum([size for _, size, _ in self.segments])[:-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Sums over rows, exact: compare them by ``to_bytes()``.

    Args:
        gram: X^T X, shape (d, d), int64, in units of 2^-2f.
        cross: X^T Y, shape (d, c), int64, in units of 2^-(f + f_target).
        count: number of rows.
        target_sum: Y^T 1, shape (c,), int64: of class labels the rows of each; None where it is left out.
        target_gram: Y^T Y of real targets, shape (c, c), int64, in units of 2^-2f_target; None of class labels.
        n_clients: how many clients have rows in it, where a sum counts them beside it.
    """

    gram: IntMatrix
    cross: IntMatrix
    count: int
    target_sum: IntVector | None = None
    target_gram: IntMatrix | None = None
    n_clients: int | None = None

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        d = len(self.gram)
        if self.gram.shape != (d, d) or self.cross.ndim != 2 or len(self.cross) != d:
            raise InvalidRowsError(
                f"a Gram is square and the cross-correlation has as many rows, not {self.gram.shape} and "
                f"{self.cross.shape}"
            )
        if any(part.dtype != np.int64 for part in self._parts):
            raise InvalidRowsError(f"statistics are int64, not {', '.join(str(part.dtype) for part in self._parts)}")
        for part in self._parts:
            part.setflags(write=False)

    @property
    def _parts(self) -> tuple[NDArray[np.int64], ...]:
        parts = self.gram, self.cross, self.target_sum, self.target_gram
        return tuple(part for part in parts if part is not None)

    @property
    def target_squares(self) -> tuple[int, ...] | None:
        """Sums of each target's squares, exact, of labels the sums themselves; None where these are left out."""
        if self.target_sum is None:
            return None
        squares = self.target_sum if self.target_gram is None else self.target_gram.diagonal()
        return tuple(squares.tolist())

    @property
    def class_rows(self) -> IntVector | None:
        """The rows of each class; None of real targets, and where nobody counts them."""
        return self.target_sum if self.target_gram is None else None

    @property
    def column_sums(self) -> IntVector | None:
        """X^T 1, shape (d,), as labels of one class a row tell it; None where they do not."""
        classes = self.class_rows
        if classes is None or sum(classes.tolist()) != self.count:
            return None
        sums: IntVector = self.cross.sum(axis=1)
        return sums

    @classmethod
    def of_counts(cls, count: int, class_rows: IntVector | None = None) -> Self:
        """Statistics of no columns: of a total that says how many rows there are, and of which classes, to gates."""
        none = np.zeros((0, 0 if class_rows is None else len(class_rows)), dtype=np.int64)
        return cls(gram=np.zeros((0, 0), dtype=np.int64), cross=none, count=count, target_sum=class_rows)

    @classmethod
    def from_rows(
        cls, spec: StatisticsSpec, features: NDArray[Any], targets: NDArray[Any], *, clip: bool = False
    ) -> Statistics:
        """Statistics of arrays, a block of rows at a time.

        Args:
            spec: the public specification.
            features: shape (n, d), any real type of at most 64 bits; n may be 0.
            targets: shape (n, c), or, where the target format is ``LABELS``, integer class labels of shape (n,)
                in 0 to c - 1; a matrix in that format has whole entries.
            clip: clip features and targets into their format instead of refusing them.

        Raises:
            InvalidRowsError: shapes disagree, labels out of range or soft, too many rows.
            RowsOutsideFormatError: NaN, infinity or values outside the format.
        """
        return cls.from_batches(spec, [(features, targets)], clip=clip)

    @classmethod
    def from_batches(
        cls, spec: StatisticsSpec, batches: Iterable[tuple[NDArray[Any], NDArray[Any]]], *, clip: bool = False
    ) -> Statistics:
        """Statistics of (features, targets) batches in one pass; memory does not grow with their number."""
        accumulator = _Accumulator(spec, clip=clip)
        for features, targets in batches:
            accumulator.add(features, targets)
        return accumulator.finish()

    def __add__(self, other: Statistics) -> Statistics:
        shapes = [[part.shape for part in one._parts] for one in (self, other)]
        if shapes[0] != shapes[1]:
            raise InvalidRowsError(f"only statistics of one shape add up, not {shapes[0]} and {shapes[1]}")
        return Statistics(
            gram=self.gram + other.gram,
            cross=self.cross + other.cross,
            count=self.count + other.count,
            target_sum=_added(self.target_sum, other.target_sum),
            target_gram=_added(self.target_gram, other.target_gram),
        )

    def with_diagonal(self, units: int) -> Statistics:
        """These statistics with ``units`` (in the Gram's units, may be negative) added to the diagonal."""
        if not units:
            return self
        gram = self.gram.copy()
        gram.flat[:: len(gram) + 1] += units
        return replace(self, gram=gram)

    def to_bytes(self) -> bytes:
        """One byte string for one value, to compare and to hash."""
        return b"".join(part.tobytes() for part in self._parts) + self.count.to_bytes(8, "little")


class _Accumulator:
    """Sums blocks in float64 while that is exact, then moves the sum to int64.

    The product's float64 sum is in Fortran order with only its upper triangle in use (what ``dsyrk`` wants); its
    transpose is the lower triangle in C order. A few targets are columns of the block, [X Y], and Y^T X stands below
    X^T X in that triangle: a product of their own costs more, being too narrow for BLAS. (Y^T Y beside it may be too
    large to be exact; it is never read, and that of real targets is made of halves of their bits.) More targets get a
    product of their own, labels among them as a sparse one-hot matrix, which adds each row to its class in one pass.
    Either way the cross-correlation is held transposed, (c, d).
    """

    def __init__(self, spec: StatisticsSpec, *, clip: bool) -> None:
        self._spec, self._clip = spec, clip
        d, c = spec.n_features, spec.n_targets
        self._appended = c <= APPENDED_TARGETS
        width = d + c if self._appended else d
        self._block = np.empty((min(BLOCK_ROWS, spec.exact_rows), width))
        self._product = GramSum(width, np.float64, n_exact=d)
        self._gram: IntMatrix | None = None
        self._cross: IntMatrix | None = None
        self._float_cross: FloatMatrix | None = None
        self._float_rows = 0
        self._count = 0
        self._target_sum = np.zeros(c, dtype=np.int64) if spec.target_sums else None
        squared = spec.target_sums and spec.target_format != LABELS
        self._target_gram = np.zeros((c, c), dtype=np.int64) if squared else None

    def add(self, features: NDArray[Any], targets: NDArray[Any]) -> None:
        self._check(features, targets)
        for start in range(0, len(features), len(self._block)):
            place = slice(start, start + len(self._block))
            block = self._block[: len(features[place])]
            self._make_room(len(block))
            rows, beside = np.split(block, [self._spec.n_features], axis=1)
            self._quantised(self._spec.feature_format, features, place, out=rows)
            goals = self._goals(targets, place)
            self._add_targets(goals)
            if self._appended:
                beside[...] = cast(FloatMatrix, goals)
            else:
                found = _cross(goals, rows)
                self._float_cross = found if self._float_cross is None else np.add(self._float_cross, found, out=found)
            self._product.add(block)
        self._count += len(features)

    def finish(self) -> Statistics:
        """Return the sums; the accumulator is used up."""
        gram, cross = self._moved(is_last=True)
        return Statistics(
            gram=mirrored(gram),
            cross=np.ascontiguousarray(cross.T),
            count=self._count,
            target_sum=self._target_sum,
            target_gram=self._target_gram,
        )

    def _add_targets(self, goals: FloatMatrix | scipy.sparse.csr_array) -> None:
        if self._target_sum is not None:
            self._target_sum += goals.sum(axis=0).astype(np.int64)
        if self._target_gram is not None:
            high = np.floor(cast(FloatMatrix, goals) * 2.0**-HALF)
            low = goals - high * 2.0**HALF
            upper, beside, lower = (
                digit_product(left.T, right).astype(np.int64) for left, right in ((high, high), (high, low), (low, low))
            )
            self._target_gram += (upper << 2 * HALF) + ((beside + beside.T) << HALF) + lower

    def _check(self, features: NDArray[Any], targets: NDArray[Any]) -> None:
        spec = self._spec
        if features.ndim != 2 or features.shape[1] != spec.n_features or targets.shape[:1] != features.shape[:1]:
            raise InvalidRowsError(
                f"features must have shape (n, {spec.n_features}) and as many targets; "
                f"they have shape {features.shape}, the targets {targets.shape}"
            )
        if targets.ndim == 1 and len(targets):
            if spec.target_format != LABELS:
                raise InvalidRowsError(
                    f"targets in {spec.target_format} must have shape (n, {spec.n_targets}), not {targets.shape}: real "
                    "ones get it by reshape(-1, 1); class labels need a learner with the target format LABELS"
                )
            check_labels(targets, spec.n_targets)
        elif targets.ndim != 1 and targets.shape[1:] != (spec.n_targets,):
            raise InvalidRowsError(f"targets must have shape (n, {spec.n_targets}), not {targets.shape}")
        count = self._count + len(features)
        if count > spec.max_rows:
            raise too_many_rows(count, spec.max_rows)

    def _goals(self, targets: NDArray[Any], place: slice) -> FloatMatrix | scipy.sparse.csr_array:
        if targets.ndim == 2:
            goals = self._quantised(self._spec.target_format, targets, place)
            if self._spec.target_format == LABELS and _soft_rows(targets[place]):
                raise InvalidRowsError(
                    f"targets in the format LABELS are 0 or 1, and {_soft_rows(targets)} of {len(targets)} rows have a "
                    "fraction, which would be cut off; give soft labels and real targets a format with fraction bits"
                )
            return goals
        if self._appended:
            return one_hot(targets[place], self._spec.n_targets)
        labels = targets[place].astype(np.intp)
        n = len(labels)
        return scipy.sparse.csr_array((np.ones(n), labels, np.arange(n + 1)), shape=(n, self._spec.n_targets))

    def _quantised(
        self, row_format: RowFormat, values: NDArray[Any], place: slice, out: FloatMatrix | None = None
    ) -> FloatMatrix:
        try:
            return row_format.quantise(values[place], clip=self._clip, out=out)
        except RowsOutsideFormatError:
            raise row_format.refusal(values) from None  # count over all rows, not over this block

    def _make_room(self, n_rows: int) -> None:
        if self._float_rows + n_rows > self._spec.exact_rows:
            self._gram, self._cross = self._moved()
            self._product.clear()
            self._float_cross, self._float_rows = None, 0
        self._float_rows += n_rows

    def _moved(self, *, is_last: bool = False) -> tuple[IntMatrix, IntMatrix]:
        """Return the sums in int64; of the Gram the lower triangle alone, which the upper one is copied from."""
        self._product.check()
        d, c, lower = self._spec.n_features, self._spec.n_targets, self._product.matrix.T
        beside = lower[d:, :d] if self._appended else self._float_cross
        cross = np.zeros((c, d), dtype=np.int64) if beside is None else beside.astype(np.int64)
        self._float_cross = None
        if self._cross is not None:
            cross += self._cross
        if is_last and self._gram is None and not self._appended:
            return to_integers(lower), cross
        gram = np.empty((d, d), dtype=np.int64) if self._gram is None else self._gram
        for start in range(0, d, SQUARE):
            stop = min(start + SQUARE, d)
            if self._gram is None:
                gram[start:stop, :stop] = lower[start:stop, :stop]
            else:
                gram[start:stop, :stop] += lower[start:stop, :stop].astype(np.int64)
        return gram, cross


def _cross(goals: FloatMatrix | scipy.sparse.csr_array, rows: FloatMatrix) -> FloatMatrix:
    """Y^T X of one block, shape (c, d)."""
    found: FloatMatrix = goals.T @ rows
    if isinstance(goals, np.ndarray):  # a product with a sparse matrix is scipy's own
        check_product(*(matrix.astype(np.int64) for matrix in (goals.T, rows, found)))
    return found


def one_hot(labels: NDArray[Any], n_classes: int) -> FloatMatrix:
    """Integer labels of shape (n,) as rows of zeros with a one, shape (n, n_classes).

    Raises:
        InvalidRowsError: labels that are no integers or lie outside 0 to n_classes - 1.
    """
    check_labels(labels, n_classes)
    rows = np.zeros((len(labels), n_classes))
    rows[np.arange(len(labels)), labels.astype(np.intp)] = 1.0
    return rows


def _soft_rows(targets: NDArray[Any]) -> int:
    """Return the number of rows of a matrix with a fraction."""
    return int(np.count_nonzero((np.trunc(targets) != targets).any(axis=1)))


def check_labels(labels: NDArray[Any], n_classes: int) -> None:
    """Refuse labels that are no integers or lie outside 0 to n_classes - 1.

    Raises:
        InvalidRowsError: says how many.
    """
    refuse_mask(labels)
    if not (np.issubdtype(labels.dtype, np.integer) or labels.dtype == np.bool_):
        raise InvalidRowsError(
            f"class labels must be integers, not {labels.dtype}; number texts by an agreed list of classes, "
            "and for real targets give the learner a target_format with fraction bits and a matrix of shape (n, c)"
        )
    outside = int(np.count_nonzero((labels < 0) | (labels >= n_classes)))
    if outside:
        raise InvalidRowsError(
            f"{outside} of {len(labels)} labels lie outside 0 to {n_classes - 1}; correct the labels, or state a "
            "larger number of classes at all sites"
        )


def bits_of_squares(n_rows: int) -> int:
    """Return of how many bits, the sign aside, an entry may be for squares of so many rows to add up in int64."""
    return (INT64_MAX.bit_length() - n_rows.bit_length()) // 2


def _added(one: NDArray[np.int64] | None, other: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    return None if one is None or other is None else one + other
