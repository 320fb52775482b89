"""The command ``compare``: its arguments, and from them its table and files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console

from federation.console.arguments import checked, file, items, number, whole, wholes
from federation.console.options import Configurable, parse_options
from federation.console.output_files import OutputFile, refuse_same_file
from federation.console.printing import print_tables
from federation.console.process import exit_codes
from federation.datasets import Dataset
from federation.errors import UsageError
from federation.learners import LEARNERS, ChosenLearner, choose_learners
from secagg.config import MAX_CLIENTS
from simulations.command_line.progress import progress_bar
from simulations.command_line.shared_arguments import (
    add_data_arguments,
    add_format_argument,
    add_modes_argument,
    dataset_of,
)
from simulations.compare import private_report
from simulations.compare.baseline_runs import ENTRIES as BASELINES
from simulations.compare.baseline_runs import ChosenBaseline, choose_baselines
from simulations.compare.comparison import CompareSettings, Comparison, compare
from simulations.compare.dropouts import Dropouts
from simulations.compare.private_comparison import PrivateSettings, without_depth
from simulations.data.partitions import Partition, parse_partition
from simulations.report.findings import findings
from simulations.report.json_report import to_json
from simulations.report.table import print_comparison

NAME = "compare"
SUMMARY = "train closed forms over several privacy modes and check each run against its pooled model, bit for bit"
EXAMPLES = """examples:
  python -m simulations compare
      digits, 20 clients, Dirichlet 0.1, every mode that is installed
  python -m simulations compare --dataset breast_cancer --partition iid --partition shards:2 --dropout 0.2
      two ways to deal the rows; a fifth of the clients vanish
  python -m simulations compare --data features.npz --clients 100,1000 --modes plain --json out.json --html out.html
      your own features (arrays x_train, y_train, x_test, y_test), two cohort sizes, two reports
  python -m simulations compare --learner fedhip --option alphas=1,10,100
      a model for each client, tested on a fifth of its own rows
  python -m simulations compare --learner all --baselines all --partition iid --partition dirichlet:0.01 --modes plain
      every closed form beside FedAvg and FedProx, where heterogeneity costs nothing and where it costs most
  python -m simulations compare --epsilon 1,8 --clients 100 --partition iid --seeds 5
      also accuracy under differential privacy: distributed, central and local noise beside none

options of learners (--option NAME=VALUE for all that have it, --option LEARNER.NAME=VALUE for one):
{options}
  deepafl's d_phi and d_f are, when left out, twice the features rounded up to a power of two, at most 1024

{exit_codes}"""

DEFAULT_PARTITION = "dirichlet:0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``compare`` understands."""
    parser.description = f"{SUMMARY[0].upper()}{SUMMARY[1:]}."
    parser.epilog = EXAMPLES.format(
        options="\n".join(_options_of(taker) for taker in _configurable()),
        exit_codes=exit_codes("every run equals its pooled model", "one does not"),
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_data_arguments(parser)
    _add_federation(parser.add_argument_group("federation"))
    _add_learning(parser.add_argument_group("learning"))
    private_report.add_arguments(
        parser.add_argument_group("privacy of the result (differential privacy)", private_report.DESCRIPTION)
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", type=checked(file), metavar="FILE", help="write every number (docs/reference/compare-json.md)"
    )
    output.add_argument(
        "--explain", action="store_true", help="also print what each mode guarantees and costs, for its largest sum"
    )
    output.add_argument(
        "--html", type=checked(file), metavar="FILE", help="write one self-contained page with table and plots"
    )
    output.add_argument(
        "--plot", type=checked(file), metavar="FILE.svg", help="write one picture: accuracy by partition, bytes by mode"
    )
    parser.set_defaults(default_of=parser.get_default)


def _add_federation(group: Any) -> None:
    add_modes_argument(group)
    group.add_argument(
        "--clients",
        type=checked(lambda text: wholes(text, at_least=1, at_most=MAX_CLIENTS)),
        default=(20,),
        metavar="N,...",
        help="cohort sizes (default: 20)",
    )
    group.add_argument(
        "--partition",
        type=checked(parse_partition),
        action="append",
        metavar="HOW",
        help="iid, dirichlet:ALPHA or shards:S; may be repeated (default: dirichlet:0.1)",
    )
    group.add_argument(
        "--dropout",
        type=checked(_dropout_rate),
        default=0.0,
        metavar="RATE",
        help="part of the clients that vanish before their vector is sent, the same in every mode; under masks up to "
        "half as many others vanish after theirs, which costs nobody's rows (default: 0)",
    )
    group.add_argument(
        "--dropout-anew",
        action="store_true",
        help="draw other clients to vanish for every sum (inconsistent participation) instead of the same for all",
    )
    group.add_argument(
        "--seed",
        type=checked(lambda text: whole(text, at_least=0)),
        default=0,
        help="draws partitions, dropouts, own test rows, the baselines' batches and, with --epsilon, the simulated "
        "noise; keys and masks come from the operating system (default: 0)",
    )


def _add_learning(group: Any) -> None:
    group.add_argument(
        "--learner",
        type=checked(lambda text: choose_learners(items(text))),
        default=choose_learners(["afl"]),
        metavar="NAME,...",
        help=f"closed forms out of {', '.join(LEARNERS)}, or all (default: afl)",
    )
    group.add_argument(
        "--baselines",
        type=checked(lambda text: choose_baselines(items(text))),
        default=(),
        metavar="NAME,...",
        help=f"gradient methods on the same rows, for comparison only: {', '.join(BASELINES)}, or all (default: none)",
    )
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of a learner's or baseline's own, such as n_layers=5 for deepafl; may be repeated",
    )
    group.add_argument(
        "--ridge",
        type=checked(_penalty),
        default=None,
        metavar="PENALTY",
        help="penalty of the solve (default: 0; 0.01 for what --epsilon adds)",
    )
    group.add_argument(
        "--ri",
        type=checked(_penalty),
        default=0.0,
        metavar="GAMMA",
        help="what each client adds to its Gram's diagonal and the server takes off exactly (default: 0)",
    )
    add_format_argument(group, "all training rows and so is for simulations only")


