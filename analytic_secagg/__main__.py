"""The command line of deployments: ``analytic-secagg COMMAND``, or ``python -m analytic_secagg COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType

from analytic.extensions import Group, find, installed
from analytic_secagg.console.command_line import DISTRIBUTION, Foreign, Listed, Program, run_line

_SITE, _DOSSIER = "analytic_secagg.commands.site:COMMANDS", "analytic_secagg.commands.dossier:COMMANDS"

SECTIONS: Mapping[str, Sequence[Listed]] = {
    "See it": (
        Listed(
            "demo", "analytic_secagg.commands.demo:COMMAND", "a federation of processes here, and a page to break it"
        ),
        Listed("doctor", _SITE, "check this host: versions, extras, arithmetic, clock"),
    ),
    "Engines": (
        Listed("flower", "analytic_secagg.flower.commands:PROGRAM", "deploy with Flower: trial, rehearse, app"),
        Listed("nvflare", "analytic_secagg.nvflare.commands:PROGRAM", "deploy on NVFlare: trial, job, kit"),
    ),
    "A site": (
        Listed("schema", "analytic_secagg.commands.schema:COMMAND", "draft the schema of a table"),
        Listed("profile", _SITE, "look for missing, odd and repeated values"),
        Listed("predict", "analytic_secagg.commands.predict:COMMAND", "apply a model to the rows of a table"),
        Listed("identity", _SITE, "make a signing key"),
        Listed("check-site", _SITE, "check a site's file, keys, folder and rows"),
        Listed("health", _SITE, "could this site take part now?"),
        Listed("inspect", _SITE, "what were this site's rows used for?"),
        Listed("ledger", _SITE, "begin a site's privacy budget"),
        Listed("accept-loss", _SITE, "go on after a query log was lost"),
        Listed("epoch", _SITE, "renew a helper's sealing key"),
        Listed("personalise", "analytic_secagg.commands.personalise:COMMAND", "make a site's own model from a total"),
    ),
    "A server": (
        Listed("roster", _SITE, "check a roster, print its fingerprint"),
        Listed("configuration", _SITE, "what would a run compute of all rows?"),
        Listed("abandon", _SITE, "give up a run that waits for parties"),
        Listed("change", "analytic_secagg.commands.change:COMMAND", "let sites or rows join or leave a stored total"),
    ),
    "Evidence": (
        Listed("verify", "analytic_secagg.commands.verify:COMMAND", "compute a model again from its totals"),
        Listed("audit-plan", _DOSSIER, "sign an audit's hypotheses before a run"),
        Listed("dossier", _DOSSIER, "gather a run's evidence in a signed folder"),
        Listed("check-dossier", _DOSSIER, "verify such a folder offline"),
    ),
}
"""Commands in the order of --help; each is imported when it is named."""

EPILOG = """The command of an engine of another package has that engine's name: docs/how-to/extend.md.
"""


def program(sections: Mapping[str, Sequence[Listed]], description: str, example: str, epilog: str) -> Program:
    """Return a program of these commands, and of the engines of other packages that are installed."""
    known = {command.name for section in sections.values() for command in section}
    names = [one.name for one in installed(Group.ENGINES) if one.name not in known]
    engines = [Foreign(name, partial(_engine, name)) for name in dict.fromkeys(names)]
    return Program(
        DISTRIBUTION,
        {**sections, "Engines of other packages": engines},
        help=description,
        example=example,
        epilog=epilog,
    )


def _engine(name: str) -> Callable[[Sequence[str]], int]:
    engine: Callable[[Sequence[str]], int] | None = find(Group.ENGINES, name, FunctionType)
    assert engine is not None, "it was listed a moment ago"
    return engine


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0, 1 a finding, 2 an error, or how it was stopped."""
    line = program(
        SECTIONS,
        "See a federation on this computer, set up a site, check what a run left behind and go on from it.",
        "demo",
        EPILOG,
    )
    return run_line(line, argv, prog="python -m analytic_secagg")


if __name__ == "__main__":
    sys.exit(main())
