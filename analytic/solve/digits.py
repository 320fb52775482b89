"""Exact matrices as digits: float64 planes whose products are exact through BLAS."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.checked_products import digit_product

FloatMatrix = NDArray[np.float64]
Planes = NDArray[np.float64]

CHUNK = 1 << 15
"""Entries carried at a time, so that what is between one digit and the next stays in the cache."""

BLOCK_ROWS = 1024
"""Rows of one exact product, so that its digits take little memory."""
WIDEST, NARROWEST = 26, 17
"""Bits of digits where a product has two widths: two digits are one float64, and ``digit_product`` needs 17."""
EXPONENT_BITS, MANTISSA_BITS = 0x7FF << 52, (1 << 52) - 1
"""Of a float64 as an integer."""
INFLATE = 1 + 2.0**-30
"""Covers the rounding of the few operations that compute a bound itself."""


def digit_bits(inner: int) -> int:
    """The widest digit b for which ``inner`` products of two digits, |x| <= 2^(b-1), add up to at most 2^53.

    Every partial sum is then an integer that float64 holds, in whatever order, blocking or threads BLAS adds them.
    """
    return (55 - max(inner - 1, 0).bit_length()) // 2


def bits_beside(inner: int, bits: int) -> int:
    """The widest digit for which ``inner`` products with digits of ``bits`` bits add up to at most 2^53.

    Two of them are one float64, so none is wider than half of its bits.
    """
    return min(WIDEST, 55 - max(inner - 1, 0).bit_length() - bits)


def fewest_bits(values: NDArray[Any]) -> int:
    """The narrowest digit in which a square matrix takes no more digits than in the widest, ``digit_bits`` of its rows.

    Narrow digits of a matrix leave wide ones to what it is multiplied by, which then says more with as many of them.
    """
    ends, widest = (int(values.min(initial=0)), int(values.max(initial=0))), digit_bits(len(values))
    least = max(NARROWEST, 2 * widest - WIDEST)
    return next(
        bits for bits in range(min(least, widest), widest + 1) if _n_digits(ends, bits) <= _n_digits(ends, widest)
    )


def _n_digits(values: Iterable[int], bits: int) -> int:
    """How many balanced digits the longest of these integers has, at least one."""
    half, n, rest = 1 << bits - 1, 0, list(values)
    while n == 0 or any(rest):
        rest, n = [(value + half) >> bits for value in rest], n + 1
    return n


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """An exact matrix, sum_k planes[k] 2^(bits k + exponent): balanced digits, the lowest first.

    Args:
        planes: shape (n, rows, columns), integers of magnitude at most 2^(bits - 1) in float64.
        bits: b, the width of a digit.
        exponent: of the unit.
    """

    planes: Planes
    bits: int
    exponent: int

    @classmethod
    def of(cls, values: NDArray[Any], bits: int) -> Digits:
        """An array of int64 or float64 as it is, without rounding."""
        if values.dtype.kind in "iu":
            values = values.astype(np.int64, copy=False)
            ends = int(values.min(initial=0)), int(values.max(initial=0))
            if ends[0] > -(2**61) and ends[1] < 2**61:
                return cls._carried(values[None], bits, 0, _n_digits(ends, bits))
            return cls._carried(np.array([values & (1 << bits) - 1, values >> bits]), bits, 0)
        values = np.asarray(values, dtype=np.float64)
        if np.abs(values).max(initial=0.0) >= 2.0**1000:  # digits are rounded, perhaps beyond float64's end
            return cls.of(np.ldexp(values, -100), bits).shifted(100)
        _, exponents = np.frexp(values)
        mantissas = np.ldexp(values, 53 - exponents).astype(np.int64)
        ends = exponents - 53 + np.round(np.log2((mantissas & -mantissas).clip(1).astype(np.float64))).astype(int)
        unit = int(ends[mantissas != 0].min(initial=1 << 20)) if mantissas.any() else 0
        top = int(exponents[mantissas != 0].max(initial=unit))
        return cls._split(values, bits, unit, (top - unit + bits) // bits + 1)

    @classmethod
    def rounded(cls, values: FloatMatrix, bits: int, planes: int) -> Digits:
        """Values on a grid that gives the largest ``planes`` digits, less one bit."""
        largest = float(np.abs(values).max(initial=0.0))
        unit = math.frexp(largest)[1] - min(planes * bits - 2, 53) if largest else 0
        return cls._split(np.ldexp(np.rint(np.ldexp(values, -unit)), unit), bits, unit, planes)

    @classmethod
    def _split(cls, values: FloatMatrix, bits: int, unit: int, n_planes: int) -> Digits:
        # from the top: what is left over is a float too, since it ends where the value ends and starts lower
        planes, rest = np.empty((n_planes, *values.shape)), values
        for place in range(n_planes - 1, -1, -1):
            planes[place] = np.rint(np.ldexp(rest, -bits * place - unit))
            rest = rest - np.ldexp(planes[place], bits * place + unit)
        assert not rest.any()
        return cls(planes, bits, unit)._trimmed()

    @classmethod
    def _carried(cls, sums: NDArray[np.int64], bits: int, exponent: int, most: int = 0) -> Digits:
        """Balanced digits of planes of int64 below 2^62; ``most`` is a limit of how many there are, 0 if not known."""
        half, mask = 1 << bits - 1, (1 << bits) - 1
        planes, used = np.zeros((most or len(sums) + 4, *sums.shape[1:])), 1
        flat, digits = sums.reshape(len(sums), -1), planes.reshape(len(planes), -1)
        for start in range(0, flat.shape[1], CHUNK):
            chunk, place = slice(start, start + CHUNK), 0
            carry = np.zeros(digits[0, chunk].shape, dtype=np.int64)
            while place < len(flat) or carry.any():
                carry += half
                if place < len(flat):
                    carry += flat[place, chunk]
                np.subtract(carry & mask, half, out=digits[place, chunk])
                carry >>= bits
                place += 1
            used = max(used, place)
        return cls(planes[:used], bits, exponent)._trimmed()

    def _trimmed(self) -> Digits:
        n = len(self.planes)
        while n > 1 and not self.planes[n - 1].any():
            n -= 1
        return Digits(self.planes[:n], self.bits, self.exponent)

    @property
    def T(self) -> Digits:  # noqa: N802  # as numpy calls it
        """The transposed matrix."""
        return Digits(self.planes.transpose(0, 2, 1), self.bits, self.exponent)

    def __getitem__(self, place: Any) -> Digits:
        """Rows and columns by numpy's rules."""
        inner = place if isinstance(place, tuple) else (place,)
        return Digits(self.planes[(slice(None), *inner)], self.bits, self.exponent)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return self.planes.shape[1:]

    @property
    def magnitude(self) -> int:
        """An exponent e with 2^e above every entry."""
        return self.bits * len(self.planes) + self.exponent

    def shifted(self, power: int) -> Digits:
        """The matrix times 2^power."""
        return Digits(self.planes, self.bits, self.exponent + power)

    def times(self, factor: float) -> Digits:
        """The matrix times a float, exactly."""
        mantissa, exponent = math.frexp(factor)
        digits, number = [], int(math.ldexp(mantissa, 53))
        zeros = max(0, (number & -number).bit_length() - 1)
        number, exponent = number >> zeros, exponent + zeros
        half = 1 << self.bits - 1
        while number:
            digits.append((number + half) % (1 << self.bits) - half)
            number = (number - digits[-1]) >> self.bits
        sums = np.zeros((len(self.planes) + len(digits), *self.planes.shape[1:]), dtype=np.int64)
        for place, digit in enumerate(digits):
            sums[place : place + len(self.planes)] += (self.planes * float(digit)).astype(np.int64)
        return self._carried(sums, self.bits, self.exponent + exponent - 53)

    def in_bits(self, bits: int) -> Digits:
        """The same matrix as digits of another width."""
        if bits == self.bits:
            return self
        sums = np.zeros((self.bits * (len(self.planes) - 1) // bits + 1, *self.shape), dtype=np.int64)
        for number, plane in enumerate(self.planes):
            place, part = divmod(self.bits * number, bits)
            sums[place] += plane.astype(np.int64) << part
        return self._carried(sums, bits, self.exponent)

    def __add__(self, other: Digits) -> Digits:
        return self._plus(other, 1.0)

    def __sub__(self, other: Digits) -> Digits:
        return self._plus(other, -1.0)

    def _plus(self, other: Digits, sign: float) -> Digits:
        other = other.in_bits(self.bits)
        unit = min(self.exponent, other.exponent)
        ends = [len(m.planes) + (m.exponent - unit) // m.bits + 1 for m in (self, other)]
        sums = np.zeros((max(ends), *self.shape), dtype=np.int64)
        for matrix, factor in ((self, 1.0), (other, sign)):
            whole, part = divmod(matrix.exponent - unit, matrix.bits)
            for place, plane in enumerate(matrix.planes, whole):  # two digits wide at most, so floats still
                np.add(sums[place], plane * (factor * 2.0**part), out=sums[place], dtype=np.int64, casting="unsafe")
        return self._carried(sums, self.bits, unit, len(sums) + 2)

    def __matmul__(self, other: Digits) -> Digits:
        """The product, in digits of our width; the other matrix's may have another one (``bits_beside``)."""
        (n, rows, inner), (m, _, columns) = self.planes.shape, other.planes.shape
        assert other.bits <= max(digit_bits(inner), bits_beside(inner, self.bits))
        right = np.ascontiguousarray(other.planes.transpose(1, 0, 2)).reshape(inner, m * columns)
        places = [divmod(other.bits * number, self.bits) for number in range(m)]
        sums = np.zeros((n + places[-1][0] + 2 * any(part for _, part in places), rows, columns), dtype=np.int64)
        for first, plane in enumerate(self.planes):
            products = digit_product(plane, right).reshape(rows, m, columns)
            for number, (place, part) in enumerate(places):
                own = sums[first + place :]
                if not part:
                    np.add(own[0], products[:, number], out=own[0], dtype=np.int64, casting="unsafe")
                    continue
                whole = products[:, number].astype(np.int64)  # below 2^53, and too long to be shifted as it is
                own[2] += whole >> 2 * self.bits - part
                whole &= (1 << 2 * self.bits - part) - 1
                own[0] += whole << part
        return self._carried(sums, self.bits, self.exponent + other.exponent)

    def dots(self, other: Digits) -> Digits:
        """Each row times the same row of another matrix, shape (n, 1)."""
        sums = np.zeros((len(self.planes) + len(other.planes) - 1, len(self.planes[0]), 1), dtype=np.int64)
        for place, plane in enumerate(self.planes):
            for other_place, beside in enumerate(other.planes):
                sums[place + other_place, :, 0] += np.einsum("ij,ij->i", plane, beside).astype(np.int64)
        return self._carried(sums, self.bits, self.exponent + other.exponent)

    def sums_of(self, places: NDArray[Any]) -> Digits:
        """For each row of ``places`` the sum of our rows at these places, shape (n, columns)."""
        sums = np.zeros((len(self.planes), len(places), self.shape[1]), dtype=np.int64)
        for column in places.T:
            np.add(sums, self.planes[:, column], out=sums, dtype=np.int64, casting="unsafe")
        return self._carried(sums, self.bits, self.exponent)

    def any(self) -> bool:
        """Whether an entry is not zero."""
        return bool(self.planes.any())

    def parts(self) -> tuple[FloatMatrix, FloatMatrix, FloatMatrix]:
        """(high, low, slack): value = high + low within slack."""
        pairs = [self._pair(place) for place in range(0, len(self.planes), 2)]
        high, low, slack = pairs.pop(), np.zeros(self.planes.shape[1:]), np.zeros(self.planes.shape[1:])
        while pairs:
            high, error = two_sum(high, pairs.pop())
            low, lost = two_sum(low, error)
            slack += np.abs(lost)
        return high, low, slack * (1 + 2.0**-40)

    def floats(self) -> FloatMatrix:
        """Each entry as float64, within 2^-51 of its value, relatively.

        From the lowest pair up: a pair that is not zero outweighs all below it twice, nearly, so that no digit cancels.
        """
        total, step = np.empty(self.shape), max(1, CHUNK // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            rows = self[start : start + step]
            total[start : start + step] = sum(rows._pair(place) for place in range(0, len(self.planes), 2))
        return total

    def nearest(self) -> FloatMatrix:
        """The float64 nearest to each entry, ties to even: its correctly rounded value.

        Raises:
            OverflowError: an entry that leaves float64.
        """
        found, open_entries = np.zeros(self.shape), np.ones(self.shape, dtype=bool)
        if self.magnitude <= 1000 and self.exponent >= -1000:
            high, low, slack = self.parts()
            high, low = two_sum(high, low)
            # what leaves nothing out is high + low itself, and high is that sum rounded
            open_entries = ~(rounds_to_high(high, low, slack) | (slack == 0))
            found = high + 0.0
        units, exponent = self.integers() if open_entries.any() else ([], 0)
        for place in np.flatnonzero(open_entries):
            up, down = units[place] << max(exponent, 0), 1 << max(-exponent, 0)
            found.reshape(-1)[place] = up / down  # Python's division of integers rounds correctly
        return found

    def _pair(self, place: int) -> FloatMatrix:
        """Two digits as one float, exactly: they have at most 53 bits."""
        pair: FloatMatrix = self.planes[place] * 2.0 ** (self.bits * place + self.exponent)
        if place + 1 < len(self.planes):
            pair += self.planes[place + 1] * 2.0 ** (self.bits * (place + 1) + self.exponent)
        return pair

    def integers(self) -> tuple[list[int], int]:
        """Entries by rows as Python integers, and the exponent of their unit."""
        total = np.zeros(self.planes.shape[1:], dtype=object)
        for plane in self.planes[::-1]:
            total = (total << self.bits) + plane.astype(np.int64).astype(object)
        return total.ravel().tolist(), self.exponent


def exact_product(rows: FloatMatrix, matrix: FloatMatrix) -> FloatMatrix:
    """X M, each entry the float64 nearest to the exact one, ties to even: the same on every machine.

    Raises:
        OverflowError: an entry that leaves float64.
    """
    bits, found = digit_bits(len(matrix)), np.empty((len(rows), matrix.shape[1]))
    digits = Digits.of(np.ascontiguousarray(matrix), bits)
    for start in range(0, len(rows), BLOCK_ROWS):
        place = slice(start, start + BLOCK_ROWS)
        found[place] = (Digits.of(rows[place], bits) @ digits).nearest()
    return found


def exact_forms(rows: FloatMatrix, matrices: Sequence[FloatMatrix]) -> FloatMatrix:
    """z^T Q z of each row for each matrix, shape (n, c), likewise rounded once.

    Raises:
        OverflowError: one that leaves float64.
    """
    bits, found = digit_bits(rows.shape[1]), np.empty((len(rows), len(matrices)))
    for column, matrix in enumerate(matrices):
        digits = Digits.of(np.ascontiguousarray(matrix), bits)
        for start in range(0, len(rows), BLOCK_ROWS):
            place = slice(start, start + BLOCK_ROWS)
            own = Digits.of(rows[place], bits)
            found[place, column] = own.dots(own @ digits).nearest()[:, 0]
    return found


def rounds_to_high(high: FloatMatrix, low: FloatMatrix, error: FloatMatrix) -> NDArray[np.bool_]:
    """Return the entries in which every number within ``error`` of high + low rounds to high."""
    margin = error * INFLATE + np.abs(low) * 2.0**-50
    # half of the distance to the next float away from zero, and towards it, where a power of two has half of that
    bits = high.view(np.int64)
    power = (bits & EXPONENT_BITS).view(np.float64)
    beyond = power * 2.0**-53
    within = np.where(bits & MANTISSA_BITS, beyond, beyond / 2)
    outwards = low * np.copysign(1.0, high)
    decided: NDArray[np.bool_] = (outwards + margin < beyond) & (outwards - margin > -within)
    return decided


def two_sum(a: FloatMatrix, b: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    """The float nearest to a + b and what it leaves out, exactly (Knuth)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)
