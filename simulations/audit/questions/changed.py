"""Ask with good arguments, then with each of them changed by itself: what a callable takes, and what it refuses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from pydantic import BaseModel

from simulations.audit.questions import Question
from simulations.audit.questions.said import answer

STRANGER = 1 << 40
"""A number that nobody expects: too large for a party, a size, a bound and a version."""

MOST_ENTRIES = 24
"""Of a mapping that are changed, each by itself."""


def changed(name: str, ask: Callable[..., object], /, **good: Any) -> Iterator[Question]:
    """Yield what ``ask`` makes of good arguments, and for each argument what it makes of every change to it."""
    yield name, lambda: ask(**good)
    for argument in good:
        yield f"{name}: {argument}", partial(_in_place, ask, good, argument)


def _in_place(ask: Callable[..., object], good: Mapping[str, Any], argument: str) -> list[str]:
    return _each(lambda other: ask(**{**good, argument: other}), other_values(good[argument]))


def _each(ask: Callable[[Any], object], others: Iterable[Any]) -> list[str]:
    return [answer(partial(ask, other)) for other in others]


def changed_lines(name: str, read: Callable[[str], object], text: str) -> Iterator[Question]:
    """Yield what ``read`` makes of a text, and of the text with each line left out, twice, or with another value."""
    lines = text.splitlines(keepends=True)
    yield name, lambda: read(text)
    for place, line in enumerate(lines):
        head, sign, _ = line.partition("= ")
        values = ("0", "-1", "3", "1e9", "true", "[]", '"other"', "{}") if sign else ()
        others = ["", 2 * line, *(f"{head}= {value}\n" for value in values)]
        texts = ["".join([*lines[:place], other, *lines[place + 1 :]]) for other in others]
        yield f"{name}, line {place + 1}: {line.strip()}", partial(_each, read, texts)


def other_values(value: Any) -> Iterator[Any]:
    """Yield what may stand in a value's place by mistake or on purpose: always the same for equal values."""
    if isinstance(value, bool | np.bool_):
        yield not value
    elif isinstance(value, Enum):
        yield from (other for other in type(value) if other is not value)
    elif isinstance(value, int | np.integer):
        yield from (0, -1, value + 1, value - 1, 2 * value, STRANGER, value + 0.5, str(value))
    elif isinstance(value, float | np.floating):
        yield from (0.0, -value, 2 * value, value / 2, 1.0, math.nan, math.inf, str(value))
    elif isinstance(value, Fraction):
        yield from (Fraction(0), -value, 2 * value)
    elif isinstance(value, bytes):
        yield from (b"", value[:-1], value + b"\0", bytes(len(value)))
        yield from (_flipped(value, place) for place in sorted({0, len(value) // 2, len(value) - 1}) if value)
    elif isinstance(value, str):
        yield from ("", value + "s", value[:-1], f"{value}\n{value}")
    elif isinstance(value, np.ndarray):
        yield from _arrays(value)
    elif isinstance(value, tuple | list):
        yield from map(type(value), _sequences(list(value)))
    elif isinstance(value, frozenset | set):
        yield from map(type(value), _sequences(sorted(value, key=str)))
    elif isinstance(value, Mapping):
        yield from _mappings(dict(value))
    elif isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        kept = parts(value)
        for name, part in kept.items():
            for other in other_values(part):
                made: list[Any] = []
                with suppress(Exception):  # refused where it is made
                    made.append(type(value)(**{**kept, name: other}))
                yield from made


def parts(value: Any) -> dict[str, Any]:
    """Return what a dataclass or a model of pydantic was made of."""
    names = (
        type(value).model_fields if isinstance(value, BaseModel) else [one.name for one in fields(value) if one.init]
    )
    return {name: getattr(value, name) for name in names}


def _flipped(value: bytes, place: int) -> bytes:
    return bytes(byte ^ (place == number) for number, byte in enumerate(value))


def _sequences(value: list[Any]) -> Iterator[list[Any]]:
    yield []
    yield [*value, STRANGER]
    if value:
        yield value[:-1]
        yield [*value, value[-1]]
        yield [value[-1], *value[:-1]]
        for place in sorted({0, len(value) - 1}):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in other_values(value[place]))


def _mappings(value: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    yield {}
    if value:
        names = list(value)
        first, last = names[0], names[-1]
        yield {name: value[name] for name in names[1:]}
        yield {**value, (STRANGER if isinstance(last, int) else f"{last}s"): value[last]}
        yield {**value, first: value[last], last: value[first]}
        for name in names[:MOST_ENTRIES]:
            yield from ({**value, name: other} for other in other_values(value[name]))


def _arrays(value: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    yield value[:0]
    yield value[:-1]
    yield value[None]
    yield value.T[:-1].T
    yield value[::-1]
    yield 2 * value
    yield -value
    yield value.astype(np.float64) + 0.25
    yield value.astype(np.float32)
    yield value.astype(np.int64)
    yield value.astype(str)
    if value.size:
        for odd in (math.nan, math.inf, -1.0, float(STRANGER)):
            other = value.astype(np.float64)
            other.flat[0] = odd
            yield other
