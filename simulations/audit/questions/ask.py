"""Ask the library everything whose answer is kept beside this file, and name what comes out otherwise.

An answer is a value, or by what error bad input is refused. Answers were written down from this library, whose tests
say that they are right: one that comes out otherwise says that it is another library now.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from simulations.audit.questions import Question
from simulations.audit.questions.of_forms import about_forms
from simulations.audit.questions.of_privacy import about_privacy
from simulations.audit.questions.of_sites import about_sites
from simulations.audit.questions.of_sums import about_sums

ANSWERS = Path(__file__).with_name("answers.json")
SHORT = 48
"""Characters up to which an answer is kept as it is; of longer ones a hash is."""


def questions() -> Iterator[Question]:
    """Return all of them by name."""
    yield from about_sums()
    yield from about_privacy()
    yield from about_forms()
    yield from about_sites()


def answers() -> dict[str, str]:
    """Return what the library answers now."""
    said = logging.root.manager.disable
    logging.disable()
    try:
        return {name: _answer(ask) for name, ask in questions()}
    finally:
        logging.disable(said)


def other_answers() -> Iterator[str]:
    """Yield which questions are answered otherwise than they were; what needs an extra that is missing is not asked.

    Raises:
        OSError: there is no folder for temporary files, without which most answers would be others.
    """
    with TemporaryDirectory():
        pass
    known: Mapping[str, str] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    try:
        yield from (name for name, answer in answers().items() if answer != known.get(name))
    except Exception as error:  # what questions are about cannot be made
        yield f"questions end in {type(error).__name__}"


def _answer(ask: Callable[[], object]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = _said(ask())
    except Exception as error:  # whatever a fault raises is another answer
        return type(error).__name__
    return said if len(said) <= SHORT else hashlib.sha256(said.encode()).hexdigest()[:16]


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


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(answers(), indent=0) + "\n", encoding="utf-8")
