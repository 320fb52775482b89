"""The commands of whoever has a key, a roster or a site's file, the same for every engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows
from analytic.row_format import ColumnMap, RowFormat
from analytic_secagg.configurations import configuration_digest, described
from analytic_secagg.console.arguments import file, natural, whole
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.findings import Finding, Mark, print_report
from analytic_secagg.datasets import BUNDLED, Dataset, bundled
from analytic_secagg.dry_run import DryRun, link
from analytic_secagg.errors import UsageError
from analytic_secagg.flower.trial import app_settings
from analytic_secagg.modes import MODES, HelperRole, find_mode, helper_roles
from analytic_secagg.nvflare.job import SERVER_CONFIG, read_job
from analytic_secagg.server.run_settings import RunSettings, overrides
from analytic_secagg.site.disk import site_problems
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.json_log import logged
from analytic_secagg.site.key_files import write_secret
from analytic_secagg.site.profile import FEW_ROWS, columns_of, oddities
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.source import sourced
from analytic_secagg.site.table import TableSchema
from analytic_secagg.site_checks import NEEDED_TO_SERVE, agreed_in_words, findings_of, spent_in_words
from analytic_secagg.trial import MIN_SITES
from secagg.dp import Ledger
from secagg.primitives.identity import IdentityKey


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOptions:
    """Options of commands that make a folder."""

    folder: Path = option("a new folder", file, positional=True, metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions(FolderOptions):
    """Options of every engine's command ``trial``."""

    sites: int = option("clients", partial(whole, at_least=MIN_SITES), default=5, metavar="N")
    helpers: int = option("committee helpers", natural, default=2, metavar="N")
    dataset: str = option("whose rows", default="digits", choices=tuple(BUNDLED))
    data: Path | None = option(
        "a table, in place of a data set: its rows are dealt to the sites", file, default=None, metavar="FILE"
    )
    columns: Path | None = option("the schema of the table", file, default=None, metavar="FILE.toml")
    reading: Path | None = option(
        "a file with the section [client.reading]: how the table is written", file, default=None, metavar="FILE.toml"
    )

    def __post_init__(self) -> None:
        if (self.data is None) != (self.columns is None) or (self.reading and not self.data):
            raise UsageError("--data needs --columns, the table's schema, and --reading goes with both; give all")

    def rows(self) -> Dataset:
        """Return the rows that are dealt.

        Raises:
            UsageError, analytic_secagg.errors.DataError: they cannot be read.
        """
        return bundled(self.dataset) if self.data is None else sourced(self.data, self.columns, self.reading)


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


def _make_key(options: KeyOptions) -> int:
    identity = IdentityKey.generate()
    write_secret(options.file, identity.secret)
    print(identity.public.hex())
    return 0


def _roster(options: RosterOptions) -> int:
    roster = Roster.read(options.file)
    roles = {role.table: role for role in helper_roles()}
    beside = [_listed(role, roster) for role in roles.values()]
    beside += [f"{len(keys)} {table}" for table, keys in sorted(roster.beside.items()) if table not in roles]
    print(", ".join([f"{len(roster.clients)} clients", *beside]))
    for digest in roster.configurations:
        print(f"configuration {digest.hex()}")
    if not roster.configurations:
        print("no configuration: its sites take part in nothing that their own files do not name")
    if roster.columns:
        print(f"columns {roster.columns}")
    if roster.features is not None:
        print(roster.features.to_toml())
    print(f"fingerprint {roster.fingerprint}")
    return 0


def _settings_of(folder: Path) -> dict[str, Any]:
    """The settings of a run by the folder that its engine takes: NVFlare's job, else Flower's app."""
    return read_job(folder) if (folder / SERVER_CONFIG).exists() else app_settings(folder)


