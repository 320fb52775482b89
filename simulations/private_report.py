"""A private comparison for people and machines: arguments, table, JSON, curve and the statement behind the numbers."""

from __future__ import annotations

import argparse
import html
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analytic.private_deepafl import noise_drowns
from analytic.sensitivity import ADJACENCIES
from simulations.data import Dataset
from simulations.errors import UsageError
from simulations.output_files import OutputFile
from simulations.partitions import Partition
from simulations.private_compare import (
    TRUSTS,
    PrivateComparison,
    PrivateRecord,
    PrivateSettings,
    compare_private,
    without_depth,
)
from simulations.private_plans import UNITS, PrivacyTerms

SCHEMA, SCHEMA_VERSION = "analytic-secagg/private-compare", 1
COLOURS = {"distributed": "#3b6ea8", "central": "#d98032", "local": "#8a62a8"}


def add_arguments(group: Any) -> None:
    """What ``compare`` understands once ``--epsilon`` is given."""
    group.add_argument(
        "--epsilon",
        type=epsilons,
        default=None,
        metavar="E,...",
        help="compare accuracy for these privacy budgets, such as 0.5,1,2,4,8, instead of privacy modes",
    )
    group.add_argument("--delta", type=float, default=1e-5, help="delta of every guarantee (default: 1e-5)")
    group.add_argument("--unit", choices=UNITS, default="record", help="who is protected (default: record)")
    group.add_argument(
        "--adjacency", choices=ADJACENCIES, default="add-remove", help="neighbouring data sets (default: add-remove)"
    )
    group.add_argument(
        "--promise",
        type=int,
        default=None,
        metavar="N",
        help="fewest survivors of a released total; the noise is sized for them (default: all that --dropout leaves)",
    )
    group.add_argument(
        "--colluders", type=int, default=0, metavar="N", help="survivors whose noise counts for nothing (default: 0)"
    )
    group.add_argument(
        "--mean-share",
        type=float,
        default=0.05,
        metavar="F",
        help="part of the budget that buys the rows' mean, to centre them (default: 0.05; 0 for one release less)",
    )
    group.add_argument(
        "--gram-share", type=float, default=0.3, metavar="F", help="the Gram's part of the rest (default: 0.3)"
    )
    group.add_argument("--seeds", type=int, default=5, metavar="N", help="repetitions of each (default: 5)")
    group.add_argument("--plot", metavar="FILE.svg", help="write the curve of accuracy over epsilon")


def epsilons(text: str) -> tuple[float, ...]:
    """The budgets of ``0.5,1,2``.

    Raises:
        argparse.ArgumentTypeError: no numbers above 0.
    """
    try:
        found = tuple(float(item) for item in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < epsilon <= 64 for epsilon in found):
        raise argparse.ArgumentTypeError(f"needs numbers above 0 and at most 64, such as 0.5,1,2,4,8, not {text!r}")
    return found


def settings_from(
    arguments: argparse.Namespace, dataset: Dataset, *, n_clients: int, partition: Partition, n_layers: int | None
) -> PrivateSettings:
    """The settings that arguments ask for; cohort, partition and depth are ``compare``'s own.

    Raises:
        UsageError: a parameter out of range.
    """
    terms = PrivacyTerms(
        delta=arguments.delta,
        unit=arguments.unit,
        adjacency=arguments.adjacency,
        gram_share=arguments.gram_share,
        mean_share=0.0 if n_layers is not None else arguments.mean_share,
        client_rows=-(-len(dataset.x_train) // n_clients),
        n_layers=n_layers,
    )
    if arguments.epsilon is None:
        raise UsageError("a private comparison needs --epsilon")
    return PrivateSettings(
        epsilons=arguments.epsilon,
        terms=terms,
        n_clients=n_clients,
        partition=partition,
        promised_survivors=arguments.promise,
        colluders=arguments.colluders,
        dropout=arguments.dropout,
        n_seeds=arguments.seeds,
        seed=arguments.seed,
    )


def run_private(dataset: Dataset, settings: PrivateSettings, arguments: argparse.Namespace, console: Console) -> int:
    """Compare, write the files that were asked for, print the table; the exit code.

    A deep learner is also run with T = 0 on the same budget, and where that does better it is said.

    Raises:
        simulations.errors.OutputError, secagg.errors.SecureSumError: a file or a parameter that does not work.
    """
    files = [(path and OutputFile(Path(path)), render) for path, render in _renders(arguments)]
    comparison = compare_private(dataset, settings)
    for file, render in files:
        if file:
            file.write(render(comparison))
    print_private(comparison, console)
    if settings.terms.n_layers:
        for sentence in depth_verdict(comparison, compare_private(dataset, without_depth(settings))):
            console.print(sentence)
    return 0


def _renders(arguments: argparse.Namespace) -> list[tuple[str | Path | None, Callable[[PrivateComparison], str]]]:
    return [
        (arguments.json, lambda comparison: json.dumps(document(comparison), indent=2) + "\n"),
        (arguments.plot, to_svg),
    ]


def document(comparison: PrivateComparison) -> dict[str, Any]:
    """Everything as plain values for ``json.dumps``."""
    settings, data = comparison.settings, comparison.dataset
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "dataset": {"name": data.name, "sha256": data.sha256, "train_rows": len(data.x_train)},
        "terms": asdict(settings.terms),
        "partition": settings.partition.name,
        "carrier": settings.carrier,
        "seeds": settings.n_seeds,
        "seed": settings.seed,
        "statement": list(statement(comparison)),
        "records": [asdict(record) for record in comparison.records],
    }


