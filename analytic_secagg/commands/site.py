"""Declarations of a site's and a server's commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analytic_secagg.console.arguments import file, natural, whole
from analytic_secagg.console.declaration import Command, option
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """Options of the commands that make a key."""

    file: Path = option("a new file for the secret half", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterOptions:
    """Options of the command ``roster``."""

    file: Path = option("the roster, TOML", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationOptions:
    """Options of the command ``configuration``."""

    folder: Path = option("of a run's settings: an app, or a job", file, positional=True, metavar="FOLDER")
    roster: Path = option("the roster, TOML", file, positional=True, metavar="ROSTER")
    settings: str = option(
        "overrides of the settings, as one word", str, default="", positional=True, metavar="SETTINGS"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """Options of the commands ``check-site``, ``profile``, ``accept-loss`` and ``ledger``."""

    file: Path = option("the site's own file, TOML", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions(SiteOptions):
    """Options of the command ``check-site``."""

    run_folder: Path | None = option(
        "a run's settings, an app or a job: make this site's part of each sum as the run would, and throw it away",
        file,
        default=None,
        flag="--run",
        metavar="FOLDER",
    )
    settings: str = option("overrides of these settings, as one word", str, default="", metavar="SETTINGS")
    server: str = option("open the link to the server, as the run would", str, default="", metavar="HOST:PORT")
    certificate: Path | None = option(
        "of the authority that signed the server's, PEM; those that the system trusts if left out",
        file,
        default=None,
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        if (self.settings and self.run_folder is None) or (self.certificate and not self.server):
            raise UsageError("--settings go with --run, and --certificate with --server; give both or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOptions(SiteOptions):
    """Options of the command ``epoch``."""

    number: int | None = option(
        "of the new epoch; the next one if left out", partial(whole, at_least=1), default=None, metavar="N"
    )


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="identity",
        summary="make a signing key (of a client, the server, a helper or the key holder); print its public half",
        examples="""example:
  analytic-secagg identity identity.key
  the printed half goes into the roster; the file stays on this host, readable by its owner alone
""",
        options=KeyOptions,
        run="analytic_secagg.site_commands:make_key",
    ),
    Command(
        name="epoch",
        summary="begin a new epoch of a helper's sealing key and erase the old one's secret",
        examples="""examples:
  analytic-secagg epoch site.toml
  boxes sealed to the old key can no longer be opened; running sums go on without this helper
  analytic-secagg epoch site.toml --number 12
  after the site's state was lost: sites refuse numbers below those that they accepted before
""",
        options=EpochOptions,
        run="analytic_secagg.site_commands:begin_epoch",
    ),
    Command(
        name="roster",
        summary="check a roster; print the fingerprint to read to each other",
        examples="""example:
  analytic-secagg roster roster.toml
""",
        options=RosterOptions,
        run="analytic_secagg.site_commands:check_roster",
    ),
    Command(
        name="configuration",
        summary="print what a run computes of everybody's rows, and the digest by which a roster agrees to it",
        examples="""examples:
  analytic-secagg configuration trial/app trial/server/roster.toml
  the folder of the run's settings, and the roster, whose number of clients is part of it
  analytic-secagg configuration trial/app trial/server/roster.toml 'ridge=0.5'
  with other settings; every owner runs it, and compares the digest with the one in the roster
""",
        options=ConfigurationOptions,
        run="analytic_secagg.site_commands:print_configuration",
    ),
    Command(
        name="check-site",
        summary="check a site's file, keys, state folder and rows, and try a run beforehand; forget old sessions",
        examples="""examples:
  analytic-secagg check-site site.toml
      without network
  analytic-secagg check-site site.toml --run trial/app
      this site's part of every sum, made of its rows and thrown away: what it says ok to does not fail for its rows,
      its file or its roster later
  analytic-secagg check-site site.toml --run trial/app --server 127.0.0.1:8000 --certificate ca.crt
      the link to the server too, with TLS
""",
        options=CheckOptions,
        run="analytic_secagg.site_commands:check_site",
        finding="a line begins with FAIL and says what would fail",
    ),
    Command(
        name="accept-loss",
        summary="go on with a query log that was lost or restored from an older copy; its rows count as given before",
        examples="""example:
  analytic-secagg accept-loss site.toml
  where check-site says that the query log is behind its second place, and no newer copy of the state folder is left
""",
        options=SiteOptions,
        run="analytic_secagg.site_commands:accept_loss",
    ),
    Command(
        name="ledger",
        summary="begin the ledger that a site's [privacy] names, once for its rows; never over an old one",
        examples="""example:
  analytic-secagg ledger site.toml
  check-site prints what was spent since, and the head to note elsewhere
""",
        options=SiteOptions,
        run="analytic_secagg.site_commands:begin_ledger",
    ),
)
"""In the order of a site's life."""