def _configuration(options: ConfigurationOptions) -> int:
    roster, config = Roster.read(options.roster), _settings_of(options.folder)
    settings = RunSettings.of(config | overrides(options.settings, config))
    learner = settings.federation(roster).learner
    learners = [learner, *([settings.evaluation(learner, None)] if settings.evaluate else [])]
    found = [configuration_digest(one) for one in learners]
    for one, digest in zip(learners, found, strict=True):
        print(json.dumps(described(one), indent=2))
        print(f"configuration {digest.hex()}")
    if {*found} <= {*roster.configurations}:
        print(f"{options.roster} agrees to {'them' if len(found) > 1 else 'it'}")
    else:
        pinned = ", ".join(f'"{one.hex()}"' for one in dict.fromkeys((*roster.configurations, *found)))
        print(f"{options.roster} does not agree; if all owners do, let every copy say, above its tables:")
        print(f"configurations = [{pinned}]")
    return 0


def _listed(role: HelperRole, roster: Roster) -> str:
    """Return the number of parties of a role; or the party, if there is one at most."""
    parties = roster.listed(role)
    if role.at_most != 1:
        return f"{len(parties)} {role.name}s"
    return f"{role.name} {next(iter(parties))}" if parties else f"no {role.name}"


def _check_site(options: CheckOptions) -> int:
    site = SiteFile.read(options.file)
    if problems := list(site_problems(site)):
        raise SiteFileError("; ".join(problems))
    Site(site).sweep()
    _warn_of_another_user(options.file)
    print(f"roster {site.roster.fingerprint}, modes {', '.join(sorted(site.policy.modes))}")
    if site.ledger is not None:
        print(f"privacy: {spent_in_words(site.ledger)}")
    for own in site.helpers:
        print(f"{own.role.name} {own.party}: key fits the roster")
    if site.client is not None:
        print(f"configurations: {agreed_in_words(site)}")
        rows = site.client.rows()
        print(f"client {site.client.party}: key fits the roster; {len(rows)} rows of {rows.features.shape[1]} features")
        if site.roster.features is not None:
            print(f"features of {site.roster.features.backbone}: made as the roster says, the same at all sites")
        if _are_there_twice(rows):
            print("warning: the second half of the rows repeats the first, so that each would count twice")
        if site.client.columns is not None:
            _warn_of_unlike_columns(site.client.columns, rows.features)
            if odd := [name for name, one in columns_of(site.client).items() if any(oddities(name, one))]:
                print(
                    f"warning: look at {', '.join(odd)} in what the command profile shows to this site, before any sum"
                )
            print(
                f"columns {site.client.columns.fingerprint}: the same at all sites, or their rows do not add up to one"
            )
            if not site.roster.columns:
                print(
                    "warning: the roster does not say so, and sites with another schema would be added up all the "
                    f'same; if all agree, let every copy say columns = "{site.client.columns.fingerprint}"'
                )
    entered, allowed = Site(site).count_totals()
    print(f"query log: {entered} totals, of which {allowed} took one of the further totals that are allowed")
    for mode in sorted(site.demands.modes):
        if missing := find_mode(mode).missing_extra:
            print(f"{mode}: declined until this host has more: {missing}")
    _warn_of_idle_roles(site)
    made = {"rows", "configurations"}  # above, where what is wrong with them is an error
    found = [(name, finding) for name, finding in findings_of(site, but=made) if finding.mark is not Mark.OK]
    if failed := [f"{name}: {one}" for name, one in found if one.mark is Mark.FAIL and name in NEEDED_TO_SERVE]:
        raise SiteFileError("; ".join(failed))
    for name, finding in found:
        print(f"warning: {name}: {finding}")
    return print_report(_tried(options, site))


def _tried(options: CheckOptions, site: SiteFile) -> Iterator[tuple[str, Finding]]:
    """Try the run and the link that were named."""
    if options.run_folder is not None:
        config = _settings_of(options.run_folder)
        settings = RunSettings.of(config | overrides(options.settings, config))
        yield from DryRun(file=site, settings=settings).findings()
    if options.server:
        yield "link", link(options.server, options.certificate)


