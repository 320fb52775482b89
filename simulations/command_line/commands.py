"""All commands behind one parser, and what becomes of their errors."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from federation.console.command_parser import CommandParser
from federation.console.declaration import Command
from federation.console.process import FAILED, exit_codes
from federation.errors import FederationError
from secagg.errors import SecureSumError
from simulations.audit.command import COMMAND as AUDIT
from simulations.bench.command import COMMAND as BENCH
from simulations.command_line.parameters_command import COMMAND as PARAMETERS
from simulations.compare.command import COMMAND as COMPARE
from simulations.data.features_command import COMMAND as FEATURES

COMMANDS: tuple[Command[Any], ...] = (COMPARE, AUDIT, FEATURES, PARAMETERS, BENCH)

DISTRIBUTION = "analytic-secagg"
"""What pip calls this project; its console script has the same name."""

EXAMPLES = """examples:
  {prog} compare
      the main job: every installed privacy mode on bundled data, each run checked bit for bit
  {prog} audit --help
      what a command takes, with examples
  python -m federation.flower --help
      the same sums between real hosts, with Flower

{exit_codes}"""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Every error that has a reason is one message on standard error."""
    try:
        arguments = _parser().parse_command(sys.argv[1:] if argv is None else argv, example="compare")
        code: int = arguments.run(arguments)
    except (FederationError, AnalyticError, SecureSumError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except MemoryError as error:  # numpy says how much it wanted, Python says nothing
        reason = f" ({error})" if str(error) else ""
        print(f"error: not enough memory{reason}; use fewer features, rows or clients", file=sys.stderr)
        return FAILED
    return code


def _parser() -> CommandParser:
    prog = DISTRIBUTION if Path(sys.argv[0]).stem == DISTRIBUTION else "python -m simulations"
    parser = CommandParser(
        prog=prog,
        description="Secure aggregation for closed-form federated learning, tried out in one process.",
        epilog=EXAMPLES.format(prog=prog, exit_codes=exit_codes(finding="a finding")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.name, help=command.summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command)
    return parser


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed, run from its sources)"
