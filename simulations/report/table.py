"""A comparison as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from analytic.scaling import Agreement
from analytic_secagg.learners import LEARNERS
from simulations.compare.baselines import BaselineRecord
from simulations.compare.comparison import Comparison
from simulations.compare.dpsgd import PrivateBaseline
from simulations.compare.evaluated import EvaluationRecord, RegressionEvaluationRecord
from simulations.compare.private import NOISY, PrivateComparison, PrivateRecord, depth_verdicts
from simulations.compare.runs import RunRecord
from simulations.report.document import Mark
from simulations.report.findings import error_text, findings, human_bytes

HASH_DIGITS = 8
EVALUATION_TITLE = "Judged through one more sum, by clients that hold the test rows"
PERSONAL_TITLE = "Mean accuracy on a fifth of each client's own rows, kept for testing"
RUN_COLUMNS: Mapping[str, Callable[[RunRecord], str]] = {
    "mode": lambda run: run.mode,
    "learner": lambda run: run.learner,
    "clients": lambda run: str(run.clients),
    "partition": lambda run: run.partition,
    "survi-\nvors": lambda run: str(run.survivors),
    "accuracy": lambda run: _quality(run.test_accuracy, run.test_r2),
    "float64\nridge": lambda run: _quality(run.float64_ridge_test_accuracy, run.float64_ridge_test_r2),
    "equal to\npooled?": lambda run: yes_or_no(run.bitwise_equal_to_pooled),
    "deviation\nfrom pooled": lambda run: error_text(run.max_abs_weight_deviation, none="not a number"),
    "deviation from\nfloat64 ridge": lambda run: error_text(run.float64_ridge_max_abs_weight_deviation),
    "float64 Grams\nfrom pooled": lambda run: error_text(run.float64_gram_sum_max_abs_weight_deviation),
    "float64 weights\nfrom pooled": lambda run: error_text(run.float64_solved_weights_max_abs_weight_deviation),
    "certified?": lambda run: "yes" if run.certified else "no",
    "messages\n(heavy)": lambda run: f"{run.messages_per_client} ({run.heavy_messages_per_client})",
    "up per\nclient": lambda run: human_bytes(run.bytes_up_per_client),
    "down per\nclient": lambda run: human_bytes(run.bytes_down_per_client),
    "client\nseconds": lambda run: f"{run.client_seconds:.4f}",
    "server\nseconds": lambda run: f"{run.server_seconds:.3f}",
    "weights": lambda run: run.weights_sha256[:HASH_DIGITS],
}
"""Every column of the runs with what stands in it; a terminal has room for some."""

WHO = ("mode", "learner", "clients", "partition")
PAGE_ONLY = frozenset(name for name in RUN_COLUMNS if any(w in name for w in ("float64", "deviation", "certified")))
COLUMNS = tuple(name for name in RUN_COLUMNS if name not in PAGE_ONLY | {"weights"})
BASELINE_COLUMNS: Mapping[str, Callable[[BaselineRecord], str]] = {
    "baseline": lambda one: one.learner,
    "clients": lambda one: str(one.clients),
    "partition": lambda one: one.partition,
    "survivors": lambda one: str(one.survivors),
    "accuracy": lambda one: f"{one.test_accuracy:.2%}",
    "best round": lambda one: f"{one.best_test_accuracy:.2%}",
    "rounds": lambda one: str(one.rounds),
    "local\nepochs": lambda one: str(one.local_epochs),
    "batch": lambda one: str(one.batch_size),
    "learning\nrate": lambda one: f"{one.learning_rate:g}",
    "mu": lambda one: f"{one.mu:g}",
    "up per\nclient": lambda one: human_bytes(one.bytes_up_per_client),
    "seconds": lambda one: f"{one.wall_seconds:.1f}",
}
Rows = tuple[list[str], list[list[str]]]
"""Names of columns, and the cells of each row."""

NONE = "-"
"""Stands where a column says nothing about a row."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The comparison with what it ran on above and what it found below."""
    console.print(Group(*_parts(comparison)))


def describe(comparison: Comparison) -> str:
    """One sentence on data and settings."""
    data, looked = comparison.dataset, " (covers all rows; a deployment agrees on a format before it sees any)"
    chosen = looked if comparison.format_chosen_from_rows else ""
    if comparison.agreement:
        chosen = f" of columns {comparison.agreement} through a sum before"
    anew = ", others in every sum" if comparison.dropout_anew else ""
    vanish = f", {comparison.dropout_rate:.0%} of the clients vanish{anew}" if comparison.dropout_rate else ""
    gamma = f", RI gamma {comparison.ri_gamma:g}" if comparison.ri_gamma else ""
    ridge = "chosen" if any(run.choice for run in comparison.runs) else f"{comparison.ridge:g}"
    is_real = comparison.target_format is not None
    learned = f"{data.classes} {'real target' if is_real else 'class'}{_plural(data.classes, '' if is_real else 'e')}"
    targets = f", of targets {comparison.target_format}" if is_real else ""
    learners = {name: LEARNERS.get(name.partition(" ")[0]) for name in comparison.learner_options}
    linear = [name for name, entry in learners.items() if entry and "intercept" in entry.options]
    is_default = is_real or comparison.agreement == Agreement.STANDARDISED
    has_one = {bool(comparison.learner_options[name].get("intercept", is_default)) for name in linear}
    intercept = f", {' and '.join('with' if own else 'without' for own in has_one)} an intercept" if linear else ""
    return (
        f"{', '.join(comparison.learner_options)} on {data.name}: {data.train_rows} training and {data.test_rows} test "
        f"rows, {data.features} features, {learned}; format {comparison.format}{targets}{chosen}, "
        f"ridge {ridge}{intercept}{gamma}{vanish}, seed {comparison.seed}"
    )


