"""A comparison as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from simulations.compare.comparison import Comparison
from simulations.compare.records import BaselineRecord, RunRecord
from simulations.report.findings import findings, human_bytes

HASH_DIGITS = 8
TEXT_COLUMNS = ("mode", "learner", "partition")
COLUMNS = (
    "mode",
    "learner",
    "clients",
    "partition",
    "survi-\nvors",
    "accuracy",
    "equal to\npooled?",
    "messages\n(heavy)",
    "up per\nclient",
    "down per\nclient",
    "client\nseconds",
    "server\nseconds",
)
NONE = "-"
"""Stands where a column says nothing about a row."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The comparison with what it ran on above and what it found below."""
    console.print(Group(*_parts(comparison)))


def describe(comparison: Comparison) -> str:
    """One sentence on data and settings."""
    data, settings = comparison.dataset, comparison.settings
    chosen = "" if settings.feature_format else " (covers all rows; a deployment agrees on a format before it sees any)"
    dropouts, anew = settings.dropouts, ", others in every sum" if settings.dropouts.anew else ""
    vanish = f", {dropouts.rate:.0%} of the clients vanish{anew}" if dropouts.rate else ""
    gamma = f", RI gamma {settings.ri_gamma:g}" if settings.ri_gamma else ""
    return (
        f"{', '.join(learner.name for learner in settings.learners)} on {data.name}: {len(data.x_train)} training and "
        f"{len(data.x_test)} test rows, {data.n_features} features, {data.n_classes} classes; format "
        f"{comparison.feature_format}{chosen}, ridge {settings.ridge:g}{gamma}{vanish}, seed {settings.seed}"
    )


def table_of(comparison: Comparison) -> Table:
    """A row for each run, and then for each baseline; the weights' hash has a column only where runs differ in it."""
    with_hash = any(len(hashes) > 1 for hashes in comparison.hashes.values())
    names = (*COLUMNS, *(["weights"] if with_hash else []))
    table = _empty_table(names)
    previous = None
    for run in comparison.runs:
        group = (run.learner, run.clients, run.partition)
        if previous not in (None, group):
            table.add_section()
        table.add_row(*_cells(run), *([run.weights_sha256[:HASH_DIGITS]] if with_hash else []))
        previous = group
    if comparison.baselines:
        table.add_section()
    for baseline in comparison.baselines:
        table.add_row(*_baseline_cells(baseline), *([NONE] if with_hash else []), style="italic")
    return table


def personal_table_of(comparison: Comparison) -> Table | None:
    """Mean accuracies on clients' own test rows, a row for each run with personal models; None where there are none."""
    personal = [run for run in comparison.runs if run.personalised_test_accuracy is not None]
    if not personal:
        return None
    alphas = list(dict.fromkeys(alpha for run in personal for alpha in run.personalised_test_accuracy or {}))
    by_alpha = (f"alpha\n{alpha}" for alpha in alphas)
    table = _empty_table(("mode", "learner", "clients", "partition", "global\nmodel", *by_alpha, "equal to\npooled?"))
    table.title, table.title_justify = "Mean accuracy on a fifth of each client's own rows, kept for testing", "left"
    for run in personal:
        scores = run.personalised_test_accuracy or {}
        table.add_row(
            run.mode,
            run.learner,
            str(run.clients),
            run.partition,
            NONE if run.local_test_accuracy is None else f"{run.local_test_accuracy:.2%}",
            *(f"{scores[alpha]:.2%}" if alpha in scores else NONE for alpha in alphas),
            _yes_or_no(run.personalised_bitwise_equal_to_pooled is True),
        )
    return table


def _parts(comparison: Comparison) -> Iterator[RenderableType]:
    yield Text(describe(comparison))
    yield table_of(comparison)
    personal = personal_table_of(comparison)
    if personal is not None:
        yield Text()
        yield personal
    for fine, finding in findings(comparison):
        yield Text(finding, style="green" if fine else "bold red")
    longest = max(comparison.runs, key=lambda run: run.wall_seconds)
    memory = max(run.peak_rss_bytes for run in comparison.runs)
    yield Text(
        f"longest run: {longest.learner} {longest.mode}, {longest.clients} clients, {longest.partition}: "
        f"{longest.wall_seconds:.1f} s; most memory of any: {human_bytes(memory)}"
    )
    for what, words in comparison.explanations:
        yield Text(f"\n{what}, largest sum:\n{words}")


def _empty_table(names: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=0, show_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right", overflow="fold")
    return table


def _yes_or_no(fine: bool) -> Text:
    return Text("yes", style="green") if fine else Text("NO", style="bold red")


def _cells(run: RunRecord) -> Iterator[Text | str]:
    yield run.mode
    yield run.learner
    yield str(run.clients)
    yield run.partition
    yield str(run.survivors)
    yield f"{run.test_accuracy:.2%}"
    yield _yes_or_no(run.bitwise_equal_to_pooled)
    yield f"{run.messages_per_client} ({run.heavy_messages_per_client})"
    yield human_bytes(run.bytes_up_per_client)
    yield human_bytes(run.bytes_down_per_client)
    yield f"{run.client_seconds:.4f}"
    yield f"{run.server_seconds:.3f}"


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
