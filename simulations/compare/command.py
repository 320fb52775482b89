"""The command ``compare``: its table and files from its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module

from rich.console import Console

from analytic.errors import SpecificationError
from analytic.scaling import Agreement
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.datasets import Dataset
from analytic_secagg.modes import MODES, choose_modes
from analytic_secagg.size import WORTH_SAYING, gram_columns, in_words, needed_bytes, seconds, seconds_of_clients
from simulations.command_line.printing import print_tables
from simulations.command_line.progress import progress_bar
from simulations.compare.build import build, covering, n_sums
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
    options, dataset = _with_a_format(options, dataset)
    tasks = tasks_of(options, dataset)
    _announce(dataset, tasks)
    _announce_absent_modes(options)
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
        print_tables(lambda console: _draw(comparison, console, options.output.verbose, dataset.private_notes))
    for mark, finding in findings(comparison):
        if mark is Mark.WRONG:
            print(f"error: {finding}", file=sys.stderr)
    for file, _ in texts:
        print(f"written: {file.path}", file=sys.stderr)
    return 0 if comparison.all_bitwise_equal_to_pooled else 1


def _with_a_format(options: CompareOptions, dataset: Dataset) -> tuple[CompareOptions, Dataset]:
    """Return both with columns agreed on, and a note, where no format was stated and none holds all rows.

    Noise has no agreed columns: with a budget the refusal stays.
    """
    if options.learning.feature_format is not None or options.privacy.epsilon is not None:
        return options, dataset
    try:
        covering(dataset)
    except SpecificationError as error:
        learning = replace(options.learning, feature_format=Agreement.AGREED)
        note = f"--format {Agreement.AGREED} is taken: {str(error).partition(':')[0]}"
        return replace(options, learning=learning), replace(dataset, notes=(*dataset.notes, note))
    return options, dataset


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


def _announce_absent_modes(options: CompareOptions) -> None:
    """Say which of all modes this installation lacks, where all were asked for; on stderr, since it is no result."""
    absent = [mode for mode in MODES.values() if not mode.installed]
    if absent and options.federation.modes == choose_modes(None):
        named, cures = ", ".join(mode.name for mode in absent), sorted({mode.missing_extra for mode in absent})
        print(f"not installed, so not compared: {named}; {', '.join(cures)} brings them", file=sys.stderr, flush=True)


def _draw(comparison: Comparison, console: Console, verbose: bool, notes: Sequence[str]) -> None:
    print_comparison(comparison, console, verbose=verbose)
    print_private(comparison, console)
    for note in notes:
        console.print(note, markup=False)


def _files(options: CompareOptions) -> Iterator[tuple[OutputFile, Callable[[Comparison], str]]]:
    """Yield the files that are asked for, each with what fills it.

    Raises:
        analytic_secagg.errors.OutputError: a place that cannot be written to.
    """
    output = options.output
    for path, render in (
        (output.json, Comparison.to_json),
        (output.html, _drawn("html_report", "to_html")),
        (output.plot, _drawn("compare_charts", "overview")),
        (output.frontier, _drawn("compare_charts", "frontier_picture")),
    ):
        if path:
            yield OutputFile(path), render


def _drawn(module: str, function: str) -> Callable[[Comparison], str]:
    """Return what draws, and so loads matplotlib once it is called."""
    return lambda comparison: str(getattr(import_module(f"simulations.report.{module}"), function)(comparison))
