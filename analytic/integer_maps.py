"""Public maps of fixed-point rows to fixed-point rows: the same bits in every batch and on every machine.

**Numbers.** A fixed-point number is a multiple of 2^-f, carried as the float64 that it is; f is public. Scaling by
powers of two is exact, so products of such numbers are products of integers.

**Products are exact.** Partial sums of |x| |m| up to 2^53 units are float64 numbers, so BLAS returns the exact sum in
whatever order and with whatever kernel. Rows too large for that are cut into radix digits, whose products are added in
int64; rows whose products leave 2^62 units are refused. Which of the two ways is taken changes no bit.

**Activations are correctly rounded**: sigma(z) is the multiple of 2^-f nearest to the real value, ties to the even
one. A float64 value decides all but those few within 2^-44 |z| of the middle between two multiples. Those are decided
exactly: rational functions in Python's integers, GELU, tanh and sine in ball arithmetic of growing precision (Arb; F.
Johansson, "Arb: efficient arbitrary-precision midpoint-radius interval arithmetic", IEEE Trans. Computers 2017). At a
rational z other than 0 all are transcendental (Lindemann; Siegel and Shidlovsky for erf), so no tie keeps that from
ending. What is assumed of a platform is IEEE arithmetic, and erf, tanh and sin within 2^-45, 256 units in the last
place; libraries promise 4.

**Bounds**: what public totals prove about the entries of rows to come, so that formats need not be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Self

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from analytic.checked_products import check_product, whole_product
from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.row_format import FloatMatrix, refuse_mask
from analytic.shape_repr import shape_repr

IntMatrix = NDArray[np.int64]
FloatVector = NDArray[np.float64]

WORKING_BITS = 30
"""Bits of a row's entry at its public bound. With 22 bits of a matrix's column sums that is one product in float64."""

SCORE_BITS, LEAST_SCORE = 20, -24.0
"""A softmax takes scores in units of 2^-20, and those of 24 and more below a row's largest as 24 below."""

EXACT_BITS, WIDEST_BITS = 53, 62
"""Integers up to 2^53 are float64 numbers; products up to 2^62 are added from radix digits in int64."""

BLOCK_ROWS, CHUNK_ENTRIES = 512, 2**15
"""Rows of one product, and entries of one activation, whose passes stay in a core's cache."""

DOUBT = 2.0**-44
"""Float64 values are trusted to within this times |z|."""

