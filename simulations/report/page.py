"""What pages are made of, which need no network, no script and no other file: figures and templates.

Colours follow the reader's light or dark setting, text stays text, and equal figures give equal bytes.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from simulations.report.document import versions

PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e8eaed"),
    "muted": ("#5c6470", "#a5adb8"),
    "grid": ("#dde1e6", "#3a4048"),
    "paper": ("#ffffff", "#16191d"),
    "blue": ("#2a67a8", "#7db4ee"),
    "orange": ("#b8570f", "#f0a25e"),
    "green": ("#2f7d46", "#7fcf93"),
    "violet": ("#7a4fa3", "#c3a3ea"),
    "red": ("#a83a32", "#f08d85"),
    "teal": ("#1f7f83", "#72cfd2"),
}
"""By name the colour on light and on dark paper; each is readable on its paper (contrast 4.5 or more, but the grid)."""

INK, MUTED, GRID = (PALETTE[name][0] for name in ("ink", "muted", "grid"))
COLOURS = tuple(PALETTE[name][0] for name in ("blue", "orange", "green", "violet", "red", "teal"))
"""Colours of series, in their order."""
MARKERS = "osD^vP"
"""Their markers, likewise."""

STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}

THEME = "".join(
    (
        ":root{" + "".join(f"--{name}:{light};" for name, (light, _) in PALETTE.items()) + "}",
        "@media screen and (prefers-color-scheme:dark){:root{",
        "".join(f"--{name}:{dark};" for name, (_, dark) in PALETTE.items()) + "}}",
    )
)
"""The style sheet that gives the colours their values: for a page, and inside an SVG that is a file."""

_NUMBERED = re.compile(r' id="[A-Za-z][A-Za-z0-9.]*_\d+"')
"""What matplotlib calls its groups (axes_1, text_7): nobody refers to it, and it would repeat from chart to chart."""


def to_svg(
    draw: Callable[[Figure], None], *, inches: tuple[float, float], salt: str, alt: str, margin: float = 0.04
) -> str:
    """An ``svg`` element for the inside of a page.

    Args:
        draw: puts axes into an empty figure.
        inches: width and height.
        salt: makes the ids of its clips and markers differ from those of other charts of the page.
        alt: all that the chart shows, for readers who do not see it.
        margin: inches that stay empty around the axes.
    """
    with mpl.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure = Figure(figsize=inches, layout=ConstrainedLayoutEngine(w_pad=margin, h_pad=margin))
        FigureCanvasSVG(figure)
        draw(figure)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    document = file.getvalue()
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", document[document.index("<svg") :], flags=re.DOTALL)
    svg = _NUMBERED.sub("", svg).replace("<svg", f'<svg role="img" aria-label="{html.escape(alt)}"', 1)
    for name, (light, _) in PALETTE.items():
        svg = svg.replace(light, f"var(--{name}, {light})")
    return svg


def as_file(svg: str) -> str:
    """The same as a file of its own, with its style sheet and paper."""
    paper = f'<style>{THEME}</style><rect width="100%" height="100%" rx="8" fill="var(--paper)"/>'
    return re.sub(r"(<svg[^>]*>)", lambda tag: tag[0] + paper, svg, count=1)


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
