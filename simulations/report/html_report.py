"""A comparison as one self-contained page: a verdict, plots that a person reads at a glance, every number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from markupsafe import Markup

from simulations.compare.comparison import Comparison
from simulations.compare.privacy import depth_verdicts
from simulations.compare.record import RunRecord
from simulations.compare.run import NOISY
from simulations.report.columns import error_text, human_bytes
from simulations.report.compare_charts import (
    PUBLISHED,
    accuracy_charts,
    budget_chart,
    cost_charts,
    deviation_chart,
    distinct,
    path_charts,
)
from simulations.report.findings import findings, verdict
from simulations.report.page import render
from simulations.report.plots import Chart
from simulations.report.table import describe, evaluation_rows, personal_rows, run_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One group of plots.

    Args:
        anchor: its id on the page.
        heading: its name.
        charts: the plots; none where the run has no data for them.
        missing: what the run does not have, with the flag that would add it.
    """

    anchor: str
    heading: str
    charts: tuple[Chart, ...] = ()
    missing: tuple[str, ...] = ()


def to_html(comparison: Comparison) -> str:
    """The page as text. It needs no network, no script and no other file."""
    private = list(distinct(comparison))
    return render(
        "compare.html",
        filters={
            "human_bytes": human_bytes,
            "percent": "{:.2%}".format,
            "error": error_text,
            "svg": lambda chart: Markup(chart.to_svg()),  # noqa: S704  our own SVG
            "accuracies": lambda values: _span(values, "{:.2%}".format),
            "uploads": lambda values: _span(values, human_bytes),
        },
        title=f"{', '.join(comparison.learners)} on {comparison.dataset.name}",
        description=describe(comparison),
        verdict=verdict(comparison),
        findings=list(findings(comparison)),
        groups=_groups(comparison.exact),
        sections=list(sections(comparison)),
        published=PUBLISHED,
        run_table=run_rows(comparison.exact),
        personal_table=personal_rows(comparison.exact),
        evaluation_table=evaluation_rows(comparison.exact),
        quality=comparison.quality_name,
        baseline_table=run_rows(comparison.baselines),
        baselines=comparison.baselines,
        private=private,
        trusts=list(NOISY),
        statements=list(dict.fromkeys(sentence for _, one in private for sentence in comparison.statement[one.title])),
        depth=[
            (who, said) for who, one in private for deep, said in depth_verdicts([*comparison.private]) if deep == one
        ],
        explanations=comparison.explanations.items(),
        document=comparison.to_json(),
    )


def sections(comparison: Comparison) -> Iterator[Section]:
    """The four groups of plots, each with what the run lacks."""
    yield Section(
        anchor="accuracy",
        heading=f"{comparison.quality_name.capitalize()} by partition",
        charts=tuple(accuracy_charts(comparison)),
        missing=tuple(_missing_from_accuracy(comparison)),
    )
    alone = len(comparison.among_runs("mode")) == 1
    yield Section(
        anchor="costs",
        heading="Bytes and seconds by mode",
        charts=tuple(cost_charts(comparison)),
        missing=("Only one mode ran: leave out --modes to compare all that are installed.",) if alone else (),
    )
    if paths := tuple(path_charts(comparison)):
        yield Section(anchor="choice", heading="How the ridge was chosen", charts=paths)
    yield Section(anchor="deviation", heading="Deviation from pooled", charts=(deviation_chart(comparison),))
    no_budget = "No privacy budget in this run: --epsilon 0.5,1,2,4,8 adds accuracy against epsilon."
    yield Section(
        anchor="epsilon",
        heading="Accuracy against epsilon",
        charts=tuple(budget_chart(*one) for one in distinct(comparison)),
        missing=() if comparison.private else (no_budget,),
    )


def _missing_from_accuracy(comparison: Comparison) -> Iterator[str]:
    if len(comparison.among_runs("partition")) == 1:
        yield (
            "Only one way to deal the rows: --partition iid --partition dirichlet:0.1 --partition dirichlet:0.01 shows "
            "what heterogeneity does."
        )
    if not comparison.baselines:
        yield "No gradient baselines in this run: --baselines all adds FedAvg and FedProx on the same rows."


def _groups(runs: tuple[RunRecord, ...]) -> list[list[RunRecord]]:
    """Return all modes of one learner on one partition and cohort together."""
    groups: dict[tuple[str, int, str], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault((run.label, run.clients, run.partition), []).append(run)
    return list(groups.values())


def _span(values: Iterable[float], text: Callable[[float], str]) -> str:
    """One number, or the smallest and the largest."""
    found = sorted(values)
    low, high = text(found[0]), text(found[-1])
    return low if low == high else f"{low} to {high}"