def table_of(comparison: Comparison) -> Table:
    """A row for each run, and then for each baseline; the weights' hash has a column only where runs differ in it."""
    with_hash = any(len(hashes) > 1 for hashes in comparison.hashes.values())
    names = (*COLUMNS, *(["weights"] if with_hash else []))
    table = _empty_table(_headings(comparison.runs, names))
    previous = None
    for run in comparison.runs:
        group = (run.learner, run.clients, run.partition)
        if previous not in (None, group):
            table.add_section()
        table.add_row(*(_coloured(RUN_COLUMNS[name](run)) for name in names))
        previous = group
    if comparison.baselines:
        table.add_section()
    for baseline in comparison.baselines:
        table.add_row(*_baseline_cells(baseline), *([NONE] if with_hash else []), style="italic")
    return table


def run_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return all that a page shows of the runs."""
    runs = list(runs)
    return [_unbroken(name) for name in _headings(runs, RUN_COLUMNS)], [
        [cell(run) for cell in RUN_COLUMNS.values()] for run in runs
    ]


def baseline_rows(baselines: Iterable[BaselineRecord]) -> Rows:
    """Return all that a page shows of the gradient baselines."""
    names, cells = list(BASELINE_COLUMNS), BASELINE_COLUMNS.values()
    return names, [[cell(one) for cell in cells] for one in baselines]


def personal_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return mean accuracies on clients' own test rows, a row for each run with personal models."""
    asked = ((run, run.personalised_test_accuracy or run.personalised_test_r2) for run in runs)
    found = [(run, scores) for run, scores in asked if scores is not None]
    alphas = list(dict.fromkeys(alpha for _, scores in found for alpha in scores))
    by_alpha = (f"alpha\n{alpha}" for alpha in alphas)
    return [*WHO, "global\nmodel", *by_alpha, "equal to\npooled?"], [
        [
            *_who(run),
            _quality(run.local_test_accuracy, run.local_test_r2),
            *(_either(run, scores.get(alpha)) for alpha in alphas),
            yes_or_no(run.personalised_bitwise_equal_to_pooled is True),
        ]
        for run, scores in found
    ]


def evaluation_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return what sums over clients' test rows said, a row for each run that was judged so."""
    names = [*WHO, "rows", "accuracy", "least\nrecall", "least AUC\n(within)"]
    return [*names, "calibration\nerror", "up per\nclient", "equal to\npooled?"], [
        [
            *_who(run),
            str(found.rows),
            _part(found.accuracy),
            _part(min((one for one in found.recall if one is not None), default=None)),
            _least_area(found),
            _part(found.calibration_error),
            human_bytes(found.bytes_up_per_client),
            yes_or_no(found.bitwise_equal_to_pooled),
        ]
        for run in runs
        if isinstance(found := run.evaluation, EvaluationRecord)
    ]


def regression_rows(runs: Iterable[RunRecord]) -> Rows:
    """Return what sums over clients' test rows said of real targets, a row for each target of each run."""
    names = [*WHO, "rows", "target", "R2", "MAE", "RMSE", "up per\nclient"]
    return [*names, "equal to\npooled?"], [
        [
            *_who(run),
            str(found.rows),
            str(target),
            *(NONE if one is None else f"{one:.4g}" for one in figures),
            human_bytes(found.bytes_up_per_client),
            yes_or_no(found.bitwise_equal_to_pooled),
        ]
        for run in runs
        if isinstance(found := run.evaluation, RegressionEvaluationRecord)
        for target, figures in enumerate(zip(found.r2, found.mae, found.rmse, strict=True))
    ]


def _who(run: RunRecord) -> list[str]:
    return [RUN_COLUMNS[name](run) for name in WHO]


def _headings(runs: Iterable[RunRecord], names: Iterable[str]) -> list[str]:
    """Names of columns; of runs on real targets R2 stands where accuracy does."""
    is_real = any(run.test_accuracy is None for run in runs)
    return ["R2" if is_real and name == "accuracy" else name for name in names]


def _quality(accuracy: float | None, r2: float | None) -> str:
    """Accuracy in per cent, or R2."""
    return _part(accuracy) if r2 is None else f"{r2:.4f}"