def statement(comparison: PrivateComparison) -> Iterator[str]:
    """What the numbers mean and rest on, a sentence at a time."""
    settings = comparison.settings
    terms = settings.terms
    yield (
        f"Unit of privacy: one {terms.unit}. Adjacency: {terms.adjacency}"
        f"{' (a client is zeroed out, its noise stays)' if terms.unit == 'client' else ''}. delta {terms.delta:g}. "
        f"{terms.n_releases} releases share each epsilon."
    )
    yield (
        f"Distributed: whoever sees the totals, and up to {settings.colluders} colluding clients. It rests on at least "
        f"{settings.promised} of {settings.n_clients} clients in every released total (the sum aborts below), on each "
        "of them adding its share, and on a secure sum that shows nothing but the total."
    )
    yield "Central: whoever sees the model, if the server is trusted with the exact totals and adds the noise."
    yield "Local: every upload is private on its own; no secure sum is needed."
    yield (
        "Every row is clipped in exact integers to the public norm 1; format, number of classes, largest number of "
        "rows, clip and the sign of features are taken as public. Row counts are never released. Budgets are per run: "
        "repetitions on the same people would add up."
    )
    yield "Accuracies are on test rows of a public data set and no release; noise is seeded: this is no deployment."
    yield from depth_advice(comparison)


def depth_advice(comparison: PrivateComparison) -> Iterator[str]:
    """Whether a deep learner's 2T + 1 releases are expected to be worth it, by the public rule."""
    settings = comparison.settings
    terms = settings.terms
    if not terms.n_layers:
        return
    for record in comparison.records:
        if record.trust == "central" and noise_drowns(
            n_rows=len(comparison.dataset.x_train),
            row_norm=1.0,
            sigma_gram=record.sigma_gram,
            n_features=terms.d_phi,
        ):
            yield (
                f"At epsilon {record.target_epsilon:g} the noise of each of the {record.releases} sums exceeds the "
                f"mean eigenvalue of a layer's Gram ({len(comparison.dataset.x_train)} rows, width {terms.d_phi}): "
                "T = 0 is expected to do better."
            )


def depth_verdict(deep: PrivateComparison, flat: PrivateComparison) -> Iterator[str]:
    """Where T = 0 really did better with the same budget, in a simulation that ran both."""
    for record in deep.records:
        other = flat.of(record.trust, record.target_epsilon)  # type: ignore[arg-type]
        if record.target_epsilon is not None and other.accuracy_mean > record.accuracy_mean:
            yield (
                f"{record.trust}, epsilon {record.target_epsilon:g}: T = 0 does better ({other.accuracy_mean:.3f}) "
                f"than T = {record.layers} ({record.accuracy_mean:.3f})."
            )


def print_private(comparison: PrivateComparison, console: Console) -> None:
    """Table and statement."""
    console.print(table_of(comparison))
    for sentence in statement(comparison):
        console.print(sentence)


def table_of(comparison: PrivateComparison) -> Table:
    """A row for each epsilon, a column for each kind of trust; mean and spread over seeds."""
    exact = comparison.of("non-private", None)
    table = Table(title=f"{comparison.dataset.name}: non-private {_accuracy(exact)}")
    for name in ("epsilon", "tight", "rho", "sigma G", "sigma H", *(t for t in TRUSTS if t != "non-private")):
        table.add_column(name, justify="right")
    for epsilon in dict.fromkeys(r.target_epsilon for r in comparison.records if r.target_epsilon is not None):
        records = [comparison.of(trust, epsilon) for trust in TRUSTS if trust != "non-private"]
        first = records[0]
        numbers = (first.epsilon, first.epsilon_tight, first.rho, first.sigma_gram, first.sigma_cross)
        table.add_row(*(f"{number:.4g}" for number in numbers), *(_accuracy(record) for record in records))
    return table


def to_svg(comparison: PrivateComparison) -> str:
    """Accuracy over epsilon as an ``svg`` element: mean, spread over seeds, the exact model as a line."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "private", "font.family": "sans-serif"}):
        figure = Figure(figsize=(7.2, 4.0), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        _draw(axes, comparison)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = file.getvalue()
    return svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{html.escape(_alt(comparison))}"', 1)


def _draw(axes: Any, comparison: PrivateComparison) -> None:
    exact = comparison.of("non-private", None)
    axes.axhline(exact.accuracy_mean, color="#6b6b6b", linestyle="--", label="non-private")
    for trust, colour in COLOURS.items():
        records = [record for record in comparison.records if record.trust == trust]
        axes.errorbar(
            [record.target_epsilon for record in records],
            [record.accuracy_mean for record in records],
            yerr=[record.accuracy_spread for record in records],
            label=trust,
            color=colour,
            marker="o",
            capsize=3,
        )
    axes.set_xscale("log")
    ticks = sorted({record.target_epsilon for record in comparison.records if record.target_epsilon})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(f"epsilon ({comparison.settings.terms.unit}, {comparison.settings.terms.adjacency})")
    axes.set_ylabel("test accuracy")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _alt(comparison: PrivateComparison) -> str:
    return "Accuracy over epsilon. " + " ".join(
        f"{record.trust}{'' if record.target_epsilon is None else f' at {record.target_epsilon:g}'}: "
        f"{_accuracy(record)}."
        for record in comparison.records
    )


def _accuracy(record: PrivateRecord) -> str:
    return f"{record.accuracy_mean:.3f} +- {record.accuracy_spread:.3f}"
