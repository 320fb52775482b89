"""Public bucketing of real features into digits: thresholds, encodings and the shuffled groups of SAFLe."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.tallies import Tallies, TallySpec

Digits = NDArray[np.uint16]

BLOCK_ROWS = 4096
"""Rows that a histogram takes at a time, so that memory does not grow with the number of rows."""
MAX_BUCKETS, MAX_BINS = 2**14, 2**16
SHUFFLE_LABEL = b"analytic.bucketing shuffle v1"


class Encoding(StrEnum):
    """Encoding of a feature's bucket as digits (SAFLe, table 2)."""

    INTEGER = "integer"
    ONE_HOT = "one-hot"
    BINARY_OVERLAPPING = "binary-overlapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucketing:
    """The bucketing functions B_1..B_L of every feature (SAFLe, eq. 3), for thresholds t_1 < t_2 < ...

    A feature's bucket is the number of thresholds that it reaches (x >= t), so values beyond the outer thresholds
    are in the outer buckets: bucketing saturates. With B buckets a feature becomes

    - ``integer``: its bucket among B - 1 thresholds, one digit in base B;
    - ``one-hot``: B binary digits, of which the bucket's own is 1; B - 1 thresholds;
    - ``binary-overlapping``: B binary digits, digit l being 1 when x >= t_l; B thresholds. The paper names this
      encoding without defining it. We read it as B overlapping half-lines (a thermometer code), since near values then
      share most digits, and since two buckets must differ from ``integer`` (table 2 has 88.43 and 87.16 %).
    """

    encoding: Encoding
    n_buckets: int

    def __post_init__(self) -> None:
        if not 2 <= self.n_buckets <= MAX_BUCKETS:
            raise SpecificationError(f"bucketing needs 2 to {MAX_BUCKETS} buckets, not {self.n_buckets}")

    @property
    def n_thresholds(self) -> int:
        """Thresholds a feature."""
        return self.n_buckets - (self.encoding is not Encoding.BINARY_OVERLAPPING)

    @property
    def digits_per_feature(self) -> int:
        """L, the number of bucketing functions."""
        return 1 if self.encoding is Encoding.INTEGER else self.n_buckets

    @property
    def base(self) -> int:
        """k: digits are 0 to k - 1."""
        return self.n_buckets if self.encoding is Encoding.INTEGER else 2

    def digits(self, features: NDArray[Any], thresholds: FloatMatrix) -> Digits:
        """The digits b of rows, shape (n, d L), feature by feature as in eq. 3.

        Args:
            features: finite numbers, shape (n, d), any real type.
            thresholds: shape (d, n_thresholds), ascending along a row.

        Raises:
            InvalidRowsError: shapes disagree.
            RowsOutsideFormatError: NaN or infinity, which are in no bucket.
        """
        if thresholds.ndim != 2 or thresholds.shape[1] != self.n_thresholds:
            raise InvalidRowsError(
                f"{self.n_buckets} {self.encoding} buckets have {self.n_thresholds} thresholds a feature; "
                f"thresholds of shape {thresholds.shape} came"
            )
        rows = finite_rows(features, len(thresholds))
        bucket = np.zeros(rows.shape, dtype=np.uint16)
        for threshold in thresholds.T:
            bucket += rows >= threshold
        if self.encoding is Encoding.INTEGER:
            return bucket
        numbers = np.arange(self.n_buckets, dtype=np.uint16)
        overlapping = self.encoding is Encoding.BINARY_OVERLAPPING
        bits = bucket[:, :, None] > numbers if overlapping else bucket[:, :, None] == numbers
        return bits.reshape(len(rows), rows.shape[1] * self.n_buckets).astype(np.uint16)


