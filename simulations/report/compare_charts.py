"""What a comparison draws: accuracy by partition, costs by mode, deviation from pooled, accuracy by privacy budget."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from simulations.compare.comparison import Comparison
from simulations.compare.frontier import points
from simulations.compare.privacy import Budgets
from simulations.compare.record import Cost, RunRecord
from simulations.compare.run import BASELINE, Trust
from simulations.report.columns import error_text, human_bytes
from simulations.report.findings import verdict
from simulations.report.page import as_file, to_svg
from simulations.report.plots import BarChart, Chart, DeviationChart, Dot, FrontierChart, Line, LineChart


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedError:
    """One number of somebody else's.

    Args:
        name: whose, in few words.
        value: the number.
        measure: what it is the size of.
        source: where it stands.
    """

    name: str
    value: float
    measure: str
    source: str


FLOWER_RANGE, FLOWER_LEVELS = 2 * 8.0, 2**22
"""Defaults ``clipping_range=8.0`` (both signs) and ``quantization_range=4194304``."""

_AFL_SOURCE = "Zhuang et al., Analytic Federated Learning, arXiv:2405.16240, table 1, row with RI"
_AFL_MEASURE = (
    "sum of absolute differences between aggregated and jointly trained weights, 512 random features, float64"
)

PUBLISHED = (
    PublishedError(name="AFL's authors, 2 clients", value=4.94e-14, measure=_AFL_MEASURE, source=_AFL_SOURCE),
    PublishedError(name="AFL's authors, 100 clients", value=7.57e-10, measure=_AFL_MEASURE, source=_AFL_SOURCE),
    PublishedError(
        name="Flower SecAgg+, rounding step",
        value=FLOWER_RANGE / FLOWER_LEVELS,
        measure="step to which each entry of an update is rounded with default settings, calculated as 16 / 2^22",
        source="Flower 1.41, reference of SecAggPlusWorkflow: clipping_range, quantization_range",
    ),
)
"""Other data and other measures than ours: good for powers of ten, and for nothing finer."""


TRUST_TITLES: Mapping[Trust, str] = {
    "distributed": "distributed (secure sum)",
    "central": "central (trusted server)",
    "local": "local (no secure sum)",
}
OVERVIEW_INCHES = (10.6, 4.3)
FRONTIER_INCHES = 11.5
LEGEND_INCHES = 1.1


def accuracy_charts(comparison: Comparison) -> Iterator[Chart]:
    """For each cohort the closed forms and the gradient baselines over the ways to deal the rows."""
    cohorts = comparison.among_runs("clients")
    for n_clients in cohorts:
        closed, gradient = _closed_forms(comparison, n_clients), _baselines(comparison, n_clients)
        partitions = list(comparison.among_runs("partition"))
        where = f"{n_clients} clients: " if len(cohorts) > 1 else ""
        if len(partitions) == 1:
            named = {name: values[0] for name, values in (closed | gradient).items()}
            yield BarChart(
                title=f"{where}{_on_one_partition(closed, gradient, partitions[0])}",
                groups=list(named),
                series={f"test {comparison.quality_name}": list(named.values())},
                label=lambda part: f"{part:.2%}",
            )
        else:
            lines = closed | gradient
            ticks: dict[float, str] = dict(enumerate(partitions))
            yield LineChart(
                title=f"{where}{_over_partitions(closed, gradient, comparison.quality_name)}",
                series={name: Line(x=list(ticks), y=values, aside=name in gradient) for name, values in lines.items()},
                words=_words({name: zip(partitions, map("{:.2%}".format, lines[name]), strict=True) for name in lines}),
                ticks=ticks,
                logarithmic=False,
                zoomed=True,
                x_label=f"test {comparison.quality_name} by how rows are dealt to {n_clients} clients",
            )


def path_charts(comparison: Comparison) -> Iterator[Chart]:
    """For each different choice the validation error by ridge, with its standard error."""
    choices = {run.choice: run.label for run in comparison.exact if run.choice}
    for choice, learner in choices.items():
        points = list(zip(choice.ridges, choice.error, choice.standard_error, strict=True))
        yield LineChart(
            title=f"{learner}: ridge {choice.ridge:g} is chosen ({choice.rule})",
            series={
                "validation error": Line(
                    x=[ridge for ridge, _, _ in points if ridge],
                    y=[error for ridge, error, _ in points if ridge],
                    spread=[off for ridge, _, off in points if ridge],
                )
            },
            words=" ".join(f"Ridge {ridge:g}: {error:.4g}, within {off:.2g}." for ridge, error, off in points),
            x_label=f"mean error of a row ({choice.criterion}), {choice.folds} folds, by ridge; bars: standard error",
        )


def cost_charts(comparison: Comparison) -> Iterator[Chart]:
    """For each learner the bytes and the seconds of its modes."""
    for learner in comparison.learners:
        runs = [run for run in comparison.exact if run.label == learner]
        whose = f"{learner}: " if len(comparison.learners) > 1 else ""
        yield bytes_chart(runs, whose)
        client = _by_mode(runs, lambda run: run.client_seconds)
        fastest, slowest = min(client, key=client.__getitem__), max(client, key=client.__getitem__)
        yield BarChart(
            title=f"{whose}A client computes for {_seconds(client[fastest])}"
            + (f" in {fastest} and {_seconds(client[slowest])} in {slowest}" if fastest != slowest else ""),
            groups=list(client),
            series=_by_cohort(
                runs, {"one client": lambda run: run.client_seconds, "server": lambda run: run.server_seconds or 0.0}
            ),
            label=_seconds,
        )


def bytes_chart(runs: list[RunRecord], whose: str = "", *, down: bool = True) -> BarChart:
    """What a client sends and receives in each mode, all sums together."""
    measures: dict[str, Callable[[RunRecord], float]] = {"up": lambda run: run.bytes_up_per_client}
    if down and any(run.bytes_down_per_client for run in runs):
        measures["down"] = lambda run: run.bytes_down_per_client or 0.0
    up = _by_mode(runs, measures["up"])
    return BarChart(
        title=f"{whose}{_bytes_finding(up)}", groups=list(up), series=_by_cohort(runs, measures), label=human_bytes
    )


def deviation_chart(comparison: Comparison) -> DeviationChart:
    """Our runs' distance from pooled, that of float64 federations on the same rows, and what others published."""
    runs = comparison.exact
    ours = max((run.max_abs_weight_deviation or 0.0 for run in runs), default=0.0)
    by_gram = max(run.float64_gram_sum_max_abs_weight_deviation or 0.0 for run in runs)
    by_weights = max(run.float64_solved_weights_max_abs_weight_deviation or 0.0 for run in runs)
    if comparison.all_bitwise_equal_to_pooled:
        title = (
            "Federated minus pooled is exactly 0 in every run; in float64 the same rows end up to "
            f"{error_text(max(by_gram, by_weights))} apart"
        )
    else:
        title = "NOT EQUAL: federated models differ from their pooled ones"
    return DeviationChart(
        title=title,
        groups={
            "here": {"federated, every run": ours},
            "float64 on the same rows": {"clients send Grams": by_gram, "clients send weights": by_weights},
            "published": {one.name: one.value for one in PUBLISHED},
        },
        x_label="largest difference from pooled",
    )


