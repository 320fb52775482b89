"""A profile of a site's rows, for its own people alone: it shows values, so that implausible ones are seen in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic.shape_repr import shape_repr
from analytic_secagg.errors import DataError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.odd_values import odd_values
from analytic_secagg.site.offsets import AGREED_BITS, proposed_offset
from analytic_secagg.site.reading import section_of
from analytic_secagg.site.site_file import ClientRole
from analytic_secagg.site.table import Column
from analytic_secagg.site.table_files import is_table, read_cells

FEW_ROWS = 5
"""A category of fewer rows may show somebody."""

FEW_VALUES = 6
"""Different ones of a column that are listed."""


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


def columns_of(client: ClientRole) -> dict[str, Profiled]:
    """Return the columns of a site's table as they are, plausible or not; of other data those of its rows.

    Raises:
        SiteFileError: they cannot be read.
    """
    if client.columns is None or not is_table(client.data):
        return _of_rows(client.rows())
    try:
        cells = read_cells(Path(client.data), client.reading)
        meant = client.columns.meant(client.data, cells, client.reading)
    except DataError as error:
        raise SiteFileError(str(error)) from None
    return {
        name: Profiled(values=one.values, column=client.columns.columns[name], unknown=one.texts)
        for name, one in meant.items()
    }


def _of_rows(rows: ClientRows) -> dict[str, Profiled]:
    targets = rows.targets.reshape(len(rows), -1)
    named = {f"feature {place}": column for place, column in enumerate(rows.features.T)}
    named |= {f"target {place}": column for place, column in enumerate(targets.T)}
    return {name: Profiled(values=np.asarray(column, dtype=np.float64)) for name, column in named.items()}


def profile(columns: Mapping[str, Profiled]) -> Iterator[str]:
    """Yield the lines of a profile: rows, classes, duplicates, then each column and what is odd about it."""
    n_rows = len(next(iter(columns.values())).values)
    rows = np.column_stack([one.values for one in columns.values()])
    twice = n_rows - len(np.unique(np.nan_to_num(rows, nan=np.inf), axis=0))
    yield f"{n_rows} rows" + (f", of which {twice} repeat another one in all columns" if twice else "")
    for name, one in columns.items():
        yield f"{name}: {_figures(one)}"
        yield from (f"  look: {odd}" for odd in oddities(name, one))


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


def oddities(name: str, one: Profiled) -> Iterator[str]:
    """Yield what is odd about a column."""
    for text, often in Counter(one.unknown).most_common(5):
        yield f"{text!r} ({often} rows) means nothing under schema and reading"
    there = one.values[~np.isnan(one.values)]
    values, counted = np.unique(there, return_counts=True)
    if len(values) == 1 and len(there) > 1:
        is_category = one.column is not None and one.column.role == "feature" and bool(one.column.categories)
        more = ": if other sites have others, the total shows this site's own sums" if is_category else ""
        yield f"all rows have the same value, from which nothing is learned{more}"
    if one.column is not None and one.column.categories:
        few = [one.column.categories[int(place)] for place, n in zip(values, counted, strict=True) if n < FEW_ROWS]
        if few:
            yield f"fewer than {FEW_ROWS} rows each have {', '.join(few)}: a total may show them"
        return
    if one.column is not None and (n := int(one.column.is_outside(one.values).sum())):
        yield f"{n} values lie outside the schema's range, {one.column.range[0]:g} to {one.column.range[1]:g}"
    mend = "repair these rows" if one.column is None else f"state its text as missing in {section_of(name)}"
    yield from odd_values(there, mend)
    if (offset := proposed_offset(values)) is not None:
        yield (
            f"values near {np.abs(values).max():.3g} differ by {values.std():.3g} only, of which a format of "
            f"{AGREED_BITS} bits keeps little: agree on an offset in the schema of all sites, a public round number "
            f"such as {offset:.12g}"
        )
