"""LDA: linear discriminant analysis of all clients' rows from AFL's own sum, GH-OFL's linear head.

Rows of each class are taken for Gaussian with a mean m_c of their own and one covariance for all, S. The total holds
what these are made of, G = X^T X, class sums H = X^T Y and counts D = diag(n_c): N S = G - H D^-1 H^T. The score of
class c is x . w_c - m_c . w_c / 2 + log(n_c / N) with w_c = (S + ridge / N I)^-1 m_c.

No mean is ever divided out. With the joint Gram of rows beside their labels,

    [ G + ridge I   H ] [ W ]     [   0  ]
    [ H^T           D ] [ V ]  =  [ -N I ],

the last lines give V = -D^-1 (N I + H^T W) and, put into the first, (N S + ridge I) W = N H D^-1: so W is the exact
solution of a system of integers, each entry rounded once, and m_c . w_c = -(V_cc + N / n_c).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from math import ldexp

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.errors import NotPositiveDefiniteError, SpecificationError
from analytic.row_format import RowFormat
from analytic.solve.digits import Digits, digit_bits
from analytic.solve.minimum_norm import Solution, solve_ridge
from analytic.statistics import LABELS, IntVector, Statistics

NEVER = -(2.0**100)
"""The score of a class without rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LDA(AFL):
    """Linear discriminant analysis with AFL's sum; after it a model is AFL's, with intercepts.

    GH-OFL's linear head (Fed-LDA; its paper adds to the diagonal what ``ridge`` does here). Which sum, which bytes and
    which messages are AFL's, and so is what a total tells.

    Args:
        n_features, n_targets, feature_format, max_rows, max_clients, ri_gamma, clip, lift: as in ``AFL``.
        ridge: what is added to N S, in the mapped features' own units squared. Without one, columns that depend on
            each other are refused, and columns of zeros have weights of zero.
        columns: scales of columns with an intercept, which is needed.
        target_format, target_sums: labels, and True.
        row_map, solver: must be None: the sum of a private form has no counts of classes.

    Raises:
        SpecificationError: no intercept, real targets, no sums of targets, or a row map.
    """

    def __post_init__(self) -> None:
        if self.row_map is not None or self.solver is not None:
            raise SpecificationError(
                f"{self.name} has no private form: its noisy sum would hold no counts of classes; take afl"
            )
        if self.target_format != LABELS or not self.target_sums:
            raise SpecificationError(f"{self.name} is for class labels and needs their counts: leave target_sums True")
        if not self.fit_intercept:
            raise SpecificationError(
                f"{self.name} has intercepts: give it columns with one, such as ColumnMap(intercept=0)"
            )
        AFL.__post_init__(self)

    @property
    def name(self) -> str:
        """The learner's name on the command line and in reports."""
        return "lda"

    @property
    def _one_class(self) -> bool:
        """Classes are taken for Gaussians with means of their own: a row has one."""
        return True

    def solve(self, pooled: Statistics, survivors: int = 1, *, target_format: RowFormat | None = None) -> Solution:
        """W, each entry the exact one rounded once, above the intercepts, which are a few roundings from exact ones.

        Classes without rows have weights of zero and are never chosen.

        Raises:
            NotPositiveDefiniteError: without a ridge, columns of which one follows from others within every class.
        """
        counts = pooled.target_sum
        assert counts is not None
        shape, held = pooled.cross.shape, np.flatnonzero(counts)
        d, bits = shape[0] - 1, self.feature_format.fraction_bits
        if not len(held):
            return Solution(
                weights=np.zeros(shape), method="cholesky", rank=0, reciprocal_condition=0.0, certified=True
            )
        cross = pooled.cross[:d, held]
        joint = np.block([[pooled.gram[:d, :d], cross], [cross.T, np.diag(counts[held])]])
        system = Digits.of(joint, digit_bits(len(joint)))
        if self.ridge:
            penalty = np.diag(np.repeat([1.0, 0.0], [d, len(held)]))
            system = system + Digits.of(penalty, system.bits).times(ldexp(self.ridge, 2 * bits))
        right = np.vstack([np.zeros(cross.shape, dtype=np.int64), np.diag(np.full(len(held), -counts.sum()))])
        found = solve_ridge(system, right)
        if found.rank < np.count_nonzero(joint.diagonal() + (self.ridge > 0)):
            raise NotPositiveDefiniteError(
                "within every class one column follows from the others, so that no covariance can be inverted: use a "
                "ridge above 0, or more rows"
            )
        weights = np.zeros(shape)
        weights[:d, held] = np.ldexp(found.weights[:d], bits)
        weights[d] = NEVER
        weights[d, held] = self._intercepts(found.weights[d:].diagonal(), counts[held])
        return Solution(
            weights=weights,
            method=found.method,
            rank=found.rank,
            reciprocal_condition=found.reciprocal_condition,
            certified=found.certified,
        )

    @property
    def intercept_unit(self) -> int:
        """The column of ones is one of 2^-unit."""
        return 0 if self.columns is None else self.columns.intercept or 0

    def _intercepts(self, multipliers: NDArray[np.float64], counts: IntVector) -> list[float]:
        """-m_c . w_c / 2 + log(n_c / N), in units of the intercept's column."""
        total = int(counts.sum())
        return [
            ldexp((v + total / int(n)) / 2.0 + log, self.intercept_unit)
            for v, n, log in zip(multipliers, counts, log_shares(counts), strict=True)
        ]


def log_shares(counts: IntVector) -> list[float]:
    """Return log(n_c / N) of classes with rows, the same on every machine, which a float's logarithm is not."""
    with localcontext(prec=40):
        return [float((Decimal(int(n)) / int(counts.sum())).ln()) for n in counts]
