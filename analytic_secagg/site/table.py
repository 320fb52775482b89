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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import ColumnReading, Reading
from analytic_secagg.site.strict_models import StrictModel, Texts
from analytic_secagg.site.table_files import Cells, cells_of_frame, is_number_cell, read_cells, text_of
from analytic_secagg.site.table_refusals import check_names, of_categories, of_numbers
from analytic_secagg.spelling import loose, tidy

Categories = Annotated[tuple[str, ...], Field(strict=False)]


class Column(StrictModel):
    """Treatment of one column of a table.

    Args:
        role: a feature, what is learned, or how often a row counts (whole numbers; see ``analytic.Weights``).
        categories: of a text, in a fixed order: a column of zeros and ones each; of a target they are the classes.
            Empty for numbers.
        missing: what becomes of a missing value: ``refuse`` the table, put this number in its place, or ``flag``: 0,
            and 1 in a column beside it (for a text: 0 in the columns of all its categories).
        scale: numbers are divided by 2^scale, which loses nothing and brings columns of all sizes into one format.
    """

    role: Literal["feature", "target", "weight"] = "feature"
    categories: Categories = ()
    missing: Literal["refuse", "flag"] | float = "refuse"
    scale: int = Field(default=0, ge=-60, le=60)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len({*map(tidy, self.categories)}) < len(self.categories) or len(self.categories) == 1:
            raise ValueError("categories are at least two different texts; correct them")
        if self.categories and (self.scale or isinstance(self.missing, float)):
            raise ValueError('texts with categories have no scale, and missing is "refuse" or "flag"')
        if self.role == "target" and self.missing != "refuse":
            raise ValueError('a row without its target teaches nothing: leave missing = "refuse" and drop such rows')
        if self.role == "weight" and (self.categories or self.scale or self.missing == "flag"):
            raise ValueError("a weight is a whole number as it is: leave categories, scale and flag out")
        return self

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
        return hashlib.sha256(json.dumps(said, separators=(",", ":")).encode()).hexdigest()

    def rows(self, path: Path, reading: Reading | None = None) -> ClientRows:
        """Return the rows of a table.

        No text of an error holds a value of the table.

        Args:
            path: a table's file; without a reading CSV in UTF-8 whose first line names columns.
            reading: how the file writes what the schema means.

        Raises:
            DataError: it cannot be read, lacks a column, or a value is not what the schema says.
        """
        reading = reading or Reading()
        return self._rows(str(path), read_cells(path, reading), reading)

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
        return self._rows(source, cells_of_frame(frame), reading or Reading())

    def values(self, source: str, cells: Cells, reading: Reading) -> dict[str, NDArray[np.float64]]:
        """Return each column's numbers in the schema's unit, or places of categories; NaN where a value is missing.

        Raises:
            DataError: a column is not there, or a value is not what the schema says.
        """
        if surplus := ", ".join(sorted(reading.columns.keys() - self.columns.keys())):
            raise DataError(f"[client.reading.columns] has {surplus}, and the schema has not; correct it")
        own = {name: reading.columns.get(name, ColumnReading()) for name in self.columns}
        wanted = [tidy(one.name or name) for name, one in own.items()]
        check_names(source, reading, cells.head, wanted, self.columns)
        return {
            name: self._values(source, name, cells.column(cells.head.index(its)), cells.lines, reading, own[name])
            for name, its in zip(self.columns, wanted, strict=True)
        }

    def _rows(self, source: str, cells: Cells, reading: Reading) -> ClientRows:
        columns = self.values(source, cells, reading)
        parts = {
            role: [part for name, column in self._of(role) for part in _made(column, columns[name])]
            for role in ("feature", "target", "weight")
        }
        features, targets = np.column_stack(parts["feature"]), np.column_stack(parts["target"])
        weights = next(iter(parts["weight"]), None)
        try:
            return ClientRows(features, targets.argmax(axis=1) if self.classes else targets, weights)
        except InvalidRowsError as error:
            raise DataError(f"{source}: {error}") from error

    def _of(self, role: str) -> list[tuple[str, Column]]:
        return [(name, column) for name, column in self.columns.items() if column.role == role]

    def _values(
        self, source: str, name: str, cells: Sequence[Any], lines: Sequence[int], reading: Reading, own: ColumnReading
    ) -> NDArray[np.float64]:
        column = self.columns[name]
        meant = _Meanings(name, column, self.missing_values | reading.missing | own.missing, reading, own)
        found = [meant.value(cell) for cell in cells]
        values = np.array([math.nan if one is None else one for one in found], dtype=np.float64)
        wrong = [place for place, one in enumerate(found) if one is None]
        if wrong:
            texts = [tidy(text_of(cells[place])) for place in wrong]
            needed = f"one of {', '.join(column.categories)}" if column.categories else "a finite number"
            looks = of_categories(name, texts) if column.categories else of_numbers(name, texts, reading)
            raise DataError(
                f"{source}, line {lines[wrong[0]]}: column {name} needs {needed}, and {len(wrong)} of {len(found)} "
                f"rows have another text: {looks}"
            )
        if column.missing == "refuse" and (is_missing := np.isnan(values)).any():
            schema = 'state missing = "flag" or a number in the schema of all sites'
            raise DataError(
                f"{source}, line {lines[int(is_missing.argmax())]}: column {name} needs a value: it is missing in "
                f"{int(is_missing.sum())} of {len(found)} rows. Repair the table or leave these rows out of it"
                + (f"; or {schema}" if column.role == "feature" else "")
            )
        return values


