"""A comparison as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from simulations.compare import Comparison, RunRecord

WIDTH_WITHOUT_TERMINAL = 120
HASH_DIGITS = 8
COLUMNS = (
    "mode",
    "clients",
    "partition",
    "survi-\nvors",
    "accuracy",
    "equal to\npooled?",
    "mes-\nsages",
    "up per\nclient",
    "down per\nclient",
    "client\nseconds",
    "server\nseconds",
)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """The comparison with what it ran on above and what it found below."""
    console.print(Group(Text(describe(comparison)), table_of(comparison), *_findings(comparison)))


def describe(comparison: Comparison) -> str:
    """One sentence on data and settings."""
    data, settings = comparison.dataset, comparison.settings
    chosen = "" if settings.feature_format else " (covers all rows; a deployment agrees on a format before it sees any)"
    dropouts, anew = settings.dropouts, ", others in every sum" if settings.dropouts.anew else ""
    vanish = f", {dropouts.rate:.0%} of the clients vanish{anew}" if dropouts.rate else ""
    gamma = f", RI gamma {settings.ri_gamma:g}" if settings.ri_gamma else ""
    return (
        f"{settings.learner.name} on {data.name}: {len(data.x_train)} training and {len(data.x_test)} test rows, "
        f"{data.n_features} features, {data.n_classes} classes; format {comparison.feature_format}{chosen}, "
        f"ridge {settings.ridge:g}{gamma}{vanish}, seed {settings.seed}"
    )


def table_of(comparison: Comparison) -> Table:
    """A row for each run; the weights' hash has a column only where runs differ in it."""
    with_hash = len({run.weights_sha256 for run in comparison.runs}) > 1
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=0, show_edge=False)
    for name in (*COLUMNS, *(["weights"] if with_hash else [])):
        table.add_column(name, justify="left" if name in ("mode", "partition") else "right", overflow="fold")
    previous = None
    for run in comparison.runs:
        group = (run.clients, run.partition)
        if previous not in (None, group):
            table.add_section()
        table.add_row(*_cells(run), *([run.weights_sha256[:HASH_DIGITS]] if with_hash else []))
        previous = group
    return table


def human_bytes(count: float) -> str:
    """``12.3 kB``: bytes in decimal units, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"


def findings(comparison: Comparison) -> Iterator[tuple[bool, str]]:
    """What the runs show, each with whether it is as it must be."""
    runs = comparison.runs
    different = [_case(run) for run in runs if not run.bitwise_equal_to_pooled]
    if different:
        yield (
            False,
            f"NOT EQUAL: {len(different)} of {len(runs)} runs differ from the pooled model of their survivors "
            f"({'; '.join(different)})",
        )
    else:
        equal = "the run equals" if len(runs) == 1 else f"all {len(runs)} runs equal"
        yield True, f"{equal} the pooled model of the surviving clients, bit for bit"
    hashes = {run.weights_sha256 for run in runs}
    if len(hashes) == 1:
        yield True, f"one weights hash in all runs: {hashes.pop()}"
    else:
        yield True, f"{len(hashes)} weights hashes: runs whose surviving rows differ have different models"


def _case(run: RunRecord) -> str:
    return f"{run.mode} with {run.clients} clients, {run.partition}"


def _findings(comparison: Comparison) -> Iterator[Text]:
    for fine, finding in findings(comparison):
        yield Text(finding, style="green" if fine else "bold red")


def _cells(run: RunRecord) -> Iterator[Text | str]:
    yield run.mode
    yield str(run.clients)
    yield run.partition
    yield str(run.survivors)
    yield f"{run.test_accuracy:.2%}"
    yield Text("yes", style="green") if run.bitwise_equal_to_pooled else Text("NO", style="bold red")
    yield str(run.messages_per_client)
    yield human_bytes(run.bytes_up_per_client)
    yield human_bytes(run.bytes_down_per_client)
    yield f"{run.client_seconds:.4f}"
    yield f"{run.server_seconds:.3f}"
