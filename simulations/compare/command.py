"""The command ``compare``: its table and files from its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console

from analytic_secagg.console.arguments import Configurable, Option, parse_options
from analytic_secagg.console.declaration import Command, changed
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.console.printing import print_tables
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS, ChosenLearner
from analytic_secagg.modes import MODES, Mode
from simulations.command_line.progress import progress_bar
from simulations.compare.baselines import BASELINES, Baseline
from simulations.compare.comparison import CompareSettings, Comparison, compare
from simulations.compare.dpsgd import DPSGD
from simulations.compare.options import CompareOptions
from simulations.compare.private import PRIVATE_FORMS, PrivateSettings, settings_from, with_shares, without_depth
from simulations.compare.tuning import read_grids
from simulations.data.label_noise import with_label_noise
from simulations.report.document import Mark
from simulations.report.findings import findings
from simulations.report.table import print_comparison, print_private


def run(options: CompareOptions) -> int:
    """Compare as asked; the exit code.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: wrong input, or a failed sum.
    """
    files = list(_files(options))
    dataset = with_label_noise(options.data.rows(), options.federation.label_noise, options.federation.seed)
    settings = _settings(options, dataset)
    with progress_bar(settings.n_runs) as progress:
        comparison = compare(dataset, settings, progress)
    texts = [(file, render(comparison)) for file, render in files]
    try:
        for file, text in texts:
            file.write(text)
    finally:  # whatever became of the files, the numbers are not lost
        print_tables(lambda console: _draw(comparison, console))
    for mark, finding in findings(comparison):
        if mark is Mark.WRONG:
            print(f"error: {finding}", file=sys.stderr)
    return 0 if comparison.all_bitwise_equal_to_pooled else 1


def _draw(comparison: Comparison, console: Console) -> None:
    print_comparison(comparison, console)
    print_private(comparison.private, console)


def _files(options: CompareOptions) -> Iterator[tuple[OutputFile, Callable[[Comparison], str]]]:
    """Yield the files that are asked for, each with what fills it.

    Raises:
        analytic_secagg.errors.OutputError: a place that cannot be written to.
    """
    output = options.output
    for path, render in (
        (output.json, Comparison.to_json),
        (output.html, _page),
        (output.plot, _plot),
        (output.frontier, _frontier),
    ):
        if path:
            yield OutputFile(path), render


def _settings(options: CompareOptions, dataset: Dataset) -> CompareSettings:
    federation, learning = options.federation, options.learning
    modes = [mode for mode in federation.modes if mode.options]
    if options.privacy.epsilon is None and any(isinstance(entry, DPSGD) for entry in learning.baselines):
        raise UsageError("dpsgd is trained for privacy budgets: add --epsilon, or leave it out of --baselines")
    entries = learning.learner
    if dataset.is_regression and len(entries) == len(LEARNERS):  # all that can
        entries = tuple(entry for entry in entries if not entry.labels_only)
    own = parse_options(learning.own, (*learning.learner, *learning.baselines, *modes))
    gradient = [entry for entry in learning.baselines if isinstance(entry, Baseline)]
    sizes = _sizes(learning.sweep, (*entries, *gradient))
    chosen_modes = tuple(
        replace(mode.with_options(**own.get(mode.name, {})), promised=federation.dropouts.promise)
        for mode in federation.modes
    )
    return CompareSettings(
        learners=tuple(
            ChosenLearner(entry=entry, options=own[entry.name] | size, label=label)
            for entry in entries
            for label, size in sizes[entry.name].items()
        ),
        baselines=tuple(
            replace(entry.with_values(own[entry.name] | size), name=label)
            for entry in gradient
            for label, size in sizes[entry.name].items()
        ),
        modes=chosen_modes,
        n_clients=federation.clients,
        partitions=federation.partitions,
        feature_format=learning.feature_format,
        target_format=learning.target_format,
        ridge=learning.ridge or 0.0,
        ri_gamma=learning.ri,
        dropouts=federation.dropouts,
        seed=federation.seed,
        evaluate=learning.evaluate,
        explain=options.output.explain,
        private=() if options.privacy.epsilon is None else tuple(_private(options, own, dataset, chosen_modes)),
    )


def _sizes(sweeps: Iterable[str], takers: Sequence[Configurable]) -> dict[str, dict[str, dict[str, Option]]]:
    """For each taker its sizes, each a label with the options that make it; one of no options where none are asked for.

    Raises:
        UsageError: an option that no taker has, or a value that it cannot have.
    """
    found: dict[str, dict[str, dict[str, Option]]] = {taker.name: {} for taker in takers}
    for text in sweeps:
        place, _, values = text.partition("=")
        for value in values.split(","):
            for name, size in parse_options([f"{place}={value}"], takers, "--sweep").items():
                if size:
                    found[name][f"{name} {place.rpartition('.')[2]}={value}"] = size
    return {name: sizes or {name: {}} for name, sizes in found.items()}


def _private(
    options: CompareOptions, own: Mapping[str, Mapping[str, Option]], dataset: Dataset, modes: tuple[Mode, ...]
) -> Iterator[PrivateSettings]:
    """Yield a comparison for each budgeted learner, cohort and partition; a deep learner's T = 0 beside its T."""
    names = [entry.name for entry in options.learning.learner]
    private = [name for name in PRIVATE_FORMS if name in names]
    dpsgd = [entry for entry in options.learning.baselines if isinstance(entry, DPSGD)]
    takers: tuple[Configurable, ...] = (*(with_shares(LEARNERS[name]) for name in private), *dpsgd)
    flags = {flag.removeprefix("--").replace("-", "_") for flag in changed(options.privacy)}
    stated = {name: flags | own[name].keys() for name in private} | {one.name: own[one.name].keys() for one in dpsgd}
    grids = read_grids(options.privacy.tune, takers, stated)
    beside = tuple(entry.with_values(own[entry.name], grids[entry.name]) for entry in dpsgd)
    if not private:
        raise UsageError(
            f"--epsilon needs a learner that has a private form, {', '.join(PRIVATE_FORMS)}, not {', '.join(names)}"
        )
    for name in private:
        for n_clients in options.federation.clients:
            for partition in options.federation.partitions:
                settings = settings_from(
                    options,
                    dataset,
                    n_clients=n_clients,
                    partition=partition,
                    modes=modes,
                    learner=name,
                    own=own.get(name, {}),
                    baselines=beside,
                    grid=grids[name],
                )
                beside = ()  # they do not depend on learner, cohort or partition
                yield settings
                if (flat := without_depth(settings)) is not None:
                    yield flat


