"""Gaussian naive Bayes from each class' counts, sums and sums of squares: the smallest head of one sum.

Columns of a class are taken for independent Gaussians, so a class needs 2 d + 1 numbers where QDA needs a Gram
(``analytic.discriminant``): its count n_c, the sums of its columns s_cj = n_c m_cj and of their squares q_cj. Variances
are drawn toward the pooled ones as QDA's covariances are, of which they are the diagonals (lambda is the shrinkage):

    K_cj = q_cj - s_cj^2 / n_c + lambda sum_(k != c) (q_kj - s_kj^2 / n_k) + ridge,
    v_cj = K_cj / w_c,    w_c = n_c + lambda (N - n_c).

The score of class c is log(n_c / N) - sum_j (log v_cj + (x_j - m_cj)^2 / v_cj) / 2, linear in x_j^2 and x_j. Its
coefficients -1 / (2 v_cj) and m_cj / v_cj are rational numbers, computed as such and rounded once; what is left of the
score has logarithms, which are computed to 50 decimal digits, the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ldexp
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analytic.afl import LinearModel
from analytic.discriminant import NEVER, QDA, log_shares
from analytic.errors import InvalidRowsError, NotPositiveDefiniteError
from analytic.model_arrays import Parts
from analytic.row_format import FloatMatrix
from analytic.solve.digits import exact_forms
from analytic.solve.minimum_norm import Solution
from analytic.statistics import IntVector, Statistics, StatisticsSpec
from analytic.tallies import checked_count, count_segment, refuse_impossible, too_many_rows

DIGITS = 50
"""Decimal digits of logarithms before they are rounded to float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MomentsSpec(StatisticsSpec):
    """The public shape of a sum of squares and sums of columns, whose Gram is its diagonal alone."""

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        return (
            ("squares", self.n_features, self.gram_bound),
            ("sums", self.n_features, self.cross_bound),
            count_segment(self.max_rows),
        )

    def to_vector(self, statistics: Statistics) -> IntVector:
        """Statistics as one int64 vector: squares, sums, the count.

        Raises:
            InvalidRowsError: another shape, or more rows than ``max_rows``.
        """
        if statistics.cross.shape != (self.n_features, 1):
            raise InvalidRowsError(
                f"sums of columns have shape ({self.n_features}, 1), not {statistics.cross.shape}: use the statistics "
                "that client_statistics makes"
            )
        if statistics.count > self.max_rows:
            raise too_many_rows(statistics.count, self.max_rows)
        return np.concatenate([statistics.gram.diagonal(), statistics.cross[:, 0], np.array([statistics.count])])

    def from_vector(self, vector: IntVector) -> Statistics:
        """The statistics that ``to_vector`` wrote, or a sum of such vectors.

        Raises:
            InvalidRowsError: another size or type, or a count that no total can have.
        """
        count, d = checked_count(vector, self.segments, self.max_rows), self.n_features
        return Statistics(gram=np.diag(vector[:d]), cross=vector[d : 2 * d, None].copy(), count=count)

    def check_total(self, total: Statistics, survivors: int) -> None:
        """Refuse a total that no rows of so many clients add up to.

        Of n rows whose entries are at most m: 0 <= q <= n m^2, |s| <= n m and s^2 <= n q (Cauchy and Schwarz) for every
        column, and q and s are both even or both odd, as an integer and its square are.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        refuse_impossible(self._broken(total.with_diagonal(-survivors * self.diagonal_each)), total.count)

    def _broken(self, total: Statistics) -> Iterator[str]:
        n, most = total.count, self.feature_format.magnitude
        squares, sums = total.gram.diagonal().astype(object), total.cross[:, 0].astype(object)
        if any(not 0 <= square <= n * most**2 for square in squares):
            yield f"sums of squares in 0 to rows times the square of the largest value in {self.feature_format}"
        if any(abs(one) > n * most or (one < 0 and not self.feature_format.signed) for one in sums):
            yield f"sums of columns that so many rows in {self.feature_format} can add up to"
        if any(one**2 > n * square for one, square in zip(sums, squares, strict=True)):
            yield "squares of the sums of columns of at most the rows times the sums of squares"
        if any((one - square) % 2 for one, square in zip(sums, squares, strict=True)):
            yield "sums and sums of squares that are both even or both odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class NaiveBayes(QDA):
    """Gaussian naive Bayes; a model has the weights of a row's squares, of the row itself and of its intercept.

    A total is one of each class, and of how many sites have rows of it: gates judge every class by itself, by its
    rows beside its columns, since means of many columns tell who is among few rows. What is not said here is as in
    ``QDA``.

    Args:
        ridge: what is added to every K_cj, in the mapped features' own units squared.
        shrinkage: lambda, 0 to 1; 0 is naive Bayes, 1 has one variance a column for all classes.
    """

    name: ClassVar[str] = "naive-bayes"

    shrinkage: float = 0.01

    @property
    def _class_spec(self) -> MomentsSpec:
        return MomentsSpec(
            n_features=self.n_features,
            n_targets=1,
            feature_format=self.feature_format,
            max_rows=self.max_rows,
            diagonal_allowance=self.max_clients * self.ri_units,
            diagonal_each=self.ri_units,
            one_class=True,
            target_sums=False,
        )

    def _of_class(self, rows: FloatMatrix) -> Statistics:
        units = self.feature_format.quantise(rows).astype(np.int64)
        return Statistics(
            gram=np.diag(np.square(units).sum(axis=0)), cross=units.sum(axis=0)[:, None], count=len(units)
        )

    def solve_classes(self, total: Sequence[Statistics]) -> Solution:
        """Weights of squares, of columns and of the intercept's, shape (2 d + 1, c).

        A class without rows is never chosen, and columns of zeros weigh nothing.

        Raises:
            NotPositiveDefiniteError: a column without variance within a class.
        """
        d, unit = self.n_features, self.intercept_unit
        counts = np.array([own.count for own in total])
        weights = np.zeros((2 * d + 1, self.n_targets))
        weights[-1] = ldexp(NEVER, unit)
        held = np.flatnonzero(counts)
        live = np.flatnonzero(sum(own.gram.diagonal() for own in total) + (self.ridge > 0))
        scatters = {label: _scatters(total[label], live) for label in held.tolist()}
        pooled = [sum(column, Fraction(0)) for column in zip(*scatters.values(), strict=True)]
        for label, log_share in zip(scatters, log_shares(counts[held]), strict=True):
            weights[live, label], weights[d + live, label], score = self._weigh(
                total[label], int(counts.sum()), live, scatters[label], pooled
            )
            weights[-1, label] = ldexp(log_share + score, unit)
        return Solution(weights=weights, method="moments", rank=len(live), reciprocal_condition=1.0, certified=True)

    def _weigh(
        self,
        own: Statistics,
        n_rows: int,
        live: NDArray[np.intp],
        scatter: Sequence[Fraction],
        pooled: Sequence[Fraction],
    ) -> tuple[list[float], list[float], float]:
        """-1 / (2 v), m / v of each column, and -sum (log v + m^2 / v) / 2."""
        bits, share, n = self.feature_format.fraction_bits, Fraction(self.shrinkage), own.count
        added, weight = Fraction(self.ridge) * 4**bits, n + share * (n_rows - n)
        squares, columns, rest, logs = [], [], Fraction(0), Decimal(0)
        for place, inner, every in zip(live.tolist(), scatter, pooled, strict=True):
            variance = (inner + share * (every - inner) + added) / weight
            if not variance:
                raise NotPositiveDefiniteError(
                    f"column {place} has one value in all rows of a class, so that its variance is zero: use a "
                    "shrinkage above 0, or a ridge above 0 where that is not enough, or leave the column out"
                )
            mean = Fraction(int(own.cross[place, 0]), n)
            squares.append(float(-(4**bits) / (2 * variance)))
            columns.append(float(mean * 2**bits / variance))
            rest += mean**2 / variance
            with localcontext(prec=DIGITS):
                logs += (Decimal(variance.numerator) / Decimal(variance.denominator * 4**bits)).ln()
        with localcontext(prec=DIGITS):
            score = -(logs + Decimal(rest.numerator) / Decimal(rest.denominator)) / 2
        return squares, columns, float(score)

    def _exact(self, rows: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        d, forms = self.n_features, []
        for column in weights.T:
            form = np.zeros((d + 1, d + 1))
            form[:d, :d] = np.diag(column[:d])
            form[:, d] = form[d, :] = np.ldexp(np.append(column[d:-1] / 2, column[-1]), self.intercept_unit)
            forms.append(form)
        return exact_forms(rows, forms)

    def decision_function(self, model: LinearModel, features: NDArray[Any]) -> FloatMatrix:
        """Log densities without a term that all classes share, shape (n, c), of features as they are.

        Raises:
            NotReadyError: the total has not arrived yet.
            InvalidRowsError: features of another shape than (n, d).
        """
        weights, rows = model.weights, self._rows(features, model.centre)
        scores: FloatMatrix = np.concatenate([np.square(rows[:, : self.n_features]), rows], axis=1) @ weights
        return scores

    def put_together(self, parts: Parts) -> LinearModel:
        """Return the model of these parts."""
        shape = 2 * self.n_features + 1, self.n_targets
        return LinearModel(solution=parts.solution("weights", shape) if "weights" in parts else None)


def _scatters(own: Statistics, live: NDArray[np.intp]) -> list[Fraction]:
    """Q - s^2 / n of these columns."""
    squares, sums = own.gram.diagonal()[live].tolist(), own.cross[live, 0].tolist()
    return [square - Fraction(one**2, own.count) for square, one in zip(squares, sums, strict=True)]