ROOM = 32
"""A format holds at least this many times the root mean square of a column, however few rows were in the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedRows:
    """Rows of multiples of 2^-fraction_bits, shape (n, d); an owner of ``values`` may add to them."""

    values: FloatMatrix
    fraction_bits: int

    __repr__ = shape_repr

    @classmethod
    def truncated(cls, rows: NDArray[Any], fraction_bits: int) -> Self:
        """Rows as they are given, each entry truncated toward zero.

        Raises:
            InvalidRowsError: no matrix of real numbers of at most 64 bits.
            RowsOutsideFormatError: NaN, infinity, or entries of 2^62 units and more.
        """
        refuse_mask(rows)
        if rows.ndim != 2 or rows.dtype.kind not in "biuf" or (rows.dtype.kind == "f" and rows.dtype.itemsize > 8):
            raise InvalidRowsError(
                f"features must be a matrix of real numbers of at most 64 bits, not {rows.dtype} of shape {rows.shape}"
            )
        values = np.array(rows, dtype=np.float64, order="C")
        limit = math.ldexp(1.0, WIDEST_BITS - fraction_bits)
        if not _largest(values) < limit:  # nor is NaN
            n_rows, finite = int((~(np.abs(values) < limit)).any(axis=1).sum()), np.isfinite(values)
            raise RowsOutsideFormatError(
                f"{n_rows} of {len(values)} rows hold NaN or infinity, or entries of {limit:g} and more, and no exact "
                "product holds them; repair or scale the rows, or state a larger feature_bound",
                n_rows=n_rows,
                largest=float(np.max(np.abs(values), where=finite, initial=0.0)),
            )
        scale = math.ldexp(1.0, fraction_bits)
        values *= scale
        np.trunc(values, out=values)
        values *= 1.0 / scale
        return cls(values=values, fraction_bits=fraction_bits)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FixedMatrix:
    """A public matrix of multiples of 2^-fraction_bits, shape (d, m), read-only.

    Args:
        values: the real numbers.
        fraction_bits: their format.
        biases: what is added to each column of a product with rows of at least 0 fraction bits, shape (m,), in the
            same format; None for nothing.
        sums: sum_i |m_ij| of each column in units, exact: what a product can grow a row's largest entry by.
    """

    values: FloatMatrix
    fraction_bits: int
    biases: FloatMatrix | None = None
    sums: IntMatrix = field(init=False, repr=False)

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.values.setflags(write=False)
        if self.biases is not None:
            self.biases.setflags(write=False)
        sums = np.ldexp(np.abs(self.values).sum(axis=0), self.fraction_bits).astype(np.int64)
        if self.digit_bits_of(sums) < 1:
            raise SpecificationError(f"a matrix of {self.values.shape} is too wide for exact products; use fewer rows")
        object.__setattr__(self, "sums", sums)

    @classmethod
    def rounded(cls, matrix: FloatMatrix, fraction_bits: int) -> Self:
        """Round each entry to the nearest multiple of 2^-fraction_bits, or of a coarser unit if column sums are large.

        The unit is so coarse that sums stay near 2^31: products with rows of ``WORKING_BITS`` then fit int64.
        """
        exponent = _exponent(matrix)
        coarse = int(np.abs(np.rint(np.ldexp(matrix, 20 - exponent))).sum(axis=0).max(initial=0.0))
        bits = min(fraction_bits, WIDEST_BITS - WORKING_BITS - 1 - (coarse.bit_length() + exponent - 20), 500)
        return cls(values=np.ldexp(np.rint(np.ldexp(matrix, bits)), -bits) + 0.0, fraction_bits=bits)

    @property
    def bias_units(self) -> IntMatrix:
        """The biases in units of 2^-fraction_bits, zeros where there are none."""
        biases = np.zeros(len(self.sums)) if self.biases is None else self.biases
        return np.ldexp(biases, self.fraction_bits).astype(np.int64)

    @property
    def units(self) -> IntMatrix:
        """The entries in units of 2^-fraction_bits."""
        return np.ldexp(self.values, self.fraction_bits).astype(np.int64)

    @property
    def digit_bits(self) -> int:
        """Bits that a row's entry may have in one product that is exact in float64."""
        return self.digit_bits_of(self.sums)

    @staticmethod
    def digit_bits_of(sums: IntMatrix) -> int:
        """``digit_bits`` of a matrix with these column sums."""
        return EXACT_BITS - int(sums.max(initial=0)).bit_length()


def rounded_transform(matrix: FloatMatrix) -> FixedMatrix:
    """A residual block's transform in public fixed point: units of 2^-22, or 2^-18 of its largest entry if finer."""
    return FixedMatrix.rounded(np.ascontiguousarray(matrix), max(22, 18 - _exponent(matrix)))


def split_classifier(weights: FloatMatrix) -> tuple[FixedMatrix, FixedMatrix]:
    """W as two matrices that add up to it, up to 2^-41 of its largest entry."""
    high = FixedMatrix.rounded(np.ascontiguousarray(weights), 20 - _exponent(weights))
    return high, FixedMatrix.rounded(weights - high.values, high.fraction_bits + 20)


def _exponent(matrix: FloatMatrix) -> int:
    """The least e with every |entry| < 2^e."""
    return int(np.frexp(np.abs(matrix).max(initial=0.0))[1])


# --- exact products


def products(rows: FixedRows, matrix: FixedMatrix) -> FloatMatrix:
    """X M, with the biases of M, each entry the float64 nearest to the exact one, shape (n, m).

    Raises:
        InvalidRowsError: rows of another width.
        RowsOutsideFormatError: rows so large that their products leave 2^62 units.
    """
    out = np.empty((len(rows.values), matrix.values.shape[1]))
    for place, (found, _) in _product_blocks(rows, matrix):
        np.add(found, 0.0, out=out[place])
    return out


def scores(rows: FixedRows, weights: FloatMatrix) -> FloatMatrix:
    """X W of ``split_classifier``'s two parts: two correctly rounded products and one addition."""
    high, low = split_classifier(weights)
    found: FloatMatrix = products(rows, high) + products(rows, low)
    return found


def _product_blocks(
    rows: FixedRows, matrix: FixedMatrix
) -> Iterator[tuple[slice, tuple[FloatMatrix, IntMatrix | None]]]:
    """Blocks of X M: as float64, and in exact units where float64 is too narrow for them."""
    if rows.values.ndim != 2 or rows.values.shape[1] != len(matrix.values):
        raise InvalidRowsError(f"features must have shape (n, {len(matrix.values)}), not {rows.values.shape}")
    for start in range(0, len(rows.values), BLOCK_ROWS):
        place = slice(start, start + BLOCK_ROWS)
        yield place, _product(rows.values[place], rows.fraction_bits, matrix)


