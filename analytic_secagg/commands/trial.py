"""Options of every engine's command ``trial``, and of others that make a folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analytic_secagg.console.arguments import file, natural, whole
from analytic_secagg.console.declaration import option
from analytic_secagg.datasets import BUNDLED, bundled
from analytic_secagg.errors import UsageError

MIN_SITES = 4
"""Fewest sites of a trial with which every private mode can promise the survivors that its sites demand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Options of commands that make a folder."""

    folder: Path = option("a new folder", file, positional=True, metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions(FolderOptions):
    """Options of every engine's command ``trial``."""

    clients: int | None = option(
        "how many sites", partial(whole, at_least=MIN_SITES), default=None, metavar="N", shown="5, or as many as tables"
    )
    helpers: int = option("committee helpers", natural, default=2, metavar="N")
    dataset: str = option("whose rows", default="digits", choices=tuple(BUNDLED))
    data: tuple[Path, ...] = option(
        "a table, in place of a data set: its rows are dealt to the sites; given several times, each site has a table "
        "of its own",
        file,
        default=(),
        metavar="FILE",
        repeated=True,
    )
    columns: Path | None = option("the schema of the tables", file, default=None, metavar="FILE.toml")
    reading: tuple[Path, ...] = option(
        "a file with the section [client.reading]: how the table is written; given several times, in the order of the "
        "tables",
        file,
        default=(),
        metavar="FILE.toml",
        repeated=True,
    )

    def __post_init__(self) -> None:
        if bool(self.data) != (self.columns is not None) or (self.reading and not self.data):
            raise UsageError("--data needs --columns, the table's schema, and --reading goes with both; give all")
        if len(self.data) > 1 and (len(self.data) < MIN_SITES or self.clients not in (None, len(self.data))):
            raise UsageError(
                f"a trial has at least {MIN_SITES} sites, and as many as tables where --data is given several times, "
                f"not {len(self.data)}" + (f" tables and --clients {self.clients}" if self.clients else "")
            )

    def made_of(self) -> dict[str, Any]:
        """Return what a trial is made of: rows, how many sites and helpers, the sites' own tables; print its notes.

        Raises:
            UsageError, analytic_secagg.errors.DataError: rows that cannot be read.
        """
        from analytic_secagg.site.source import pooled, site_tables, sourced  # here, since help needs no reader

        tables, n_sites = [], self.clients or max(5, len(self.data))
        if len(self.data) > 1 and self.columns is not None:
            tables = site_tables(self.data, self.columns, self.reading)
            n_sites, dataset = len(tables), pooled(tables)
        elif self.data:
            dataset = sourced(self.data[0], self.columns, self.reading[0] if self.reading else None)
        else:
            dataset = bundled(self.dataset)
        for said in (*dataset.notes, *(dataset.doubts if self.data else ())):
            print(f"  {said}")
        return {"dataset": dataset, "n_sites": n_sites, "n_helpers": self.helpers, "tables": tables}
