"""Charts that a person reads at a glance, each with all that it shows in words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from simulations.report.findings import error_text
from simulations.report.svg import COLOURS, GRID, INK, MARKERS, MUTED, to_svg

WIDTH_INCHES = 5.2
BAR_INCHES, DOT_INCHES = 0.19, 0.33
LINE_OF_TEXT = 0.17
"""Inches that one line of small text takes."""


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
class SlopeChart(Chart):
    """How a part of 1 changes from one case to the next; every line carries its name and last number.

    Args:
        cases: names along the horizontal axis.
        series: for each line a part of 1 for each case.
        dashed: names of lines that are drawn for comparison only.
        x_label: what the cases are.
    """

    cases: Sequence[str]
    series: Mapping[str, Sequence[float]]
    dashed: frozenset[str] = frozenset()
    x_label: str

    @property
    def alt(self) -> str:
        """Every point by line."""
        return f"Line chart. {self.title}. " + " ".join(
            f"{name}: {', '.join(f'{case} {value:.2%}' for case, value in zip(self.cases, values, strict=True))}."
            for name, values in self.series.items()
        )

    @property
    def height(self) -> float:
        """Room for the lines' names below each other."""
        return max(3.3, 0.9 + 2.3 * LINE_OF_TEXT * len(self.series))

    def draw(self, axes: Axes) -> None:
        """Lines with their names at their right ends, instead of a legend."""
        places = np.arange(len(self.cases))
        for number, (name, values) in enumerate(self.series.items()):
            axes.plot(
                places,
                values,
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=5.5,
                linewidth=1.6 if name in self.dashed else 2.4,
                linestyle="--" if name in self.dashed else "-",
            )
        self._set_limits(axes)
        self._name_lines(axes, places[-1])
        axes.set_xticks(places, list(self.cases))
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.tick_params(axis="both", length=0, labelsize=9)
        axes.grid(visible=True, axis="y")
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)

    def _set_limits(self, axes: Axes) -> None:
        found = [value for values in self.series.values() for value in values]
        room = max(0.01, 0.08 * (max(found) - min(found)))
        axes.set_ylim(max(-room, min(found) - room), max(found) + room)
        axes.set_xlim(-0.25, len(self.cases) - 1 + 0.12 * len(self.cases))

    def _name_lines(self, axes: Axes, last: float) -> None:
        low, high = axes.get_ylim()
        gap = (high - low) * 2.2 * LINE_OF_TEXT / (self.height - 0.7)
        ends = [values[-1] for values in self.series.values()]
        for number, (name, end, place) in enumerate(
            zip(self.series, ends, spread(ends, gap, low=low, high=high), strict=True)
        ):
            axes.annotate(
                f"{name}\n{end:.2%}",
                xy=(last, end),
                xytext=(1.02, (place - low) / (high - low)),
                textcoords="axes fraction",
                va="center",
                fontsize=9,
                color=COLOURS[number % len(COLOURS)],
                fontweight="normal" if name in self.dashed else "bold",
                annotation_clip=False,
            )


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
        """A stem and a dot each; zero stands left of the axis's break."""
        above = [value for value in self.values.values() if value > 0]
        lowest = int(np.floor(np.log10(min(above, default=1e-12)))) - 1
        highest = int(np.ceil(np.log10(max(above, default=1e-6)))) + 1
        zero = lowest - 0.45 * (highest - lowest)
        for number, (group, values) in enumerate(self.groups.items()):
            axes.plot([], [], "o", markersize=7, color=COLOURS[number], label=group)
            for name, value in values.items():
                self._draw_dot(axes, list(self.values).index(name), value, zero, number)
        step = max(1, round((highest - lowest) / 4))
        ticks = list(range(lowest + 1, highest, step))
        axes.set_xticks([zero, *ticks], ["0", *(f"1e{tick:+03d}" for tick in ticks)], fontsize=9)
        axes.axvline(lowest, color=MUTED, linewidth=1, linestyle=(0, (2, 3)))
        axes.set_xlim(zero - 0.4, highest + 0.15 * (highest - zero))
        axes.set_yticks(range(len(self.values)), list(self.values), fontsize=9)
        axes.set_ylim(len(self.values) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.spines["left"].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.35, -0.22), ncols=3, fontsize=9, handletextpad=0.2)

    def _draw_dot(self, axes: Axes, place: int, value: float, zero: float, number: int) -> None:
        at = np.log10(value) if value > 0 else zero
        axes.plot([zero, at], [place, place], color=GRID, linewidth=1.5, zorder=1)
        axes.plot([at], [place], marker="o", markersize=8, color=COLOURS[number], zorder=2)
        axes.annotate(
            error_text(value), (at, place), xytext=(8, 0), textcoords="offset points", va="center", fontsize=9,
            fontweight="normal" if number else "bold",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChart(Chart):
    """Accuracy over privacy budgets on a logarithmic axis, with the spread over repetitions.

    Args:
        series: for each line (budgets, means, spreads).
        reference: (name, value) of the model without noise, a level line.
        x_label: what epsilon refers to.
    """

    series: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]]
    reference: tuple[str, float]
    x_label: str

    @property
    def alt(self) -> str:
        """Every point by line."""
        lines = (
            f"{name}: "
            + ", ".join(f"epsilon {x:g} {mean:.2%} +- {spread:.2%}" for x, mean, spread in zip(*points, strict=True))
            + "."
            for name, points in self.series.items()
        )
        return f"Line chart. {self.title}. {self.reference[0]}: {self.reference[1]:.2%}. {' '.join(lines)}"

    @property
    def height(self) -> float:
        """The same for all."""
        return 3.5

    def draw(self, axes: Axes) -> None:
        """Lines with error bars, the level line, a legend below."""
        axes.axhline(self.reference[1], color=INK, linestyle=":", linewidth=1.5, label=self.reference[0])
        for number, (name, (budgets, means, spreads)) in enumerate(self.series.items()):
            axes.errorbar(
                budgets, means, yerr=spreads, label=name, color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)], markersize=5.5, linewidth=2.0, capsize=3, elinewidth=1,
                linestyle=("-", "--", "-.")[number % 3],
            )  # fmt: skip
        ticks = sorted({budget for budgets, _, _ in self.series.values() for budget in budgets})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.set_xlabel(self.x_label, color=MUTED, fontsize=9)
        axes.tick_params(axis="both", length=0, labelsize=9)
        axes.grid(visible=True, axis="y")
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)
        axes.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=2, fontsize=9)


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