def _are_there_twice(rows: ClientRows) -> bool:
    middle, odd = divmod(len(rows), 2)
    return (
        middle >= FEW_ROWS
        and not odd
        and np.array_equal(rows.features[:middle], rows.features[middle:])
        and np.array_equal(rows.targets[:middle], rows.targets[middle:])
    )


def _warn_of_another_user(path: Path) -> None:
    """Another user sees other rights, and the folders that a check creates would be that user's."""
    if hasattr(os, "geteuid") and (owner := path.stat().st_uid) != (own := os.geteuid()):
        print(f"warning: {path} belongs to user {owner}, and this is user {own}: run this as the service does")


def _warn_of_unlike_columns(schema: TableSchema, features: Any) -> None:
    """Columns of which a format that holds all of them in 16 bits would keep less than 8."""
    largest = ColumnMap.covering(features, None, intercept=None).exponents
    all_ = RowFormat(integer_bits=0, fraction_bits=16)
    if small := all_.coarse_columns(np.ldexp(1.0, np.array([largest]) - max(largest) - 1) * features.any(axis=0)):
        named = ", ".join(f"{schema.features[place]} (below 2^{largest[place]})" for place in small)
        print(
            f"warning: beside values up to 2^{max(largest)} a format of 16 bits is coarse for {named}: state scale in "
            'the schema of all sites, or let the run have feature-format = "agreed". Where the largest are codes for '
            "missing values, as the command profile shows, state these in [client.reading]"
        )


def _begin_ledger(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    if site.privacy is None or site.budget is None:
        raise SiteFileError(f"{options.file} needs [privacy]: a ledger is of a budget for rows; add what they may cost")
    print(f"privacy: {spent_in_words(Ledger.create(site.privacy.ledger, site.budget))}")
    return 0


def _accept_loss(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    with logged(site.log):
        noted = Site(site).accept_loss()
    print(
        f"the query log goes on; of the {noted} entries that its second place counts some may be forgotten. The rows "
        "that this site has now count as being in one more total, which nothing can be compared with: each further "
        "total of them, or with its help, takes one of further_totals under [journal]. New rows are free"
    )
    return 0


def _begin_epoch(options: EpochOptions) -> int:
    begun = Site(SiteFile.read(options.file)).begin_epoch(number=options.number)
    if not begun:
        raise SiteFileError(f"{options.file} needs [helper]: only a committee's helper has epochs")
    for party, sealing in begun.items():
        ends = datetime.fromtimestamp(sealing.until, UTC)
        print(f"helper {party}: epoch {sealing.epoch} until {ends:%Y-%m-%d %H:%M} UTC; the one before is erased")
    return 0


def _warn_of_idle_roles(site: SiteFile) -> None:
    """A role whose site declines every sum that needs it."""
    needed = {find_mode(mode).helper for mode in site.demands.modes}
    for own in site.helpers:
        if own.role not in needed:
            listed, fitting = sorted(site.demands.modes), [m.name for m in MODES.values() if m.helper == own.role]
            print(
                f"warning: party {own.party} has nothing to do: modes of [policy] names {', '.join(listed)} only; add "
                f"one of {', '.join(fitting)}, or this site declines every sum that needs it"
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
        run=_make_key,
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
        run=_begin_epoch,
    ),
    Command(
        name="roster",
        summary="check a roster; print the fingerprint to read to each other",
        examples="""example:
  analytic-secagg roster roster.toml
""",
        options=RosterOptions,
        run=_roster,
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
        run=_configuration,
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
        run=_check_site,
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
        run=_accept_loss,
    ),
    Command(
        name="ledger",
        summary="begin the ledger that a site's [privacy] names, once for its rows; never over an old one",
        examples="""example:
  analytic-secagg ledger site.toml
  check-site prints what was spent since, and the head to note elsewhere
""",
        options=SiteOptions,
        run=_begin_ledger,
    ),
)
"""In the order of a site's life."""