def _either(run: RunRecord, score: float | None) -> str:
    return _quality(score, None) if run.local_test_accuracy is not None else _quality(None, score)


def _plural(count: int, e: str) -> str:
    return "" if count == 1 else f"{e}s"


def _least_area(found: EvaluationRecord) -> str:
    areas = zip(found.auc, found.auc_within, strict=True)
    area, within = min(((a, w) for a, w in areas if a is not None), default=(None, None))
    return NONE if within is None else f"{_part(area)} ({within:.1e})"


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(describe(comparison))
    yield table_of(comparison)
    personal = PERSONAL_TITLE.replace("Mean accuracy", "R2") if comparison.target_format else PERSONAL_TITLE
    for title, tabled in (
        (personal, personal_rows),
        (EVALUATION_TITLE, evaluation_rows),
        (EVALUATION_TITLE, regression_rows),
    ):
        names, rows = tabled(comparison.runs)
        if rows:
            below = _empty_table(names)
            below.title, below.title_justify = title, "left"
            for row in rows:
                below.add_row(*map(_coloured, row))
            yield Text()
            yield below
    for mark, finding in findings(comparison):
        loud = mark is Mark.WRONG or finding.startswith("WARNING")
        yield Text(finding, style="bold red" if loud else "green" if mark is Mark.FINE else "")
    longest = max(comparison.runs, key=lambda run: run.wall_seconds)
    memory = max(run.peak_rss_bytes for run in comparison.runs)
    yield Text(
        f"longest run: {longest.learner} {longest.mode}, {longest.clients} clients, {longest.partition}: "
        f"{longest.wall_seconds:.1f} s; most memory of any: {human_bytes(memory)}"
    )
    for what, words in comparison.explanations:
        yield Text(f"\n{what}, largest sum:\n{words}")


def _empty_table(names: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=0, show_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in ("mode", "learner", "partition") else "right", overflow="fold")
    return table


def yes_or_no(fine: bool) -> str:
    """Say it so that the exception is loud."""
    return "yes" if fine else "NO"


def _coloured(cell: str) -> Text | str:
    return Text(cell, style="green" if cell == "yes" else "bold red") if cell in ("yes", "NO") else cell


def _part(value: float | None) -> str:
    return NONE if value is None else f"{value:.2%}"


def _unbroken(name: str) -> str:
    return name.replace("-\n", "")


def _baseline_cells(baseline: BaselineRecord) -> Iterator[str]:
    yield baseline.mode
    yield baseline.learner
    yield str(baseline.clients)
    yield baseline.partition
    yield str(baseline.survivors)
    yield f"{baseline.test_accuracy:.2%}"
    yield NONE
    yield f"{baseline.rounds} ({baseline.rounds})"
    yield human_bytes(baseline.bytes_up_per_client)
    yield human_bytes(baseline.bytes_down_per_client)
    yield NONE
    yield NONE


def print_private(comparisons: Sequence[PrivateComparison], console: Console) -> None:
    """Tables, each statement below the tables that it is about, and where a deep learner should have been flat."""
    for said, group in groupby(comparisons, key=lambda one: one.statement):
        for comparison in group:
            console.print(_budget_table(comparison))
            costs = (
                f"{mode}: {one.messages_per_client} messages, {human_bytes(one.bytes_up_per_client)}"
                for mode, one in comparison.modes.items()
            )
            console.print(f"distributed noise, up per client over {'; '.join(costs)}")
        for sentence in said:
            console.print(sentence)
    for deep, sentence in depth_verdicts(comparisons):
        console.print(f"{deep.title}: {sentence}")


def _budget_table(comparison: PrivateComparison) -> Table:
    """A row for each epsilon, a column for each kind of trust; mean and spread over seeds."""
    exact = comparison.of("non-private", None)
    table = Table(title=f"{comparison.dataset['name']}, {comparison.title}: non-private {accuracy_text(exact)}")
    beside = {one.target_epsilon: one for one in comparison.baselines}
    for name in ("epsilon", "by zCDP", "rho", "sigma G", "sigma H", *NOISY, *(["dpsgd"] if beside else [])):
        table.add_column(name, justify="right")
    for epsilon in comparison.budgets:
        records = [comparison.of(trust, epsilon) for trust in NOISY]
        first = records[0]
        numbers = (first.epsilon, first.epsilon_zcdp, first.rho, first.sigma_gram, first.sigma_cross)
        shown: list[PrivateRecord | PrivateBaseline] = [*records, *([beside[epsilon]] if beside else [])]
        table.add_row(*(f"{number:.4g}" for number in numbers), *(accuracy_text(record) for record in shown))
    return table


def accuracy_text(record: PrivateRecord | PrivateBaseline) -> str:
    """Mean and spread over repetitions; a star where what was tuned lies at the edge of its grid."""
    star = "*" if record.tuned and record.tuned.at_edge else ""
    return f"{record.accuracy_mean:.3f} +- {record.accuracy_spread:.3f}{star}"
