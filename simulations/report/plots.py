"""Bar charts as inline SVG: text stays text, nothing is loaded from anywhere, equal data give equal bytes."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLOURS = ("#3b6ea8", "#d98032", "#5a9a5a", "#8a62a8", "#a0544f", "#6b6b6b")
BAR_INCHES, WIDTH_INCHES = 0.2, 7.2


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """Horizontal bars in groups, each with its number beside it.

    Args:
        title: one line, also the start of the text for readers who do not see the chart.
        groups: names of the groups, from the top.
        series: for each name of the legend, a value for each group; None leaves a bar out.
        label: a value as it is printed beside its bar.
    """

    title: str
    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    label: Callable[[float], str]

    @property
    def alt(self) -> str:
        """All that the chart shows, in words."""
        return f"Bar chart. {self.title}. " + " ".join(
            f"{group}: {'; '.join(self._values_of(place))}." for place, group in enumerate(self.groups)
        )

    def _values_of(self, place: int) -> list[str]:
        return [
            f"{name} {self.label(value)}"
            for name, values in self.series.items()
            if (value := values[place]) is not None
        ]

    def to_svg(self) -> str:
        """An ``svg`` element for the inside of a page, with its description."""
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.title, "font.family": "sans-serif"}):
            figure = self._figure()
            file = io.StringIO()
            figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        return self._described(file.getvalue())

    def _figure(self) -> Figure:
        n_groups, n_series = len(self.groups), len(self.series)
        height = 0.9 + BAR_INCHES * n_groups * (n_series + 1)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for number, (name, values) in enumerate(self.series.items()):
            places = np.arange(n_groups) + (number - (n_series - 1) / 2) / (n_series + 1)
            bars = axes.barh(
                places,
                [value or 0.0 for value in values],
                height=1 / (n_series + 1),
                label=name,
                color=COLOURS[number % len(COLOURS)],
            )
            axes.bar_label(
                bars, ["" if value is None else self.label(value) for value in values], padding=3, fontsize=8
            )
        axes.set_yticks(np.arange(n_groups), list(self.groups))
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.margins(x=0.15)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        if n_series > 1:
            figure.legend(loc="outside lower center", ncols=min(n_series, 4), frameon=False, fontsize=8)
        return figure

    def _described(self, document: str) -> str:
        svg = document[document.index("<svg") :]
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(self.alt)}"', 1)
