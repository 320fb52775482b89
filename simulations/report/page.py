"""Self-contained pages: no network, no script and no other file."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulations.report.document import versions
from simulations.report.svg import THEME

LEFT = frozenset({"mode", "learner", "baseline", "partition", "weights", "whose", "of what", "source"})
"""Columns of words; the others are numbers."""


def render(template: str, **names: Any) -> str:
    """Return the page of a template that extends ``page.html``.

    Args:
        template: its file in this folder.
        names: what it shows; ``filters`` among them are functions of one value.
    """
    environment = Environment(
        loader=PackageLoader("simulations.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(names.pop("filters"))
    theme = Markup(THEME)  # noqa: S704 - our own style sheet
    return environment.get_template(template).render(theme=theme, left=LEFT, versions=versions(), **names).lstrip()
