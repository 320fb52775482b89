"""The public fixed-point format of a row: the one lossy step, with a stated bound."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.whole_numbers import settle_whole_numbers

FloatMatrix = NDArray[np.float64]

MAX_BITS = 26
"""A product of two 26-bit integers is still exact in float64 (2^53)."""

FEWEST_BITS = 8
"""Fewest bits of a column's range for which a format does not count as coarse."""

LARGEST_EXPONENT = 1000
"""Largest exponent of a column's scale."""

CHUNK_ENTRIES = 2**15
"""Entries quantised at a time: all passes over them stay in a core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """Numbers as integer multiples of 2^-fraction_bits, written ``Q5.11``, or ``UQ5.11`` without a sign.

    The sign takes no part in the count of bits: ``Q5.11`` holds |x| < 2^5, ``UQ5.11`` holds 0 <= x < 2^5.
    Quantising truncates toward zero, so the error of an entry is below 2^-fraction_bits and no norm grows.
    """

    integer_bits: int
    fraction_bits: int
    signed: bool = True

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "integer_bits", "fraction_bits")
        bits = self.integer_bits + self.fraction_bits
        if self.integer_bits < 0 or self.fraction_bits < 0 or not 1 <= bits <= MAX_BITS:
            raise SpecificationError(
                f"a row format needs integer and fraction bits >= 0 that add up to 1 to {MAX_BITS}, not "
                f"{self.integer_bits} and {self.fraction_bits}: beyond that float64 products are not exact"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The format that ``Q5.11`` or ``UQ5.11`` names."""
        match = re.fullmatch(r"(U?)Q([0-9]{1,2})\.([0-9]{1,2})", text)
        if match is None:
            raise SpecificationError(f"a row format reads like Q5.11, or UQ5.11 without a sign, not {text!r}")
        return cls(integer_bits=int(match[2]), fraction_bits=int(match[3]), signed=match[1] == "")

    @classmethod
    def covering(cls, rows: NDArray[Any], *, bits: int = 16) -> Self:
        """The format of ``bits`` bits with the most fraction bits that still holds all of ``rows``.

        It looks at every row, so it is for public rows and simulations: in a deployment the format is agreed
        before anyone looks at data.
        """
        least, most = ends(rows)
        top, bottom = float(np.maximum(most, 0)), float(np.minimum(least, 0))
        largest = max(top, -bottom)  # not np.abs: the smallest integer of a type has no absolute value in it
        if not np.isfinite(top - bottom):
            raise InvalidRowsError("rows hold NaN or infinity; no fixed-point format covers them")
        integer_bits = max(0, int(np.frexp(largest)[1])) if largest else 0
        if integer_bits > bits:
            raise SpecificationError(
                f"no {bits}-bit format holds the largest value {largest:g}: scale the features or allow more bits"
            )
        return cls(integer_bits=integer_bits, fraction_bits=bits - integer_bits, signed=bottom < 0)

    def coarse_columns(self, rows: NDArray[Any]) -> tuple[int, ...]:
        """Columns of which this format keeps less than 8 bits and loses the rest.

        Their largest entry is not zero and below 2^8 units, and an entry is no whole number of units: the 0 and 1 of a
        category lose nothing.
        """
        largest = _largest(rows)
        small = np.flatnonzero((largest > 0) & (largest < math.ldexp(1.0, FEWEST_BITS - self.fraction_bits)))
        units = np.ldexp(rows[:, small].astype(np.float64), self.fraction_bits)
        return tuple(small[(np.trunc(units) != units).any(axis=0)].tolist())

    def warning(self, columns: Mapping[str, float], n_columns: int) -> str:
        """Return a warning of columns for which this format is coarse.

        Args:
            columns: by name, their largest absolute entries.
            n_columns: how many there are in all.
        """
        unit = math.ldexp(1.0, -self.fraction_bits)
        named = ", ".join(
            f"{name} ({'all zeros' if largest < unit else f'at most {largest:.3g}'})"
            for name, largest in columns.items()
        )
        return (
            f"{self} has a unit of {unit:g}, which is coarse for {len(columns)} of {n_columns} columns: {named}; scale "
            "these columns, or set a format with more fraction bits"
        )

    def __str__(self) -> str:
        return f"{'' if self.signed else 'U'}Q{self.integer_bits}.{self.fraction_bits}"

    @property
    def magnitude(self) -> int:
        """The largest absolute value, in units of 2^-fraction_bits."""
        return (1 << (self.integer_bits + self.fraction_bits)) - 1

    def quantise(self, rows: NDArray[Any], *, clip: bool = False, out: FloatMatrix | None = None) -> FloatMatrix:
        """Rows in units of 2^-fraction_bits: integers, carried in float64 so that BLAS multiplies them exactly.

        Args:
            rows: finite numbers of any shape and of any boolean or integer type, or floats of at most 64 bits.
            clip: replace values outside the range by its nearest end instead of refusing them.
            out: where to write the units, float64 of the shape of ``rows``; a new array when left out.

        Raises:
            RowsOutsideFormatError: NaN or infinity, or, without ``clip``, values outside the range.
            InvalidRowsError: rows that are no such numbers, or that hide some of their entries under a mask.
        """
        _refuse_other_types(rows)
        units = np.empty(rows.shape) if out is None else out
        source, target = np.atleast_1d(rows), np.atleast_1d(units)
        numbers = np.empty(0, dtype=np.int32)
        for chunk in _chunks(source):
            part, whole = _without_halves(source[chunk]), target[chunk]
            if part.size and not self._holds(part):
                if not clip or not np.isfinite(part).all():
                    raise self.refusal(rows)
                part = np.clip(part.astype(np.float64), *self.range)
            # Scaling moves exponents only and no unit leaves 26 bits: exact in float32 too, and at half the width.
            width = np.float32 if part.dtype == np.float32 else np.float64
            if numbers.shape != part.shape:
                numbers = np.empty(part.shape, dtype=np.int32)
            # toward zero, of which integers have only one
            whole[...] = np.multiply(part, 2.0**self.fraction_bits, out=numbers, dtype=width, casting="unsafe")
        return units

    def dequantise(self, units: NDArray[Any]) -> FloatMatrix:
        """The real numbers that integers in units of 2^-fraction_bits stand for."""
        real: FloatMatrix = np.ldexp(np.asarray(units, dtype=np.float64), -self.fraction_bits)
        return real

    def refusal(self, rows: NDArray[Any]) -> RowsOutsideFormatError:
        """The error for rows that do not fit: how many they are and how large the largest entry is."""
        rows = np.atleast_1d(rows)
        outside, not_finite, largest = 0, 0, 0.0
        for chunk in _chunks(rows):
            by_row = rows[chunk].astype(np.float64).reshape(len(rows[chunk]), -1)
            finite = np.isfinite(by_row)
            inside = finite & (by_row < 2.0**self.integer_bits)
            inside &= (by_row > -(2.0**self.integer_bits)) if self.signed else (by_row >= 0)
            not_finite += int(np.count_nonzero(~finite.all(axis=1)))
            outside += int(np.count_nonzero(~inside.all(axis=1)))
            largest = max(largest, float(np.max(np.abs(by_row), where=finite, initial=0.0)))
        span = f"|x| < {2**self.integer_bits}" if self.signed else f"0 <= x < {2**self.integer_bits}"
        return RowsOutsideFormatError(
            f"{outside} of {len(rows)} rows do not fit {self} ({span}): {not_finite} of them hold NaN or infinity, "
            f"the largest finite absolute value is {largest:g}. Use a format with more integer bits, scale or repair "
            "the rows, or clip them on purpose by the learner's parameter clip (NaN and infinity are never clipped)",
            n_rows=outside,
            largest=largest,
        )

    def _holds(self, rows: NDArray[Any]) -> bool:
        # Judged before scaling: 2^f times a huge value overflows, and the ends of the range are exact here.
        smallest, largest, limit = float(rows.min()), float(rows.max()), 2.0**self.integer_bits
        return largest < limit and (smallest > -limit if self.signed else smallest >= 0.0)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest number of the format."""
        end = float(np.ldexp(self.magnitude, -self.fraction_bits))
        return -end if self.signed else 0.0, end


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """Public scales of columns, each a power of two, and an exact column of ones: what rows go through before a format.

    Scaling by powers of two loses nothing, so each column fills a format such as ``Q0.22`` whatever its own size:
    truncation then moves no entry by more than 2^(exponent - fraction_bits), 2^-fraction_bits of its column's range.
    Centres and factors (standardised columns) are one subtraction and one product of float64 each, which IEEE 754
    rounds correctly: they lose 2^-52 of a column's range and are the same bits on every machine.

    Args:
        exponents: of features: x_j is multiplied by 2^-exponents[j].
        target_exponents: the same of targets; none leave them as they are.
        intercept: k appends a column of 2^-k, so that the model has an intercept; None appends none.
        centres: is then taken off, and
        factors: then multiplied, each of a feature; None leaves features as they are.
        fill: puts 0 in the place of missing features (NaN) at the end.
    """

    exponents: tuple[int, ...]
    target_exponents: tuple[int, ...] = ()
    intercept: int | None = None
    centres: tuple[float, ...] | None = field(default=None, metadata={"optional": True})
    factors: tuple[float, ...] | None = field(default=None, metadata={"optional": True})
    fill: bool | None = field(default=None, metadata={"optional": True})

    def __post_init__(self) -> None:
        if self.intercept is not None:
            settle_whole_numbers(self, "intercept")
        object.__setattr__(self, "exponents", tuple(map(int, self.exponents)))
        object.__setattr__(self, "target_exponents", tuple(map(int, self.target_exponents)))
        if any(abs(exponent) > LARGEST_EXPONENT for exponent in self.exponents + self.target_exponents):
            raise SpecificationError(f"a column's exponent is from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}")
        lengths = {None if one is None else len(one) for one in (self.centres, self.factors)}
        values = (*(self.centres or ()), *(one for one in self.factors or () if one > 0))
        if lengths not in ({None}, {len(self.exponents)}) or not np.isfinite(values).all():
            raise SpecificationError("a map of columns has a finite centre and a factor above 0 for each, or none")
        if len(values) != 2 * len(self.centres or ()):
            raise SpecificationError("the factors of columns are above 0")

    @classmethod
    def covering(cls, features: NDArray[Any], targets: NDArray[Any] | None, *, intercept: int | None) -> Self:
        """The least scales that bring all of these entries below one. It looks at every row, as a deployment must not.

        Raises:
            InvalidRowsError: NaN or infinity.
        """
        found = (() if rows is None else _exponents(rows) for rows in (features, targets))
        return cls(exponents=next(found), target_exponents=next(found), intercept=intercept)

    @property
    def n_columns(self) -> int:
        """Columns of a mapped feature row."""
        return len(self.exponents) + (self.intercept is not None)

    def features(self, rows: NDArray[Any]) -> FloatMatrix:
        """Feature rows, scaled, with their last column.

        Raises:
            InvalidRowsError: another number of columns.
        """
        if rows.ndim != 2 or rows.shape[1] != len(self.exponents):
            raise InvalidRowsError(f"features must have shape (n, {len(self.exponents)}), not {rows.shape}")
        scaled = _scaled(rows, self.exponents, -1)
        if self.centres is not None and self.factors is not None:
            scaled = (scaled - np.array(self.centres)) * np.array(self.factors)
        if self.fill:
            scaled = np.where(np.isnan(scaled), 0.0, scaled)
        if self.intercept is None:
            return scaled
        return np.concatenate([scaled, np.full((len(rows), 1), math.ldexp(1.0, -self.intercept))], axis=1)

    def targets(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Target rows, scaled; labels, and what no exponent is stated for, as they are."""
        wanted = self.target_exponents and rows.ndim == 2 and rows.shape[1] == len(self.target_exponents)
        return _scaled(rows, self.target_exponents, -1) if wanted else rows

    def scores(self, scores: FloatMatrix) -> FloatMatrix:
        """Scores of mapped rows in the targets' own units."""
        return _scaled(scores, self.target_exponents, 1) if self.target_exponents else scores

    def own_units(self, weights: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
        """Weights of features as they are, shape (d, c), and intercepts, shape (c,), from weights of mapped rows."""
        whole, beyond = weights[: len(self.exponents)], np.zeros((1, weights.shape[1]))
        if self.intercept is not None:
            beyond = np.ldexp(weights[-1:], -self.intercept)
        if self.centres is not None and self.factors is not None:
            whole = whole * np.array(self.factors)[:, None]
            beyond = beyond - np.array(self.centres)[None] @ whole
        matrix = self.scores(np.ldexp(whole, -np.array(self.exponents, dtype=np.int64)[:, None]))
        return matrix, self.scores(beyond)[0]

    @property
    def units(self) -> tuple[float, ...]:
        """Size of 1 of each mapped feature in the feature's own units."""
        factors = self.factors or (1.0,) * len(self.exponents)
        return tuple(math.ldexp(1.0 / one, exponent) for one, exponent in zip(factors, self.exponents, strict=True))


def ends(rows: NDArray[Any], axis: int | None = None) -> tuple[Any, Any]:
    """The smallest and the largest of all entries, or of each column with ``axis`` 0; zeros where there are no rows."""
    if not rows.size:
        none = np.zeros(rows.shape[1:] if axis == 0 else ())
        return none, none
    found = [(part.min(axis), part.max(axis)) for part in (_without_halves(rows[chunk]) for chunk in _chunks(rows))]
    least, most = zip(*found, strict=True)
    return np.min(least, axis=0), np.max(most, axis=0)


def _largest(rows: NDArray[Any]) -> FloatMatrix:
    """The largest absolute entry of each column, or 0."""
    least, most = ends(rows, axis=0)
    found: FloatMatrix = np.maximum(0.0, np.maximum(most, -least.astype(np.float64)))
    return found


def _exponents(rows: NDArray[Any]) -> tuple[int, ...]:
    largest = _largest(rows)
    if not np.isfinite(largest).all():
        raise InvalidRowsError("rows hold NaN or infinity; no fixed-point format covers them")
    return tuple(np.frexp(largest.astype(np.float64))[1].clip(-LARGEST_EXPONENT, LARGEST_EXPONENT).tolist())


def _scaled(rows: NDArray[Any], exponents: tuple[int, ...], sign: int) -> FloatMatrix:
    _refuse_other_types(rows)
    with np.errstate(over="ignore", under="ignore"):  # what leaves float64 leaves the format too, which says so
        scaled: FloatMatrix = np.ldexp(rows.astype(np.float64), sign * np.array(exponents, dtype=np.int64))
    return scaled


def _refuse_other_types(rows: NDArray[Any]) -> None:
    refuse_mask(rows)
    # A wider float would first be rounded to 64 bits, perhaps away from zero.
    if rows.dtype.kind not in "biuf" or (rows.dtype.kind == "f" and rows.dtype.itemsize > 8):
        raise InvalidRowsError(
            f"rows must be booleans, integers or floats of at most 64 bits, not {rows.dtype}; convert them first"
        )


def refuse_mask(array: NDArray[Any]) -> None:
    """Refuse a masked array: comparisons pass over what its mask hides, arithmetic takes whatever lies beneath.

    Raises:
        InvalidRowsError: it is one, whether or not it hides anything.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidRowsError(
            f"rows and targets are plain arrays, and a masked one of shape {array.shape} came: leave out the rows with "
            "hidden entries, or put numbers in their place with filled()"
        )


def _without_halves(rows: NDArray[Any]) -> NDArray[Any]:
    """These rows, in float32 in place of float16, for whose comparisons processors have no vector instructions."""
    return rows.astype(np.float32) if rows.dtype == np.float16 else rows


def _chunks(rows: NDArray[Any]) -> Iterator[slice]:
    step = max(1, CHUNK_ENTRIES // max(1, math.prod(rows.shape[1:])))
    return (slice(start, start + step) for start in range(0, len(rows), step))
