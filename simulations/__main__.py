"""The command line: ``python -m simulations COMMAND``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

from analytic.errors import AnalyticError
from secagg.errors import SecureSumError
from simulations import audit_command, bench_command, compare_command, features_command, parameters_command
from simulations.errors import SimulationError, UsageError

COMMANDS = (compare_command, audit_command, features_command, parameters_command, bench_command)
"""Each has ``NAME``, ``SUMMARY``, ``add_arguments(parser)`` and ``run(arguments)``, which returns the exit code."""

FAILED, INTERRUPTED, UNREAD = 2, 130, 141
"""The last two as a shell reports them: 128 and the number of the signal (SIGINT, SIGPIPE)."""


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others: one message, and where to read more."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.

    0 as it should be, 1 a finding, 2 an error, 130 stopped by Ctrl-C, 141 nobody reads the output any more.
    """
    try:
        try:
            arguments = _parser().parse_args(argv)
            code: int = arguments.run(arguments)
        finally:  # here, and not when the interpreter ends, where nobody can catch what goes wrong
            sys.stdout.flush()
    except (SimulationError, AnalyticError, SecureSumError, MemoryError) as error:
        print(f"error: {error or 'not enough memory; use fewer features or rows'}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        _silence(sys.stdout)
        return UNREAD
    except KeyboardInterrupt:
        print("stopped; no file is half-written", file=sys.stderr)
        return INTERRUPTED
    return code


def _silence(stream: TextIO) -> None:
    """Let what is still in the stream's buffer go nowhere, so that the interpreter does not complain at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m simulations",
        description="Secure aggregation for closed-form federated learning, tried out in one process.",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(command.NAME, help=command.SUMMARY)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
