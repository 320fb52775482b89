"""Offsets: public round numbers that are taken off columns whose values are large beside their deviation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.row_format import FEWEST_BITS

AGREED_BITS = 20
"""Bits of a column's range in a run of a million rows that lets columns be agreed on."""


def proposed_offset(values: NDArray[Any]) -> float | None:
    """Return an offset that keeps a column's deviation in a format of 20 bits; None where it is kept anyway.

    It is the middle, to as few digits as leave a remainder of some ten deviations: a person decides whether it may be
    public.

    Args:
        values: of one column, shape (n,); NaN are missing.

    Example:
        >>> proposed_offset(1e9 + np.array([0.0, 1.0, 2.0]))
        1000000000.0
        >>> proposed_offset(np.array([100.0, 150.0, 200.0])) is None
        True
    """
    there = np.asarray(values, dtype=np.float64)
    there = there[~np.isnan(there)]
    if len(there) < 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        largest, deviation = float(np.abs(there).max()), float(np.std(there - there[0]))
    if not 0 < deviation < math.inf:
        return None
    if AGREED_BITS - math.frexp(largest)[1] + math.frexp(deviation)[1] >= FEWEST_BITS:
        return None
    step = 10.0 ** math.ceil(math.log10(10 * deviation))
    return round(float(np.median(there)) / step) * step
