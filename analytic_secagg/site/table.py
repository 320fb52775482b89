"""Rows from a table as people have it, by a public schema that all sites share.

The schema says which columns are features and which targets, the categories of texts, what stands for missing values
and what becomes of them. It is agreed before anybody looks at rows, so every site makes the same columns of its own
table, whatever is in it; what a table holds beside the schema's columns is left alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from analytic_secagg.errors import DataError
from analytic_secagg.site.meanings import Meanings, Meant
from analytic_secagg.site.odd_values import codes_for_missing
from analytic_secagg.site.reading import HERE, ColumnReading, Reading, section_of
from analytic_secagg.site.strict_models import StrictModel, Texts
from analytic_secagg.site.table_files import Cells, cells_of_frame, read_cells, text_of
from analytic_secagg.site.table_refusals import check_last, check_names, of_categories, of_numbers, of_place
from analytic_secagg.spelling import nearest, tidy

Categories = Annotated[tuple[str, ...], Field(strict=False)]

LATER = {"offset": 0.0, "unit": "", "range": (-math.inf, math.inf)}
"""Settings that schemas of 0.1.0 do not have, with their defaults: rosters pin fingerprints of such schemas."""


class Column(StrictModel):
    """Treatment of one column of a table.

    Args:
        role: a feature, what is learned, or how often a row counts (whole numbers; see ``analytic.Weights``).
        categories: of a text, in a fixed order: a column of zeros and ones each; of a target they are the classes.
            Empty for numbers.
        missing: what becomes of a missing value: ``refuse`` the table, put this number in its place, or ``flag``: 0,
            and 1 in a column beside it (for a text: 0 in the columns of all its categories); ``leave out`` is of a
            target alone: its row teaches nothing, and is none.
        scale: numbers are divided by 2^scale, which loses nothing and brings columns of all sizes into one format.
        offset: is taken off numbers before they are scaled: a public round number for columns that differ by little
            beside their size, such as years, whose deviation a format would lose. A flagged missing value becomes 0.
        unit: of numbers, in words, so that sites with another one do not agree.
        range: the least and the largest number that is possible at all; tables with others are refused. Public, so it
            comes from a textbook and not from rows.
    """

    role: Literal["feature", "target", "weight"] = "feature"
    categories: Categories = ()
    missing: Literal["refuse", "flag", "leave out"] | float = "refuse"
    scale: int = Field(default=0, ge=-60, le=60)
    offset: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    unit: str = ""
    range: Annotated[tuple[float, ...], Field(strict=False)] = (-math.inf, math.inf)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({*map(tidy, self.categories)}) < len(self.categories) or len(self.categories) == 1:
            raise ValueError("categories are at least two different texts; correct them")
        if isinstance(self.missing, float) and not math.isfinite(self.missing):
            raise ValueError('missing is "refuse", "flag" or a finite number; correct it')
        if self.categories and (self.scale or isinstance(self.missing, float)):
            raise ValueError('texts with categories have no scale, and missing is "refuse" or "flag"')
        if self.offset and (self.categories or self.role != "feature"):
            raise ValueError("an offset is of features that are numbers; take it away")
        if self.categories and (self.unit or self.range != (-math.inf, math.inf)):
            raise ValueError("texts with categories have no unit and no range; take them away")
        if len(self.range) != 2 or not self.range[0] < self.range[1]:
            raise ValueError("range is two numbers, the least and the largest; correct it")
        if self.missing not in ("refuse", "leave out") if self.role == "target" else self.missing == "leave out":
            raise ValueError(
                'a row without its target teaches nothing: its missing is "refuse" or "leave out", and only a target\'s'
            )
        if self.role == "weight" and (self.categories or self.scale or self.missing == "flag"):
            raise ValueError("a weight is a whole number as it is: leave categories, scale and flag out")
        return self

    def is_outside(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which values lie outside the range; missing ones do not."""
        return (values < self.range[0]) | (values > self.range[1])

    def names(self, name: str) -> tuple[str, ...]:
        """Name the columns that it becomes."""
        if self.categories:
            return tuple(f"{name}={category}" for category in self.categories)
        return (name, f"{name} is missing") if self.missing == "flag" else (name,)


