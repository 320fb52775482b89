"""Parameters of a learner's or baseline's own, from ``NAME=VALUE`` texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import EnumMeta
from typing import Any, Protocol

from federation.console.arguments import nearest
from federation.errors import UsageError

Option = Any
"""The value of an option: a text, a number, several numbers, or yes or no."""

Reader = Callable[[str], Option]
"""What makes it of a text; a ValueError says that the text is none."""


class Configurable(Protocol):
    """Whatever has a name and options."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    @property
    def options(self) -> Mapping[str, Reader]:
        """What reads each option."""
        ...


def parse_options(texts: Iterable[str], takers: Sequence[Configurable]) -> dict[str, dict[str, Option]]:
    """The options that each taker gets, by its name.

    ``NAME=VALUE`` is for every taker that has an option of this name, ``TAKER.NAME=VALUE`` for one of them.

    Raises:
        UsageError: no option of any taker, or a value that it cannot have.
    """
    found: dict[str, dict[str, Option]] = {taker.name: {} for taker in takers}
    for text in texts:
        place, equals, value = text.partition("=")
        only, dot, name = place.rpartition(".")
        meant = [taker for taker in takers if name in taker.options and (not dot or taker.name == only)]
        if not meant or not equals:
            hint = nearest(name, (option for taker in takers for option in taker.options)) if equals else ""
            raise UsageError(f"{_known(takers)}, not {text!r}{hint}")
        for taker in meant:
            found[taker.name][name] = _read(taker, name, value)
    return found


def numbers(text: str) -> tuple[float, ...]:
    """``0,1,10`` as numbers."""
    return tuple(float(item) for item in text.split(","))


def yes_or_no(text: str) -> bool:
    """Whether the text is ``yes``; it may be ``no``."""
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


def _read(taker: Configurable, name: str, value: str) -> Option:
    reader = taker.options[name]
    try:
        return reader(value)
    except ValueError:
        raise UsageError(f"{name} of {taker.name} must be {_wanted(reader)}, not {value!r}") from None


def _wanted(reader: Reader) -> str:
    if isinstance(reader, EnumMeta):
        return f"one of {', '.join(reader)}"
    known: Mapping[Reader, str] = {
        int: "a whole number",
        float: "a number",
        numbers: "numbers with commas between, such as 0,1,10",
        yes_or_no: "yes or no",
    }
    return known.get(reader, "a text")


def _known(takers: Sequence[Configurable]) -> str:
    """What could have been said."""
    if len(takers) == 1:
        taker = takers[0]
        names = f"NAME=VALUE with NAME out of {', '.join(taker.options)}" if taker.options else "no options at all"
        return f"--option: {taker.name} takes {names}"
    names = ", ".join(f"{taker.name}.{name}" for taker in takers for name in taker.options)
    return f"--option reads NAME=VALUE, with or without a learner's name and a dot before it, out of {names or 'none'}"
