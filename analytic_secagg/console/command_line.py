"""Command lines on Click: values with our errors, commands that are loaded when they are named, help in colour."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem, shell_complete

from analytic.errors import AnalyticError
from analytic_secagg.console.process import FAILED, run_as_process
from analytic_secagg.errors import FederationError
from analytic_secagg.spelling import nearest
from secagg.errors import SecureSumError

DISTRIBUTION = "analytic-secagg"
"""What pip calls this project; its console script has the same name."""


OF_SIMULATIONS = frozenset({"rich", "matplotlib", "PIL"})
"""Modules that come with the extra ``simulations`` alone: tables for terminals and plots."""


class Value(click.ParamType[Any]):
    """The value of an option, made of its text by a reader.

    Args:
        read: makes the value; it raises an error of ours, or ``ValueError``, for a text that is none.
    """

    name = "value"

    def __init__(self, read: Callable[[str], Any]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a text; a default is a value already."""
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except (FederationError, AnalyticError, ValueError) as error:
            self.fail(str(error), param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Complete as a path, which is what most values without a list of their own are."""
        return [CompletionItem(incomplete, type="file")]


class Choices(click.Choice[str]):
    """One of a few texts, each with its value; the error for another text names the nearest of them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(list(values))
        self._values = values

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text; a default is a value already."""
        if not isinstance(value, str):
            return value
        if value not in self._values:
            hint = nearest(value, self._values)
            self.fail(f"needs one of {', '.join(self._values)}, not {value!r}{hint}", param, ctx)
        return self._values[value]


class OptionParameter(click.Option):
    """An option that is listed under a title, and may be given by the name that it had in the last release."""

    def __init__(self, *args: Any, title: str = "", description: str = "", old_flag: str | None = None, **more: Any):
        super().__init__(*args, **more)
        self.title, self.description, self.old_flag = title, description, old_flag


class _Formatter(click.HelpFormatter):
    """Help with headings and names in colour; Click takes the colours out where nobody sees them."""

    def write_heading(self, heading: str) -> None:
        super().write_heading(click.style(heading, fg="yellow", bold=True))

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(click.style(name, fg="cyan"), text) for name, text in rows], col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


_SETTINGS: Mapping[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 120,
    "color": False if os.environ.get("NO_COLOR") else None,
}


class _Explained(click.Command):
    """Help in colour, with an epilog that is printed as it is written: examples."""

    context_class = _Context

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print examples as they are written."""
        formatter.write(f"\n{self.epilog}")


class CommandLine(_Explained):
    """One command: options under their titles, and an epilog that is printed as it is."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name, context_settings=dict(_SETTINGS), **settings)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read options by the names that they had in the last release, too."""
        known = {one.old_flag: one.opts[0] for one in self.params if isinstance(one, OptionParameter) and one.old_flag}
        for place, text in enumerate(args):
            name, equals, value = text.partition("=")
            if name in known:
                warnings.warn(f"{name} is {known[name]} now; write {known[name]}", DeprecationWarning, stacklevel=2)
                args[place] = known[name] + equals + value
        *_, order = self.make_parser(ctx).parse_args(args=list(args))
        given = Counter(one.opts[0] for one in order if isinstance(one, click.Option) and not one.multiple)
        if twice := [flag for flag, times in given.items() if times > 1]:
            ctx.fail(f"{twice[0]} is given {given[twice[0]]} times, and it takes one value")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of every title."""
        sections: dict[str, list[tuple[str, str]]] = {}
        described: dict[str, str] = {}
        for one in self.get_params(ctx):
            line = one.get_help_record(ctx)
            if line is None or isinstance(one, click.Argument):
                continue
            title = getattr(one, "title", "") or "Options"
            sections.setdefault(title, []).append(line)
            described[title] = getattr(one, "description", "")
        for title, lines in sections.items():
            with formatter.section(title[0].upper() + title[1:]):
                if described[title]:
                    formatter.write_text(described[title])
                formatter.write_dl(lines)


class Listed(click.Command):
    """A command that is listed without being imported.

    Args:
        name: what is typed.
        place: where it is, such as ``simulations.compare.command:COMMAND``; a tuple has one of this name.
        summary: a few words for the list of commands.
    """

    def __init__(self, name: str, place: str, summary: str) -> None:
        super().__init__(name, short_help=summary)
        self._place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **more: Any) -> click.Context:
        """Import the command and let it parse."""
        return self.load().make_context(info_name, args, parent, **more)

    def load(self) -> click.Command:
        """Import the command and return it."""
        module, _, name = self._place.partition(":")
        found = getattr(importlib.import_module(module), name)
        loaded: click.Command = (
            next(one for one in found if one.name == self.name) if isinstance(found, tuple) else found
        )
        return loaded


class Foreign(click.Command):
    """A command of another package's engine, whose ``main`` gets all that follows its name."""

    def __init__(self, name: str, load: Callable[[], Callable[[Sequence[str]], int]]) -> None:
        super().__init__(name, short_help="an engine of another package", add_help_option=False)
        self._load = load

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Leave everything to the engine."""
        ctx.args = args
        return []

    def invoke(self, ctx: click.Context) -> int:
        """Run the engine; its exit code."""
        return self._load()(ctx.args)


class Program(_Explained, click.Group):
    """Commands in sections, each imported when it is named.

    Args:
        name: what is typed before a command's.
        sections: lists of commands under their titles.
        more: see ``click.Group``; ``example`` is what one might type after the program's name.
    """

    def __init__(
        self, name: str, sections: Mapping[str, Sequence[click.Command]], *, example: str, **more: Any
    ) -> None:
        commands = {command.name or "": command for section in sections.values() for command in section}
        super().__init__(name, commands=commands, context_settings=dict(_SETTINGS), no_args_is_help=False, **more)
        self._sections, self._example = sections, example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Print the help where nothing was typed, and name an example."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True, color=ctx.color)
            ctx.fail(f"needs a command, such as {ctx.command_path} {self._example}")
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands of every section."""
        width = max(map(len, self.commands))
        for title, commands in self._sections.items():
            if commands:
                with formatter.section(title):
                    formatter.write_dl([(f"{one.name:{width}}", one.get_short_help_str(limit=100)) for one in commands])


def run_line(line: click.Command, argv: Sequence[str] | None, *, prog: str) -> int:
    """Run a command line as a process; the exit code. Every error that has a reason is one message.

    Args:
        line: a program, or one command.
        argv: its arguments; None for those of the process.
        prog: what is typed before them.
    """
    return run_as_process(lambda: _with_errors_printed(lambda: _parse_and_run(line, argv, prog)), alone=argv is None)


def _parse_and_run(line: click.Command, argv: Sequence[str] | None, prog: str) -> int:
    variable = f"_{DISTRIBUTION}_COMPLETE".replace("-", "_").upper()
    if argv is None and (instruction := os.environ.get(variable)):
        return shell_complete(line, {}, prog, variable, instruction)
    try:
        with line.make_context(prog, list(sys.argv[1:] if argv is None else argv)) as context:
            code: int = context.command.invoke(context)
            return code
    except click.exceptions.Exit as done:  # --help and --version end like this
        return done.exit_code


def _with_errors_printed(run: Callable[[], int]) -> int:
    try:
        return run()
    except click.UsageError as error:
        return _failed(f"{_in_words(error)}; see {error.ctx.command_path if error.ctx else ''} --help")
    except (FederationError, AnalyticError, SecureSumError) as error:
        return _failed(str(error))
    except ModuleNotFoundError as error:
        if (module := str(error.name).partition(".")[0]) not in OF_SIMULATIONS:
            raise
        return _failed(f"this command needs {module}, which is not installed: pip install '.[simulations]'")
    except MemoryError as error:  # numpy says how much it wanted, Python says nothing
        reason = f" ({error})" if str(error) else ""
        return _failed(f"not enough memory{reason}; use fewer features, rows or clients")


def _in_words(error: click.UsageError) -> str:
    """Return Click's message, with the one name that is nearest to an unknown one."""
    if isinstance(error, click.NoSuchOption):
        assert error.ctx is not None, "it comes from parsing"
        flags = [flag for one in error.ctx.command.get_params(error.ctx) for flag in one.opts if flag.startswith("--")]
        return f"unknown option {error.option_name}{nearest(error.option_name, flags)}"
    if isinstance(error, click.exceptions.NoSuchCommand):
        return f"unknown command {error.command_name}{nearest(error.command_name, error.possibilities or ())}"
    return error.format_message().rstrip(".").replace("\n", " ")


def _failed(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return FAILED
