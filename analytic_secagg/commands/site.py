"""Declarations of a site's and a server's commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analytic_secagg.console.arguments import file, whole
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """Options of the command ``doctor``: none."""


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
class HealthOptions:
    """Options of the command ``health``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions(HealthOptions):
    """Options of the command ``inspect``."""

    metrics: bool = option("print numbers for Prometheus instead", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOptions(SiteOptions):
    """Options of the command ``epoch``."""

    number: int | None = option(
        "of the new epoch; the next one if left out", partial(whole, at_least=1), default=None, metavar="N"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonOptions:
    """Options of the command ``abandon``."""

    folder: Path = option("of the run, next to the server's other models", file, positional=True, metavar="RUN")


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="doctor",
        summary="check this host: versions, code, vectors, extras, extensions, arithmetic, entropy, clock; say what to "
        "do",
        examples="""example:
  analytic-secagg doctor
      then analytic-secagg check-site site.toml for keys, rows and folders of a site
""",
        options=NoOptions,
        run="analytic_secagg.doctor_command:run",
        finding="a line begins with FAIL and says what to do",
    ),
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
        name="profile",
        summary="show a site's own people what its rows look like: missing, odd and repeated values; without network",
        examples="""example:
  analytic-secagg profile site.toml
      it shows values, also of rows that are refused: for this site alone
""",
        options=SiteOptions,
        run="analytic_secagg.site_commands:show_profile",
    ),
    Command(
        name="health",
        summary="check that a site could take part now: file, query log, disk, rows, what is agreed on, budget",
        examples="""example:
  analytic-secagg health site.toml
      for a monitor: it exits with 1 if something would keep the site from taking part, and changes nothing;
      it waits up to 20 seconds for a sum that is being added up
""",
        options=HealthOptions,
        run="analytic_secagg.site_checks:health",
        finding="a line begins with FAIL and says what is wrong",
    ),
    Command(
        name="inspect",
        summary="show what a site's rows have been given to, and to whom, from its own query log and receipts",
        examples="""examples:
  analytic-secagg inspect site.toml
      each total with the clients in it and who signed it; what the site helped with; what its rows have cost
  analytic-secagg inspect site.toml --metrics
      the same as numbers, for the textfile collector of a Prometheus node exporter
""",
        options=InspectOptions,
        run="analytic_secagg.inspect_command:run",
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
    Command(
        name="abandon",
        summary="give up a run that waits for parties: its sites forget it, and it can release no total",
        examples="""example:
  analytic-secagg abandon server/models/run-7
      on the server's host; the sites are told when the next run begins
""",
        options=AbandonOptions,
        run="analytic_secagg.site_commands:abandon",
    ),
)
"""In the order of a site's life."""
