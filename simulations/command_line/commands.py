"""All commands behind one parser, and what becomes of their errors."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analytic_secagg.console.command_parser import CommandParser, run_one_of
from analytic_secagg.console.declaration import Command
from analytic_secagg.console.process import exit_codes

MODULES = {
    "compare": "simulations.compare.command",
    "audit": "simulations.audit.command",
    "features": "simulations.data.features_command",
    "parameters": "simulations.command_line.parameters_command",
}
"""Where each command is, in the order of the list that --help prints."""

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
    named = next((text for text in (sys.argv[1:] if argv is None else argv) if not text.startswith("-")), "")
    return run_one_of(commands(named) if named in MODULES else commands(), parser, argv, example="compare")


def commands(*names: str) -> tuple[Command[Any], ...]:
    """Load the commands of these names, or all of them; each takes half a second, and one is enough to run it."""
    return tuple(importlib.import_module(MODULES[name]).COMMAND for name in names or MODULES)


def _version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed, run from its sources)"