def _product(values: FloatMatrix, fraction_bits: int, matrix: FixedMatrix) -> tuple[FloatMatrix, IntMatrix | None]:
    largest, biases = _largest(values), matrix.bias_units
    reach = (
        (Fraction(largest) * int(matrix.sums.max()) + int(np.abs(biases).max())) * Fraction(2) ** fraction_bits
        if math.isfinite(largest)
        else math.inf
    )
    if reach <= 2**EXACT_BITS:
        found = whole_product(values, matrix.values)
        product = np.ldexp(found, fraction_bits + matrix.fraction_bits).astype(np.int64)
        check_product(np.ldexp(values, fraction_bits).astype(np.int64), matrix.units, product)
        return found if matrix.biases is None else np.add(found, matrix.biases, out=found), None
    if reach > 2**WIDEST_BITS:
        raise RowsOutsideFormatError(
            f"features reach {largest:g}, and their exact products would need more than {WIDEST_BITS} bits: they lie "
            "far beyond the feature_bound that formats were made for; scale or repair the rows, or state a larger one",
            n_rows=int(np.count_nonzero(np.abs(values).max(axis=1) == largest)),
            largest=largest,
        )
    total = np.zeros((len(values), matrix.values.shape[1]), dtype=np.int64)
    for shift, digit in _radix_digits(np.ldexp(values, fraction_bits).astype(np.int64), matrix.digit_bits):
        product = np.ldexp(whole_product(digit, matrix.values), matrix.fraction_bits).astype(np.int64)
        check_product(digit.astype(np.int64), matrix.units, product)
        total += product << shift
    if matrix.biases is not None:
        total += biases << fraction_bits
    return np.ldexp(total.astype(np.float64), -fraction_bits - matrix.fraction_bits), total


def _largest(values: FloatMatrix) -> float:
    return max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))


def _radix_digits(units: IntMatrix, width: int) -> Iterator[tuple[int, FloatMatrix]]:
    """Yield (shift, digit): the integers are the sum of digit 2^shift, with |digit| <= 2^width, as float64."""
    shift = 0
    while units.max(initial=0) > 1 << width or units.min(initial=0) < -(1 << width):
        yield shift, (units & ((1 << width) - 1)).astype(np.float64)
        units, shift = units >> width, shift + width
    yield shift, units.astype(np.float64)


def quadratic_forms(gram: IntMatrix, matrix: FixedMatrix) -> list[int]:
    """m_j^T G m_j for every column of ``matrix``, exact integers in units of G and of the matrix squared."""
    units, width = np.ldexp(matrix.values, matrix.fraction_bits), matrix.digit_bits
    totals = [0] * units.shape[1]
    for shift, digit in _radix_digits(gram, width):
        product = whole_product(digit, units).astype(np.int64)
        check_product(digit.astype(np.int64), matrix.units, product)
        for more, part in _radix_digits(product, width):
            sums = np.einsum("ij,ij->j", units, part).tolist()
            totals = [total + (int(found) << shift + more) for total, found in zip(totals, sums, strict=True)]
    return totals


# --- softmax


def softmax(scores: FloatMatrix, fraction_bits: int) -> FloatMatrix:
    """exp(z) / sum exp(z) of each row of scores, as multiples of 2^-fraction_bits, each rounded down.

    What scores lie below their row's largest is rounded to 2^-``SCORE_BITS``, its exponential to 2^-30 correctly; the
    quotient is one of integers. So it is within 2^-18 of the real one and the same on every machine.

    Args:
        scores: shape (n, c).
        fraction_bits: of the result, at most 32.
    """
    below = scores - scores.max(axis=1, keepdims=True, initial=-math.inf)
    below = np.ldexp(np.rint(np.ldexp(np.maximum(below, LEAST_SCORE), SCORE_BITS)), -SCORE_BITS)
    units = np.empty(scores.shape, dtype=np.int64)
    for part, less in _activated(below, None, SCORE_BITS, _EXPONENTIAL, WORKING_BITS):
        units[part] = np.ldexp(1.0 + less, WORKING_BITS).astype(np.int64)
    shares = (units << fraction_bits) // units.sum(axis=1, keepdims=True)
    found: FloatMatrix = np.ldexp(shares.astype(np.float64), -fraction_bits)
    return found


