"""One door to rows: a numpy archive, a table with its schema, or a function that gives arrays or a data frame.

Errors name the place and what is needed there; of what a function raises they name the type alone, since its text may
hold a row.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from analytic_secagg.datasets import BROKEN_ARCHIVE, Dataset, as_float, own_split
from analytic_secagg.errors import DataError, UsageError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.table import TableSchema
from analytic_secagg.site.table_files import is_table
from analytic_secagg.site.table_look import toml


def read_rows(
    place: str, *, columns: TableSchema | None = None, reading: Reading | None = None, part: str = "train"
) -> ClientRows:
    """Return the rows that a place gives, read anew.

    Args:
        place: a file ``.npz`` with ``x_train`` and ``y_train`` (and ``w_train``, how often each row counts), a table
            (``.csv``, ``.parquet``, ``.xlsx`` and others), or ``module:function``, which returns such arrays, or with a
            schema a data frame.
        columns: the schema of a table or data frame.
        reading: how the table writes what the schema means.
        part: ``train`` or ``test`` of an archive.

    Raises:
        DataError: there are none.
    """
    if is_table(place):
        if columns is None:
            raise DataError(f"{place} is a table, which needs the schema of its columns")
        return columns.rows(Path(place), reading)
    rows = _of_archive(place, part) if place.endswith(".npz") else _of_function(place, columns, reading)
    if rows.targets.dtype.kind not in "biuf":  # which class a text is, no other site would know
        raise DataError(
            f"{place} must have numbers as targets, labels 0, 1, ... in an order that all sites agreed on, and has "
            f"{rows.targets.dtype}: number the classes, or give a table with a schema, which lists its categories"
        )
    return rows


def sourced(place: Path, columns: Path | None, reading: Path | None = None, sites: str | None = None) -> Dataset:
    """Return the rows of a table or function, a fifth of them (drawn with a fixed seed) for testing.

    Args:
        place: the table or function.
        columns: the file of the table's schema.
        reading: the file of its reading.
        sites: the column that names the site of each row, in a table with a schema.

    Raises:
        DataError: it does not give what the schema says.
        UsageError: a schema or a reading that cannot be.
    """
    try:
        schema = None if columns is None else TableSchema.read(columns)
        own = None if reading is None else Reading.read(reading)
    except SiteFileError as error:
        raise UsageError(str(error)) from error
    whose = None
    if schema is not None and sites is not None:
        if sites in schema.columns:
            raise UsageError(
                f"{columns} has the column {sites}, which names the sites: a total would show each site's sums; take "
                "it out of the schema"
            )
        rows, texts = schema.rows_of_sites(place, sites, own)
        whose = sites, texts
    else:
        rows = read_rows(str(place), columns=schema, reading=own)
    features, targets = rows.features, rows.targets
    if schema is None:
        features = as_float(features)
        targets = targets.reshape(len(targets), -1) if targets.dtype.kind == "f" else targets
    known = {} if schema is None else {"classes": schema.classes, "columns": schema.features}
    return own_split(place.stem, features, targets, weights=rows.weights, sites=whose, **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTable:
    """A site's own table, with the schema that all share and the reading of this file.

    Args:
        table: its file.
        columns: the schema's file.
        reading: how the table writes what the schema means.
    """

    table: Path
    columns: Path
    reading: Reading

    @property
    def schema(self) -> TableSchema:
        """What its columns mean."""
        return TableSchema.read(self.columns)

    def rows(self) -> ClientRows:
        """Return its rows, read anew.

        Raises:
            DataError: there are none.
        """
        return read_rows(str(self.table), columns=self.schema, reading=self.reading)

    def put_into(self, folder: Path) -> str:
        """Copy table and schema into a site's folder; return the lines of [client] that name them."""
        shutil.copyfile(self.table, folder / self.table.name)
        shutil.copyfile(self.columns, folder / "columns.toml")
        return f'data = {toml(self.table.name)}\ncolumns = "columns.toml"\nreading = {self.reading.to_toml()}'


def site_tables(tables: Sequence[Path], columns: Path, readings: Sequence[Path]) -> list[SiteTable]:
    """Return a table for each site, with one reading for all of them, one for each, or none.

    Raises:
        UsageError: another number of readings, no table, or a reading that cannot be.
    """
    if len(readings) not in (0, 1, len(tables)):
        raise UsageError(
            f"--reading is given once for all tables or once for each in their order, not {len(readings)} times for "
            f"{len(tables)} tables"
        )
    if others := [str(table) for table in tables if not is_table(str(table))]:
        raise UsageError(f"--data is given several times for tables alone, one for each site, not {', '.join(others)}")
    try:
        own = [Reading.read(reading) for reading in readings] or [Reading()]
    except SiteFileError as error:
        raise UsageError(str(error)) from error
    every = own if len(own) == len(tables) else own * len(tables)
    return [SiteTable(table=table, columns=columns, reading=one) for table, one in zip(tables, every, strict=True)]


def pooled(tables: Sequence[SiteTable]) -> Dataset:
    """Return the rows of all sites' tables in one place, as a test deployment is fitted to them.

    Raises:
        DataError: a table does not give what the schema says.
        UsageError: a schema that cannot be.
    """
    try:
        schema = tables[0].schema
    except SiteFileError as error:
        raise UsageError(str(error)) from error
    rows = ClientRows.pool([one.rows() for one in tables])
    found = own_split("tables", rows.features, rows.targets, classes=schema.classes, columns=schema.features)
    said = f"all {len(rows)} rows are trained on; state test in [client] of a site for rows that judge models"
    return replace(found, notes=(said,))


def _of_archive(place: str, part: str) -> ClientRows:
    needed, extra = (f"x_{part}", f"y_{part}"), f"w_{part}"
    hint = f"write it with numpy.savez(path, {needed[0]}=..., {needed[1]}=...)"
    try:
        with Path(place).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            weights = archive[extra] if extra in archive.files else None
            return ClientRows(archive[needed[0]], archive[needed[1]], weights)
    except OSError as error:
        raise DataError(f"cannot read the rows of {place}: {error.strerror or 'no archive'}; {hint}") from None
    except (KeyError, InvalidRowsError, *BROKEN_ARCHIVE) as error:
        raise DataError(
            f"{place} must be an npz archive with a matrix {needed[0]} and one {needed[1]} a row, of numbers "
            f"({type(error).__name__}); {hint}"
        ) from None


def _of_function(place: str, columns: TableSchema | None, reading: Reading | None) -> ClientRows:
    module, _, function = place.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)()
        if columns is None:
            features, targets, *rest = map(np.asarray, found)
            return ClientRows(features, targets, rest.pop() if rest else None)
    except Exception as error:
        raise DataError(
            f"{place} must be a function that returns a matrix of features and one target a row; calling it raised "
            f"{type(error).__name__}: call it by yourself to see why"
        ) from None
    return columns.rows_of_frame(found, source=place, reading=reading)
