"""Random features: a public map of rows that anyone can draw again, the same bits in every batch and on every machine.

phi(x) = sigma(x A + b) with A and b of ``analytic.features`` and sigma of ``analytic.integer_maps``. A linear model of
phi(x) is a model of x that is not linear, from the same one sum as before: RanPAC's of ReLU (McDonnell et al., NeurIPS
2023), Fed3R-RF's of random Fourier features (Fanì et al., ICML 2024; Rahimi and Recht, NeurIPS 2007). The latter are
``sine`` with the law ``fourier``: phi(x) . phi(y) is, up to a factor, near exp(-v |x - y|^2 / (2 d)), v the variance.

Rows are truncated toward zero to ``WORKING_BITS`` at ``feature_bound``; everything after that is exact or correctly
rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.features import BIASED, PROJECTION_VERSION, Projection, check_projection, random_projection
from analytic.integer_maps import WORKING_BITS, FixedMatrix, FixedRows, FloatVector, activation_named, map_rows, upward
from analytic.layers import Activated, Clipped, Layer, Linear
from analytic.row_format import RowFormat
from analytic.whole_numbers import settle_whole_numbers

NONNEGATIVE = frozenset({"relu"})
"""Activations without negative values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomMap:
    """Rows of ``n_features`` entries to rows of ``n_columns`` random features.

    Args:
        n_features: d, columns of the input.
        n_columns: columns of phi.
        feature_bound: public bound on |x| over all input entries. Rows beyond it are no error before they leave the
            format of a sum: products take more bits then.
        fraction_bits: phi's entries are multiples of 2^-fraction_bits.
        limit: where they end: larger ones become ``limit``, smaller ones -limit. None leaves them as they are.
        activation: sigma: relu, sine, gelu (exact), leaky_relu, tanh, hardswish, softshrink or none.
        projection: law of A and b, see ``analytic.features``.
        variance: what the law's variance is multiplied by.
        seed: public seed of A and b.
        version: of the public projections; weights belong to one.

    Raises:
        SpecificationError: parameters outside their range, or another version.
    """

    n_features: int
    n_columns: int
    feature_bound: float
    fraction_bits: int = 16
    limit: float | None = None
    activation: str = "relu"
    projection: Projection = "nin"
    variance: float = 1.0
    seed: int = 0
    version: str = PROJECTION_VERSION

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_columns", "fraction_bits", "seed")
        if not (math.isfinite(self.feature_bound) and self.feature_bound > 0):
            raise SpecificationError(f"feature_bound must be a finite number > 0, not {self.feature_bound}")
        if self.limit is not None and not (self.limit > 0 and math.ldexp(self.limit, self.fraction_bits).is_integer()):
            raise SpecificationError(
                f"random features end at a positive multiple of their unit, 2^-{self.fraction_bits}, not {self.limit}"
            )
        if self.version != PROJECTION_VERSION:
            raise SpecificationError(
                f"random features of {self.version} came, and this program draws {PROJECTION_VERSION}, with which "
                "their weights mean nothing: train again"
            )
        activation_named(self.activation)
        check_projection(self.seed, self.projection, inputs=self.n_features, variance=self.variance)
        if self.projection in BIASED and min(self._own_bits, self.fraction_bits) < 0:
            raise SpecificationError(
                f"features that may reach {self.feature_bound:g} leave no unit for biases: scale them down"
            )

    @property
    def matrix(self) -> FixedMatrix:
        """A with b."""
        shape = self.n_features, self.n_columns
        return random_projection(self.seed, 0, "A", shape, self.projection, self.variance)

    @property
    def reach(self) -> FloatVector:
        """Proven bounds of |x . a_j + b_j|, shape (n_columns,), read-only."""
        return _reach(self)

    @property
    def row_format(self) -> RowFormat:
        """The format that is proven to hold every entry of phi.

        Raises:
            analytic.errors.SpecificationError: there is none of so many bits.
        """
        return RowFormat(
            integer_bits=self._integer_bits, fraction_bits=self.fraction_bits, signed=self.activation not in NONNEGATIVE
        )

    @property
    def _integer_bits(self) -> int:
        """Number of integer bits that hold every entry of phi."""
        ends = (float(self.reach.max()), activation_named(self.activation).ceiling, self.limit or math.inf)
        return max(0, math.frexp(min(ends))[1])

    def with_bits(self, bits: int) -> Self:
        """Return this map with the finest unit that so many bits, the sign aside, allow."""
        integer_bits = replace(self, fraction_bits=0, limit=None)._integer_bits
        if integer_bits > bits:
            raise SpecificationError(
                f"random features may reach 2^{integer_bits}, and {bits} bits do not hold them: allow more row_bits, "
                "lower the variance, or state the format in which they end"
            )
        return replace(self, fraction_bits=bits - integer_bits)

    def apply(self, features: NDArray[Any]) -> FixedRows:
        """phi(x), each entry the multiple of its unit nearest to the exact one, ties to the even one.

        Raises:
            InvalidRowsError: another shape or type.
            RowsOutsideFormatError: NaN, infinity, or rows some thousand times beyond ``feature_bound``.
        """
        if features.ndim != 2 or features.shape[1] != self.n_features:
            raise InvalidRowsError(f"features must have shape (n, {self.n_features}), not {features.shape}")
        rows = FixedRows.truncated(features, max(self.fraction_bits, min(40, self._own_bits)))
        mapped = map_rows(rows, self.matrix, activation_named(self.activation), self.fraction_bits)
        if self.limit is not None:
            np.clip(mapped.values, -self.limit, self.limit, out=mapped.values)
        return mapped

    def layers(self) -> tuple[Layer, ...]:
        """The map as layers, which round no rows in between."""
        ends = () if self.limit is None else (Clipped(-self.limit, self.limit),)
        return Linear(self.matrix.values, self.matrix.biases), Activated(self.activation), *ends

    @property
    def _own_bits(self) -> int:
        return WORKING_BITS - math.frexp(self.feature_bound)[1]


@lru_cache(maxsize=4)  # in a simulation every client asks for the same one
def _reach(random_map: RandomMap) -> FloatVector:
    matrix, bound = random_map.matrix, Fraction(random_map.feature_bound)
    pairs = zip(matrix.sums.tolist(), np.abs(matrix.bias_units).tolist(), strict=True)
    units = [math.ceil(bound * sizes + bias) for sizes, bias in pairs]
    found = np.array([upward(reach, -matrix.fraction_bits) for reach in units])
    found.setflags(write=False)
    return found