def distinct(comparison: Comparison) -> Iterator[tuple[str, Budgets]]:
    """(title, runs under noise), once for partitions on which everything came out the same."""
    groups: dict[tuple[object, ...], list[Budgets]] = {}
    for one in comparison.private:
        measured = tuple(run.quality for own in one.every for run in own.records)
        groups.setdefault((one.first.label, one.first.clients, measured), []).append(one)
    for group in groups.values():
        partitions = ", ".join(one.first.partition for one in group)
        yield f"{group[0].first.label}, {group[0].first.clients} clients, {partitions}", group[0]


def budget_chart(who: str, private: Budgets) -> LineChart:
    """Accuracy over epsilon under every kind of trust."""
    first, epsilons = private.noisy[0], private.epsilons

    def mean(trust: Trust, epsilon: float | None) -> float:
        return private.of(trust, epsilon).quality

    most = max(epsilons, key=lambda epsilon: mean("distributed", epsilon) - mean("local", epsilon))
    found = {title: [private.of(trust, epsilon) for epsilon in epsilons] for trust, title in TRUST_TITLES.items()}
    exact = mean("non-private", None)
    words = _words(
        {
            name: [(f"epsilon {one.first.target_epsilon:g}", f"{one.quality:.2%} +- {one.spread:.2%}") for one in own]
            for name, own in found.items()
        }
    )
    return LineChart(
        title=f"{who}: at epsilon {most:g}, {mean('distributed', most):.1%} with a secure sum, "
        f"{mean('local', most):.1%} without; no noise {exact:.1%}",
        series={
            name: Line(x=epsilons, y=[one.quality for one in own], spread=[one.spread for one in own])
            for name, own in found.items()
        },
        words=f"no noise: {exact:.2%}. {words}",
        ticks={budget: f"{budget:g}" for budget in epsilons},
        reference=("no noise", exact),
        x_label=f"epsilon at delta {first.delta:g}, one {first.unit}, {first.adjacency}; "
        f"{len(private.every[0].records)} repetitions",
    )


