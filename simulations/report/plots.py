"""Charts that a person reads at a glance, each with all that it shows in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes

from simulations.report.columns import error_text
from simulations.report.page import COLOURS, GRID, INK, MARKERS, MUTED, to_svg

WIDTH_INCHES = 5.2
BAR_INCHES, DOT_INCHES = 0.19, 0.33
LINE_OF_TEXT = 0.17
"""Inches that one line of small text takes."""

SHORT_NAME = 34
"""Letters of a line's name of which two fit side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(ABC):
    """One picture.

    Args:
        title: what it shows, as a finding; also the start of the text for readers who do not see it.
    """

    title: str

    @property
    @abstractmethod
    def alt(self) -> str:
        """All that the chart shows, in words."""

    @property
    @abstractmethod
    def height(self) -> float:
        """Inches that it takes."""

    @abstractmethod
    def draw(self, axes: Axes) -> None:
        """Put it into empty axes."""

    def to_svg(self) -> str:
        """An ``svg`` element for the inside of a page, with its description."""
        return to_svg(
            lambda figure: self.draw(figure.add_subplot()),
            inches=(WIDTH_INCHES, self.height),
            salt=self.title,
            alt=self.alt,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart(Chart):
    """Horizontal bars in groups, each with its number beside it.

    Args:
        groups: names of the groups, from the top.
        series: for each name of the legend, a value for each group; None leaves a bar out.
        label: a value as it is printed beside its bar.
    """

    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    label: Callable[[float], str]

    @property
    def alt(self) -> str:
        """Every bar by group."""
        return f"Bar chart. {self.title}. " + " ".join(
            f"{group}: {'; '.join(self._values_of(place))}." for place, group in enumerate(self.groups)
        )

    def _values_of(self, place: int) -> list[str]:
        return [
            f"{name} {self.label(value)}"
            for name, values in self.series.items()
            if (value := values[place]) is not None
        ]

    @property
    def height(self) -> float:
        """In proportion to the bars."""
        return 0.5 + BAR_INCHES * len(self.groups) * (len(self.series) + 0.8)

    def draw(self, axes: Axes) -> None:
        """Bars from the top, the legend below."""
        n_groups, n_series = len(self.groups), len(self.series)
        for number, (name, values) in enumerate(self.series.items()):
            bars = axes.barh(
                np.arange(n_groups) + (number - (n_series - 1) / 2) / (n_series + 0.8),
                [value or 0.0 for value in values],
                height=0.92 / (n_series + 0.8),
                label=name,
                color=COLOURS[number % len(COLOURS)],
            )
            axes.bar_label(
                bars, ["" if value is None else self.label(value) for value in values], padding=4, fontsize=9
            )
        axes.set_yticks(np.arange(n_groups), list(self.groups))
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.margins(x=0.2, y=0.02)
        axes.spines["bottom"].set_visible(False)
        axes.tick_params(axis="y", length=0)
        if n_series > 1:
            axes.legend(loc="upper center", bbox_to_anchor=(0.4, 0.0), ncols=min(n_series, 3), fontsize=9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a chart.

    Args:
        x: places along the horizontal axis.
        y: values.
        spread: what each value varies by; empty where nothing is known of that.
        aside: whether it is drawn for comparison only.
    """

    x: Sequence[float]
    y: Sequence[float]
    spread: Sequence[float] = ()
    aside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart(Chart):
    """Parts of 1 over cases, budgets or sizes, told apart by colour, marker and stroke.

    Args:
        series: lines by name.
        words: all that they say, for readers who do not see them.
        x_label: what the horizontal axis is.
        ticks: its texts by place; empty leaves them to the numbers.
        logarithmic: whether it is.
        zoomed: whether the other axis shows no more than the values need, with names at the lines' right ends.
        reference: (name, value) of a level line.
    """

    series: Mapping[str, Line]
    words: str
    x_label: str
    ticks: Mapping[float, str] = field(default_factory=dict)
    logarithmic: bool = True
    zoomed: bool = False
    reference: tuple[str, float] | None = None

    @property
    def alt(self) -> str:
        """Title and words."""
        return f"Line chart. {self.title}. {self.words}"

    @property
    def height(self) -> float:
        """Room for the lines' names below each other."""
        below = 0.0 if self.zoomed or self._legend_columns > 1 else 1.4 * LINE_OF_TEXT * len(self.series)
        return max(3.5, 0.9 + 2.3 * LINE_OF_TEXT * len(self.series)) + below

    @property
    def _legend_columns(self) -> int:
        """Names side by side in a legend, where they are short."""
        return 2 if all(len(name) <= SHORT_NAME for name in self.series) else 1

    def draw(self, axes: Axes) -> None:
        """Lines, with their names at their ends or in a legend below."""
        if self.reference:
            axes.axhline(self.reference[1], color=INK, linestyle=":", linewidth=1.5, label=self.reference[0])
        for number, (name, line) in enumerate(self.series.items()):
            axes.errorbar(
                line.x, line.y, yerr=line.spread or None, label=name, color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)], markersize=5.5,
                linewidth=1.6 if line.aside else 2.4, capsize=3, elinewidth=1,
                linestyle=self._stroke(number, line),
            )  # fmt: skip
        if self.logarithmic:
            axes.set_xscale("log")
        if self.ticks:
            axes.set_xticks(list(self.ticks), list(self.ticks.values()))
            axes.set_xticks([], minor=True)
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.tick_params(axis="both", length=0, labelsize=9)
        axes.grid(visible=True, axis="y")
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        if self.zoomed:
            self._name_lines(axes)
        else:
            axes.set_ylim(-0.03, 1.05)
            axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=self._legend_columns, fontsize=9)

    def _stroke(self, number: int, line: Line) -> str:
        if self.zoomed:
            return "--" if line.aside else "-"
        return ("-", "--", "-.", ":")[number % 4]

    def _name_lines(self, axes: Axes) -> None:
        """Names at right ends, instead of a legend."""
        found = [value for line in self.series.values() for value in line.y]
        room = max(0.01, 0.08 * (max(found) - min(found)))
        low, high = max(-room, min(found) - room), max(found) + room
        axes.set_ylim(low, high)
        axes.set_xlim(-0.25, len(self.ticks) - 1 + 0.12 * len(self.ticks))
        gap = (high - low) * 2.2 * LINE_OF_TEXT / (self.height - 0.7)
        places = spread([line.y[-1] for line in self.series.values()], gap, low=low, high=high)
        for number, ((name, line), place) in enumerate(zip(self.series.items(), places, strict=True)):
            axes.annotate(
                f"{name}\n{line.y[-1]:.2%}",
                xy=(line.x[-1], line.y[-1]),
                xytext=(1.02, (place - low) / (high - low)),
                textcoords="axes fraction",
                va="center",
                fontsize=9,
                color=COLOURS[number % len(COLOURS)],
                fontweight="normal" if line.aside else "bold",
                annotation_clip=False,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One point of a frontier.

    Args:
        name: which size it is.
        x: what it costs.
        y: how good it is.
        noisy: whether it is drawn hollow, as what holds noise.
        unbeaten: whether the frontier goes through it.
    """

    name: str
    x: float
    y: float
    noisy: bool
    unbeaten: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierChart(Chart):
    """Parts of 1 over a cost on a logarithmic axis, with steps through what nothing beats.

    Args:
        dots: by name of the family, which is one colour and marker.
        x_label: what the cost is.
        label: a cost as it is said to readers who do not see it.
    """

    dots: Mapping[str, Sequence[Dot]]
    x_label: str
    label: Callable[[float], str]

    @property
    def alt(self) -> str:
        """Every dot by family."""
        return f"Scatter chart. {self.title}. " + " ".join(
            f"{family}: {'; '.join(f'{dot.name} {dot.y:.2%} for {self.label(dot.x)}' for dot in dots)}."
            for family, dots in self.dots.items()
        )

    @property
    def height(self) -> float:
        """The same for any number of dots."""
        return 3.5

    def draw(self, axes: Axes) -> None:
        """Dots, those of a family joined, hollow under noise; sizes at the frontier's dots."""
        for number, (family, dots) in enumerate(self.dots.items()):
            colour, marker = (*COLOURS, INK, MUTED)[number % 8], (MARKERS + "<>*X")[number % 10]
            for noisy in (False, True):
                own = sorted((dot for dot in dots if dot.noisy == noisy), key=lambda dot: dot.x)
                axes.plot(
                    [dot.x for dot in own], [dot.y for dot in own], marker=marker, color=colour, markersize=6,
                    linewidth=0.8, linestyle=":" if noisy else "-", markerfacecolor="none" if noisy else colour,
                    label=f"{family} (noisy)" if noisy else family,
                )  # fmt: skip
            for dot in dots:
                if dot.unbeaten and not dot.noisy:
                    axes.annotate(
                        dot.name.partition(" ")[2], (dot.x, dot.y), xytext=(0, 7), textcoords="offset points",
                        ha="center", fontsize=7.5, color=colour,
                    )  # fmt: skip
        front = sorted((dot.x, dot.y) for dots in self.dots.values() for dot in dots if dot.unbeaten and not dot.noisy)
        axes.step(*zip(*front, strict=True), where="post", color=MUTED, linewidth=1, zorder=0)
        axes.set_xscale("log")
        axes.margins(x=0.15, y=0.12)
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.tick_params(axis="both", labelsize=9)
        axes.grid(visible=True, axis="y")
        axes.set_axisbelow(True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviationChart(Chart):
    """Errors over many powers of ten, with a place of its own for none at all.

    Args:
        groups: for each name of the legend errors by their own names, from the top; the first group stands out.
        x_label: what is measured.
    """

    groups: Mapping[str, Mapping[str, float]]
    x_label: str

    @property
    def values(self) -> dict[str, float]:
        """All errors by name."""
        return {name: value for group in self.groups.values() for name, value in group.items()}

    @property
    def alt(self) -> str:
        """Every value by name."""
        listed = "; ".join(f"{name}: {error_text(value)}" for name, value in self.values.items())
        return f"Dot chart on a logarithmic axis. {self.title}. {listed}."

    @property
    def height(self) -> float:
        """In proportion to the dots."""
        return 1.0 + DOT_INCHES * len(self.values)

    def draw(self, axes: Axes) -> None:
        """A stem and a dot each, below one tenth of the smallest on a straight scale that starts at zero."""
        above = [value for value in self.values.values() if value > 0]
        smallest, largest = min(above, default=1e-12), max(above, default=1e-6)
        place = 0
        for number, (group, values) in enumerate(self.groups.items()):
            places = list(range(place, place := place + len(values)))
            axes.hlines(places, 0, list(values.values()), color=GRID, linewidth=1.5, zorder=1)
            axes.plot(list(values.values()), places, "o", markersize=8, color=COLOURS[number], label=group)
            for at, value in zip(places, values.values(), strict=True):
                axes.annotate(
                    error_text(value), (value, at), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9,
                    fontweight="normal" if number else "bold",
                )  # fmt: skip
        axes.set_xscale("symlog", linthresh=smallest / 10)
        axes.set_xlim(-smallest / 100, 1e4 * largest)
        ticks = 10.0 ** np.linspace(np.log10(smallest), np.log10(largest), 3).round()
        axes.set_xticks([0, *ticks], ["0", *map("{:.0e}".format, ticks)])
        axes.set_xticks([], minor=True)
        axes.tick_params(axis="x", labelsize=9)
        axes.set_yticks(range(len(self.values)), list(self.values), fontsize=9)
        axes.set_ylim(len(self.values) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.spines["left"].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.35, -0.22), ncols=3, fontsize=9, handletextpad=0.2)


def spread(values: Sequence[float], gap: float, *, low: float, high: float) -> list[float]:
    """Places for names beside their values: in the same order, at least ``gap`` apart, within limits if they fit."""
    order = np.argsort(values, kind="stable")
    places = np.array(values, dtype=np.float64)[order]
    for index in range(1, len(places)):
        places[index] = max(places[index], places[index - 1] + gap)
    places[-1:] = np.minimum(places[-1:], high)
    for index in range(len(places) - 2, -1, -1):
        places[index] = min(places[index], places[index + 1] - gap)
    places += max(0.0, low - places[0]) if len(places) else 0.0
    placed = np.empty_like(places)
    placed[order] = places
    return [float(place) for place in placed]