# --- activations


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """An elementwise function that never grows a value.

    Args:
        function: sigma, elementwise on float64, within ``DOUBT`` |z|, in an array of its own.
        nearest: the integer nearest to sigma(z) 2^bits, ties to the even one.
        ceiling: largest |sigma(z)| over all z; infinity when there is none.
        exact: whether ``function`` itself never rounds.
    """

    function: Callable[[FloatMatrix], FloatMatrix]
    nearest: Callable[[Fraction, int], int]
    ceiling: float = math.inf
    exact: bool = False


def activation_named(name: str) -> Activation:
    """The activation of that name.

    Raises:
        SpecificationError: unknown name.
    """
    if name not in ACTIVATIONS:
        raise SpecificationError(f"an activation is one of {', '.join(ACTIVATIONS)}, not {name!r}")
    return ACTIVATIONS[name]


def map_rows(rows: FixedRows, matrix: FixedMatrix, activation: Activation, fraction_bits: int) -> FixedRows:
    """sigma(X M), biases of M included, to the nearest multiple of 2^-fraction_bits, ties to the even one.

    Args:
        rows: X, shape (n, d); n may be 0.
        matrix: M, shape (d, m).
        activation: sigma.
        fraction_bits: format of what is returned.

    Raises:
        InvalidRowsError, RowsOutsideFormatError: as ``products``.
    """
    out = np.empty((len(rows.values), matrix.values.shape[1]))
    for place, product in _product_blocks(rows, matrix):
        for part, activated in _activated(
            *product, rows.fraction_bits + matrix.fraction_bits, activation, fraction_bits
        ):
            out[place][part] = activated
    return FixedRows(values=out, fraction_bits=fraction_bits)


def add_mapped_rows(out: FixedRows, rows: FixedRows, matrix: FixedMatrix) -> None:
    """Add X M to ``out`` in place, rounded to its format like ``map_rows`` of no activation."""
    none = ACTIVATIONS["none"]
    for place, product in _product_blocks(rows, matrix):
        for part, added in _activated(*product, rows.fraction_bits + matrix.fraction_bits, none, out.fraction_bits):
            out.values[place][part] += added


