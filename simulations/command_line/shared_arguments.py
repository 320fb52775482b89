"""Options that several commands have: where rows come from, which modes run, and the format of features."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic_secagg.console.arguments import file, items, number
from analytic_secagg.console.declaration import option
from analytic_secagg.datasets import BUNDLED, FETCHED, Dataset, bundled, load_npz, own_split
from analytic_secagg.errors import DataError, UsageError
from analytic_secagg.modes import MODES, choose_modes
from analytic_secagg.spelling import nearest

DEFAULT_DATASET = "digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Where rows come from.

    Raises:
        UsageError: from two places.
    """

    dataset: str | None = option(
        f"real data of scikit-learn's: bundled, or fetched once ({', '.join(FETCHED)})",
        choices=(*BUNDLED, *FETCHED),
        default=None,
        shown=DEFAULT_DATASET,
    )
    data: Path | None = option(
        "x_train, y_train, x_test, y_test: features, and labels or real targets (w_train: weights); or, a fifth of it "
        "for testing, X and y (features and labels), a table (.csv, .parquet, .xlsx and others), or MODULE:FUNCTION",
        file,
        metavar="FILE.npz",
        default=None,
    )
    columns: Path | None = option(
        "the schema of a table: its features, target, categories and missing values",
        file,
        metavar="FILE.toml",
        default=None,
    )

    target: str | None = option(
        "the target column of a table: a schema is guessed from the file and printed; --columns takes one "
        "that people agreed on",
        str,
        metavar="COLUMN",
        default=None,
    )
    reading: Path | None = option(
        "a file with the section [client.reading]: how the table writes what its schema means, such as site.toml",
        file,
        metavar="FILE.toml",
        default=None,
    )

    sites: str | None = option(
        "the column of a table that says from which site a row is: each site is a client, and the column no feature",
        str,
        metavar="COLUMN",
        default=None,
    )
    offset: tuple[tuple[str, float], ...] = option(
        "a public number to subtract from a column first, by the column's name or number from 0, such as "
        "0=1e9; may be repeated",
        lambda text: _offset(text),
        default=(),
        metavar="COLUMN=NUMBER",
        repeated=True,
    )

    def __post_init__(self) -> None:
        if self.dataset and self.data:
            raise UsageError("argument --data: not allowed with argument --dataset; give one of the two")
        is_function = self.data is not None and _is_function(self.data)
        is_file = self.data is not None and _is_table(self.data)
        if self.target is not None and self.columns is not None:
            raise UsageError("--target and --columns: a schema names its target; leave one of the two out")
        if self.target is not None and not is_file:
            raise UsageError(
                "--target is a column of a table in --data, such as rows.csv, which is missing or no table"
            )
        if not is_function and is_file != (self.columns is not None or self.target is not None):
            raise UsageError(
                "--data needs --target COLUMN, what is predicted, where it is a table; or --columns with its schema; "
                "an npz file has neither"
            )
        if self.sites is not None and not is_file:
            raise UsageError("--sites is a column of a table in --data, such as rows.csv, which is missing or no table")
        if self.sites is not None and self.sites == self.target:
            raise UsageError("--sites and --target are two columns; name another for one of them")
        if self.reading and not self.columns:
            raise UsageError("--reading is of a table with a schema; give --columns too, or take it away")

    def rows(self) -> Dataset:
        """Return the rows that are asked for.

        Raises:
            analytic_secagg.errors.DataError: a file that cannot be read, or does not hold what is needed.
            UsageError: an offset of a column that is not there.
        """
        return without_offsets(self._read(), self.offset)

    def _read(self) -> Dataset:
        if self.data and self.target is not None:
            return guessed(self.data, self.target, self.sites)
        if self.data and (self.columns or _is_function(self.data)):
            from analytic_secagg.site.source import sourced

            return sourced(self.data, self.columns, self.reading, self.sites)
        return load_npz(self.data) if self.data else bundled(self.dataset or DEFAULT_DATASET)