def finite_rows(features: NDArray[Any], n_features: int) -> FloatMatrix:
    """Features as float64 of shape (n, n_features).

    Raises:
        InvalidRowsError: another shape, or no real numbers.
        RowsOutsideFormatError: rows with NaN or infinity; says how many.
    """
    if features.ndim != 2 or features.shape[1] != n_features:
        raise InvalidRowsError(f"features must have shape (n, {n_features}), not {features.shape}")
    if features.dtype.kind not in "biuf":
        raise InvalidRowsError(f"features must be real numbers, not {features.dtype}; convert them first")
    rows = np.asarray(features, dtype=np.float64)
    finite = np.isfinite(rows)
    if finite.all():
        return rows
    n_rows = int(np.count_nonzero(~finite.all(axis=1)))
    raise RowsOutsideFormatError(
        f"{n_rows} of {len(rows)} rows hold NaN or infinity, which are in no bucket: repair or drop these rows",
        n_rows=n_rows,
        largest=float(np.max(np.abs(rows), where=finite, initial=0.0)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedThresholds:
    """Thresholds that everybody agreed on beforehand.

    Args:
        values: one ascending tuple a feature, or a single one that all features share.

    Raises:
        SpecificationError: values that are not finite or do not ascend.
    """

    values: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        if not self.values or len({len(row) for row in self.values}) != 1:
            raise SpecificationError("thresholds need one row a feature (or one for all), all of the same length")
        table = np.array(self.values, dtype=np.float64)
        if not np.isfinite(table).all():
            raise SpecificationError("thresholds must be finite numbers; some are NaN or infinite")
        unordered = np.flatnonzero((np.diff(table, axis=1) <= 0).any(axis=1))
        if len(unordered):
            raise SpecificationError(
                f"thresholds must ascend strictly; {len(unordered)} of {len(table)} rows do not, the first is row "
                f"{unordered[0]}: sort them and drop repetitions"
            )

    @classmethod
    def of(cls, table: NDArray[Any]) -> Self:
        """The thresholds in an array of shape (d, m), or (1, m) for all features."""
        return cls(values=tuple(tuple(float(value) for value in row) for row in table))

    @classmethod
    def evenly(cls, low: float, high: float, n_thresholds: int) -> Self:
        """Return ``n_thresholds`` for every feature, the same for all, which cut low to high into equal parts."""
        if not (np.isfinite(low) and np.isfinite(high) and low < high and n_thresholds >= 1):
            raise SpecificationError(f"{n_thresholds} thresholds cannot cut {low:g} to {high:g} into equal parts")
        return cls.of(np.linspace(low, high, n_thresholds + 2)[None, 1:-1])

    def table(self, n_features: int, n_thresholds: int) -> FloatMatrix:
        """The thresholds as an array of shape (n_features, n_thresholds), read-only.

        Raises:
            SpecificationError: they are for another number of features or of buckets.
        """
        table = np.array(self.values, dtype=np.float64)
        if table.shape not in ((n_features, n_thresholds), (1, n_thresholds)):
            raise SpecificationError(
                f"these buckets need {n_thresholds} thresholds for each of {n_features} features (or one row for "
                f"all); the fixed thresholds have shape {table.shape}"
            )
        return _read_only(np.broadcast_to(table, (n_features, n_thresholds)).copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantileThresholds:
    """Thresholds at the quantiles of all clients' rows, from a first sum of histograms.

    The histograms stand on a public grid: ``n_bins`` equal bins from ``low`` to ``high``. Values outside are counted
    in the end bins; that moves no quantile which lies inside the range, and one that lies outside saturates at its end.
    """

    low: float
    high: float
    n_bins: int = 1024

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise SpecificationError(f"a histogram needs a finite range, not {self.low:g} to {self.high:g}")
        if not 2 <= self.n_bins <= MAX_BINS:
            raise SpecificationError(f"a histogram has 2 to {MAX_BINS} bins, not {self.n_bins}")
        if not (np.diff(self.edges) > 0).all():
            raise SpecificationError(
                f"{self.n_bins} bins from {self.low:g} to {self.high:g} are narrower than float64 can tell apart: "
                "use fewer bins or a wider range"
            )

    @property
    def edges(self) -> FloatMatrix:
        """The n_bins - 1 inner edges, which are the candidates for thresholds."""
        return np.linspace(self.low, self.high, self.n_bins + 1)[1:-1]

    def spec(self, n_features: int, max_rows: int) -> TallySpec:
        """The sum of histograms of so many features."""
        shape = n_features, self.n_bins
        return TallySpec(
            shapes={"histograms": shape},
            bounds={"histograms": max_rows},
            max_rows=max_rows,
            partitions=("histograms",),
        )

    def histograms(self, features: NDArray[Any], n_features: int) -> Tallies:
        """Count the rows in each bin of each feature, shape (n_features, n_bins).

        Raises:
            InvalidRowsError: another shape than (n, n_features).
            RowsOutsideFormatError: NaN or infinity, which are in no bin.
        """
        size, first_bins = n_features * self.n_bins, np.arange(n_features) * self.n_bins
        counts = np.zeros(size, dtype=np.int64)
        for start in range(0, len(features), BLOCK_ROWS):
            rows = finite_rows(features[start : start + BLOCK_ROWS], n_features)
            bins = np.searchsorted(self.edges, rows, side="right") + first_bins
            counts += np.bincount(bins.ravel(), minlength=size)
        return {"histograms": counts.reshape(n_features, -1), "count": np.array(len(features))}

    def table(self, total: Tallies, n_thresholds: int) -> FloatMatrix:
        """The thresholds that a total of histograms gives, shape (d, n_thresholds), read-only.

        Threshold j of m is the first inner edge that at least j/(m + 1) of the values lie below, or the next unused
        one where many values coincide, so that thresholds always ascend. Integers decide: every party finds the same.
        """
        if n_thresholds > self.n_bins - 1:
            raise SpecificationError(
                f"{self.n_bins} bins have {self.n_bins - 1} inner edges, too few for {n_thresholds} thresholds: "
                "use more bins"
            )
        below, count = np.cumsum(total["histograms"], axis=1)[:, :-1], int(total["count"])
        taken = np.full(len(below), -1)
        places = np.empty((len(below), n_thresholds), dtype=np.intp)
        for j in range(n_thresholds):
            enough = below * (n_thresholds + 1) >= (j + 1) * count
            first = np.where(enough.any(axis=1), enough.argmax(axis=1), self.n_bins - 2)
            last_free = self.n_bins - 1 - n_thresholds + j
            taken = np.minimum(np.maximum(first, taken + 1), last_free)
            places[:, j] = taken
        return _read_only(self.edges[places])


@lru_cache(maxsize=16)
def public_shuffle(seed: int, n: int) -> tuple[int, ...]:
    """The permutation P of n places that a public seed stands for, the same in every implementation.

    Version 1. Random words are the big-endian 32-bit words of SHA-256(label || seed || n || i) for i = 0, 1, 2, ...,
    one digest after the other; label is the ASCII text ``analytic.bucketing shuffle v1``, seed, n and i are
    big-endian of 8, 4 and 4 bytes. Fisher and Yates' shuffle starts from 0, 1, ..., n - 1 and for p = n - 1 down to 1
    swaps places p and j, where j = w mod (p + 1) for the next word w below the largest multiple of p + 1 that
    is at most 2^32; larger words are passed over. Place p of b' = P(b) then holds digit P[p] of b.

    Raises:
        SpecificationError: a seed outside 0 to 2^64 - 1.
    """
    _check_shuffle(seed, n)
    places, words = list(range(n)), _public_words(SHUFFLE_LABEL + seed.to_bytes(8, "big") + n.to_bytes(4, "big"))
    for p in range(n - 1, 0, -1):
        limit = 2**32 - 2**32 % (p + 1)
        j = next(word for word in words if word < limit) % (p + 1)
        places[p], places[j] = places[j], places[p]
    return tuple(places)


def _check_shuffle(seed: int, n: int) -> None:
    if not (0 <= seed < 2**64 and 1 <= n < 2**32):
        raise SpecificationError(
            f"a shuffle needs a seed from 0 to 2^64 - 1 and 1 to 2^32 - 1 places, not {seed} and {n}"
        )


def _public_words(prefix: bytes) -> Iterator[int]:
    counter = 0
    while True:
        digest = hashlib.sha256(prefix + counter.to_bytes(4, "big")).digest()
        for start in range(0, 32, 4):
            yield int.from_bytes(digest[start : start + 4], "big")
        counter += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """The E groups of G shuffled digits, each read as one number from 0 to V - 1 (SAFLe, section 3.2).

    Args:
        n_digits: d_q = E G.
        group_size: G, digits of a group.
        base: k, of the digits.
        seed: public seed of the shuffle.

    Raises:
        SpecificationError: G does not divide the number of digits, or V = k^G is too large.
    """

    n_digits: int
    group_size: int
    base: int
    seed: int

    def __post_init__(self) -> None:
        if self.group_size < 1 or self.n_digits % self.group_size:
            fitting = [size for size in range(1, 17) if self.n_digits % size == 0]
            raise SpecificationError(
                f"{self.n_digits} digits do not fit into groups of {self.group_size}, since E G must be "
                f"{self.n_digits}: use a group size of {', '.join(map(str, fitting))}"
            )
        if self.group_size > 16 or self.n_values > 2**16:  # a base has two digits at least
            raise SpecificationError(
                f"groups of {self.group_size} digits in base {self.base} have more than 2^16 values: use "
                "smaller groups or fewer buckets"
            )
        _check_shuffle(self.seed, self.n_digits)

    @property
    def n_groups(self) -> int:
        """E, how many groups."""
        return self.n_digits // self.group_size

    @property
    def n_values(self) -> int:
        """V = k^G."""
        return int(self.base**self.group_size)

    @property
    def order(self) -> NDArray[np.int64]:
        """Index of the digit of b at each place of each group, shape (E, G)."""
        return np.array(public_shuffle(self.seed, self.n_digits)).reshape(self.n_groups, self.group_size)

    def indices(self, digits: Digits) -> Digits:
        """idx_j of rows (eq. 4), shape (n, E): a group's first digit counts 1, its next k, then k^2."""
        order = self.order
        indices = digits[:, order[:, 0]]
        for place in range(1, self.group_size):
            indices += digits[:, order[:, place]] * np.uint16(self.base**place)
        return indices


def _read_only(table: FloatMatrix) -> FloatMatrix:
    table.setflags(write=False)
    return table
