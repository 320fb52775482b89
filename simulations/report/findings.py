"""What the runs of a comparison show, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby

from analytic.intervals import wilson
from analytic.row_format import RowFormat
from simulations.compare.comparison import Comparison
from simulations.compare.evaluated import between
from simulations.compare.record import RunRecord
from simulations.report.document import Finding, Mark

NO_LOSS = 5e-5
"""Of accuracy or R2, which are written with four digits."""


def findings(comparison: Comparison) -> Iterator[Finding]:
    """Yield sentences on the runs, each with whether it is as it must be."""
    yield from _equality(comparison.exact)
    yield from _proof(comparison.exact)
    yield from details(comparison)


FEW_TEST_ROWS = 25
"""Fewer than so many tell nothing apart: one of them moves an accuracy by four points."""


def details(comparison: Comparison) -> Iterator[Finding]:
    """Yield what follows the answer; of these a terminal shows notices, and the rest where it is asked to."""
    for learner, hashes in comparison.hashes.items():
        whose = f"{learner}: " if len(comparison.hashes) > 1 else ""
        if len(hashes) == 1:
            yield Mark.FINE, f"{whose}one weights hash in all runs: {next(iter(hashes))}"
        else:
            yield (
                Mark.FINE,
                f"{whose}{len(hashes)} weights hashes: runs whose surviving rows differ have different models",
            )
    yield from _coarse(comparison)
    yield from _intervals(comparison)
    yield from _of_little_worth(comparison)
    yield from _beside_float64(comparison)
    yield from _choices(comparison)
    if unused := comparison.unused_labels:
        yield (
            Mark.NOTICE,
            f"WARNING: no row has {unused} of the labels 0 to {comparison.dataset.classes - 1}, and each costs a "
            "column of every sum; renumber them, for instance with numpy.unique(return_inverse=True), or give texts",
        )
    yield from ((Mark.NOTICE, note) for note in comparison.notes)
    yield from ((Mark.NOTICE, f"WARNING: {doubt}") for doubt in comparison.doubts)
    yield from _few_clients(comparison.exact)
    yield from _messages(comparison)
    if comparison.baselines:
        names = ", ".join(
            dict.fromkeys(
                f"{one.label} with mu {one.option('mu'):g}" if one.option("mu") else one.label
                for one in comparison.baselines
            )
        )
        yield (
            Mark.NOTICE,
            f"gradient baselines, for comparison only ({names}): sums in the clear, no bitwise law, one seed",
        )


def verdict(comparison: Comparison) -> Finding:
    """The answer in one sentence, and whether it is as it must be."""
    wrong = [sentence for mark, sentence in findings(comparison) if mark is Mark.WRONG]
    if wrong:
        return Mark.WRONG, "; ".join(wrong)
    runs = comparison.exact
    counted = ", ".join(
        f"{len(set(values))} {name}"
        for name, values in (
            ("learners", [run.label for run in runs]),
            ("privacy modes", [run.mode for run in runs]),
            ("partitions", [run.partition for run in runs]),
            ("cohort sizes", [run.clients for run in runs]),
        )
        if len(set(values)) > 1
    )
    where = "The" if len(runs) == 1 else f"In each of {len(runs)} runs{f' ({counted})' if counted else ''} the"
    return Mark.FINE, f"{where} federated model is the pooled model of the surviving clients, bit for bit."


def _equality(runs: Sequence[RunRecord]) -> Iterator[Finding]:
    different = [_case(run) for run in runs if not run.bitwise_equal_to_pooled]
    if different:
        yield (
            Mark.WRONG,
            f"NOT EQUAL: {len(different)} of {len(runs)} runs differ from the pooled model of their survivors "
            f"({'; '.join(different)})",
        )
    else:
        equal = "the run equals" if len(runs) == 1 else f"all {len(runs)} runs equal"
        yield Mark.FINE, f"{equal} the pooled model of the surviving clients, bit for bit"
    personal = [run for run in runs if run.personalised_bitwise_equal_to_pooled is not None]
    different = [_case(run) for run in personal if not run.personalised_bitwise_equal_to_pooled]
    if different:
        yield Mark.WRONG, f"NOT EQUAL: personal models differ from those of the pooled total ({'; '.join(different)})"
    elif personal:
        yield Mark.FINE, "every client's personal models equal those that follow from the pooled total, bit for bit"
    if different := [_case(run) for run in runs if run.evaluation and not run.evaluation.bitwise_equal_to_pooled]:
        yield Mark.WRONG, f"NOT EQUAL: evaluations differ from those of the pooled test rows ({'; '.join(different)})"


def _proof(runs: Sequence[RunRecord]) -> Iterator[Finding]:
    """Whether hashes are those of every machine; no fault where they are not, but said by name."""
    found = dict.fromkeys(f"{run.label}'s {name}" for run in runs for name in run.uncertified)
    if found:
        yield Mark.NOTICE, f"not certified, the bits are this machine's: {', '.join(found)}"
    else:
        yield Mark.FINE, "certified: what was solved is the exact solution rounded once, the same on every machine"


def _intervals(comparison: Comparison) -> Iterator[Finding]:
    """Between which bounds accuracies lie, of many the lowest's and the highest's."""
    rows = comparison.dataset.test_rows
    known = sorted({run.test_accuracy for run in comparison.exact if run.test_accuracy is not None})
    for accuracy in known if len(known) < 3 else (known[0], known[-1]):
        bounds = between(wilson(round(accuracy * rows), rows))
        yield Mark.FINE, f"accuracy {accuracy:.2%} of {rows} test rows: {bounds} at 95 % (Wilson's interval)"


def _of_little_worth(comparison: Comparison) -> Iterator[Finding]:
    """Figures of so few rows that they tell nothing apart, and models that a constant answer beats."""
    if (rows := comparison.dataset.test_rows) < FEW_TEST_ROWS:
        yield Mark.NOTICE, f"WARNING: all figures are of {rows} test rows, too few to tell learners or settings apart"
    worse = [run.label for run in comparison.exact if run.test_accuracy is None and run.quality < 0]
    if worse:
        yield (
            Mark.NOTICE,
            f"WARNING: R2 of {', '.join(dict.fromkeys(worse))} is below 0: who always says the mean is nearer to the "
            "test rows' targets than this model",
        )


def _beside_float64(comparison: Comparison) -> Iterator[Finding]:
    """What fixed-point rows cost a linear model: the closed form in float64 beside it, where the two differ most."""
    for learner in comparison.learners:
        runs = [
            run
            for run in comparison.exact
            if run.label == learner and run.float64_ridge_max_abs_weight_deviation is not None
        ]
        if not runs:
            continue
        run = max(runs, key=lambda one: abs(one.quality - one.float64_quality))
        lost, what, rows = run.float64_quality - run.quality, comparison.quality_name, comparison.dataset.test_rows
        whose = f"{learner}: " if len(comparison.learners) > 1 else ""
        peer = "ridge" if run.ridge or run.choice else "least squares"
        said = f"{whose}float64 {peer} on the same rows has {what} {run.float64_quality:.4f}, and the federated model"
        if abs(lost) < NO_LOSS:
            yield Mark.FINE, f"{said} the same"
        elif what == "accuracy" and abs(lost) <= math.sqrt(run.float64_quality * (1 - run.float64_quality) / rows):
            yield Mark.FINE, f"{said} {run.quality:.4f}: within one standard error of {rows} test rows"
        else:
            better = "less" if lost > 0 else "more"
            yield (
                Mark.NOTICE,
                f"WARNING: {said} {run.quality:.4f}, {abs(lost):.4f} {better}: fixed-point rows differ by that; set a "
                "format with more fraction bits, or --format agreed",
            )


def _coarse(comparison: Comparison) -> Iterator[Finding]:
    """Columns that the format hardly holds, by name."""
    columns, first = comparison.coarse_columns, comparison.runs[0]
    offsets = " ".join(f"--offset {name}={offset:.12g}" for name, offset in comparison.offsets.items())
    offered = f": {offsets}" if offsets else ""
    if columns and first.agreement:
        yield (
            Mark.NOTICE,
            f"WARNING: most entries of {len(columns)} of {comparison.dataset.features} columns keep less than 8 bits "
            f"beside the largest: {', '.join(columns)}; mend outliers, take logarithms, or take an offset off"
            f"{offered}",
        )
    elif columns:
        said = RowFormat.parse(str(first.format)).warning(columns, comparison.dataset.features)
        yield (
            Mark.NOTICE,
            f"WARNING: {said}, or --format agreed" + (f", or take an offset off{offered}" if offered else ""),
        )


def _choices(comparison: Comparison) -> Iterator[Finding]:
    """The ridges that runs chose, each once."""
    said = {
        f"{run.label} chose ridge {run.choice.ridge:g} of {len(run.choice.ridges)} from {run.choice.ridges[0]:g} to "
        f"{run.choice.ridges[-1]:g}, by {run.choice.criterion} over {run.choice.folds} folds ({run.choice.rule})"
        for run in comparison.exact
        if run.choice
    }
    yield from ((Mark.FINE, sentence) for sentence in sorted(said))


def _few_clients(runs: Sequence[RunRecord]) -> Iterator[Finding]:
    """Say what no mode can hide: a total from which one client's vector follows."""
    if any(run.survivors == 1 for run in runs):
        yield Mark.NOTICE, "WARNING: a total of one client is its vector, in every mode; take at least 3 clients"
    if any(run.survivors == 2 for run in runs):
        yield (
            Mark.NOTICE,
            "WARNING: of a total of two clients each can compute the other's vector, in every mode: it subtracts its "
            "own; take at least 3 clients",
        )


def _messages(comparison: Comparison) -> Iterator[Finding]:
    """What each mode asks of a client, once for all its runs that ask the same."""
    said: dict[str, list[str]] = {}
    for run in comparison.exact:
        each = run.messages_per_sum or ()
        sums = f" in {run.sums} sums ({_counted(each)})" if len(each) > 1 else ""
        asked = f"vector messages {run.vector_messages_per_client}, messages {run.messages_per_client}{sums}"
        said.setdefault(f"{run.mode}: {asked}", []).append(run.label)
    for asked, learners in said.items():
        whose = f" [{', '.join(dict.fromkeys(learners))}]" if len(comparison.learners) > 1 else ""
        yield Mark.FINE, f"{asked}{whose}"


def _counted(numbers: tuple[int, ...]) -> str:
    """``4, 10 x 2``: equal neighbours once."""
    runs = ((number, len(list(same))) for number, same in groupby(numbers))
    return ", ".join(f"{count} x {number}" if count > 1 else str(number) for number, count in runs)


def _case(run: RunRecord) -> str:
    return f"{run.label} {run.mode} with {run.clients} clients, {run.partition}"
