"""Rows from a table as people have it, CSV or Parquet, by a public schema that all sites share.

The schema says which columns are features and which targets, the categories of texts, what stands for missing values
and what becomes of them. It is agreed before anybody looks at rows, so every site makes the same columns of its own
table, whatever is in it; what a table holds beside the schema's columns is left alone.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from analytic_secagg.errors import DataError
from analytic_secagg.site.strict_models import StrictModel, Texts

TABLES = (".csv", ".parquet")
"""How the names of tables end."""

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
        if len(set(self.categories)) < len(self.categories) or len(self.categories) == 1:
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

    def rows(self, path: Path) -> ClientRows:
        """Return the rows of a table.

        No text of an error holds a value of the table.

        Args:
            path: a ``.csv`` file in UTF-8 whose first line names columns, or a ``.parquet`` file (needs pyarrow).

        Raises:
            DataError: it cannot be read, lacks a column, or a value is not what the schema says.
        """
        texts = _parquet(path, self.columns) if path.suffix == ".parquet" else _csv(path, self.columns)
        return self._rows(str(path), {name: [row[place] for row in texts] for place, name in enumerate(self.columns)})

    def rows_of_frame(self, frame: Any, *, source: str = "the data frame") -> ClientRows:
        """Return the rows of a data frame of pandas, polars or pyarrow.

        Args:
            frame: the table; None, NaN and pandas' NA stand for missing values, as do ``missing_values``.
            source: where it comes from, for errors.

        Raises:
            DataError: it lacks a column, or a value is not what the schema says.
        """
        names = list(getattr(frame, "column_names", None) or frame.columns)
        return self._rows(
            source, {names[place]: _texts(frame[names[place]]) for place in _places(source, names, self.columns)}
        )

    def _rows(self, path: str, columns: Mapping[str, list[str]]) -> ClientRows:
        n_rows = len(next(iter(columns.values())))
        parts = {
            role: [part for key, column in self._of(role) for part in self._made(path, key, column, columns[key])]
            for role in ("feature", "target", "weight")
        }
        features = np.column_stack(parts["feature"]) if n_rows else np.zeros((0, len(self.features)))
        targets = np.column_stack(parts["target"]) if n_rows else np.zeros((0, self.n_targets))
        weights = next(iter(parts["weight"]), None)
        try:
            return ClientRows(features, targets.argmax(axis=1) if self.classes else targets, weights)
        except InvalidRowsError as error:
            raise DataError(f"{path}: {error}") from error

    def _of(self, role: str) -> list[tuple[str, Column]]:
        return [(name, column) for name, column in self.columns.items() if column.role == role]

    def _made(self, path: str, name: str, column: Column, texts: Iterable[str]) -> Iterator[NDArray[np.float64]]:
        """The columns of numbers that a column of texts becomes."""
        values = np.array([self._number(path, name, column, text, line) for line, text in enumerate(texts, start=2)])
        is_missing = np.isnan(values)
        if column.categories:
            yield from ((values == place).astype(np.float64) for place in range(len(column.categories)))
            return
        yield (
            np.where(is_missing, column.missing if isinstance(column.missing, float) else 0.0, values)
            * 2.0**-column.scale
        )
        if column.missing == "flag":
            yield is_missing.astype(np.float64)

    def _number(self, path: str, name: str, column: Column, text: str, line: int) -> float:
        """A number, or the place of a category; NaN where the value is missing and may be."""
        text = text.strip()
        if text in self.missing_values:
            if column.missing != "refuse":
                return math.nan
            needed = 'a value: it is missing. Repair the table, or state missing = "flag" or a number in the schema'
        elif column.categories:
            if text in column.categories:
                return float(column.categories.index(text))
            needed = (
                f"one of {', '.join(column.categories)}: correct it, or add the category to the schema of all sites"
            )
        else:
            try:
                if math.isfinite(number := float(text)):
                    return number
            except ValueError:
                pass
            needed = "a finite number: correct it, or list the text among missing_values in the schema of all sites"
        raise DataError(f"{path}, line {line}: column {name} needs {needed}")


def _csv(path: Path, columns: Mapping[str, Column]) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            head = next(reader, [])
            places = _places(path, head, columns)
            found = []
            for line, row in enumerate(reader, start=2):
                if len(row) != len(head):
                    raise DataError(
                        f"{path}, line {line}: {len(head)} values are needed, as in its first line, not {len(row)}"
                    )
                found.append([row[place] for place in places])
            return found
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; name a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} must be CSV in UTF-8 ({type(error).__name__}); save it again as that") from error


def _parquet(path: Path, columns: Mapping[str, Column]) -> list[list[str]]:
    if importlib.util.find_spec("pyarrow") is None:
        raise DataError(f"{path} needs pyarrow: pip install 'analytic-secagg[parquet]', or save the table as CSV")
    from pyarrow import ArrowException
    from pyarrow.parquet import read_table

    try:
        found = read_table(path)
    except (OSError, ValueError, ArrowException) as error:
        raise DataError(f"cannot read {path} as Parquet ({type(error).__name__}); save it again, or as CSV") from error
    chosen = [_texts(found.column(place)) for place in _places(path, found.column_names, columns)]
    return [list(row) for row in zip(*chosen, strict=True)]


def _texts(column: Any) -> list[str]:
    """A column's values as texts; what is missing as an empty one."""
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    return ["" if _is_missing(value) else str(value) for value in values]


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def _places(path: Path | str, head: list[str], columns: Mapping[str, Column]) -> list[int]:
    missing = [name for name in columns if head.count(name) != 1]
    if missing:
        raise DataError(
            f"{path} needs each column of the schema once, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not; its first line must name them"
        )
    return [head.index(name) for name in columns]
