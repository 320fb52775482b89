"""A parser of command lines whose complaints are errors like all others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NoReturn

from analytic.errors import AnalyticError
from analytic_secagg.console.arguments import nearest
from analytic_secagg.console.declaration import Command
from analytic_secagg.console.process import FAILED, run_as_process
from analytic_secagg.errors import FederationError, UsageError
from secagg.errors import SecureSumError


class CommandParser(argparse.ArgumentParser):
    """Says what was needed, what came and what was perhaps meant, and where to read more.

    Names are never abbreviated: a script that says ``--client`` would break when a second name begins like it.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse_command(self, texts: Sequence[str], *, example: str) -> argparse.Namespace:
        """The arguments; without any the help comes first, and the error names ``example``."""
        if not texts:
            self.print_help(sys.stderr)
            raise UsageError(f"needs a command, such as {self.prog} {example}")
        return self.parse_args(texts)

    def error(self, message: str) -> NoReturn:
        """Raise instead of ending the process."""
        raise UsageError(f"{message}; see {self.prog} --help")

    def parse_known_args(  # type: ignore[override]  # typeshed's overloads say the same at greater length
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Refuse what nobody knows here, with this command's own names at hand.

        Argparse would leave it to the outermost parser, and complain of missing arguments first, which a misspelt one
        looks like.
        """
        texts = sys.argv[1:] if args is None else list(args)
        own = takewhile(lambda text: text.startswith("-"), texts) if self._subparsers else texts
        names = [text.partition("=")[0] for text in takewhile(lambda text: text != "--", own)]
        self._refuse([name for name in names if name.startswith("--") and name not in self._option_string_actions])
        found, unknown = super().parse_known_args(texts, namespace)
        self._refuse(unknown)
        return found, unknown

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            hint = nearest(unknown[0], (name for name in self._option_string_actions if name.startswith("--")))
            self.error(f"unknown {'argument' if len(unknown) == 1 else 'arguments'} {' '.join(unknown)}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Argparse's own check of choices, with a hint."""
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(
                action, f"needs one of {', '.join(known)}, not {value!r}{nearest(str(value), known)}"
            )


def run_one_of(
    commands: Sequence[Command[Any]], parser: CommandParser, argv: Sequence[str] | None, *, example: str
) -> int:
    """Run the command that the arguments name; the exit code. Every error that has a reason is one message.

    Args:
        commands: in the order of the list that --help prints.
        parser: the outermost one.
        argv: the arguments; None for those of the process.
        example: what one might type, for an error.
    """
    group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        subparser = group.add_parser(command.name, help=command.summary)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command)

    def parse_and_run() -> int:
        arguments = parser.parse_command(sys.argv[1:] if argv is None else argv, example=example)
        code: int = arguments.run(arguments)
        return code

    return _with_errors_printed(parse_and_run)


def run_single(command: Command[Any], argv: Sequence[str] | None, *, prog: str) -> int:
    """Run a program that has one command; the exit code. Every error that has a reason is one message.

    Args:
        command: its options follow the program's name, without a command's name before them.
        argv: its arguments; None for those of the process.
        prog: what is typed before them.
    """
    parser = CommandParser(prog=prog)
    command.add_arguments(parser)
    return _with_errors_printed(lambda: command(parser.parse_args(argv)))


def run_program(program: Callable[[], int], *, alone: bool) -> int:
    """Run a program of another package as a process; every error that has a reason is one message.

    Args:
        program: does the work and returns its exit code.
        alone: see ``run_as_process``.
    """
    return run_as_process(lambda: _with_errors_printed(program), alone=alone)


def run_commands(
    commands: Sequence[Command[Any]],
    argv: Sequence[str] | None,
    *,
    prog: str,
    description: str,
    epilog: str,
    example: str,
) -> int:
    """Run the command that the arguments name, as a process; the exit code of ``run_as_process``.

    Args:
        commands: in the order of the list that --help prints.
        argv: the arguments; None for those of the process.
        prog: what is typed before them.
        description: what the commands are for.
        epilog: where to read more.
        example: what one might type, for an error.
    """
    parser = CommandParser(prog=prog, description=description, epilog=epilog)
    return run_as_process(lambda: run_one_of(commands, parser, argv, example=example), alone=argv is None)


def _with_errors_printed(run: Callable[[], int]) -> int:
    try:
        return run()
    except (FederationError, AnalyticError, SecureSumError) as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except MemoryError as error:  # numpy says how much it wanted, Python says nothing
        reason = f" ({error})" if str(error) else ""
        print(f"error: not enough memory{reason}; use fewer features, rows or clients", file=sys.stderr)
        return FAILED
