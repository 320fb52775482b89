"""Parsers of command-line arguments: lists, numbers, files, NAME=VALUE, with errors in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import EnumMeta
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from analytic_secagg.errors import UsageError
from analytic_secagg.spelling import nearest

T = TypeVar("T")

LARGEST_EPSILON = 60.0
"""A budget beyond this promises nothing that could be called privacy."""


def items(text: str) -> list[str]:
    """Split a comma-separated option.

    Raises:
        UsageError: an empty place.
    """
    found = [item.strip() for item in text.split(",")]
    if not all(found):
        raise UsageError(f"a list reads like one,two without empty places, not {text!r}")
    return found


def whole(text: str, *, at_least: int, at_most: int | None = None) -> int:
    """The whole number that a text is.

    Raises:
        UsageError: no whole number, one below ``at_least`` or one above ``at_most``.
    """
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if number < at_least or (at_most is not None and number > at_most):
        wanted = f"of at least {at_least}" if at_most is None else f"from {at_least} to {at_most}"
        raise UsageError(f"needs a whole number {wanted}, not {text!r}")
    return number


count, natural = partial(whole, at_least=1), partial(whole, at_least=0)
"""Whole numbers of at least 1 and of at least 0."""


def wholes(text: str, *, at_least: int, at_most: int) -> tuple[int, ...]:
    """Different whole numbers with commas between, in their order.

    Raises:
        UsageError: an empty place, no whole number or one out of range.
    """
    return tuple(dict.fromkeys(whole(item, at_least=at_least, at_most=at_most) for item in items(text)))


def number(text: str, wanted: str = "a finite number", fits: Callable[[float], bool] = lambda value: True) -> float:
    """The finite number that a text is.

    Args:
        text: what was given.
        wanted: what ``fits`` asks for, in words.
        fits: whether a finite number is in range.

    Raises:
        UsageError: no number, NaN or infinity, or one that does not fit.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and fits(value)):
        raise UsageError(f"needs {wanted}, not {text!r}")
    return value


def budgets(text: str) -> tuple[float, ...]:
    """Different privacy budgets epsilon, such as ``0.5,1,2``, in their order.

    Raises:
        UsageError: an empty place, or no number above 0 and at most ``LARGEST_EPSILON``.
    """
    wanted = f"numbers above 0 and at most {LARGEST_EPSILON:g}, such as 0.5,1,2,4,8"
    return tuple(dict.fromkeys(number(item, wanted, lambda e: 0 < e <= LARGEST_EPSILON) for item in items(text)))


def file(text: str) -> Path:
    """The path that a text is.

    Raises:
        UsageError: an empty text, which a path would take for the folder one stands in.
    """
    if not text:
        raise UsageError("needs the name of a file or folder, not an empty text")
    return Path(text)


Option = Any
"""The value of an option: a text, a number, several numbers, or yes or no."""

Reader = Callable[[str], Option]
"""Parser of an option's value; it raises ValueError for a text that is none."""


class Configurable(Protocol):
    """Whatever has a name and options."""

    @property
    def name(self) -> str:
        """The name on the command line."""
        ...

    @property
    def options(self) -> Mapping[str, Reader]:
        """The reader of each option."""
        ...


def parse_options(
    texts: Iterable[str], takers: Sequence[Configurable], flag: str = "--option"
) -> dict[str, dict[str, Option]]:
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
            raise UsageError(f"{flag}{_known(takers)}, not {text!r}{hint}")
        for taker in meant:
            found[taker.name][name] = _read(taker, name, value)
    return found


def numbers(text: str) -> tuple[float, ...]:
    """``0,1,10`` as numbers."""
    return tuple(float(item) for item in text.split(","))


def class_weights(text: str) -> tuple[int, ...] | str:
    """``1,5`` as whole numbers, one a class, or ``balanced``."""
    from analytic.weights import BALANCED  # here and below, since no command's help needs what it loads

    return text if text == BALANCED else tuple(int(item) for item in text.split(","))


def patterns(text: str) -> str:
    """``0+1,1+2``, if it reads as sets of classes."""
    return ",".join("+".join(map(str, one)) for one in sets_of_classes(text))


def sets_of_classes(text: str) -> tuple[tuple[int, ...], ...]:
    """``0+1,1+2`` as sets of classes."""
    return tuple(tuple(sorted(map(int, item.split("+")))) for item in text.split(","))


def yes_or_no(text: str) -> bool:
    """Read ``yes`` or ``no``, or as Python writes them."""
    known = {"yes": True, "no": False, "true": True, "false": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def _read(taker: Configurable, name: str, value: str) -> Option:
    reader = taker.options[name]
    try:
        return reader(value)
    except ValueError:
        raise UsageError(f"{name} of {taker.name} must be {_wanted(reader)}, not {value!r}") from None


def _wanted(reader: Reader) -> str:
    from analytic.row_format import RowFormat
    from analytic.weights import BALANCED

    if isinstance(reader, EnumMeta):
        return f"one of {', '.join(reader)}"
    known: Mapping[Reader, str] = {
        int: "a whole number",
        float: "a number",
        numbers: "numbers with commas between, such as 0,1,10",
        class_weights: f"{BALANCED}, or a whole number for each class, such as 1,5",
        patterns: "sets of classes, such as 0+1,1+2",
        yes_or_no: "yes or no",
        RowFormat.parse: "a row format such as UQ2.5",
    }
    return known.get(reader, "a text")


def _known(takers: Sequence[Configurable]) -> str:
    """List the possible values."""
    if len(takers) == 1:
        taker = takers[0]
        names = f"NAME=VALUE with NAME out of {', '.join(taker.options)}" if taker.options else "no options at all"
        return f": {taker.name} takes {names}"
    names = ", ".join(f"{taker.name}.{name}" for taker in takers for name in taker.options)
    return f" reads NAME=VALUE, with or without a learner's name and a dot before it, out of {names or 'none'}"
