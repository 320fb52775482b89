"""The command ``audit``: its arguments, and from them its verdicts and files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console

from federation.console.arguments import budgets, checked, file, items, whole, wholes
from federation.console.output_files import OutputFile, refuse_same_file
from federation.console.printing import print_tables
from federation.console.process import exit_codes
from federation.errors import UsageError
from federation.learners import LEARNERS
from secagg.config import MAX_CLIENTS
from simulations.audit.audit import AuditSettings, audit
from simulations.audit.catalogue import NAMES, choose_attacks
from simulations.audit.population import MAX_CANDIDATES
from simulations.command_line.shared_arguments import (
    add_data_arguments,
    add_format_argument,
    add_modes_argument,
    dataset_of,
)
from simulations.report.audit_findings import findings, print_audit
from simulations.report.audit_json import to_json

NAME = "audit"
SUMMARY = "attack what clients really send, in every privacy mode, and report what of their data comes back"
EXAMPLES = """examples:
  python -m simulations audit
      digits, every mode that is installed, every attack, about a minute
  python -m simulations audit --html report.html --json report.json
      the same as a page for a privacy officer, and every number
  python -m simulations audit --data features.npz --modes plain,masked --clients 10 --rows 30 --html report.html
      your own features (arrays x_train, y_train, x_test, y_test): what would your clients give away?
  python -m simulations audit --attacks row_count,class_means --cohorts 5 --epsilon none --trials 1
      two attacks only, in seconds

{exit_codes}"""

WIDTH_WITHOUT_TERMINAL = 240
"""The matrix has a column for each mode."""

MOST_COLLUDERS = 6
"""Of the seven clients of the sum that coalitions are tried on, one is attacked."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``audit`` understands."""
    parser.description = f"{SUMMARY[0].upper()}{SUMMARY[1:]}."
    parser.epilog = EXAMPLES.format(
        exit_codes=exit_codes("every protection held and every planted fault was caught", "not so")
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_arguments(parser)
    _add_federation(parser.add_argument_group("federation"))
    _add_attacks(parser.add_argument_group("attacks"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", type=checked(file), metavar="FILE", help="write every number (docs/reference/audit-json.md)"
    )
    output.add_argument("--html", type=checked(file), metavar="FILE", help="write one self-contained page")
    output.add_argument(
        "--no-pictures", action="store_true", help="leave rows of the data out of the page, so that it may be shared"
    )


def _add_federation(group: Any) -> None:
    group.add_argument("--learner", choices=tuple(LEARNERS), default="afl", help="the closed form (default: afl)")
    add_modes_argument(group)
    group.add_argument(
        "--clients",
        type=checked(lambda text: whole(text, at_least=2, at_most=MAX_CLIENTS)),
        default=20,
        help="clients of a cohort (default: 20)",
    )
    group.add_argument(
        "--rows",
        type=checked(lambda text: whole(text, at_least=2, at_most=MAX_CANDIDATES)),
        default=12,
        help="rows of a client, on average (default: 12)",
    )
    group.add_argument(
        "--cohorts",
        type=checked(lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS)),
        default=(2, 5, 20, 100),
        metavar="N,...",
        help="cohort sizes whose totals are attacked (default: 2,5,20,100)",
    )
    group.add_argument(
        "--coalitions",
        type=checked(lambda text: wholes(text, at_least=0, at_most=MOST_COLLUDERS)),
        default=None,
        metavar="T,...",
        help="numbers of clients that collude with the server of a masked sum, in a cohort of its own of 7 clients, "
        "whatever --clients says (default: all)",
    )
    add_format_argument(group, "all rows")


def _add_attacks(group: Any) -> None:
    group.add_argument(
        "--attacks",
        type=checked(lambda text: choose_attacks(items(text))),
        default=choose_attacks(None),
        metavar="NAME,...",
        help=f"out of {', '.join(NAMES)} (default: all)",
    )
    group.add_argument(
        "--epsilon",
        type=checked(lambda text: () if text == "none" else budgets(text)),
        default=(1.0, 8.0),
        metavar="E,...",
        help="attack totals with noise for these as well; none leaves them out (default: 1,8)",
    )
    group.add_argument(
        "--sessions",
        type=checked(lambda text: whole(text, at_least=1)),
        default=2,
        help="cohorts that every attack on a message is tried on: more of them notice smaller leaks (default: 2)",
    )
    group.add_argument(
        "--trials",
        type=checked(lambda text: whole(text, at_least=1)),
        default=5,
        help="sums made for each attack that needs its own (default: 5)",
    )
    group.add_argument(
        "--seed",
        type=checked(lambda text: whole(text, at_least=0)),
        default=0,
        help="deals rows and tosses coins; keys, masks and noise come from the operating system (default: 0)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Audit as asked; the exit code.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: wrong input, or a failed sum.
    """
    refuse_same_file({"--data": arguments.data, "--json": arguments.json, "--html": arguments.html})
    if arguments.no_pictures and not arguments.html:
        raise UsageError("--no-pictures needs a page to leave them out of, and there is none; add --html FILE")
    json_file = OutputFile(arguments.json) if arguments.json else None
    html_file = OutputFile(arguments.html) if arguments.html else None
    settings, dataset = _settings(arguments), dataset_of(arguments)
    console = Console(file=sys.stderr)
    with console.status("audit") as status:
        report = audit(dataset, settings, lambda what: status.update(f"audit: {what}"))
    try:
        if json_file:
            json_file.write(to_json(report))
        if html_file:
            from simulations.report.audit_html import to_html  # draws, and so loads matplotlib

            html_file.write(to_html(report, pictures=not arguments.no_pictures))
    finally:  # whatever became of the files, the verdicts are not lost
        print_tables(lambda console: print_audit(report, console), width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    for fine, finding in findings(report):
        if not fine:
            print(f"error: {finding}", file=sys.stderr)
    return 0 if report.holds else 1


def _settings(arguments: argparse.Namespace) -> AuditSettings:
    return AuditSettings(
        learner=LEARNERS[arguments.learner],
        modes=arguments.modes,
        attacks=arguments.attacks,
        clients=arguments.clients,
        rows_per_client=arguments.rows,
        cohorts=arguments.cohorts,
        coalitions=arguments.coalitions,
        sessions=arguments.sessions,
        trials=arguments.trials,
        epsilon=arguments.epsilon,
        feature_format=arguments.format,
        seed=arguments.seed,
    )
