"""A comparison as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analytic.scaling import Agreement
from analytic_secagg.learners import find_learner
from simulations.compare.comparison import Comparison
from simulations.compare.privacy import Budgets, depth_verdicts
from simulations.compare.record import RunRecord
from simulations.compare.run import NOISY, Run
from simulations.report.columns import NONE, Rows, columns_of, human_bytes, percent, rows_of, yes_or_no
from simulations.report.document import Mark
from simulations.report.findings import details, findings

EVALUATION_TITLE = "Judged through one more sum, by clients that hold the test rows"
PERSONAL_TITLE = "Mean accuracy on a fifth of each client's own rows, kept for testing"

WHO = {name: column for name, column in columns_of(RunRecord).items() if name in Run.model_fields}
"""The columns that say what ran."""

COLUMNS = {name: column for name, column in columns_of(RunRecord).items() if not column.page_only}
"""The columns of runs that a terminal has room for."""


LEGEND = (
    "equal to pooled: has the model the same bits as one trained on all rows in one place? "
    "messages (vector): what a client sends, and how many of them carry its data"
)
"""Explanation of the two columns that no other report has."""


def print_comparison(comparison: Comparison, console: Console, *, verbose: bool = True) -> None:
    """Print the comparison with what it ran on above and what it found below.

    Args:
        comparison: what came of all runs.
        console: where it goes.
        verbose: whether to print what a reader need not know too.
    """
    console.print(Group(*_parts(comparison, verbose)))


def describe(comparison: Comparison) -> str:
    """One sentence on data and settings."""
    data, first = comparison.dataset, comparison.exact[0]
    looked = " (covers all rows; a deployment agrees on a format before it sees any)"
    chosen = looked if comparison.format_chosen_from_rows else ""
    if first.agreement:
        chosen = f" of columns {first.agreement} through a sum before"
    anew = ", others in every sum" if first.dropout_anew else ""
    vanish = f", {first.dropout:.0%} of the clients vanish{anew}" if first.dropout else ""
    gamma = f", RI gamma {first.ri_gamma:g}" if first.ri_gamma else ""
    ridge = "chosen" if first.ridge is None else f"{first.ridge:g}"
    is_real = first.target_format is not None
    one, several = ("real target", "real targets") if is_real else ("class", "classes")
    learned = f"{data.classes} {one if data.classes == 1 else several}"
    targets = f", of targets {first.target_format}" if is_real else ""
    linear = [name for name, run in comparison.learners.items() if "intercept" in find_learner(run.learner).options]
    is_default = is_real or first.agreement == Agreement.STANDARDISED
    has_one = {bool(comparison.learners[name].options.get("intercept", is_default)) for name in linear}
    intercept = f", {' and '.join('with' if own else 'without' for own in has_one)} an intercept" if linear else ""
    return (
        f"{', '.join(comparison.learners)} on {data.name}: {data.train_rows} training and {data.test_rows} test "
        f"rows, {data.features} features, {learned}; format {first.format}{targets}{chosen}, "
        f"ridge {ridge}{intercept}{gamma}{vanish}, seed {first.seed}"
    )


def table_of(comparison: Comparison) -> Table:
    """A row for each exact run, and then for each baseline; the weights' hash has a column only where runs differ."""
    exact, baselines = comparison.exact, comparison.baselines
    with_hash = any(len(hashes) > 1 for hashes in comparison.hashes.values())
    said = columns_of(RunRecord, exact)
    columns = {name: own for name, own in said.items() if name in COLUMNS or (with_hash and name == "weights_sha256")}
    names, rows = rows_of([*exact, *baselines], columns)
    table, previous = _empty_table(names), None
    for run, row in zip((*exact, *baselines), rows, strict=True):
        group = "baseline" if run.is_baseline else (run.label, run.clients, run.partition)
        if previous not in (None, group):
            table.add_section()
        table.add_row(*map(_coloured, row), style="italic" if run.is_baseline else None)
        previous = group
    return table


def run_rows(runs: Sequence[RunRecord]) -> Rows:
    """Return all that a page shows of exact runs, or of gradient methods."""
    names, rows = rows_of(runs, columns_of(RunRecord, runs))
    return [name.replace("-\n", "") for name in names], rows


def personal_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return mean accuracies on clients' own test rows, a row for each run with personal models."""
    asked = ((run, run.personalised_test_accuracy or run.personalised_test_r2) for run in runs)
    found = [(run, scores) for run, scores in asked if scores is not None]
    alphas = list(dict.fromkeys(alpha for _, scores in found for alpha in scores))
    by_alpha = (f"alpha\n{alpha}" for alpha in alphas)
    return [*_headings(), "global\nmodel", *by_alpha, "equal to\npooled?"], [
        [
            *_who(run),
            _quality(run, run.local_test_r2 if run.local_test_accuracy is None else run.local_test_accuracy),
            *(_quality(run, scores.get(alpha)) for alpha in alphas),
            yes_or_no(run.personalised_bitwise_equal_to_pooled is True),
        ]
        for run, scores in found
    ]


