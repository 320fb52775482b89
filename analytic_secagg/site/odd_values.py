"""Values of a column that lie apart from all others: codes for a missing one, totals, other units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.site.table_look import MISSING_NUMBERS

SEVERAL = 20
"""Different values that a column needs before one of them can lie far from the rest."""


def odd_values(there: NDArray[np.float64]) -> Iterator[str]:
    """Yield the values of a column, none missing, that lie apart from all others, with the number of their rows."""
    for value, often in far_values(there):
        yield f"{value:.12g} ({often} rows) lies apart from all others"


def far_values(there: NDArray[Any]) -> Iterator[tuple[float, int]]:
    """Yield the values of a column, none missing, that lie apart from all others, each with the number of its rows."""
    values, counted = np.unique(there, return_counts=True)
    while len(values) > 2:
        ends = [place for place in (0, -1) if _is_apart(values if place == 0 else -values[::-1], values[place])]
        if not ends:
            return
        yield float(values[ends[0]]), int(counted[ends[0]])
        kept = slice(1, None) if ends[0] == 0 else slice(-1)
        values, counted = values[kept], counted[kept]


def codes_for_missing(there: NDArray[Any]) -> list[tuple[float, int]]:
    """Return the public codes for a missing value that lie apart from all other values of a column, with their rows.

    Codes that a measured value may be by chance are none here: -1, and positive ones of two digits or of one row.
    """
    return [
        (value, often)
        for value, often in far_values(there)
        if value in MISSING_NUMBERS and (value < -1 or (value > 99 and often > 1))
    ]


def _is_apart(rising: NDArray[np.float64], value: float) -> bool:
    """Test whether the first of some rising values is odd; ``value`` is it with its own sign."""
    gap, others = rising[1] - rising[0], rising[-1] - rising[1]
    if value in MISSING_NUMBERS and value < 0 <= rising[1]:
        return True
    is_code = value == 0 or value in MISSING_NUMBERS
    return bool(len(rising) > SEVERAL and gap > (others / 10 if is_code else others))
