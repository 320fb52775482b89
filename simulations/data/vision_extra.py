"""The libraries of the ``vision`` extra, imported where they are needed and not before."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from federation.errors import UsageError


def vision(module: str) -> Any:
    """The module of that name.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise UsageError(
            f"features need torch and torchvision ({error}); install the extra: pip install 'analytic-secagg[vision]'"
        ) from error


def first_lines(text: str) -> str:
    """The start of one of these libraries' long messages, on one line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return " ".join(lines[:3])[:300].rstrip(" .")