def evaluation_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return what sums over clients' test rows said, a row for each run that was judged so."""
    judged = [(run, run.evaluation) for run in runs if run.evaluation]
    if not judged:
        return [], []
    names, rows = rows_of([own for _, own in judged], columns_of(type(judged[0][1])))
    return [*_headings(), *names], [[*_who(run), *row] for (run, _), row in zip(judged, rows, strict=True)]


def _headings() -> list[str]:
    return [column.heading for column in WHO.values()]


def _who(run: RunRecord) -> list[str]:
    return [column.cell(run, name) for name, column in WHO.items()]


def _quality(run: RunRecord, score: float | None) -> str:
    """Accuracy in per cent, or R2, on clients' own rows."""
    if score is None:
        return NONE
    return percent(score) if run.local_test_accuracy is not None else f"{score:.4f}"


def _parts(comparison: Comparison, verbose: bool) -> Iterator[RenderableType]:
    yield Text(describe(comparison))
    yield table_of(comparison)
    personal = PERSONAL_TITLE.replace("Mean accuracy", "R2") if comparison.quality_name == "R2" else PERSONAL_TITLE
    for title, (names, rows) in (
        (personal, personal_rows(comparison.exact)),
        (EVALUATION_TITLE, evaluation_rows(comparison.exact)),
    ):
        if rows:
            below = _empty_table(names)
            below.title, below.title_justify = title, "left"
            for row in rows:
                below.add_row(*map(_coloured, row))
            yield Text()
            yield below
    yield Text(LEGEND, style="dim")
    extra = set() if verbose else {sentence for mark, sentence in details(comparison) if mark is Mark.FINE}
    for mark, finding in findings(comparison):
        if finding in extra:
            continue
        loud = mark is Mark.WRONG or finding.startswith("WARNING")
        yield Text(finding, style="bold red" if loud else "green" if mark is Mark.FINE else "")
    if verbose:
        yield _costs(comparison)
    for what, words in comparison.explanations.items():
        yield Text(f"\n{what}, largest sum:\n{words}")


def _costs(comparison: Comparison) -> Text:
    longest = max(comparison.exact, key=lambda run: run.wall_seconds)
    memory = max(run.peak_rss_bytes or 0 for run in comparison.exact)
    return Text(
        f"longest run: {longest.label} {longest.mode}, {longest.clients} clients, {longest.partition}: "
        f"{longest.wall_seconds:.1f} s; most memory of any: {human_bytes(memory)}"
    )


def _empty_table(names: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=0, show_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("mode", "learner", "partition") else "right", overflow="fold")
    return table


def _coloured(cell: str) -> Text | str:
    return Text(cell, style="green" if cell == "yes" else "bold red") if cell in ("yes", "NO") else cell


def print_private(comparison: Comparison, console: Console) -> None:
    """Tables of runs under noise, each statement below the tables it is about, and where T = 0 should have been."""
    every, statements = comparison.private, comparison.statement
    for said, group in groupby(every, key=lambda one: statements[one.title]):
        for one in group:
            console.print(_budget_table(one, comparison.dataset.name))
            costs = (
                f"{mode}: {run.messages_per_client} messages, {human_bytes(run.bytes_up_per_client)}"
                for mode, run in one.modes.items()
            )
            console.print(f"distributed noise, up per client over {'; '.join(costs)}")
        for sentence in said:
            console.print(sentence)
    for deep, sentence in depth_verdicts(every):
        console.print(f"{deep.title}: {sentence}")


def _budget_table(one: Budgets, dataset: str) -> Table:
    """A row for each epsilon, a column for each kind of trust; mean and spread over seeds."""
    table = Table(title=f"{dataset}, {one.title}: non-private {one.of('non-private', None).text}")
    for name in ("epsilon", "by zCDP", "rho", "sigma G", "sigma H", *NOISY, *(["dpsgd"] if one.beside else [])):
        table.add_column(name, justify="right")
    for epsilon in one.epsilons:
        kinds = [one.of(trust, epsilon) for trust in NOISY]
        run = kinds[0].first
        numbers = (run.epsilon, run.epsilon_zcdp, run.rho, run.sigma_gram, run.sigma_cross)
        shown = [own.text for own in (*kinds, *one.with_budget(epsilon))]
        table.add_row(*(f"{number:.4g}" for number in numbers), *shown)
    return table