def _page(comparison: Comparison) -> str:
    from simulations.report.html_report import to_html  # draws, and so loads matplotlib

    return to_html(comparison)


def _plot(comparison: Comparison) -> str:
    from simulations.report.compare_charts import overview

    return overview(comparison)


def _frontier(comparison: Comparison) -> str:
    from simulations.report.compare_charts import frontier_picture

    return frontier_picture(comparison)


def _examples() -> str:
    modes = [mode for mode in MODES.values() if mode.options]
    takers: tuple[Configurable, ...] = (*LEARNERS.values(), *BASELINES.values(), *modes)
    options = "\n".join(f"  {taker.name:9} {', '.join(taker.options) or 'none'}" for taker in takers)
    return f"""examples:
  python -m simulations compare
      digits, 20 clients, Dirichlet 0.1, every mode that is installed
  python -m simulations compare --dataset breast_cancer --partition iid --partition shards:2 --dropout 0.2
      two ways to deal the rows; a fifth of the clients vanish
  python -m simulations compare --data features.npz --clients 100,1000 --modes plain --json out.json --html out.html
      your own features (arrays x_train, y_train, x_test, y_test), two cohort sizes, two reports
  python -m simulations compare --modes committee --option helpers=4 --option corrupt=1
      a committee that bears one helper which is away or lies
  python -m simulations compare --learner fedhip --option alphas=1,10,100
      a model for each client, tested on a fifth of its own rows
  python -m simulations compare --learner all --baselines all --partition iid --partition dirichlet:0.01 --modes plain
      every closed form beside FedAvg and FedProx, where heterogeneity costs nothing and where it costs most
  python -m simulations compare --dataset diabetes --learner all --partition iid --evaluate
      real targets: R2 in place of accuracy, linear models with an intercept, each judged through one more sum
  python -m simulations compare --learner all --sweep d_phi=64,256 --baselines all --modes plain --frontier front.svg
      what accuracy costs: every closed form beside FedAvg and FedProx against bytes, messages and seconds
  python -m simulations compare --epsilon 1,8 --clients 100 --partition iid --seeds 5
      also accuracy under differential privacy: distributed, central and local noise beside none

options of learners, baselines and modes (--option NAME=VALUE for all that have it, --option WHOSE.NAME=VALUE for one):
{options}
  deepafl's d_phi and d_f are, when left out, twice the features rounded up to a power of two, at most 1024

"""


COMMAND = Command(
    name="compare",
    summary="train closed forms over several privacy modes and check each run against its pooled model, bit for bit",
    examples=_examples(),
    options=CompareOptions,
    run=run,
    fine="every run equals its pooled model",
    finding="one does not",
)