def _offset(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition("=")
    if not name:
        raise UsageError(f"needs COLUMN=NUMBER, such as 0=1e9, not {text!r}")
    return name, number(value)


def without_offsets(data: Dataset, offsets: Iterable[tuple[str, float]]) -> Dataset:
    """Return the data set with public numbers taken off some of its columns, and a note of each.

    Raises:
        UsageError: no such column.
    """
    places = {data.column(place): place for place in range(data.n_features)}
    off, notes = np.zeros(data.n_features), list(data.notes)
    for name, offset in offsets:
        if name not in places:
            raise UsageError(f"--offset names the column {name!r}, and {data.name} has none{nearest(name, places)}")
        off[places[name]] = offset
        notes.append(f"{offset:.12g} is taken off column {name}")
    if not off.any():
        return data
    x_train, x_test = (x.astype(np.float64) - off for x in (data.x_train, data.x_test))
    return replace(data, x_train=x_train, x_test=x_test, notes=tuple(notes))


def _is_function(place: Path) -> bool:
    return ":" in str(place) and place.suffix != ".npz" and not _is_table(place)


def _is_table(place: Path) -> bool:
    from analytic_secagg.site.table_files import is_table  # here and below, since help and bundled rows do not need it

    return is_table(str(place))


def guessed(place: Path, target: str, sites: str | None = None) -> Dataset:
    """Return the rows of a table by a schema that is guessed from it, with a note for every guess.

    Args:
        place: the table's file.
        target: the column that is learned.
        sites: the column that names the site of each row.

    Raises:
        analytic_secagg.errors.DataError: it cannot be read, or not without a person's decision.
    """
    from analytic_secagg.site.reading import Reading
    from analytic_secagg.site.schema_draft import draft
    from analytic_secagg.site.strict_models import validated
    from analytic_secagg.site.table import TableSchema

    found = draft(place, target, leave_out=[sites] if sites else [])
    schema = validated(TableSchema, tomllib.loads(found.schema), DataError, prefix=f"the schema guessed of {place}: ")
    said = tomllib.loads(found.reading)["client"]["reading"]
    reading = validated(Reading, said, DataError, prefix=f"the reading guessed of {place}: ")
    try:
        rows, whose = schema.rows_of_sites(place, sites, reading) if sites else (schema.rows(place, reading), [])
    except DataError as error:
        raise DataError(
            f"{error} (schema and reading were guessed; analytic-secagg schema draft writes both "
            "down, to be corrected and given with --columns and --reading)"
        ) from error
    kinds = [
        f"{target} is taken for " + (f"classes: {', '.join(schema.classes)}" if schema.classes else "a real target"),
        f"features are {', '.join(schema.features)}",
    ]
    if any(": left out, " in note for note in found.notes):
        kinds.append(
            "to take a column that is left out, correct the two files of analytic-secagg schema draft "
            f"{shlex.quote(str(place))} --target {shlex.quote(target)}, and give them with --columns and --reading"
        )
    data = own_split(
        place.stem,
        rows.features,
        rows.targets,
        classes=schema.classes,
        columns=schema.features,
        notes=[*kinds, *found.facts],
        sites=(sites, whose) if sites else None,
    )
    return replace(data, private_notes=tuple(note for note in found.notes if note not in found.facts))


def modes_option() -> Any:
    """Declare ``--modes``."""
    return option(
        f"out of {', '.join(MODES)}, or all",
        lambda text: choose_modes(None if text == "all" else items(text)),
        default=choose_modes(None),
        metavar="MODE,...",
        shown="all that are installed",
    )


def format_option(rows: str, *, agreements: bool = False) -> Any:
    """Declare ``--format``; ``rows`` says which of them ``auto`` looks at, ``agreements`` whether sums may agree."""
    known = {"auto": None} | ({one.value: one for one in Agreement} if agreements else {})
    sums = "; agreed (columns and targets scaled through a first sum), standardised (two sums)" if agreements else ""
    return option(
        f"fixed-point format of features: Q5.11 (signed), UQ5.11, or auto, which looks at {rows}{sums}",
        lambda text: known[text] if text in known else RowFormat.parse(text),
        flag="--format",
        default=None,
        shown="auto",
    )