def _words(lines: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """Every point by line."""
    return " ".join(f"{name}: {', '.join(map(' '.join, points))}." for name, points in lines.items())


def overview(comparison: Comparison) -> str:
    """One picture as an SVG file: accuracy by partition and bytes by mode of the first cohort and learner."""
    first = comparison.exact[0]
    runs = [run for run in comparison.exact if (run.label, run.clients) == (first.label, first.clients)]
    charts = (next(accuracy_charts(comparison)), bytes_chart(runs, down=False))
    _, sentence = verdict(comparison)

    def draw(figure: Figure) -> None:
        figure.suptitle("\n".join(textwrap.wrap(sentence, 96)), x=0.014, ha="left", fontsize=12, fontweight="bold")
        for axes, chart in zip(figure.subplots(1, 2, width_ratios=(1.15, 1)), charts, strict=True):
            chart.draw(axes)
            axes.set_title("\n".join(textwrap.wrap(chart.title, 44)), loc="left", fontsize=10, pad=10)

    alt = " ".join((sentence, *(chart.alt for chart in charts)))
    return as_file(to_svg(draw, inches=OVERVIEW_INCHES, salt="overview", alt=alt, margin=0.14))


def frontier_picture(comparison: Comparison) -> str:
    """One picture as an SVG file: accuracy against what a client sends and computes, first cohort, partition, mode."""
    charts = list(_frontier_charts(comparison))

    def draw(figure: Figure) -> None:
        places = figure.subplots(1, len(charts), sharey=True)
        for axes, chart in zip(places, charts, strict=True):
            chart.draw(axes)
        labels = {label: handle for handle, label in zip(*places[0].get_legend_handles_labels(), strict=True)}
        shown = {label: handle for label, handle in labels.items() if len(handle.get_xdata())}
        figure.legend(shown.values(), shown, loc="outside lower center", ncols=7, fontsize=9)
        figure.suptitle("\n".join(textwrap.wrap(charts[0].title, 110)), x=0.014, ha="left", fontsize=11)

    alt = " ".join(chart.alt for chart in charts)
    return as_file(
        to_svg(draw, inches=(FRONTIER_INCHES, charts[0].height + LEGEND_INCHES), salt="frontier", alt=alt, margin=0.1)
    )


def _frontier_charts(comparison: Comparison) -> Iterator[FrontierChart]:
    first = comparison.exact[0]
    shown = [
        point
        for point in points(comparison.runs)
        if (point.first.clients, point.first.partition) == (first.clients, first.partition)
        and (point.first.target_epsilon is not None or point.first.mode in (first.mode, BASELINE))
    ]
    titles: Mapping[Cost, str] = {"bytes": "bytes up", "messages": "messages", "seconds": "seconds of computing"}
    for cost, title in titles.items():
        families: dict[str, list[Dot]] = {}
        for point in shown:
            label, epsilon = point.first.label, point.first.target_epsilon
            dot = Dot(
                name=label if epsilon is None else f"{label}, epsilon {epsilon:g}",
                x=point.cost(cost),
                y=point.quality,
                noisy=epsilon is not None,
                unbeaten=cost in (point.first.unbeaten or ()),
            )
            families.setdefault(label.partition(" ")[0], []).append(dot)
        best = [name for name, dots in families.items() if any(dot.unbeaten and not dot.noisy for dot in dots)]
        yield FrontierChart(
            title=f"For their {title} nothing that ran without noise beats {', '.join(best)}",
            dots=families,
            x_label=f"{title} of a client",
            label=human_bytes if cost == "bytes" else _seconds if cost == "seconds" else "{:g}".format,
        )


def _closed_forms(comparison: Comparison, n_clients: int) -> dict[str, list[float]]:
    """Accuracies (or R2) by line; a learner's modes are one line as long as they agree."""
    lines: dict[str, list[float]] = {}
    for learner in comparison.learners:
        by_mode: dict[str, list[float]] = {}
        for run in comparison.exact:
            if (run.label, run.clients) == (learner, n_clients):
                by_mode.setdefault(run.mode, []).append(run.quality)
        for modes, values in _merged(by_mode):
            which = f"all {len(modes)} modes" if len(modes) == len(by_mode) else ", ".join(modes)
            lines[f"{learner}, {which}" if len(by_mode) > 1 else learner] = values
    return lines


def _baselines(comparison: Comparison, n_clients: int) -> dict[str, list[float]]:
    """Accuracies by line; baselines that agree everywhere are one."""
    by_name: dict[str, list[float]] = {}
    rounds = {one.label: f"{one.messages_per_client} rounds" for one in comparison.baselines}
    for one in comparison.baselines:
        if one.clients == n_clients:
            by_name.setdefault(one.label, []).append(one.quality)
    return {f"{' = '.join(names)}, {rounds[names[0]]}": values for names, values in _merged(by_name)}


def _merged(lines: Mapping[str, list[float]]) -> Iterator[tuple[list[str], list[float]]]:
    """Equal lines once, with the names of all of them."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for name, values in lines.items():
        groups.setdefault(tuple(values), []).append(name)
    for same, names in groups.items():
        yield names, list(same)


def _over_partitions(closed: Mapping[str, list[float]], gradient: Mapping[str, list[float]], quality: str) -> str:
    who = next(iter(closed)) if len(closed) == 1 else "Closed forms"
    swing = max(_swing(values) for values in closed.values())
    if swing:
        words = f"{who} move by at most {swing:.2f} points from one partition to another"
    else:
        words = f"{who}: the same {quality} however rows are dealt"
    if gradient:
        name, values = max(gradient.items(), key=lambda line: _swing(line[1]))
        words += f"; {name}: between {min(values):.2%} and {max(values):.2%}"
    return words


def _on_one_partition(closed: Mapping[str, list[float]], gradient: Mapping[str, list[float]], partition: str) -> str:
    best = max(closed, key=lambda name: closed[name][0])
    words = f"{best} reaches {closed[best][0]:.2%} on {partition}"
    if gradient:
        other = max(gradient, key=lambda name: gradient[name][0])
        words += f", the best gradient baseline ({other}) {gradient[other][0]:.2%}"
    return words


def _swing(values: list[float]) -> float:
    """The largest difference, in points, between two partitions."""
    return 100 * (max(values) - min(values))


def _bytes_finding(up: Mapping[str, float]) -> str:
    least, most = min(up, key=up.__getitem__), max(up, key=up.__getitem__)
    if len(up) == 1:
        return f"A client sends {human_bytes(up[least])} in {least}"
    hidden = {mode: sent for mode, sent in up.items() if mode != "plain"}
    if "plain" not in up or not hidden:
        return f"A client sends {human_bytes(up[least])} in {least} and {human_bytes(up[most])} in {most}"
    cheapest = min(hidden, key=hidden.__getitem__)
    extra = hidden[cheapest] / up["plain"] - 1
    words = f"Hiding an upload of {human_bytes(up['plain'])} adds {100 * extra:.2g}% in {cheapest}"
    return f"{words}; {most} sends {up[most] / up['plain']:.1f} times as much" if most != cheapest else words


def _by_mode(runs: Iterable[RunRecord], measure: Callable[[RunRecord], float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(run.mode, []).append(measure(run))
    return {mode: statistics.fmean(values) for mode, values in found.items()}


def _by_cohort(
    runs: list[RunRecord], measures: Mapping[str, Callable[[RunRecord], float]]
) -> dict[str, list[float | None]]:
    """Means over partitions, a series for each measure and cohort."""
    cohorts, modes = sorted({run.clients for run in runs}), list(dict.fromkeys(run.mode for run in runs))
    series: dict[str, list[float | None]] = {}
    for clients in cohorts:
        for name, measure in measures.items():
            found = _by_mode((run for run in runs if run.clients == clients), measure)
            label = f"{name}, {clients} clients" if len(cohorts) > 1 else name
            series[label] = [found.get(mode) for mode in modes]
    return series


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
