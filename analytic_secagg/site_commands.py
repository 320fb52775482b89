"""The commands of whoever has a key, a roster or a site's file, the same for every engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows
from analytic.pipeline import has_agreed_columns
from analytic.row_format import ColumnMap, RowFormat
from analytic_secagg.commands.site import (
    AbandonOptions,
    CheckOptions,
    ConfigurationOptions,
    EpochOptions,
    KeyOptions,
    RosterOptions,
    SiteOptions,
)
from analytic_secagg.configurations import configuration_digest, described
from analytic_secagg.console.findings import Finding, Mark, print_report
from analytic_secagg.dry_run import DryRun, link
from analytic_secagg.errors import UsageError
from analytic_secagg.flower.trial import app_settings
from analytic_secagg.modes import MODES, HelperRole, find_mode, helper_roles
from analytic_secagg.nvflare.job import SERVER_CONFIG, read_job
from analytic_secagg.server.run_settings import RunSettings, overrides
from analytic_secagg.server.run_store import RunStore
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.json_log import logged
from analytic_secagg.site.key_files import write_secret
from analytic_secagg.site.profile import FEW_ROWS, columns_of, oddities, profile
from analytic_secagg.site.query_log import totals_in_words
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.table import TableSchema
from analytic_secagg.site_checks import NEEDED_TO_SERVE, agreed_in_words, disk_finding, findings_of, spent_in_words
from secagg.dp import Ledger
from secagg.primitives.identity import IdentityKey


def make_key(options: KeyOptions) -> int:
    """Make a signing key; the exit code."""
    identity = IdentityKey.generate()
    write_secret(options.file, identity.secret)
    print(identity.public.hex())
    return 0


def check_roster(options: RosterOptions) -> int:
    """Check a roster; the exit code."""
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


def print_configuration(options: ConfigurationOptions) -> int:
    """Print what a run computes, with its digest; the exit code."""
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


def check_site(options: CheckOptions) -> int:
    """Check a site; the exit code."""
    site = SiteFile.read(options.file)
    if (disk := disk_finding(site)).mark is Mark.FAIL:
        raise SiteFileError(str(disk))  # before anything is written
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
            named = (*(site.client.learners or ()), *site.client.unverified_models)
            if options.run_folder is None and not any(map(has_agreed_columns, named)):  # else a run's format is tried
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
    print(f"query log: {totals_in_words(entered)}, of which {allowed} took one of the further totals that are allowed")
    for mode in sorted(site.demands.modes):
        if missing := find_mode(mode).missing_extra:
            print(f"{mode}: declined until this host has more: {missing}")
    _warn_of_idle_roles(site)
    made = {"disk", "rows", "configurations"}  # above, where what is wrong with them is an error
    all_found = [("disk", disk), *findings_of(site, but=made)]
    found = [(name, finding) for name, finding in all_found if finding.mark is not Mark.OK]
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
    """Columns of which a format that holds all of them in 16 bits would keep less than 8 and lose the rest."""
    largest = ColumnMap.covering(features, None, intercept=None).exponents
    all_ = RowFormat(integer_bits=0, fraction_bits=16)
    if coarse := all_.coarse_columns(np.ldexp(features, -max(largest))):
        named = ", ".join(f"{schema.features[place]} (below 2^{largest[place]})" for place in coarse)
        print(
            f"warning: beside values up to 2^{max(largest)} a format of 16 bits is coarse for {named}: state scale in "
            'the schema of all sites, or let the run have feature-format = "agreed". Where the largest are codes for '
            "missing values, as the command profile shows, state these in [client.reading]"
        )


def show_profile(options: SiteOptions) -> int:
    """Print what is odd about the site's columns; the exit code."""
    site = SiteFile.read(options.file)
    if site.client is None:
        raise SiteFileError(f"{options.file} has no [client]: a site that only helps has no rows")
    print("for this site alone, since it shows values")
    for line in profile(columns_of(site.client)):
        print(line)
    return 0


def begin_ledger(options: SiteOptions) -> int:
    """Begin a site's ledger; the exit code."""
    site = SiteFile.read(options.file)
    if site.privacy is None or site.budget is None:
        raise SiteFileError(f"{options.file} needs [privacy]: a ledger is of a budget for rows; add what they may cost")
    print(f"privacy: {spent_in_words(Ledger.create(site.privacy.ledger, site.budget))}")
    return 0


def accept_loss(options: SiteOptions) -> int:
    """Go on after a query log was lost; the exit code."""
    site = SiteFile.read(options.file)
    with logged(site.log):
        noted = Site(site).accept_loss()
    print(
        f"the query log goes on; of the {noted} entries that its second place counts some may be forgotten. The rows "
        "that this site has now count as being in one more total, which nothing can be compared with: each further "
        "total of them, or with its help, takes one of further_totals under [journal]. New rows are free"
    )
    return 0


def begin_epoch(options: EpochOptions) -> int:
    """Begin an epoch of a helper's key; the exit code."""
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


def abandon(options: AbandonOptions) -> int:
    """Give a run up which waits for parties that do not come back; the exit code."""
    if options.folder not in RunStore.left(options.folder.parent):
        raise UsageError(
            f"{options.folder} must hold a run that has asked sites for something and has not ended, and no process at "
            "work; there is nothing to give up"
        )
    with RunStore.opened(options.folder) as store:
        store.fail(("AbandonedRun", "its operator gave it up with the command abandon"), store.addresses)
    print(
        f"{options.folder}: given up; when the next run begins its sites are told so, and in a committee helpers are "
        "asked to certify that no total comes of it, which frees the rows. Without that they count as before"
    )
    return 0