def run(arguments: argparse.Namespace) -> int:
    """Compare as asked; the exit code.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: wrong input, or a failed sum.
    """
    _check_together(arguments)
    files = list(_files(arguments))
    dataset = dataset_of(arguments)
    settings = _settings(arguments, dataset)
    with progress_bar(settings.n_runs) as progress:
        comparison = compare(dataset, settings, progress)
    texts = [(file, render(comparison)) for file, render in files]
    try:
        for file, text in texts:
            file.write(text)
    finally:  # whatever became of the files, the numbers are not lost
        print_tables(lambda console: _draw(comparison, console))
    for fine, finding in findings(comparison):
        if not fine:
            print(f"error: {finding}", file=sys.stderr)
    return 0 if comparison.all_bitwise_equal else 1


def _check_together(arguments: argparse.Namespace) -> None:
    """Refuse arguments that are right alone and have no effect, or a bad one, beside the others.

    Raises:
        UsageError: such a combination.
    """
    refuse_same_file({f"--{name}": getattr(arguments, name) for name in ("data", "json", "html", "plot")})
    if arguments.dropout_anew and not arguments.dropout:
        raise UsageError("--dropout-anew needs clients that vanish, and with --dropout 0 none do; add --dropout RATE")
    changed = [n for n in private_report.BESIDE_EPSILON if getattr(arguments, n) != arguments.default_of(n)]
    if changed and arguments.epsilon is None:
        raise UsageError(f"--{changed[0].replace('_', '-')} needs --epsilon to have an effect; add --epsilon E,...")
    if arguments.ri and arguments.epsilon is not None:
        raise UsageError(
            "--ri has no effect on what --epsilon adds: private learners have no RI process; leave out one of the two"
        )


def _draw(comparison: Comparison, console: Console) -> None:
    print_comparison(comparison, console)
    private_report.print_private(comparison.private, console)


def _files(arguments: argparse.Namespace) -> Iterator[tuple[OutputFile, Callable[[Comparison], str]]]:
    """The files that are asked for, each with what fills it.

    Raises:
        federation.errors.OutputError: a place that cannot be written to.
    """
    for path, render in ((arguments.json, to_json), (arguments.html, _page), (arguments.plot, _plot)):
        if path:
            yield OutputFile(path), render


def _private(arguments: argparse.Namespace, dataset: Dataset) -> Iterator[PrivateSettings]:
    """For each budgeted learner, cohort and partition one comparison; a deep learner's T = 0 stands beside its T."""
    if arguments.epsilon is None:
        return
    names = [entry.name for entry in arguments.learner]
    if not {"afl", "deepafl"} & set(names):
        raise UsageError(f"--epsilon needs a learner that has a private form, afl or deepafl, not {', '.join(names)}")
    options = parse_options(arguments.option, (*arguments.learner, *arguments.baselines))
    deep: dict[str, Mapping[str, int] | None] = {"afl": None, "deepafl": options.get("deepafl", {})}
    for name in (known for known in deep if known in names):
        for n_clients in dict.fromkeys(arguments.clients):
            for partition in _partitions(arguments):
                settings = private_report.settings_from(
                    arguments, dataset, n_clients=n_clients, partition=partition, deep=deep[name]
                )
                yield settings
                if settings.terms.n_layers:
                    yield without_depth(settings)


def _partitions(arguments: argparse.Namespace) -> tuple[Partition, ...]:
    ways = arguments.partition or [parse_partition(DEFAULT_PARTITION)]
    return tuple({way.name: way for way in ways}.values())


def _settings(arguments: argparse.Namespace, dataset: Dataset) -> CompareSettings:
    options = parse_options(arguments.option, (*arguments.learner, *arguments.baselines))
    return CompareSettings(
        learners=tuple(ChosenLearner(entry=entry, options=options[entry.name]) for entry in arguments.learner),
        baselines=tuple(ChosenBaseline(entry=entry, options=options[entry.name]) for entry in arguments.baselines),
        modes=arguments.modes,
        n_clients=tuple(dict.fromkeys(arguments.clients)),
        partitions=_partitions(arguments),
        feature_format=arguments.format,
        ridge=arguments.ridge or 0.0,
        ri_gamma=arguments.ri,
        dropouts=Dropouts(rate=arguments.dropout, anew=arguments.dropout_anew, seed=arguments.seed),
        seed=arguments.seed,
        explain=arguments.explain,
        private=tuple(_private(arguments, dataset)),
    )


def _configurable() -> tuple[Configurable, ...]:
    return (*LEARNERS.values(), *BASELINES.values())


def _options_of(taker: Configurable) -> str:
    return f"  {taker.name:8} {', '.join(taker.options) or 'none'}"


def _page(comparison: Comparison) -> str:
    from simulations.report.html_report import to_html  # draws, and so loads matplotlib

    return to_html(comparison)


def _plot(comparison: Comparison) -> str:
    from simulations.report.compare_charts import overview

    return overview(comparison)


def _dropout_rate(text: str) -> float:
    return number(text, "a number of at least 0 and below 1, such as 0.1 for a tenth", lambda rate: 0 <= rate < 1)


def _penalty(text: str) -> float:
    return number(text, "a finite number of at least 0", lambda penalty: penalty >= 0)
