"""The operator's and the sites' commands: ``python -m federation.flower COMMAND``."""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analytic.row_format import ColumnMap, RowFormat
from federation.console.arguments import file, natural, whole
from federation.console.command_parser import run_commands
from federation.console.declaration import Command, option
from federation.datasets import BUNDLED, bundled
from federation.errors import UsageError
from federation.flower.trial import check_address, copy_template, make_trial
from federation.inspect_command import spent_in_words
from federation.modes import MODES, HelperRole, helper_roles
from federation.site.errors import RunSettingsError, SiteFileError
from federation.site.key_files import write_secret
from federation.site.roster import Roster
from federation.site.site import Site
from federation.site.site_file import SiteFile
from federation.site.strict_models import read_toml
from federation.site.table import TableSchema
from federation.trial import MIN_SITES
from secagg.dp import Ledger
from secagg.primitives.identity import IdentityKey


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0, 2 an error, or how the process was stopped."""
    return run_commands(
        COMMANDS,
        argv,
        prog="python -m federation.flower",
        description="Closed-form federated learning between real hosts, with Flower: keys, checks and a trial.",
        epilog="Start with: python -m federation.flower trial --help. docs/how-to/deploy-with-flower.md leads on.",
        example="trial trial",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """Of the commands that make a key."""

    file: Path = option("where the secret half goes; never replaced", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterOptions:
    """Of the command ``roster``."""

    file: Path = option("the roster, TOML", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOptions:
    """Of the commands ``check-site`` and ``ledger``."""

    file: Path = option("the site's own file, TOML", file, positional=True, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOptions:
    """Of the command ``epoch``."""

    file: Path = option("the site's own file, TOML", file, positional=True, metavar="FILE")
    number: int | None = option(
        "of the new epoch; the next one if left out", partial(whole, at_least=1), default=None, metavar="N"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppOptions:
    """Of the command ``app``."""

    folder: Path = option("a new folder", file, positional=True, metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Of the command ``trial``."""

    folder: Path = option("a new folder", file, positional=True, metavar="FOLDER")
    sites: int = option("clients", partial(whole, at_least=MIN_SITES), default=5, metavar="N")
    helpers: int = option("committee helpers", natural, default=2, metavar="N")
    dataset: str = option("whose rows", default="digits", choices=tuple(BUNDLED))
    address: str = option(
        "where the SuperLink will listen, on this host", check_address, default="127.0.0.1:8000", metavar="HOST:PORT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearseOptions:
    """Of the command ``rehearse``."""

    folder: Path = option("what the command trial made", file, positional=True, metavar="FOLDER")
    settings: str = option(
        "overrides of the app's configuration, as one word", str, default="", positional=True, metavar="SETTINGS"
    )


def _make_key(options: KeyOptions) -> int:
    identity = IdentityKey.generate()
    write_secret(options.file, identity.secret)
    print(identity.public.hex())
    return 0


def _roster(options: RosterOptions) -> int:
    roster = Roster.read(options.file)
    beside = [_listed(role, roster) for role in helper_roles()]
    print(", ".join([f"{len(roster.clients)} clients", *beside]))
    print(f"fingerprint {roster.fingerprint}")
    return 0


def _listed(role: HelperRole, roster: Roster) -> str:
    """How many parties of a role there are; which, where there is one at most."""
    parties = roster.listed(role)
    if role.at_most != 1:
        return f"{len(parties)} {role.name}s"
    return f"{role.name} {next(iter(parties))}" if parties else f"no {role.name}"


def _check_site(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    Site(site).sweep()
    print(f"roster {site.roster.fingerprint}, modes {', '.join(sorted(site.policy.modes))}")
    if site.ledger is not None:
        print(spent_in_words(site.ledger))
    for own in site.helpers:
        print(f"{own.role.name} {own.party}: key fits the roster")
    if site.client is not None:
        rows = site.client.rows()
        print(f"client {site.client.party}: key fits the roster; {len(rows)} rows of {rows.features.shape[1]} features")
        if site.client.columns is not None:
            _warn_of_unlike_columns(site.client.columns, rows.features)
            print(
                f"columns {site.client.columns.fingerprint}: the same at all sites, or their rows do not add up to one"
            )
    entered, allowed = Site(site).count_totals()
    print(f"journal: {entered} totals, of which {allowed} took one of the further totals that are allowed")
    for mode in sorted(site.demands.modes):
        if missing := MODES[mode].missing_extra:
            print(f"{mode}: declined until this host has more: {missing}")
    _warn_of_idle_roles(site)
    return 0


def _warn_of_unlike_columns(schema: TableSchema, features: Any) -> None:
    """Columns of which a format that holds all of them in 16 bits would keep less than 8."""
    largest = ColumnMap.covering(features, None, intercept=None).exponents
    all_ = RowFormat(integer_bits=0, fraction_bits=16)
    if small := all_.coarse_columns(np.ldexp(1.0, np.array([largest]) - max(largest) - 1) * features.any(axis=0)):
        named = ", ".join(f"{schema.features[place]} (below 2^{largest[place]})" for place in small)
        print(
            f"warning: beside values up to 2^{max(largest)} a format of 16 bits is coarse for {named}: state scale in "
            'the schema of all sites, or let the run have feature-format = "agreed"'
        )


def _begin_ledger(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    if site.privacy is None or site.budget is None:
        raise SiteFileError(f"{options.file} needs [privacy]: a ledger is of a budget for rows; add what they may cost")
    print(spent_in_words(Ledger.create(site.privacy.ledger, site.budget)))
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
    needed = {MODES[mode].helper for mode in site.demands.modes}
    for own in site.helpers:
        if own.role not in needed:
            listed, fitting = sorted(site.demands.modes), [m.name for m in MODES.values() if m.helper == own.role]
            print(
                f"warning: party {own.party} has nothing to do: modes of [policy] names {', '.join(listed)} only; add "
                f"one of {', '.join(fitting)}, or this site declines every sum that needs it"
            )


def _app(options: AppOptions) -> int:
    copy_template(options.folder)
    print(f"{options.folder}: edit [tool.flwr.app.config] in pyproject.toml, then: flwr run {options.folder} NAME")
    return 0


def _trial(options: TrialOptions) -> int:
    make_trial(
        options.folder,
        bundled(options.dataset),
        n_sites=options.sites,
        n_helpers=options.helpers,
        address=options.address,
    )
    print(f"{options.folder}: app, tls, server, operator-home, site-1 to site-{options.sites}")
    return 0


def _rehearse(options: RehearseOptions) -> int:
    try:
        from federation.flower.rehearsal import rehearse
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a rehearsal needs Flower, and there is no module {error.name}; pip install 'analytic-secagg[flower]'"
        ) from error
    config = _app_config(options.folder / "app" / "pyproject.toml")
    rehearse(options.folder, config | _overrides(options.settings, config))
    print(f"the model is in {options.folder / 'server' / 'models' / 'rehearsal' / 'model.safetensors'}")
    return 0


def _app_config(path: Path) -> dict[str, Any]:
    """The configuration of the app in a trial's folder."""
    if not path.exists():
        raise SiteFileError(f"a rehearsal needs {path}, which is not there; make a folder with the command trial")
    try:
        return dict(read_toml(path)["tool"]["flwr"]["app"]["config"])
    except KeyError as error:
        raise SiteFileError(f"{path} needs the table [tool.flwr.app.config]; copy the app anew") from error


def _overrides(text: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as ``flwr run -c`` takes them: TOML values with spaces between."""
    try:
        found = tomllib.loads("\n".join(shlex.split(text, posix=False)))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise RunSettingsError(
            "settings read name=value with spaces between and texts in quotes, such as "
            f"'mode=\"committee\" ridge=0.5', not {text!r}: {error}"
        ) from error
    if unknown := found.keys() - config.keys():
        raise RunSettingsError(
            f"the app's configuration has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(config))}"
        )
    return found


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="trial",
        summary="make a whole deployment in one new folder, for one host",
        examples="""examples:
  python -m federation.flower trial trial
      five sites with the digits data set; two of them are helpers too, one is the key holder
  python -m federation.flower trial small --sites 4 --helpers 0 --dataset breast_cancer --address 127.0.0.1:9000
      four sites with other rows, no committee, and a SuperLink on another port
""",
        options=TrialOptions,
        run=_trial,
    ),
    Command(
        name="rehearse",
        summary="run the apps over a trial's folder in this one process",
        examples="""examples:
  python -m federation.flower rehearse trial
  python -m federation.flower rehearse trial 'mode="committee"'
  python -m federation.flower rehearse trial 'mode="masked+bfv" dropout=0.2 ridge=0.5'

Settings not named are those of trial/app/pyproject.toml. The model, a summary and a log of all rounds lie in
trial/server/models/rehearsal.
""",
        options=RehearseOptions,
        run=_rehearse,
    ),
    Command(
        name="identity",
        summary="make a signing key (of a client, the server, a helper or the key holder); print its public half",
        examples="""example:
  python -m federation.flower identity identity.key
      the printed half goes into the roster; the file stays on this host, readable by its owner alone
""",
        options=KeyOptions,
        run=_make_key,
    ),
    Command(
        name="epoch",
        summary="begin a new epoch of a helper's sealing key and erase the old one's secret",
        examples="""examples:
  python -m federation.flower epoch site.toml
      what was sealed to the old key opens no more; sums that were under way with it go on without this helper
  python -m federation.flower epoch site.toml --number 12
      after the site's state was lost: sites refuse numbers below those that they accepted before
""",
        options=EpochOptions,
        run=_begin_epoch,
    ),
    Command(
        name="roster",
        summary="check a roster; print the fingerprint to read to each other",
        examples="""example:
  python -m federation.flower roster roster.toml
""",
        options=RosterOptions,
        run=_roster,
    ),
    Command(
        name="check-site",
        summary="check a site's file, keys, state folder and rows without talking to anybody; forget old sessions",
        examples="""example:
  python -m federation.flower check-site site.toml
""",
        options=SiteOptions,
        run=_check_site,
    ),
    Command(
        name="ledger",
        summary="begin the ledger that a site's [privacy] names, once for its rows; never over an old one",
        examples="""example:
  python -m federation.flower ledger site.toml
      check-site prints what was spent since, and the head to note elsewhere
""",
        options=SiteOptions,
        run=_begin_ledger,
    ),
    Command(
        name="app",
        summary="copy the thin Flower app into a new folder",
        examples="""example:
  python -m federation.flower app secure-sum-app
      then edit its pyproject.toml and: flwr run secure-sum-app remote --stream
""",
        options=AppOptions,
        run=_app,
    ),
)
"""In the order of the list that --help prints."""


if __name__ == "__main__":
    sys.exit(main())
