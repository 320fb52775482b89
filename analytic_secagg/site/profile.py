"""A profile of a site's rows, for its own people alone: it shows values, so that implausible ones are seen in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analytic.shape_repr import shape_repr
from analytic_secagg.site.offsets import AGREED_BITS, proposed_offset
from analytic_secagg.site.schema_draft import FEW_ROWS, MISSING_NUMBERS
from analytic_secagg.site.table import Column

FEW_VALUES = 6
"""Different ones of a column that are listed."""

SEVERAL = 20
"""Different values that a column needs before one of them can lie far from the rest."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profiled:
    """A column to be looked at.

    Args:
        values: its numbers, or places of categories; NaN where they are missing.
        column: what the schema says of it; None without a schema.
        unknown: texts that mean nothing under schema and reading.
    """

    values: NDArray[np.float64]
    column: Column | None = None
    unknown: Sequence[str] = field(default=())

    __repr__ = shape_repr


def profile(columns: Mapping[str, Profiled]) -> Iterator[str]:
    """Yield the lines of a profile: rows, classes, duplicates, then each column and what is odd about it."""
    n_rows = len(next(iter(columns.values())).values)
    rows = np.column_stack([one.values for one in columns.values()])
    twice = n_rows - len(np.unique(np.nan_to_num(rows, nan=np.inf), axis=0))
    yield f"{n_rows} rows" + (f", of which {twice} repeat another one in all columns" if twice else "")
    for name, one in columns.items():
        yield f"{name}: {_figures(one)}"
        yield from (f"  look: {odd}" for odd in _odd(name, one))


def _figures(one: Profiled) -> str:
    there = one.values[~np.isnan(one.values)]
    missing = f"{len(one.values) - len(there) - len(one.unknown)} missing"
    if one.column is not None and one.column.categories:
        counts = Counter(there.tolist())
        return ", ".join(f"{text} {counts[place]}" for place, text in enumerate(one.column.categories)) + f", {missing}"
    if not len(there):
        return missing
    values, counted = np.unique(there, return_counts=True)
    if len(values) <= FEW_VALUES:
        listed = ", ".join(f"{value:.12g} ({n})" for value, n in zip(values, counted, strict=True))
        return f"{listed}, {missing}"
    low, middle, high = there.min(), np.median(there), there.max()
    often = f"{values[counted.argmax()]:.12g} most often ({counted.max()})"
    return f"{low:.12g} to {high:.12g}, median {middle:.12g}, {len(values)} different, {often}, {missing}"


def _odd(name: str, one: Profiled) -> Iterator[str]:
    for text, often in Counter(one.unknown).most_common(5):
        yield f"{text!r} ({often} rows) means nothing under schema and reading"
    there = one.values[~np.isnan(one.values)]
    values, counted = np.unique(there, return_counts=True)
    if len(values) == 1 and len(there) > 1:
        yield "all rows have the same value, from which nothing is learned"
    if one.column is not None and one.column.categories:
        few = [one.column.categories[int(place)] for place, n in zip(values, counted, strict=True) if n < FEW_ROWS]
        if few:
            yield f"fewer than {FEW_ROWS} rows each have {', '.join(few)}: a total may show them"
        return
    if one.column is not None and (n := int(one.column.is_outside(one.values).sum())):
        yield f"{n} values lie outside the schema's range, {one.column.range[0]:g} to {one.column.range[1]:g}"
    mend = (
        "repair these rows" if one.column is None else f"state its text as missing in [client.reading.columns.{name}]"
    )
    for value, often in _far(values, counted):
        yield f"{value:.12g} ({often} rows) lies apart from all others: where it stands for a missing value, {mend}"
    yield from _resolution(values)


def _far(values: NDArray[np.float64], counted: NDArray[np.int64]) -> Iterator[tuple[float, int]]:
    """Yield smallest and largest values that lie apart from all others, by more for any than for codes and 0."""
    while len(values) > 2:
        ends = [place for place in (0, -1) if _is_apart(values if place == 0 else -values[::-1], values[place])]
        if not ends:
            return
        yield float(values[ends[0]]), int(counted[ends[0]])
        kept = slice(1, None) if ends[0] == 0 else slice(-1)
        values, counted = values[kept], counted[kept]


def _is_apart(rising: NDArray[np.float64], value: float) -> bool:
    """Test whether the first of some rising values is odd; ``value`` is it with its own sign."""
    gap, others = rising[1] - rising[0], rising[-1] - rising[1]
    if value in MISSING_NUMBERS and value < 0 <= rising[1]:
        return True
    is_code = value == 0 or value in MISSING_NUMBERS
    return bool(len(rising) > SEVERAL and gap > (others / 10 if is_code else others))


def _resolution(values: NDArray[np.float64]) -> Iterator[str]:
    """Judge the size of a column beside its deviation: a format has bits for the size alone."""
    if (offset := proposed_offset(values)) is not None:
        yield (
            f"values near {np.abs(values).max():.3g} differ by {values.std():.3g} only, of which a format of "
            f"{AGREED_BITS} bits keeps little: agree on an offset in the schema of all sites, a public round number "
            f"such as {offset:.12g}"
        )
