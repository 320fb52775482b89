"""Discriminant analysis: Gaussians of each class from one sum, GH-OFL's linear and quadratic heads.

**LDA**: linear discriminant analysis of all clients' rows from AFL's own sum, GH-OFL's linear head.

Rows of each class are taken for Gaussian with a mean m_c of their own and one covariance for all, S. The total holds
what these are made of, G = X^T X, class sums H = X^T Y and counts D = diag(n_c): N S = G - H D^-1 H^T. The score of
class c is x . w_c - m_c . w_c / 2 + log(n_c / N) with w_c = (S + ridge / N I)^-1 m_c.

No mean is ever divided out. With the joint Gram of rows beside their labels,

    [ G + ridge I   H ] [ W ]     [   0  ]
    [ H^T           D ] [ V ]  =  [ -N I ],

the last lines give V = -D^-1 (N I + H^T W) and, put into the first, (N S + ridge I) W = N H D^-1: so W is the exact
solution of a system of integers, each entry rounded once, and m_c . w_c = -(V_cc + N / n_c).

**QDA**: quadratic discriminant analysis from one Gram matrix a class, GH-OFL's quadratic head.

Rows of each class are taken for Gaussian with a mean m_c and a covariance S_c of their own. The sum holds what these
are made of, for every class its Gram G_c, the sum of its rows s_c = n_c m_c and its count n_c. Covariances are drawn
toward the pooled one as in regularised discriminant analysis (Friedman, J. Amer. Statist. Assoc. 84 (1989), eq. 11-13,
lambda being the shrinkage), with a ridge besides, here of sums as above:

    K_c = G_c - s_c s_c^T / n_c + lambda sum_(k != c) (G_k - s_k s_k^T / n_k) + ridge I,
    w_c = n_c + lambda (N - n_c),    S_c = K_c / w_c.

With lambda 1 all S_c are LDA's. The score of class c is -(x - m_c)^T S_c^-1 (x - m_c) / 2 - log(det S_c) / 2 +
log(n_c / N), Gaussian log densities without a term that all classes share.

No mean is ever divided out. K_c is the Schur complement of a system of integers, times lambda's unit,

    J_c = [ G_c + lambda sum G_k + ridge I    s_c    lambda s_k ]
          [ s_c^T                             n_c               ]
          [ lambda s_k^T                           lambda n_k   ]     for all other classes k,

so w_c J_c^-1, each entry rounded once, holds S_c^-1 on its upper left, -S_c^-1 m_c in the column of s_c and
w_c / n_c + m_c^T S_c^-1 m_c below it; and det K_c = det J_c / (n_c prod lambda n_k), whose logarithm is rounded once
too (``analytic.solve.certified``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ldexp, prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.layers import Layer
from analytic.learner import ClientRows
from analytic.model_arrays import Parts
from analytic.parts import PartsSpec
from analytic.row_format import FloatMatrix, RowFormat
from analytic.solve.certified import log_determinant
from analytic.solve.digits import BLOCK_ROWS, Digits, digit_bits, exact_forms
from analytic.solve.minimum_norm import Solution, solve_ridge
from analytic.statistics import LABELS, IntMatrix, IntVector, Statistics, StatisticsSpec, check_labels

NEVER = -(2.0**100)
"""The score of a class without rows."""

MAX_CLASSES = 10_000
"""A learner that a server proposes with more would have a site write them all out before it can refuse."""


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

    name: ClassVar[str] = "lda"
    _one_class: ClassVar[bool] = True
    """Classes are taken for Gaussians with means of their own: a row has one."""

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

    def own_statistics(self, rows: ClientRows) -> Statistics:
        """Return G_k and H_k of a client's rows.

        Raises:
            InvalidRowsError: targets that are no class labels of shape (n,), and what ``Statistics.from_rows`` refuses.
        """
        self._check_one_class(rows)
        return AFL.own_statistics(self, rows)

    def _check_one_class(self, rows: ClientRows) -> None:
        if len(rows) and rows.targets.ndim != 1:
            raise InvalidRowsError(
                f"{self.name} needs one class a row, integer class labels of shape (n,), not targets of shape "
                f"{rows.targets.shape}: take afl for rows of several classes"
            )

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
                "ridge above 0, or more rows, or leave out columns that follow from others, such as a last category's"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QDA(LDA):
    """Quadratic discriminant analysis; a model is a symmetric matrix a class, with z^T Q_c z the score of a row z.

    A row z has the intercept's column last. A total is one of each class, and of how many sites have rows of it: gates
    judge every class by itself. What is not said here is as in ``LDA``.

    Args:
        ridge: what is added to every K_c, in the mapped features' own units squared.
        shrinkage: lambda, 0 to 1. Above 0 a class may have fewer rows than features. Columns of zeros weigh nothing.
        lift: must be None.

    Raises:
        SpecificationError: what LDA refuses, random features, or a shrinkage out of range.
    """

    name: ClassVar[str] = "qda"

    shrinkage: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.shrinkage <= 1:
            raise SpecificationError(f"a shrinkage is a number from 0 to 1, not {self.shrinkage}")
        if self.n_targets > MAX_CLASSES:
            raise SpecificationError(
                f"{self.name} sums statistics a class, of at most {MAX_CLASSES} classes and not {self.n_targets}; "
                "take lda for more"
            )
        if self.lift is not None:
            raise SpecificationError(f"{self.name} takes rows as they are, class by class: leave random features out")
        LDA.__post_init__(self)

    @property
    def classes_spec(self) -> PartsSpec:
        """The one sum: of each class Gram, sum and count of its rows, and how many sites have some."""
        return PartsSpec(parts=(self._class_spec,) * self.n_targets, counts_sites=True)

    @property
    def _class_spec(self) -> StatisticsSpec:
        """The sum of one class."""
        return replace(
            self.spec, n_features=self.n_features, n_targets=1, target_sums=False, constant=0, one_class=True
        )

    def _of_class(self, rows: FloatMatrix) -> Statistics:
        """The statistics of one class' rows."""
        return Statistics.from_rows(self._class_spec, rows, np.zeros(len(rows), dtype=np.int64))

    def next_sum(self, model: LinearModel) -> PartsSpec | None:
        """The classes' statistics, then nothing more."""
        return self.classes_spec if model.solution is None else None

    def client_statistics(self, model: LinearModel, rows: ClientRows) -> tuple[Statistics, ...]:
        """Local stage: the statistics of each class' rows, with gamma I on each Gram.

        Raises:
            InvalidRowsError: targets that are no class labels of shape (n,).
        """
        values, labels = self.lattice_rows(model, rows).values[:, : self.n_features], rows.targets
        self._check_one_class(rows)
        labels = labels if len(rows) else np.zeros(0, dtype=np.int64)
        check_labels(labels, self.n_targets)
        return tuple(
            self._of_class(values[labels == label]).with_diagonal(self.ri_units) for label in range(self.n_targets)
        )

    def update(self, model: LinearModel, total: Any, survivors: int) -> LinearModel:
        """Aggregation stage: a quadratic form a class."""
        return LinearModel(solution=self.solve_classes(self.exact_total(model, total, survivors)))

    def exact_total(self, model: LinearModel, total: Any, survivors: int) -> tuple[Statistics, ...]:
        """Each class' statistics and sites, which gates judge one by one."""
        return tuple(self.without_ri(own, survivors) for own in total)

    def solve_classes(self, total: Sequence[Statistics]) -> Solution:
        """Q_c of all classes side by side, shape (d, c d): what S_c^-1 and S_c^-1 m_c hold is exact and rounded once.

        A class without rows is never chosen.

        Raises:
            NotPositiveDefiniteError: a class whose covariance cannot be inverted.
        """
        d, unit = self.spec.n_features, self.intercept_unit
        counts = np.array([own.count for own in total])
        forms, solutions = np.zeros((self.n_targets, d, d)), []
        forms[:, -1, -1] = ldexp(NEVER, 2 * unit)
        for label, log_share in zip(np.flatnonzero(counts), log_shares(counts[counts > 0]), strict=True):
            solution, log_det = self._solve_class(total, int(label))
            solutions.append(solution)
            found, form = solution.weights, forms[label]
            form[:-1, :-1] = found[:-1, :-1] / -2
            form[-1, :-1] = form[:-1, -1] = np.ldexp(found[:-1, -1], unit) / -2
            form[-1, -1] = ldexp(log_share - (found[-1, -1] + log_det) / 2, 2 * unit)
        worst = min(solutions, key=lambda one: one.reciprocal_condition, default=None)
        return Solution(
            weights=np.hstack(list(forms)),
            method="cholesky",
            rank=0 if worst is None else worst.rank,
            reciprocal_condition=0.0 if worst is None else worst.reciprocal_condition,
            certified=all(one.certified for one in solutions),
        )

    def _solve_class(self, total: Sequence[Statistics], label: int) -> tuple[Solution, float]:
        """[S^-1, -S^-1 m; -(S^-1 m)^T, m^T S^-1 m] of a class, and log det S."""
        d, f, share = self.n_features, self.feature_format.fraction_bits, Fraction(self.shrinkage)
        own, everybody = _joint(total, {label}), _joint(total, set(range(len(total))))
        bits, counts = digit_bits(len(own)), own.diagonal()[d:]
        others = everybody.diagonal()[d:] - counts
        live = np.append(everybody.diagonal()[:d] + (self.ridge > 0) > 0, counts + others * (share > 0) > 0)
        n_live, n_own, n_others = int(live[:d].sum()), int(counts[label]), int(others.sum())
        kept = np.append(np.flatnonzero(live[:d]), d + label)
        units = np.eye(len(own), dtype=np.int64)[:, kept]
        system, right = Digits.of(own, bits), Digits.of(units * n_own, bits)
        if share:
            system = system + Digits.of(everybody - own, bits).times(self.shrinkage)
            right = right + Digits.of(units * n_others, bits).times(self.shrinkage)
        if self.ridge:
            penalty = np.diag(np.repeat([1.0, 0.0], [d, len(total)]))
            system = system + Digits.of(penalty, bits).times(ldexp(self.ridge, 2 * f))
        places = np.flatnonzero(live)
        system = system[np.ix_(places, places)]
        found = solve_ridge(system, right[places])
        if found.rank < len(places):
            raise NotPositiveDefiniteError(
                f"within class {label}, of {n_own} rows, one column follows from the others, so that its covariance "
                "cannot be inverted: use a shrinkage above 0, a ridge above 0 where that is not enough, or more rows"
            )
        weight, weights = n_own + share * n_others, np.zeros((d + 1, d + 1))
        at = np.append(kept[:-1], d)
        weights[np.ix_(at, at)] = found.weights[np.searchsorted(places, kept)]
        weights[:d, :d] = np.ldexp(weights[:d, :d], 2 * f)
        weights[:d, d] = np.ldexp(weights[:d, d], f)
        weights[d, d] -= float(weight / n_own)
        borders = prod(share * int(n) for n in others[others > 0]) if share else 1
        over = n_own * borders * (weight * 4**f) ** n_live
        return replace(found, weights=weights), log_determinant(system, Fraction(over))

    def decision_function(self, model: LinearModel, features: NDArray[Any]) -> FloatMatrix:
        """z^T Q_c z, shape (n, c), of features as they are: only training rows are quantised.

        Raises:
            NotReadyError: the total has not arrived yet.
            InvalidRowsError: features of another shape than (n, d).
        """
        weights, rows = model.weights, self._rows(features, model.centre)
        found = np.empty((len(rows), self.n_targets))
        for start in range(0, len(rows), BLOCK_ROWS):
            part = rows[start : start + BLOCK_ROWS]
            products = (part @ weights).reshape(len(part), self.n_targets, -1)
            found[start : start + len(part)] = np.einsum("ncd,nd->nc", products, part)
        return found

    def _exact(self, rows: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        return exact_forms(rows, np.split(weights, self.n_targets, axis=1))

    def layers(self, model: LinearModel) -> tuple[Layer, ...]:
        """Refuse: no layer multiplies a row by itself.

        Raises:
            SpecificationError: always.
        """
        raise SpecificationError(
            f"scores of {self.name} are quadratic in a row, and no layer is: export lda, or save its model"
        )

    def put_together(self, parts: Parts) -> LinearModel:
        """Return the model of these parts."""
        d = self.spec.n_features
        shape = d, self.n_targets * d
        return LinearModel(solution=parts.solution("weights", shape) if "weights" in parts else None)


def _joint(total: Sequence[Statistics], chosen: Collection[int]) -> IntMatrix:
    """[sum G_k, s_k; s_k^T, diag(n_k)] of the chosen classes, whose numbers are zero for all others."""
    d, c = len(total[0].gram), len(total)
    joint = np.zeros((d + c, d + c), dtype=np.int64)
    for label in chosen:
        own, place = total[label], d + label
        joint[:d, :d] += own.gram
        joint[:d, place] = joint[place, :d] = own.cross[:, 0]
        joint[place, place] = own.count
    return joint
