"""The command ``compare``: its table and files from its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console

from analytic_secagg.console.arguments import Configurable
from analytic_secagg.console.declaration import Command
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.datasets import Dataset
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES
from analytic_secagg.size import WORTH_SAYING, gram_columns, in_words, needed_bytes, seconds, seconds_of_clients
from simulations.command_line.printing import print_tables
from simulations.command_line.progress import progress_bar
from simulations.compare.baselines import BASELINES
from simulations.compare.build import build, n_sums
from simulations.compare.comparison import Comparison, compare
from simulations.compare.options import CompareOptions
from simulations.compare.plan import tasks_of
from simulations.compare.tuning import Task
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
    tasks = tasks_of(options, dataset)
    _announce(dataset, tasks)
    with progress_bar(sum(task.n_runs for task in tasks)) as progress:
        comparison = compare(
            dataset,
            tasks,
            progress,
            federated_float64=bool(files),  # which only files show
            jobs=options.output.jobs,
        )
    texts = [(file, render(comparison)) for file, render in files]
    try:
        for file, text in texts:
            file.write(text)
    finally:  # whatever became of the files, the numbers are not lost
        print_tables(lambda console: _draw(comparison, console, options.output.verbose))
    for mark, finding in findings(comparison):
        if mark is Mark.WRONG:
            print(f"error: {finding}", file=sys.stderr)
    return 0 if comparison.all_bitwise_equal_to_pooled else 1


def _announce(dataset: Dataset, tasks: Sequence[Task]) -> None:
    """Say how long it will take, where that is long; on stderr, since it is no result."""
    learners = {
        (run.label or run.learner, str(run.options)): build(run, dataset)
        for task in tasks
        for run in task.runs
        if run.is_exact
    }
    runs = [(build(run, dataset), run) for task in tasks for run in task.runs if run.is_exact]
    of_clients = sum(
        seconds_of_clients(learner, run.mode_of_sums(), run.clients) * n_sums(run, dataset) for learner, run in runs
    )
    if (total := of_clients + sum(map(seconds, learners.values()))) > WORTH_SAYING:
        memory = max(needed_bytes(learner, run.mode_of_sums(), run.clients) for learner, run in runs)
        print(
            f"estimate: about {in_words(total)} on one core and {memory / 1e9:.1f} GB of memory, for up to "
            f"{max(map(gram_columns, learners.values()))} columns and {max(run.clients for _, run in runs)} clients; "
            "columns count once, and more for every further mode, cohort and partition",
            file=sys.stderr,
            flush=True,
        )


def _draw(comparison: Comparison, console: Console, verbose: bool) -> None:
    print_comparison(comparison, console, verbose=verbose)
    print_private(comparison, console)


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
  analytic-secagg compare
      digits, 20 clients, Dirichlet 0.1, every mode that is installed
  analytic-secagg compare --dataset breast_cancer --partition iid --partition shards:2 --dropout 0.2
      two ways to distribute the rows; a fifth of the clients drop out
  analytic-secagg compare --data features.npz --clients 100,1000 --modes plain --json out.json --html out.html
      your own features (arrays x_train, y_train, x_test, y_test), two cohort sizes, two reports
  analytic-secagg compare --modes committee --option helpers=4 --option corrupt=1
      a committee that tolerates one unavailable or malicious helper
  analytic-secagg compare --learner fedhip --option alphas=1,10,100
      a model for each client, tested on a fifth of its own rows
  analytic-secagg compare --learner all --baselines all --partition iid --partition dirichlet:0.01 --modes plain
      every closed form, FedAvg and FedProx, on even parts and on very heterogeneous ones
  analytic-secagg compare --dataset diabetes --learner all --partition iid --evaluate
      real targets: R2 in place of accuracy, linear models with an intercept, each evaluated through one more sum
  analytic-secagg compare --learner all --sweep d_phi=64,256 --baselines all --modes plain --frontier front.svg
      what accuracy costs: every closed form, FedAvg and FedProx, by bytes, messages and seconds
  analytic-secagg compare --epsilon 1,8 --clients 100 --partition iid --seeds 5
      also accuracy with differential privacy: distributed, central and local noise, and none

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