class TableSchema(StrictModel):
    """A table's columns by name, in the order of the features; a TOML file with a table ``[columns.NAME]`` each.

    Args:
        missing_values: texts that stand for no value.
        columns: what becomes of them.
    """

    missing_values: Texts = frozenset({""})
    columns: dict[str, Column]

    @model_validator(mode="after")
    def _check(self) -> Self:
        targets = [column for column in self.columns.values() if column.role == "target"]
        if not targets or not self._of("feature"):
            raise ValueError('a schema needs at least one feature and one column with role = "target"')
        if len(targets) > 1 and any(column.categories for column in targets):
            raise ValueError("several targets are numbers, and classes are one column; correct [columns]")
        if len(self._of("weight")) > 1:
            raise ValueError("a row has one weight; correct [columns]")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of a feature row."""
        return tuple(name for key, column in self._of("feature") for name in column.names(key))

    @property
    def classes(self) -> tuple[str, ...]:
        """Meaning of the labels 0, 1, ...; empty where targets are numbers."""
        return next(column.categories for _, column in self._of("target"))

    @property
    def n_targets(self) -> int:
        """Classes, or columns of real targets."""
        return len(self.classes) or len(self._of("target"))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what the schema says, hexadecimal, for sites to compare: without it columns mean nothing."""
        said = self.model_dump(mode="json") | {"missing_values": sorted(self.missing_values)}
        for name, column in self.columns.items():  # what a schema does not state changes no fingerprint
            for later, default in LATER.items():
                if getattr(column, later) == default:
                    del said["columns"][name][later]
        return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()

    def rows(self, path: Path | str, reading: Reading | None = None) -> ClientRows:
        """Return the rows of a table.

        No text of an error holds a value of the table, but public codes for a missing one.

        Args:
            path: a table's file; without a reading CSV in UTF-8 whose first line names columns.
            reading: how the file writes what the schema means.

        Raises:
            DataError: it cannot be read, lacks a column, or a value is not what the schema says.
        """
        reading = reading or Reading()
        return self._rows_kept(str(path), read_cells(Path(path), reading), reading)[0]

    def rows_of_sites(
        self, path: Path | str, column: str, reading: Reading | None = None
    ) -> tuple[ClientRows, list[str]]:
        """Return the rows of a table of several sites, and of each the text of the column that names its site.

        For simulations: a site's own table has no such column, and as a feature it would show each site's sums.

        Raises:
            DataError: as of ``rows``; there is no such column, or rows in which it is empty.
        """
        reading = reading or Reading()
        cells = read_cells(Path(path), reading)
        rows, kept = self._rows_kept(str(path), cells, reading)
        if cells.head.count(tidy(column)) != 1:
            raise DataError(f"{path} has no column {column}{nearest(column, cells.head)}")
        names = [tidy(text_of(cell)) for cell in cells.column(cells.head.index(tidy(column)))]
        if nobodys := [line for line, name in zip(cells.lines, names, strict=True) if name in self.missing_values]:
            raise DataError(
                f"{path}, line {nobodys[0]}: column {column} names no site in {len(nobodys)} of {len(names)} rows: "
                "say whose they are, or leave them out of the table"
            )
        return rows, [name for name, is_kept in zip(names, kept, strict=True) if is_kept]

    def rows_of_frame(
        self, frame: Any, *, source: str = "the data frame", reading: Reading | None = None
    ) -> ClientRows:
        """Return the rows of a data frame of pandas, polars or pyarrow.

        Args:
            frame: the table; None, NaN and pandas' NA stand for missing values, as do ``missing_values``.
            source: where it comes from, for errors.
            reading: how it writes what the schema means.

        Raises:
            DataError: it lacks a column, or a value is not what the schema says.
        """
        return self._rows_kept(source, cells_of_frame(frame, source), reading or Reading())[0]

    def features_of(self, path: Path | str, reading: Reading | None = None) -> NDArray[np.float64]:
        r"""Return the features of a table for prediction, shape (rows, features): it needs no target and no weight.

        Raises:
            DataError: as of ``rows``.

        >>> import tempfile
        >>> schema = TableSchema(columns={
        ...     "sex": Column(categories=("f", "m")), "age": Column(), "ill": Column(role="target"),
        ... })
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = (Path(folder) / "new.csv").write_text("age,sex\n61,m\n47,f\n")
        ...     schema.features_of(Path(folder) / "new.csv").tolist()
        [[0.0, 1.0, 61.0], [1.0, 0.0, 47.0]]
        """
        reading = reading or Reading()
        cells = read_cells(Path(path), reading)
        return self._made(str(path), "feature", self._read(str(path), cells, reading, dict(self._of("feature"))))

    def meant(
        self, source: str, cells: Cells, reading: Reading, columns: Mapping[str, Column] | None = None
    ) -> dict[str, Meant]:
        """Return what the cells of each column mean, or of these columns, whether or not the schema has them.

        Raises:
            DataError: a column is not there, or the reading contradicts the schema.
        """
        if surplus := ", ".join(sorted(reading.columns.keys() - self.columns.keys())):
            raise DataError(f"[client.reading.columns] has {surplus}, and the schema has not; correct it")
        columns = self.columns if columns is None else columns
        own = {name: reading.columns.get(name, ColumnReading()) for name in columns}
        wanted = [tidy(one.name or name) for name, one in own.items()]
        if twice := sorted(its for its, times in Counter(wanted).items() if times > 1):
            raise DataError(
                f"[client.reading.columns] has several columns of the schema read {', '.join(twice)} of this file: "
                'state name = "..." for each, a column of its own'
            )
        check_names(source, reading, cells.head, wanted, columns)
        found = {}
        for (name, column), its in zip(columns.items(), wanted, strict=True):
            meanings = Meanings(name, column.categories, self.missing_values, reading, own[name])
            found[name] = meanings.of(cells.column(cells.head.index(its)))
        return found

    def _rows_kept(self, source: str, cells: Cells, reading: Reading) -> tuple[ClientRows, NDArray[np.bool_]]:
        """The rows, and for each row of the table whether it is one of them."""
        values = self._read(source, cells, reading, self.columns)
        kept = ~np.isnan(np.array([values[name] for name, _ in self._of("target")])).any(axis=0)
        if not kept.all():  # where the schema leaves such rows out
            values = {name: own[kept] for name, own in values.items()}
        features, targets = (self._made(source, role, values) for role in ("feature", "target"))
        weights = self._made(source, "weight", values)[:, 0] if self._of("weight") else None
        try:
            return ClientRows(features, targets.argmax(axis=1) if self.classes else targets, weights), kept
        except InvalidRowsError as error:
            raise DataError(f"{source}: {error}") from error

    def _read(
        self, source: str, cells: Cells, reading: Reading, columns: Mapping[str, Column]
    ) -> dict[str, NDArray[np.float64]]:
        """The values of these columns, as the schema has them."""
        meant, line = self.meant(source, cells, reading, columns), f"{source}, line"
        n_without = sum(np.isnan(one.values).astype(int) for one in meant.values())
        no_records = {*np.flatnonzero(n_without >= max(2, len(meant) / 2)).tolist()}
        values = {name: self._values(line, name, one, cells.lines, reading, no_records) for name, one in meant.items()}
        self._check_last(line, cells, values, reading)
        return values

    def _made(self, source: str, role: str, values: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The columns of a role side by side, as rows have them."""
        made = np.column_stack([part for name, column in self._of(role) for part in _parts(column, values[name])])
        if not np.isfinite(made).all():
            raise DataError(
                f"{source} needs numbers that are finite once they are scaled, and some are not: correct them, or "
                "change scale in the schema of all sites"
            )
        return made

    def _check_last(
        self, line: str, cells: Cells, columns: Mapping[str, NDArray[np.float64]], reading: Reading
    ) -> None:
        if not cells.lines:
            return
        used = {tidy(reading.columns.get(name, ColumnReading()).name or name) for name in columns}
        others = (cells.column(place)[-1] for place, name in enumerate(cells.head) if name not in used)
        numbers = [own for name, own in columns.items() if not self.columns[name].categories]
        check_last(line, cells.lines, others, numbers)

    def _of(self, role: str) -> list[tuple[str, Column]]:
        return [(name, column) for name, column in self.columns.items() if column.role == role]

    def _values(
        self, line: str, name: str, meant: Meant, lines: Sequence[int], reading: Reading, no_records: Set[int]
    ) -> NDArray[np.float64]:
        """The values of a column, if the schema has them all; ``no_records`` are rows without most values.

        Raises:
            DataError: it has not.
        """
        column, values = self.columns[name], meant.values
        if meant.unknown:
            needed = f"one of {', '.join(column.categories)}" if column.categories else "a finite number"
            looks = of_place(meant.unknown, no_records, lines) or (
                of_categories(name, meant.texts)
                if column.categories
                else of_numbers(name, meant.texts, reading, has_marks=meant.has_marks)
            )
            raise DataError(
                f"{line} {lines[meant.unknown[0]]}: column {name} needs {needed}, and {len(meant.unknown)} of "
                f"{len(values)} rows have another text: {looks}"
            )
        if meant.n_ambiguous:
            raise DataError(
                f"{line} {lines[0]}: column {name} has a point before three digits in {meant.n_ambiguous} of "
                f"{len(values)} rows, whole numbers of three digits and none of more: 1.234 may be 1234. State "
                f'thousands = "." and decimal = ",", or decimal = "." if it is a fraction, in {HERE}'
            )
        if column.missing == "refuse" and (is_missing := np.isnan(values)).any():
            number = "" if column.categories else " or a number"
            schema = f'state missing = "flag"{number} in the schema of all sites'
            at_end = of_place(np.flatnonzero(is_missing).tolist(), no_records, lines)
            raise DataError(
                f"{line} {lines[int(is_missing.argmax())]}: column {name} needs a value: it is missing in "
                f"{int(is_missing.sum())} of {len(values)} rows. Repair the table or leave these rows out of it"
                + (f"; {at_end}" if at_end else "")
                + (f"; or {schema}" if column.role == "feature" else "")
                + ('; or all sites agree on missing = "leave out" for it' if column.role == "target" else "")
            )
        if (is_outside := column.is_outside(values)).any():
            raise DataError(
                f"{line} {lines[int(is_outside.argmax())]}: column {name} needs values from {column.range[0]:g} to "
                f"{column.range[1]:g}, its range in the schema, and {int(is_outside.sum())} of {len(values)} rows have "
                "others, which the command profile shows to this site. If they are codes, state missing = [...], or if "
                f"the unit is another one factor, in {section_of(name)} of this site's own file; else "
                "correct these rows or leave them out"
            )
        if not column.categories and column.range == (-math.inf, math.inf):
            self._check_codes(line, name, values, lines, reading)
        return values

    def _check_codes(
        self, line: str, name: str, values: NDArray[np.float64], lines: Sequence[int], reading: Reading
    ) -> None:
        """Refuse a column whose range nobody states where a public code for a missing value lies apart from all others.

        Raises:
            DataError: names the code, which no one row gives away.
        """
        own = reading.columns.get(name, ColumnReading())
        there = values[~np.isnan(values)]
        if (own.factor, own.add) != (1.0, 0.0):
            there = np.round((there - own.add) / own.factor, 6)  # as the file has them
        for code, often in codes_for_missing(there):
            if f"{code:.0f}" not in own.recode:
                first = lines[int(np.isclose(values, code * own.factor + own.add).argmax())]
                raise DataError(
                    f"{line} {first}: column {name} holds {code:.0f} in {often} of {len(values)} rows, apart from all "
                    "other values, as people write what is missing: state missing = "
                    f'["{code:.0f}"] in {section_of(name)} of this site\'s own file; if it is measured, '
                    f'recode = {{ "{code:.0f}" = "{code * own.factor + own.add:.12g}" }} there says so, or a range in '
                    "the schema of all sites"
                )


def _parts(column: Column, values: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The columns of numbers that one column of a table becomes."""
    if column.categories:
        yield from ((values == place).astype(np.float64) for place in range(len(column.categories)))
        return
    is_missing = np.isnan(values)
    filled = np.where(is_missing, column.missing if isinstance(column.missing, float) else column.offset, values)
    with np.errstate(over="ignore"):  # what is not finite is refused
        scaled = (filled - column.offset) * 2.0**-column.scale
    yield scaled
    if column.missing == "flag":
        yield is_missing.astype(np.float64)
