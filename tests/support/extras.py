"""Tests of an optional dependency are skipped, with the name of the extra, where it is not installed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from analytic_secagg.modes import MODES, Mode

EXTRAS = {
    "tenseal": "he",
    "dp_accounting": "dp",
    "opacus": "dp",
    "torch": "vision",
    "torchvision": "vision",
    "timm": "features",
    "transformers": "features",
    "sentence_transformers": "features",
    "pyarrow": "parquet",
    "pandas": "dev",
    "openpyxl": "tables",
    "pyreadstat": "tables",
    "sphinx": "docs",
    "flwr": "flower",
    "nvflare": "nvflare",
    "sympy": "vision",
    "yaml": "dev",
    "setuptools": "dev",
    "build": "dev",
}
"""The extra of each module that some test cannot do without."""


def needs(module: str) -> Any:
    """Import an optional module, or skip the calling test or file and say which extra installs it."""
    return pytest.importorskip(module, reason=f"needs the extra: pip install '.[{EXTRAS[module]}]'")


def modes(names: Iterable[str] = tuple(MODES)) -> list[Any]:
    """Parameters for tests of a mode."""
    return [pytest.param(MODES[name], id=name, marks=missing(name)) for name in names]


def missing(name: str) -> Sequence[pytest.MarkDecorator]:
    """The mark that skips a test of a mode whose extra is not installed."""
    extra = MODES[name].missing_extra
    return [pytest.mark.skip(reason=f"needs the extra: {extra}")] if extra else []


INSTALLED: Sequence[Mode] = [mode for mode in MODES.values() if mode.installed]