class _Meanings:
    """What the cells of one column mean: numbers, or places of categories; NaN where a value is missing.

    Texts are looked up as they are, then as they may be spelt too, and what is no known text is a number.
    """

    def __init__(
        self, name: str, column: Column, missing: frozenset[str], reading: Reading, own: ColumnReading
    ) -> None:
        self.number = None if column.categories else reading.number
        self.factor, self.add = own.factor, own.add
        categories = {tidy(category): float(place) for place, category in enumerate(column.categories)}
        spelt = Counter(map(loose, categories))
        codes = dict.fromkeys(map(tidy, missing), math.nan)
        self.exact = categories | codes
        self.near = _loosely(codes) | _loosely({text: at for text, at in categories.items() if spelt[loose(text)] == 1})
        recoded = {tidy(text): self._recoded(name, column, tidy(meant)) for text, meant in own.recode.items()}
        self.exact |= recoded
        self.near |= _loosely(recoded)
        self.numbers = {
            number: meant for text, meant in self.exact.items() if (number := self._parsed(text)) is not None
        }
        self.seen: dict[str, float | None] = {}
        if column.categories and (own.factor, own.add) != (1.0, 0.0):
            raise DataError(f"[client.reading.columns.{name}] has a factor, and texts have no unit; take it away")

    def value(self, cell: Any) -> float | None:
        """Return what a cell means; None where that is nothing that the schema knows."""
        if self.number and is_number_cell(cell):
            return self._in_unit(float(cell))
        text = text_of(cell)
        if text not in self.seen:
            self.seen[text] = self._of_text(tidy(text))
        return self.seen[text]

    def _of_text(self, text: str) -> float | None:
        known = self._known(text)
        if known is not None or (number := self._parsed(text)) is None:
            return known
        return self._in_unit(number)

    def _known(self, text: str) -> float | None:
        return self.exact.get(text, self.near.get(loose(text)))

    def _parsed(self, text: str) -> float | None:
        try:
            return None if self.number is None else self.number(text)
        except ValueError:
            return None

    def _in_unit(self, number: float) -> float | None:
        known = self.numbers.get(number)
        if known is None and math.isfinite(number):
            return number * self.factor + self.add
        return known

    def _recoded(self, name: str, column: Column, text: str) -> float:
        """What a recode leads to, in the schema's own spelling and unit."""
        with suppress(ValueError):
            if (known := self._known(text)) is not None:
                return known
            if not column.categories:
                return Reading().number(text)
        raise DataError(
            f"[client.reading.columns.{name}] recodes to a text that the schema does not have; recode to one of "
            f"{', '.join(column.categories) or 'its numbers, with a decimal point'}"
        )


def _loosely(known: Mapping[str, float]) -> dict[str, float]:
    return {loose(text): meant for text, meant in known.items()}


def _made(column: Column, values: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """The columns of numbers that one column of a table becomes."""
    if column.categories:
        yield from ((values == place).astype(np.float64) for place in range(len(column.categories)))
        return
    is_missing = np.isnan(values)
    filled = np.where(is_missing, column.missing if isinstance(column.missing, float) else 0.0, values)
    yield filled * 2.0**-column.scale
    if column.missing == "flag":
        yield is_missing.astype(np.float64)
