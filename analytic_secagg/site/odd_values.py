"""Values of a column that lie apart from all others: codes for a missing one, totals, other units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.site.table_look import MISSING_NUMBERS

SEVERAL = 20
"""Different values that a column needs before one of them can lie far from the rest."""

FEW_CODES = (7, 8, 9)
"""Codes for a missing value in a column of a few other codes, all of them below half of it."""

MOST_NEGATIVE = 5
"""Different negative numbers of a column without others that may be codes."""


def odd_values(there: NDArray[np.float64], mend: str = "") -> Iterator[str]:
    """Yield the values of a column, none missing, that lie apart from all others, with the number of their rows.

    Args:
        there: the values.
        mend: what to do where one stands for a missing value.
    """
    said = f": where it stands for a missing value, {mend}" if mend else ""
    apart = codes_apart(there)
    rest = there[~np.isin(there, [value for value, _ in apart])]
    for value, often in [*apart, *_few_codes(rest)]:
        yield f"{value:.12g} ({often} rows) lies apart from all others{said}"
    for low, high, often, others in _groups(rest):
        if low == high:
            yield f"{low:.12g} ({often} rows) lies apart from all others{said}"
        else:
            yield (
                f"{often} rows from {low:.12g} to {high:.12g} lie apart from all others, {others[0]:.12g} to "
                f"{others[1]:.12g}: another unit perhaps, or a decimal mark that was lost"
            )


@np.errstate(invalid="ignore")  # of infinite ones, in rows that nobody checked
def codes_apart(there: NDArray[Any]) -> list[tuple[float, int]]:
    """Return the public codes for a missing value that lie apart from all values that are none, with their rows.

    Codes are measured from what is no code: beside -9 a -8 is not near to others.
    """
    values, counted = np.unique(there, return_counts=True)
    is_code = np.isin(values, [*MISSING_NUMBERS])
    if is_code.all():
        return []
    others = values[~is_code]
    low, high = others[0], others[-1]
    gap = np.maximum(low - values, values - high)
    is_far = (len(others) > SEVERAL) & (gap > (high - low) / 10) | (values / 2 > high) & (high > 0)
    if low >= 0:
        is_far |= (values < 0) & ((low < high) | (low != -values))  # 1 and -1 alone are two codes of one column
    return [*_counts(values, counted, is_code & is_far)]


def codes_for_missing(there: NDArray[Any]) -> list[tuple[float, int]]:
    """Return the codes of ``codes_apart`` that no measured value is by chance: no -1, of positive ones no small one.

    A positive one has three digits, and two rows.
    """
    return [(value, often) for value, often in codes_apart(there) if value < -1 or (value > 99 and often > 1)]


def _counts(values: NDArray[Any], counted: NDArray[Any], chosen: NDArray[np.bool_]) -> Iterator[tuple[float, int]]:
    return zip(values[chosen].tolist(), counted[chosen].tolist(), strict=True)


def _few_codes(there: NDArray[Any]) -> Iterator[tuple[float, int]]:
    """Yield 7, 8 and 9 beside codes that are all below half of them, and a few negative numbers beside many others."""
    values, counted = np.unique(there, return_counts=True)
    is_own = ~np.isin(values, FEW_CODES)
    if not is_own.any() or (values != np.rint(values)).any():
        return
    own, negative = values[is_own], values < 0
    if 1 < len(own) <= SEVERAL and own[0] >= 0:
        yield from _counts(values, counted, ~is_own & (values / 2 > own[-1]))
    if negative.sum() <= MOST_NEGATIVE and len(values) > SEVERAL and counted[negative].sum() < len(there) / 4:
        yield from _counts(values, counted, negative)


@np.errstate(over="ignore", invalid="ignore")
def _cut(rising: NDArray[np.float64]) -> int:
    """Return the place behind the widest gap of rising values, if it is wider than either side; else 0."""
    at = int(np.diff(rising).argmax()) + 1
    return at if rising[at] - rising[at - 1] > max(rising[-1] - rising[at], rising[at - 1] - rising[0]) else 0


def _groups(there: NDArray[np.float64]) -> Iterator[tuple[float, float, int, tuple[float, float]]]:
    """Yield the groups of values behind a gap that is wider than what lies on either side of it.

    Widths are differences, or where all values are positive also ratios. Yields a group's least and largest value and
    its rows, and the range of all others.
    """
    values, counted = np.unique(there, return_counts=True)
    if len(values) > SEVERAL and values[0] == 0 and values[1] > values[-1] / 11:
        yield 0.0, 0.0, int(counted[0]), (float(values[1]), float(values[-1]))
        values, counted = values[1:], counted[1:]
    while len(values) > SEVERAL:
        scales = [values, np.log(values)] if values[0] > 0 else [values]
        if not (cut := max(map(_cut, scales))):
            return
        is_low = counted[:cut].sum() <= counted[cut:].sum()
        group, rest = (slice(None, cut), slice(cut, None)) if is_low else (slice(cut, None), slice(None, cut))
        own, others = values[group], values[rest]
        yield float(own[0]), float(own[-1]), int(counted[group].sum()), (float(others[0]), float(others[-1]))
        values, counted = others, counted[rest]
