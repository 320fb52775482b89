"""A command declared once: a dataclass from whose fields follow arguments, help, values and the reference."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Generic, TypeVar

import click

from analytic_secagg.console.command_line import Choices, CommandLine, OptionParameter, Value
from analytic_secagg.console.process import exit_codes

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """Command-line form of a field.

    Args:
        help: what it is for, without its default.
        read: makes the value of a text; None for a switch, whose default is False, and for plain choices.
        flag: its name with both dashes; the field's own name where it is left out.
        old_flag: a name that it had in the last release; it is read with a ``DeprecationWarning`` and not shown.
        metavar: what stands for the value in the help.
        choices: the texts that it may be, each with its value.
        shown: the default in words, where the value does not say it.
        repeated: whether it may be given several times; the value is then a tuple.
        positional: whether it has no name on the command line; with a default it may be left out.
    """

    help: str
    read: Callable[[str], Any] | None = None
    flag: str | None = None
    old_flag: str | None = None
    metavar: str | None = None
    choices: Mapping[str, Any] | None = None
    shown: str | None = None
    repeated: bool = False
    positional: bool = False


def option(
    help_text: str,
    read: Callable[[str], Any] | None = None,
    *,
    default: Any = MISSING,
    choices: Mapping[str, Any] | Iterable[str] | None = None,
    **more: Any,
) -> Any:
    """Declare a field of a frozen dataclass as an option of a command line.

    Args:
        help_text, read, more: see ``_Option``.
        default: the value where the option is left out; without one the option is required.
        choices: the texts that it may be; as a mapping, with the value of each.
    """
    known = choices if choices is None or isinstance(choices, Mapping) else {text: text for text in choices}
    return field(default=default, metadata={"option": _Option(help=help_text, read=read, choices=known, **more)})


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


def parameters(declaration: type[Any], title: str = "") -> Iterator[click.Parameter]:
    """Yield a parameter of a command line for every option of a dataclass, those of its parts under their titles."""
    for one in fields(declaration):
        if "part" in one.metadata:
            yield from parameters(one.metadata["part"], one.metadata["title"] or title)
        elif "option" in one.metadata:
            yield _parameter(one, title, getattr(declaration, "GROUP_DESCRIPTION", ""))


def chosen(declaration: type[T], values: Mapping[str, Any]) -> T:
    """Return the dataclass that the values of its parameters make.

    Raises:
        analytic_secagg.errors.UsageError: values that do not go together, as the dataclass says.
    """
    found: dict[str, Any] = {}
    for one in fields(declaration):  # type: ignore[arg-type]  # T is a dataclass, which the type system cannot say
        if "part" in one.metadata:
            found[one.name] = chosen(one.metadata["part"], values)
        elif "option" in one.metadata:
            value = values[one.name]
            found[one.name] = one.default if one.metadata["option"].repeated and not value else value
    return declaration(**found)


def changed(options: Any) -> list[str]:
    """Return the flags of a dataclass of options whose values are not the defaults."""
    return [_flag(one) for one in fields(options) if getattr(options, one.name) != one.default]


class Command(CommandLine, Generic[T]):
    """A command of ``analytic-secagg``.

    Args:
        name: what is typed.
        summary: one line for the list of commands.
        examples: stands below the arguments in its help.
        options: a dataclass of options.
        run: does it; returns the exit code. As a text, where it is: ``module:function``, imported when it is called.
        fine: what exit code 0 says.
        finding: what exit code 1 says; None for a command that has no such code.
    """

    def __init__(
        self,
        *,
        name: str,
        summary: str,
        examples: str,
        options: type[T],
        run: Callable[[T], int] | str,
        fine: str = "as it should be",
        finding: str | None = None,
    ) -> None:
        self.options, self._run = options, run
        super().__init__(
            name,
            callback=lambda **values: self.running()(chosen(options, values)),
            params=list(parameters(options)),
            help=f"{summary[0].upper()}{summary[1:]}.",
            epilog=f"{examples}\n{exit_codes(fine, finding)}",
        )

    def running(self) -> Callable[[T], int]:
        """Return what does it."""
        if not isinstance(self._run, str):
            return self._run
        module, _, name = self._run.partition(":")
        found: Callable[[T], int] = getattr(importlib.import_module(module), name)
        return found


def _flag(one: Field[Any]) -> str:
    flag: str | None = one.metadata["option"].flag
    return flag or f"--{one.name.replace('_', '-')}"


def _metavar(one: Field[Any]) -> str:
    return one.metadata["option"].metavar or _flag(one).strip("-").upper().replace("-", "_")


def _is_switch(one: Field[Any]) -> bool:
    how: _Option = one.metadata["option"]
    return how.read is None and how.choices is None


def _parameter(one: Field[Any], title: str, description: str) -> click.Parameter:
    how: _Option = one.metadata["option"]
    text = _default_text(one)
    settings: dict[str, Any] = {"help": f"{how.help} (default: {text})" if text else how.help}
    if _is_switch(one):
        return OptionParameter([_flag(one), one.name], is_flag=True, title=title, description=description, **settings)
    settings["type"] = Choices(how.choices) if how.choices else Value(how.read or str)
    settings["metavar"] = "|".join(how.choices) if how.choices else _metavar(one)
    settings["required"] = one.default is MISSING
    if one.default is not MISSING and not how.repeated:
        settings["default"] = one.default
    if how.positional:
        return click.Argument([one.name], **settings)
    return OptionParameter(
        [_flag(one), one.name],
        multiple=how.repeated,
        title=title,
        description=description,
        old_flag=how.old_flag,
        **settings,
    )


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
