"""Totals that no rows can have: what a poisoned vector, or a key holder that decrypts something else, adds up to.

A total of real rows keeps every condition here, exactly, whoever holds them; nothing is estimated. What passes may
still be of rows that somebody made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from analytic.errors import ImpossibleTotalError
from analytic.semidefinite import exceeding_columns, is_semidefinite

if TYPE_CHECKING:
    from analytic.statistics import IntVector, Statistics, StatisticsSpec


def check_statistics(total: Statistics, spec: StatisticsSpec) -> None:
    """Refuse statistics that no rows in the formats of a specification have; what the RI process added is off already.

    Of n rows whose entries are at most m: 0 <= G_jj <= n m^2; the Gram of features, of real targets beside them, and of
    each class beside them is positive semidefinite; a class has 0 to n rows, which add up to n where every row has one
    class, and no entry of its column is above m times as many; a constant column's line has the columns' sums.

    Raises:
        ImpossibleTotalError: names the first condition that fails, and no number of the total but its rows.
    """
    refuse_impossible(_broken(total, spec), total.count)


def refuse_impossible(broken: Iterator[str], count: int) -> None:
    """Raise where a condition is broken.

    Raises:
        ImpossibleTotalError: names the first one.
    """
    if (first := next(broken, None)) is not None:
        raise ImpossibleTotalError(
            f"a total of {count} rows needs {first}, and this one has not: no rows add up to it. A client sent no "
            "statistics of rows, or a key holder gave another total; no model is made. Have sites check their "
            "versions, sum again without some of them, and compare receipts"
        )


def _broken(total: Statistics, spec: StatisticsSpec) -> Iterator[str]:
    """The conditions that fail, cheap ones first."""
    n, most = total.count, spec.feature_format.magnitude
    diagonal = total.gram.diagonal()
    if (diagonal < 0).any() or (diagonal > n * most**2).any():
        yield f"a Gram whose diagonal lies in 0 to rows times the square of the largest value in {spec.feature_format}"
    if (
        not (spec.feature_format.signed or spec.target_format.signed)
        and min(total.gram.min(initial=0), total.cross.min(initial=0)) < 0
    ):
        yield f"a Gram and a cross-correlation without negative entries, as {spec.feature_format} has none"
    counts = spec.class_rows(total)
    if counts is not None:
        yield from _broken_classes(total, spec, counts)
    if spec.constant:
        yield from _broken_constant(total, spec, counts)
    if not is_semidefinite(total.gram):
        yield "a positive semidefinite Gram"
    elif counts is not None:
        if spec.one_class and not _is_joint_semidefinite(total, spec, counts):
            yield "a positive semidefinite Gram of features beside classes"
        if not spec.one_class and exceeding_columns(total.gram, total.cross, counts.tolist()):
            yield "a positive semidefinite Gram of features beside each class"
    elif total.target_gram is not None:
        if not is_semidefinite(np.block([[total.gram, total.cross], [total.cross.T, total.target_gram]])):
            yield "a positive semidefinite Gram of features beside targets"
        if total.target_sum is not None and exceeding_columns(total.target_gram, total.target_sum[:, None], [n]):
            yield "targets whose sums and squares are of so many rows"


def _broken_classes(total: Statistics, spec: StatisticsSpec, counts: IntVector) -> Iterator[str]:
    if (counts < 0).any() or (counts > total.count).any():
        yield "classes of 0 rows to all of them"
    elif spec.one_class and sum(counts.tolist()) != total.count:
        yield "classes whose rows add up to all of them"
    if (np.abs(total.cross) > counts * spec.feature_format.magnitude).any():
        yield f"columns of classes that so many rows in {spec.feature_format} can add up to"


def _broken_constant(total: Statistics, spec: StatisticsSpec, counts: IntVector | None) -> Iterator[str]:
    unit, sums = spec.constant, total.target_sum
    is_constant = int(total.gram[-1, -1]) == total.count * unit**2 and not (total.gram[-1] % unit).any()
    if not is_constant or (np.abs(total.gram[-1]) > total.count * unit * spec.feature_format.magnitude).any():
        yield "an intercept's column with one unit a row, and column sums of so many rows"
    if sums is not None and (total.cross[-1] != sums * unit).any():
        yield "an intercept's column with the sums of the targets"
    if counts is not None and spec.one_class and (total.gram[-1] != total.cross.sum(axis=1) * unit).any():
        yield "column sums that the classes' columns add up to"


def _is_joint_semidefinite(total: Statistics, spec: StatisticsSpec, counts: IntVector) -> bool:
    """[[G, H], [H^T, diag(n_c)]]; a constant column is the sum of the classes' and adds nothing to it."""
    kept = slice(None, -1) if spec.constant else slice(None)
    gram, cross = total.gram[kept, kept], total.cross[kept]
    return is_semidefinite(np.block([[gram, cross], [cross.T, np.diag(counts)]]))
