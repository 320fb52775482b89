"""A printed form with shapes for arrays: what is printed goes into logs and notebooks, where rows must not be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from html import escape
from typing import Any


def shape_repr(self: Any) -> str:
    """Return a dataclass as text, with its arrays by type and shape.

    Stands as ``__repr__`` in the body of a dataclass that holds arrays.

    Example:
        >>> import numpy as np
        >>> from analytic import ClientRows
        >>> ClientRows(np.zeros((50, 3)), np.zeros(50, dtype=int))
        ClientRows(features=<float64 (50, 3)>, targets=<int64 (50,)>, weights=None)
    """
    shown = (f"{one.name}={_shown(getattr(self, one.name))}" for one in fields(self) if one.repr)
    return f"{type(self).__name__}({', '.join(shown)})"


def shape_html(self: Any) -> str:
    """Return a dataclass as a table for notebooks, with its arrays by type and shape: ``_repr_html_``.

    Example:
        >>> import numpy as np
        >>> from analytic import ClientRows
        >>> ClientRows(np.zeros((50, 3)), np.zeros(50, dtype=int))._repr_html_()[:47]
        '<table><caption>ClientRows</caption><tr><th>fea'
    """
    shown = ((one.name, escape(_shown(getattr(self, one.name)))) for one in fields(self) if one.repr)
    rows = (f"<tr><th>{name}</th><td>{text}</td></tr>" for name, text in shown)
    return f"<table><caption>{type(self).__name__}</caption>{''.join(rows)}</table>"


def _shown(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, Mapping):
        return f"<{len(value)} items>"
    if isinstance(value, tuple) and value and hasattr(value[0], "shape"):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)
