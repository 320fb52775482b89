"""All commands behind one parser, and what becomes of their errors."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analytic_secagg.console.command_parser import CommandParser, run_one_of
from analytic_secagg.console.declaration import Command
from analytic_secagg.console.process import exit_codes
from simulations.audit.command import COMMAND as AUDIT
from simulations.command_line.parameters_command import COMMAND as PARAMETERS
from simulations.compare.command import COMMAND as COMPARE
from simulations.data.features_command import COMMAND as FEATURES

COMMANDS: tuple[Command[Any], ...] = (COMPARE, AUDIT, FEATURES, PARAMETERS)

DISTRIBUTION = "analytic-secagg"
"""What pip calls this project; its console script has the same name."""

EXAMPLES = """examples:
  {prog} compare
      the main job: every installed privacy mode on bundled data, each run checked bit for bit
  {prog} audit --help
      what a command takes, with examples
  python -m analytic_secagg.flower --help
      the same sums between real hosts, with Flower

{exit_codes}"""


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Every error that has a reason is one message on standard error."""
    prog = DISTRIBUTION if Path(sys.argv[0]).stem == DISTRIBUTION else "python -m simulations"
    parser = CommandParser(
        prog=prog,
        description="Secure aggregation for closed-form federated learning, tried out in one process.",
        epilog=EXAMPLES.format(prog=prog, exit_codes=exit_codes(finding="a finding")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{DISTRIBUTION} {_version()}")
    return run_one_of(COMMANDS, parser, argv, example="compare")


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed, run from its sources)"