def _activated(
    z: FloatMatrix, units: IntMatrix | None, unit_bits: int, activation: Activation, fraction_bits: int
) -> Iterator[tuple[slice, FloatMatrix]]:
    """Chunks of sigma(z), rounded; ``units`` of 2^-unit_bits where z itself has been rounded."""
    step, scale = max(1, CHUNK_ENTRIES // max(1, z.shape[1])), math.ldexp(1.0, fraction_bits)
    for start in range(0, len(z), step):
        part = slice(start, start + step)
        found = activation.function(z[part])
        found *= scale
        rounded: FloatMatrix = np.rint(found)
        if units is not None or not activation.exact:
            found -= rounded
            if _largest(found) >= 0.5 - DOUBT * scale * _largest(z[part]):
                for i, j in np.argwhere(np.abs(found) >= 0.5 - DOUBT * scale * np.abs(z[part])):
                    whole = z[part][i, j] if units is None else units[part][i, j]
                    exact = Fraction(whole.item()) / (1 if units is None else Fraction(2) ** unit_bits)
                    rounded[i, j] = activation.nearest(exact, fraction_bits)
        rounded *= 1.0 / scale
        rounded += 0.0  # a zero has one sign
        yield part, rounded


def _gelu(z: FloatMatrix) -> FloatMatrix:
    """The exact function, z times the normal distribution function, not its tanh approximation."""
    from scipy.special import erf  # takes longer to load than all else here, and gelu alone needs it

    found: FloatMatrix = erf(z * math.sqrt(0.5))
    found += 1.0
    found *= z
    found *= 0.5
    return found


def _rational(function: Callable[[Fraction], Fraction]) -> Callable[[Fraction, int], int]:
    return lambda z, bits: round(function(z) * Fraction(2) ** bits)  # Python rounds ties to the even one


def _transcendental(function: Callable[[Any], Any]) -> Callable[[Fraction, int], int]:
    def nearest(z: Fraction, bits: int) -> int:
        if not z:
            return 0
        precision = 128
        while True:
            with ctx.workprec(precision):
                value = function(arb(z.numerator) / arb(z.denominator)) * arb(2) ** bits
                whole = (value + arb(1) / 2).floor().unique_fmpz()
            if whole is not None:
                return int(whole)
            precision *= 2

    return nearest


_gelu_in_balls = _transcendental(lambda z: z * (-z / arb(2).sqrt()).erfc() / 2)


def _gelu_nearest(z: Fraction, bits: int) -> int:
    """From |z| = 9 on GELU differs from z or 0 by less than 2^-59, toward zero: units of z are coarser than that."""
    if abs(z) < 9 or bits > 56 or z.denominator > 2**56:
        return _gelu_in_balls(z, bits)
    return max(0, math.ceil(z * Fraction(2) ** bits - Fraction(1, 2)))


_EXPONENTIAL = Activation(function=np.expm1, nearest=_transcendental(lambda z: z.expm1()))
"""exp(z) - 1, which at z <= 0 never grows a value: that is where ``softmax`` takes it."""

ACTIVATIONS: dict[str, Activation] = {
    "gelu": Activation(function=_gelu, nearest=_gelu_nearest),
    "relu": Activation(
        function=lambda z: np.maximum(z, 0.0), nearest=_rational(lambda z: max(z, Fraction(0))), exact=True
    ),
    "leaky_relu": Activation(
        function=lambda z: np.where(z > 0, z, 0.01 * z), nearest=_rational(lambda z: z if z > 0 else z / 100)
    ),
    "tanh": Activation(function=np.tanh, nearest=_transcendental(lambda z: z.tanh()), ceiling=1.0),
    "sine": Activation(function=np.sin, nearest=_transcendental(lambda z: z.sin()), ceiling=1.0),
    "hardswish": Activation(
        function=lambda z: z * np.clip(z + 3.0, 0.0, 6.0) / 6.0,
        nearest=_rational(lambda z: z * min(max(z + 3, Fraction(0)), Fraction(6)) / 6),
    ),
    "softshrink": Activation(
        function=lambda z: z - np.clip(z, -0.5, 0.5),
        nearest=_rational(lambda z: z - min(max(z, Fraction(-1, 2)), Fraction(1, 2))),
    ),
    "none": Activation(function=lambda z: z.copy(), nearest=_rational(lambda z: z), exact=True),
}
"""DeepAFL's table 5, with PyTorch's default slopes and thresholds; that of leaky_relu is 1/100. Random Fourier
features are of sines with a random phase: cos z is sin(z + pi / 2), and a phase uniform over a whole turn stays one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowBounds:
    """Bounds on the entries of the next rows that the totals so far prove; public, as the totals are.

    Args:
        features: largest |entry| of each column of Phi_t, shape (d_Phi,).
        hidden: largest |entry| of F_t; for the blocks still to come where these are fed by Phi_0.
        residuals: largest |entry| of R_t.
    """

    features: FloatVector
    hidden: tuple[float, ...] = ()
    residuals: float = 0.0

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.features.setflags(write=False)

    def to_bytes(self) -> bytes:
        """One byte string for one value."""
        return self.features.tobytes() + np.array([self.residuals, *self.hidden]).tobytes()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedRows:
    """Bounds that a total proves about each of its rows, in exact integers; a bound is rounded upward once at the end.

    Args:
        gram: sum of q q^T over the quantised rows q, shape (d, d), in units of 2^-2f.
        count: number of rows.
        fraction_bits: f; a row differs from its quantised one by less than 2^-f in each entry.
    """

    gram: IntMatrix
    count: int
    fraction_bits: int

    __repr__ = shape_repr

    def largest_entries(self) -> FloatVector:
        """A bound on |x_j| for every column j and every row x in the total: sqrt(G_jj) and the unit."""
        squares = np.diagonal(self.gram).tolist()
        return np.array([upward(self._root(square) + 1, -self.fraction_bits) for square in squares])

    def largest_products(self, matrix: FixedMatrix) -> FloatVector:
        """A bound on |x . m_j| for every column m_j of ``matrix`` and every row x in the total.

        (q . m)^2 <= m^T G m, to which come 2^-f |m|_1 for quantising and the bias of m.
        """
        squares, exponent = quadratic_forms(self.gram, matrix), -self.fraction_bits - matrix.fraction_bits
        more = matrix.sums + (np.abs(matrix.bias_units) << self.fraction_bits)
        pairs = zip(squares, more.tolist(), strict=True)
        return np.array([upward(self._root(square) + added, exponent) for square, added in pairs])

    def _root(self, square: int) -> int:
        """The square root, with room, rounded up."""
        square = max(0, square)
        if 0 < self.count < ROOM**2:
            square = -(-square * ROOM**2 // self.count)
        return math.isqrt(square - 1) + 1 if square else 0


def upward(units: int, exponent: int) -> float:
    """The least float64 that is at least units 2^exponent."""
    nearest = float(units)
    return math.ldexp(nearest if int(nearest) >= units else math.nextafter(nearest, math.inf), exponent)
