"""Tests of modes whose optional dependency is absent are skipped, with the extra's name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from federation.modes import MODES, Mode


def modes(names: Iterable[str] = tuple(MODES)) -> list[Any]:
    """Parameters for tests of a mode."""
    return [pytest.param(MODES[name], id=name, marks=missing(name)) for name in names]


def missing(name: str) -> Sequence[pytest.MarkDecorator]:
    """The mark that skips a test of a mode whose extra is not installed."""
    extra = MODES[name].missing_extra
    return [pytest.mark.skip(reason=f"needs the extra: {extra}")] if extra else []


INSTALLED: Sequence[Mode] = [mode for mode in MODES.values() if mode.installed]
