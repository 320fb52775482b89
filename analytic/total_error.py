"""Exact squared errors and R2 of a linear model on the rows of a total, from the total alone.

With Y^T Y beside Gram and cross-correlation, sum |y - x w|^2 = y^T y - 2 w^T h + w^T G w for any weights: nobody
needs the rows, and nobody is asked again. The rows are those of the sum, truncated into its formats; the result is a
rational number, so a federation's is that of the pooled rows.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from analytic.afl import AFL, in_digits
from analytic.errors import SpecificationError
from analytic.row_format import FloatMatrix
from analytic.solve.digits import Digits
from analytic.statistics import Statistics


def squared_errors(learner: AFL, weights: FloatMatrix, total: Statistics) -> tuple[Fraction, ...]:
    """Return sum (y - x w)^2 over the rows of a total for each target, exactly, in the targets' own units.

    Args:
        learner: AFL or FedHiP, whose formats and scales these are.
        weights: W, shape (d, c), finite, of rows as they stand in the sum; any weights, not only those of this total.
        total: pooled statistics, of these rows or of others, such as a fold that was left out.

    Raises:
        SpecificationError: sums without the targets' own (``target_sums=False``, or behind a row map).
    """
    squares = _squares(total)
    gram, cross = in_digits(total, learner.spec.feature_format, learner.target_format)
    exact = Digits.of(np.ascontiguousarray(weights), gram.bits)
    ours, unit = exact.integers()
    theirs, other_unit = (gram @ exact - cross.shifted(1)).integers()
    parts = (np.array(numbers, dtype=object).reshape(weights.shape) for numbers in (ours, theirs))
    products = np.multiply(*parts).sum(axis=0).tolist()
    f, scales = learner.target_format.fraction_bits, _scales(learner)
    return tuple(
        (Fraction(own, 4**f) + product * Fraction(2) ** (unit + other_unit)) * scale
        for own, product, scale in zip(squares, products, scales, strict=True)
    )


def r2(learner: AFL, weights: FloatMatrix, total: Statistics) -> tuple[float, ...]:
    """Return 1 - sum (y - x w)^2 / sum (y - mean)^2 for each target, rounded once; NaN where targets have no spread.

    Raises:
        SpecificationError: see ``squared_errors``.
    """
    spreads = target_spreads(learner, total)
    errors = squared_errors(learner, weights, total)
    return tuple(
        float(1 - error / spread) if spread else float("nan") for error, spread in zip(errors, spreads, strict=True)
    )


def target_spreads(learner: AFL, total: Statistics) -> tuple[Fraction, ...]:
    """Return sum (y - mean)^2 over the rows of a total for each target, exactly, in the targets' own units.

    Raises:
        SpecificationError: see ``squared_errors``.
    """
    squares, sums = _squares(total), [] if total.target_sum is None else total.target_sum.tolist()
    unit = Fraction(1, 4**learner.target_format.fraction_bits)
    return tuple(
        (square - Fraction(one * one, total.count)) * unit * scale if total.count else Fraction(0)
        for square, one, scale in zip(squares, sums, _scales(learner), strict=True)
    )


def _squares(total: Statistics) -> tuple[int, ...]:
    if total.target_squares is None:
        raise SpecificationError(
            "an error on the rows of a total needs the targets' own sums, and this total has none: sum with "
            "target_sums=True and without a row map"
        )
    return total.target_squares


def _scales(learner: AFL) -> tuple[Fraction, ...]:
    """The squared units of the targets' scales."""
    exponents = () if learner.columns is None else learner.columns.target_exponents
    return tuple(Fraction(4) ** exponent for exponent in exponents or (0,) * learner.n_targets)
