"""A comparison as one self-contained page: the table, and plots that a person reads at a glance."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from importlib import resources

from jinja2 import Environment, StrictUndefined

from simulations.compare import Comparison
from simulations.records import BaselineRecord, RunRecord
from simulations.report.findings import findings, human_bytes
from simulations.report.json_report import to_json, versions
from simulations.report.plots import BarChart
from simulations.report.table import describe

TEMPLATE = "compare.html"


def to_html(comparison: Comparison) -> str:
    """The page as text. It needs no network, no script and no other file."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["human_bytes"] = human_bytes
    template = resources.files("simulations.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    personal = [run for run in comparison.runs if run.personalised_test_accuracy is not None]
    return environment.from_string(template).render(
        title=f"{', '.join(learner.name for learner in comparison.settings.learners)} on {comparison.dataset.name}",
        description=describe(comparison),
        findings=list(findings(comparison)),
        runs=comparison.runs,
        personal=personal,
        alphas=list(dict.fromkeys(alpha for run in personal for alpha in run.personalised_test_accuracy or {})),
        baselines=comparison.baselines,
        explanations=comparison.explanations,
        charts=[(chart.title, chart.to_svg()) for chart in charts(comparison)],
        versions=versions(),
        document=to_json(comparison),
    )


def charts(comparison: Comparison) -> Iterator[BarChart]:
    """For each learner accuracy by partition and mode, then bytes and seconds by mode."""
    for learner in comparison.settings.learners:
        runs = tuple(run for run in comparison.runs if run.learner == learner.name)
        whose = f"{learner.name}: " if len(comparison.settings.learners) > 1 else ""
        yield _accuracy(runs, comparison.baselines, f"{whose}Test accuracy by partition and mode")
        yield _by_mode(
            runs,
            f"{whose}Bytes of one client by mode, all sums together",
            {"up": lambda run: run.bytes_up_per_client, "down": lambda run: run.bytes_down_per_client},
            human_bytes,
        )
        yield _by_mode(
            runs,
            f"{whose}Seconds by mode, mean over partitions",
            {"one client": lambda run: run.client_seconds, "server": lambda run: run.server_seconds},
            lambda seconds: f"{seconds:.3g} s",
        )


def _accuracy(runs: tuple[RunRecord, ...], baselines: tuple[BaselineRecord, ...], title: str) -> BarChart:
    cases = list(dict.fromkeys((run.partition, run.clients) for run in runs))
    found = {(run.mode, run.partition, run.clients): run.test_accuracy for run in runs}
    series: dict[str, list[float | None]] = {
        mode: [found.get((mode, *case)) for case in cases] for mode in _modes(runs)
    }
    pooled = {(run.partition, run.clients): run.float64_ridge_test_accuracy for run in runs}
    series["pooled float64 ridge"] = [pooled[case] for case in cases]
    reached = {(one.learner, one.partition, one.clients): one.test_accuracy for one in baselines}
    for name in dict.fromkeys(one.learner for one in baselines):
        series[f"{name} (baseline)"] = [reached.get((name, *case)) for case in cases]
    return BarChart(
        title=title,
        groups=[f"{partition}, {clients} clients" for partition, clients in cases],
        series=series,
        label=lambda part: f"{part:.2%}",
    )


def _by_mode(
    runs: tuple[RunRecord, ...],
    title: str,
    measures: dict[str, Callable[[RunRecord], float]],
    label: Callable[[float], str],
) -> BarChart:
    cohorts = sorted({run.clients for run in runs})
    return BarChart(
        title=title,
        groups=_modes(runs),
        series={
            f"{name}, {clients} clients": [
                _mean(measure(run) for run in runs if (run.mode, run.clients) == (mode, clients))
                for mode in _modes(runs)
            ]
            for clients in cohorts
            for name, measure in measures.items()
        },
        label=label,
    )


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return statistics.fmean(found) if found else None


def _modes(runs: tuple[RunRecord, ...]) -> list[str]:
    return list(dict.fromkeys(run.mode for run in runs))
