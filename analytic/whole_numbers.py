"""Whole-number parameters as Python integers, which never wrap: a bound computed in numpy integers proves nothing."""

from __future__ import annotations

import operator

from analytic.errors import SpecificationError

INT64_MAX = 2**63 - 1


def settle_whole_numbers(parameters: object, *names: str) -> None:
    """Replace the named fields of a frozen dataclass by the Python integers that they stand for.

    For ``__post_init__``, before anything is computed from them. Booleans and numpy integers are whole numbers; floats
    are not, even where they have no fraction.

    Raises:
        SpecificationError: which one is no whole number.
    """
    for name in names:
        value = getattr(parameters, name)
        try:
            whole = int(operator.index(value))
        except TypeError:
            raise SpecificationError(f"{name} must be a whole number, not {value!r}; convert it with int()") from None
        object.__setattr__(parameters, name, whole)
