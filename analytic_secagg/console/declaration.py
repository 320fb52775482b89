"""A command declared once: a dataclass from whose fields follow arguments, help, values and the reference."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Generic, TypeVar

from analytic_secagg.console.arguments import checked
from analytic_secagg.console.process import exit_codes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """Command-line form of a field; ``read`` is None for a switch, and if a choice is the value itself."""

    help: str
    read: Callable[[str], Any] | None
    flag: str | None
    old_flag: str | None
    metavar: str | None
    choices: Mapping[str, Any] | None
    shown: str | None
    repeated: bool
    positional: bool


def option(
    help_text: str,
    read: Callable[[str], Any] | None = None,
    *,
    default: Any = MISSING,
    flag: str | None = None,
    old_flag: str | None = None,
    metavar: str | None = None,
    choices: Mapping[str, Any] | Iterable[str] | None = None,
    shown: str | None = None,
    repeated: bool = False,
    positional: bool = False,
) -> Any:
    """Declare a field of a frozen dataclass as an option of a command line.

    Args:
        help_text: what it is for, without its default.
        read: makes the value of a text; None for a switch, whose default is False, and for plain choices.
        default: the value where the option is left out; without one the option is required.
        flag: its name with both dashes; the field's own name where it is left out.
        old_flag: a name that it had in the last release; it is read with a ``DeprecationWarning`` and not shown.
        metavar: what stands for the value in the help.
        choices: the texts that it may be; as a mapping, with the value of each.
        shown: the default in words, where the value does not say it.
        repeated: whether it may be given several times; the value is then a tuple.
        positional: whether it has no name on the command line; with a default it may be left out.
    """
    known = choices if choices is None or isinstance(choices, Mapping) else {text: text for text in choices}
    how = _Option(
        help=help_text,
        read=read,
        flag=flag,
        old_flag=old_flag,
        metavar=metavar,
        choices=known,
        shown=shown,
        repeated=repeated,
        positional=positional,
    )
    return field(default=default, metadata={"option": how})


def part(declaration: type[T], title: str = "") -> T:
    """Declare a field that holds a whole dataclass of options, shown under ``title`` in the help."""
    found: T = field(metadata={"part": declaration, "title": title})
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionLine:
    """One option as a reference shows it."""

    flag: str
    metavar: str
    default: str
    help: str


def option_lines(declaration: type[Any]) -> Iterator[OptionLine]:
    """Yield what a reference says of every option, those of parts included."""
    for one in fields(declaration):
        if "part" in one.metadata:
            yield from option_lines(one.metadata["part"])
        elif "option" in one.metadata:
            how: _Option = one.metadata["option"]
            value = "" if _is_switch(one) else "|".join(how.choices) if how.choices else _metavar(one)
            default = "required" if one.default is MISSING else _default_text(one)
            yield OptionLine(flag=_flag(one), metavar=value, default=default, help=how.help)


def add_options(parser: Any, declaration: type[Any]) -> None:
    """Add an argument for every option of a dataclass, those of its parts in groups of their own."""
    for one in fields(declaration):
        if "part" in one.metadata:
            title = one.metadata["title"]
            description = getattr(one.metadata["part"], "GROUP_DESCRIPTION", None)
            add_options(parser.add_argument_group(title, description) if title else parser, one.metadata["part"])
        elif "option" in one.metadata and one.metadata["option"].positional:
            parser.add_argument(one.name, **_settings(one))
        elif "option" in one.metadata:
            parser.add_argument(_flag(one), dest=one.name, **_settings(one))
            if old := one.metadata["option"].old_flag:
                settings = _settings(one) | {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
                parser.add_argument(old, dest=one.name, action=_Renamed, const=_flag(one), **settings)


class _Renamed(argparse.Action):
    """Read an option by the name that it had in the last release."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        warnings.warn(f"{option_string} is {self.const} now; write {self.const}", DeprecationWarning, stacklevel=2)
        setattr(namespace, self.dest, values)


def chosen(declaration: type[T], arguments: argparse.Namespace) -> T:
    """Return the dataclass that the arguments ask for.

    Raises:
        analytic_secagg.errors.UsageError: values that do not go together, as the dataclass says.
    """
    values: dict[str, Any] = {}
    for one in fields(declaration):  # type: ignore[arg-type]  # T is a dataclass, which the type system cannot say
        if "part" in one.metadata:
            values[one.name] = chosen(one.metadata["part"], arguments)
        elif "option" in one.metadata:
            how: _Option = one.metadata["option"]
            value = getattr(arguments, one.name)
            value = how.choices[value] if how.choices and isinstance(value, str) else value
            values[one.name] = (tuple(value) if value else one.default) if how.repeated else value
    return declaration(**values)


def changed(options: Any) -> list[str]:
    """Return the flags of a dataclass of options whose values are not the defaults."""
    return [_flag(one) for one in fields(options) if getattr(options, one.name) != one.default]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[T]):
    """A command of ``python -m simulations`` or ``python -m analytic_secagg.flower``.

    Args:
        name: what is typed.
        summary: one line for the list of commands.
        examples: stands below the arguments in its help.
        options: a dataclass of options.
        run: does it; returns the exit code.
        fine: what exit code 0 says.
        finding: what exit code 1 says; None for a command that has no such code.
    """

    name: str
    summary: str
    examples: str
    options: type[T]
    run: Callable[[T], int]
    fine: str = "as it should be"
    finding: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command understands."""
        parser.description = f"{self.summary[0].upper()}{self.summary[1:]}."
        parser.epilog = f"{self.examples}\n{exit_codes(self.fine, self.finding)}"
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        add_options(parser, self.options)

    def __call__(self, arguments: argparse.Namespace) -> int:
        """Run with parsed arguments; the exit code."""
        return self.run(chosen(self.options, arguments))


def _flag(one: Field[Any]) -> str:
    flag: str | None = one.metadata["option"].flag
    return flag or f"--{one.name.replace('_', '-')}"


def _metavar(one: Field[Any]) -> str:
    return one.metadata["option"].metavar or _flag(one).strip("-").upper().replace("-", "_")


def _is_switch(one: Field[Any]) -> bool:
    how: _Option = one.metadata["option"]
    return how.read is None and how.choices is None


def _settings(one: Field[Any]) -> dict[str, Any]:
    """Return what argparse is told of a field."""
    how: _Option = one.metadata["option"]
    text = _default_text(one)
    told: dict[str, Any] = {"help": (f"{how.help} (default: {text})" if text else how.help).replace("%", "%%")}
    if _is_switch(one):
        return told | {"action": "store_true"}
    told |= {"choices": tuple(how.choices)} if how.choices else {"metavar": _metavar(one)}
    if one.default is not MISSING:
        told |= {"default": None if how.repeated else one.default} | ({"nargs": "?"} if how.positional else {})
    elif not how.positional:
        told |= {"required": True}
    told |= {"type": checked(how.read)} if how.read else {}
    return told | ({"action": "append"} if how.repeated else {})


def _default_text(one: Field[Any]) -> str:
    """Return the default as one would type it; nothing where there is none, or for a switch."""
    shown: str | None = one.metadata["option"].shown
    if shown is not None:
        return shown
    if one.default is MISSING or one.default is None or one.default is False:
        return ""
    return ",".join(map(_text, one.default)) if isinstance(one.default, tuple) else _text(one.default)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
