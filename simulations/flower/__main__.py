"""The operator's and the sites' commands: ``python -m simulations.flower COMMAND``."""

from __future__ import annotations

import argparse
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from secagg import os_entropy
from secagg.errors import SecureSumError
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from simulations.data import BUNDLED, bundled
from simulations.errors import SimulationError
from simulations.flower.errors import RunSettingsError
from simulations.flower.key_files import write_secret
from simulations.flower.roster import Roster
from simulations.flower.site_file import SiteFile
from simulations.flower.trial import Trial, copy_template

DEFAULT_ADDRESS = "127.0.0.1:8000"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0, or 2 for an error."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (SimulationError, SecureSumError, AnalyticError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulations.flower", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    identity = commands.add_parser("identity", help="make a signing key (client or server); prints its public half")
    identity.set_defaults(run=_identity)
    identity.add_argument("file", type=Path)
    helper = commands.add_parser("helper-key", help="make a committee helper's key; prints its public half")
    helper.set_defaults(run=_helper_key)
    helper.add_argument("file", type=Path)
    roster = commands.add_parser("roster", help="check a roster; prints the fingerprint to read to each other")
    roster.set_defaults(run=_roster)
    roster.add_argument("file", type=Path)
    site = commands.add_parser("check-site", help="check a site's file, keys and rows without talking to anybody")
    site.set_defaults(run=_check_site)
    site.add_argument("file", type=Path)
    app = commands.add_parser("app", help="copy the thin Flower app into a new folder")
    app.set_defaults(run=lambda arguments: copy_template(arguments.folder))
    app.add_argument("folder", type=Path)
    rehearse = commands.add_parser("rehearse", help="run the apps over a trial's folder in this one process")
    rehearse.set_defaults(run=_rehearse)
    rehearse.add_argument("folder", type=Path)
    rehearse.add_argument("settings", nargs="?", default="", help="overrides such as 'mode=\"committee\" ridge=0.5'")
    _add_trial(commands.add_parser("trial", help="make a whole deployment in one new folder, for one host"))
    return parser


def _add_trial(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_trial)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--helpers", type=int, default=2)
    parser.add_argument("--dataset", choices=tuple(BUNDLED), default="digits")
    parser.add_argument("--address", default=DEFAULT_ADDRESS, help="where the SuperLink will listen")


def _identity(arguments: argparse.Namespace) -> None:
    key = IdentityKey.generate(os_entropy)
    write_secret(arguments.file, key.secret)
    print(key.public.hex())


def _helper_key(arguments: argparse.Namespace) -> None:
    keys = KeyPair.generate(os_entropy)
    write_secret(arguments.file, keys.secret)
    print(keys.public.hex())


def _roster(arguments: argparse.Namespace) -> None:
    roster = Roster.read(arguments.file)
    print(f"{len(roster.clients)} clients, {len(roster.helpers)} helpers")
    print(f"fingerprint {roster.fingerprint}")


def _check_site(arguments: argparse.Namespace) -> None:
    site = SiteFile.read(arguments.file)
    print(f"roster {site.roster.fingerprint}, modes {', '.join(sorted(site.policy.modes))}")
    if site.helper is not None:
        print(f"helper {site.helper.party}: key fits the roster")
    if site.client is not None:
        rows = site.client.rows()
        print(f"client {site.client.party}: key fits the roster; {len(rows)} rows of {rows.features.shape[1]} features")


def _trial(arguments: argparse.Namespace) -> None:
    Trial.create(
        arguments.folder,
        bundled(arguments.dataset),
        n_sites=arguments.sites,
        n_helpers=arguments.helpers,
        address=arguments.address,
    )
    print(f"{arguments.folder}: app, tls, server, operator-home, site-1 to site-{arguments.sites}")


def _rehearse(arguments: argparse.Namespace) -> None:
    from simulations.flower.rehearsal import rehearse  # needs the extra

    app = tomllib.loads((arguments.folder / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    config = app["tool"]["flwr"]["app"]["config"]
    rehearse(arguments.folder, config | _overrides(arguments.settings, config))
    print(f"the model is in {arguments.folder / 'server' / 'models' / 'rehearsal' / 'model'}")


def _overrides(text: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as ``flwr run -c`` takes them: TOML values with spaces between."""
    try:
        found = tomllib.loads("\n".join(shlex.split(text, posix=False)))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise RunSettingsError(f"settings read name=value with spaces between, texts in quotes: {error}") from error
    if unknown := found.keys() - config.keys():
        raise RunSettingsError(f"the app's configuration has no {', '.join(sorted(unknown))}")
    return found


if __name__ == "__main__":
    sys.exit(main())
