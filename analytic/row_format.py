"""The public fixed-point format of a row: the one lossy step, with a stated bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError

FloatMatrix = NDArray[np.float64]

MAX_BITS = 26
"""A product of two 26-bit integers is still exact in float64 (2^53)."""


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
        bits = self.integer_bits + self.fraction_bits
        if self.integer_bits < 0 or self.fraction_bits < 0 or not 1 <= bits <= MAX_BITS:
            raise SpecificationError(
                f"a row format needs integer and fraction bits >= 0 that add up to 1 to {MAX_BITS}, not "
                f"{self.integer_bits} and {self.fraction_bits}: beyond that float64 products are not exact"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The format that ``Q5.11`` or ``UQ5.11`` names."""
        match = re.fullmatch(r"(U?)Q(\d{1,2})\.(\d{1,2})", text)
        if match is None:
            raise SpecificationError(f"a row format reads like Q5.11, or UQ5.11 without a sign, not {text!r}")
        return cls(integer_bits=int(match[2]), fraction_bits=int(match[3]), signed=match[1] == "")

    @classmethod
    def covering(cls, rows: NDArray[Any], *, bits: int = 16) -> Self:
        """The format of ``bits`` bits with the most fraction bits that still holds all of ``rows``.

        It looks at every row, so it is for public rows and simulations: in a deployment the format is agreed
        before anyone looks at data.
        """
        largest = float(np.max(np.abs(rows), initial=0.0))
        if not np.isfinite(largest):
            raise InvalidRowsError("rows hold NaN or infinity; no fixed-point format covers them")
        integer_bits = max(0, int(np.frexp(largest)[1])) if largest else 0
        if integer_bits > bits:
            raise SpecificationError(
                f"no {bits}-bit format holds the largest value {largest:g}: scale the features or allow more bits"
            )
        signed = bool(np.min(rows, initial=0.0) < 0)
        return cls(integer_bits=integer_bits, fraction_bits=bits - integer_bits, signed=signed)

    def __str__(self) -> str:
        return f"{'' if self.signed else 'U'}Q{self.integer_bits}.{self.fraction_bits}"

    @property
    def magnitude(self) -> int:
        """The largest absolute value, in units of 2^-fraction_bits."""
        return (1 << (self.integer_bits + self.fraction_bits)) - 1

    def quantise(self, rows: NDArray[Any], *, clip: bool = False) -> FloatMatrix:
        """Rows in units of 2^-fraction_bits: integers, carried in float64 so that BLAS multiplies them exactly.

        Args:
            rows: finite numbers of any shape and real type.
            clip: replace values outside the range by its nearest end instead of refusing them.

        Raises:
            RowsOutsideFormatError: NaN or infinity, or, without ``clip``, values outside the range.
        """
        units = np.multiply(rows, float(2**self.fraction_bits), dtype=np.float64)
        lowest = -self.magnitude if self.signed else 0
        if units.size and not (units.min() >= lowest and units.max() < self.magnitude + 1):
            units = self._clipped(units, lowest) if clip else units
            if not clip or not np.isfinite(units).all():
                raise self._outside(units, lowest)
        np.trunc(units, out=units)
        return np.add(units, 0.0, out=units)  # -0.0 becomes 0.0: one value, one bit pattern

    def dequantise(self, units: NDArray[Any]) -> FloatMatrix:
        """The real numbers that integers in units of 2^-fraction_bits stand for."""
        real: FloatMatrix = np.ldexp(np.asarray(units, dtype=np.float64), -self.fraction_bits)
        return real

    def _clipped(self, units: FloatMatrix, lowest: int) -> FloatMatrix:
        return np.where(np.isfinite(units), np.clip(units, lowest, self.magnitude), units)

    def _outside(self, units: FloatMatrix, lowest: int) -> RowsOutsideFormatError:
        by_row = units.reshape(len(units), -1) if units.ndim > 1 else units.reshape(-1, 1)
        finite = np.isfinite(by_row)
        not_finite = int(np.count_nonzero(~finite.all(axis=1)))
        inside = finite & (by_row >= lowest) & (by_row < self.magnitude + 1)
        outside = int(np.count_nonzero(~inside.all(axis=1)))
        largest = float(np.max(np.abs(by_row), where=finite, initial=0.0)) / 2**self.fraction_bits
        span = f"|x| < {2**self.integer_bits}" if self.signed else f"0 <= x < {2**self.integer_bits}"
        return RowsOutsideFormatError(
            f"{outside} of {len(by_row)} rows do not fit {self} ({span}): {not_finite} of them hold NaN or infinity, "
            f"the largest finite absolute value is {largest:g}. Use a format with more integer bits, scale or repair "
            "the rows, or clip them on purpose with clip=True (NaN and infinity are never clipped)",
            n_rows=outside,
            largest=largest,
        )
