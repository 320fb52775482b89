"""How commands read their arguments: lists, whole numbers, and errors in the form that argparse prints."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from analytic.errors import AnalyticError
from simulations.errors import SimulationError, UsageError

T = TypeVar("T")


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """``parse`` with its errors in the form that argparse prints, after the name of the argument."""

    def parse_argument(text: str) -> T:
        try:
            return parse(text)
        except (SimulationError, AnalyticError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse_argument


def items(text: str) -> list[str]:
    """What stands between the commas.

    Raises:
        UsageError: an empty place.
    """
    found = [item.strip() for item in text.split(",")]
    if not all(found):
        raise UsageError(f"a list reads like one,two without empty places, not {text!r}")
    return found


def whole(text: str, *, at_least: int) -> int:
    """The whole number that a text is.

    Raises:
        UsageError: no whole number, or one below ``at_least``.
    """
    try:
        number = int(text)
    except ValueError:
        number = at_least - 1
    if number < at_least:
        raise UsageError(f"needs a whole number of at least {at_least}, not {text!r}")
    return number
