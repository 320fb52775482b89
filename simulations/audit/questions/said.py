"""What an answer is as a text that two machines write alike: a value, or the error that bad input ends in."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np

OURS = ("secagg", "analytic", "federation")
SHORT = 48
"""Characters up to which an answer is kept as it is; of longer ones a hash is."""


def answer(ask: Callable[[], object]) -> str:
    """Return what a question is answered with, or the type of its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = _said(ask())
    except Exception as error:  # whatever a fault raises is another answer
        return _refusal(error)
    return said if len(said) <= SHORT else hashlib.sha256(said.encode()).hexdigest()[:16]


def hashed(data: bytes) -> str:
    """Return what stands for bytes that are too many to keep until they are answered with."""
    return hashlib.sha256(data).hexdigest()


def _refusal(error: BaseException) -> str:
    """An error's type, and a mark of its words where all of them are ours and none is a path of this machine."""
    kind, words = type(error).__name__, re.sub(r"/\S+", "", str(error))
    cause: BaseException | None = error
    while cause is not None:
        if type(cause).__module__.partition(".")[0] not in OURS:
            return kind  # of Python or another library, which has other words in another release
        cause = cause.__cause__ or cause.__context__
    return f"{kind} {hashlib.sha256(words.encode()).hexdigest()[:6]}"


def _said(value: Any) -> str:
    """A value as a text: floats to nine digits, arrays by shape and entries."""
    if isinstance(value, bool | int | str | Fraction | Enum | np.bool_ | None):
        return str(value)
    if isinstance(value, float | np.floating):
        return f"{value:.9g}"
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()[:16]
    if isinstance(value, np.ndarray | np.integer):
        return f"{np.shape(value)} {_said(list(np.ravel(value).tolist()))}"
    if isinstance(value, Mapping):
        return _said([*value.items()])
    if isinstance(value, set | frozenset):
        return _said(sorted(value, key=str))
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_said, value))}]"
    if is_dataclass(value):
        return f"{type(value).__name__} {_said({one.name: getattr(value, one.name) for one in fields(value)})}"
    return type(value).__name__
