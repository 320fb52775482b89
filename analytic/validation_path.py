"""Validation errors by penalty, and the rule that takes one of the penalties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Self

import numpy as np

from analytic.row_format import FloatMatrix
from analytic.shape_repr import shape_repr


class Rule(StrEnum):
    """Rule by which a penalty of a path is chosen."""

    LEAST = "least"
    """The one of least error; of equals the largest."""
    ONE_STANDARD_ERROR = "one-standard-error"
    """The largest whose error is within one standard error of the least (Hastie et al., 2nd edition, section 7.10)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Path:
    """Validation errors by penalty, each rounded once; the choice was made before rounding.

    Args:
        values: what was tried, ascending: penalties, or weights of a client's own rows.
        errors: mean error a row in each fold, shape (values, folds); NaN in a fold without rows.
        mean: mean error a row over all folds, shape (values,).
        standard_error: of that mean, from how the folds that have rows differ, weighted by these; 0 where there is but
            one, which does not say.
        least, chosen: which value has the least error, and which was taken.
    """

    values: tuple[float, ...]
    errors: FloatMatrix
    mean: tuple[float, ...]
    standard_error: tuple[float, ...]
    least: int
    chosen: int

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        self.errors.setflags(write=False)

    @classmethod
    def of(cls, values: Sequence[float], sums: Sequence[Sequence[Fraction]], rows: Sequence[int], rule: Rule) -> Path:
        """The path of exact sums of errors, by values and folds, with the rows of each fold."""
        n_rows, n_folds = max(1, sum(rows)), sum(1 for n in rows if n)
        means = [sum(own, Fraction(0)) / n_rows for own in sums]
        variances = [
            sum((n * (total / n - mean) ** 2 for total, n in zip(own, rows, strict=True) if n), Fraction(0))
            / (n_rows * max(1, n_folds - 1))
            for own, mean in zip(sums, means, strict=True)
        ]
        best = max(place for place, mean in enumerate(means) if mean == min(means))
        within = [best] if rule is Rule.LEAST else range(best, len(means))
        distances = {place: means[place] - means[best] for place in within}
        chosen = max(place for place, far in distances.items() if far <= 0 or far**2 <= variances[best])
        errors = [[float(e / n) if n else math.nan for e, n in zip(own, rows, strict=True)] for own in sums]
        return cls(
            values=tuple(values),
            errors=np.array(errors),
            mean=tuple(map(float, means)),
            standard_error=tuple(math.sqrt(variance) for variance in variances),
            least=best,
            chosen=chosen,
        )

    @property
    def choice(self) -> float:
        """The value that was taken."""
        return self.values[self.chosen]

    def of_one(self, denominator: int) -> Self:
        """Return the path of sums that count everything once; these count it ``denominator`` times, a power of two."""
        return replace(self, values=tuple(value / denominator for value in self.values))
