"""Runs under noise, learner by learner: their accuracy by budget, and what the numbers mean and rest on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from analytic.noisy_solve import noise_drowns
from secagg.dp.conversions import large_delta
from simulations.compare.frontier import Repetitions, repetitions
from simulations.compare.record import RunRecord
from simulations.compare.run import Trust
from simulations.compare.tuning import tuning_sentences
from simulations.report.document import DatasetRecord

BESIDE_DPSGD: tuple[Trust, ...] = ("distributed", "central")
"""The kinds of trust whose accuracies are compared with those of dpsgd, whose trust is the second one."""

FLAT = "deepafl with T = 0"
"""The random features of a deep learner alone, whose single release is what 2T + 1 must beat to be worth it."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """The runs of one learner, cohort and partition: every kind of trust at every budget.

    Args:
        every: at least one.
        beside: gradient methods with budgets, of the same cohort and partition.
    """

    every: tuple[Repetitions, ...]
    beside: tuple[Repetitions, ...] = ()

    @property
    def first(self) -> RunRecord:
        """A record, the first, that says what all have in common."""
        return self.every[0].first

    @property
    def title(self) -> str:
        """Learner, cohort and partition."""
        return f"{self.first.label}, {self.first.clients} clients, {self.first.partition}"

    @property
    def noisy(self) -> tuple[RunRecord, ...]:
        """A record of each budget, kind of trust and mode."""
        return tuple(one.first for one in self.every if one.first.target_epsilon is not None)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The budgets that were asked for, in their order."""
        return tuple(dict.fromkeys(one.target_epsilon for one in self.noisy if one.target_epsilon is not None))

    @property
    def modes(self) -> Mapping[str, RunRecord]:
        """The modes that distributed noise ran over, each with a record of the last budget."""
        return {one.mode: one for one in self.noisy if one.trust == "distributed"}

    @property
    def told(self) -> tuple[Repetitions, ...]:
        """The runs without those that hold the same integers over a further mode."""
        return tuple(one for one in self.every if one is self.of(one.first.trust, one.first.target_epsilon))

    def of(self, trust: Trust | None, epsilon: float | None) -> Repetitions:
        """Return what one kind of trust reached; of several modes, whose integers are the same, the first."""
        return next(one for one in self.every if (one.first.trust, one.first.target_epsilon) == (trust, epsilon))

    def with_budget(self, epsilon: float | None) -> Iterator[Repetitions]:
        """Yield the gradient methods with a budget."""
        yield from (one for one in self.beside if one.first.target_epsilon == epsilon)


def budgets(records: Iterable[RunRecord]) -> Iterator[Budgets]:
    """Yield the runs under noise, grouped by learner, cohort and partition."""
    every = list(records)
    beside = repetitions(one for one in every if one.is_baseline and one.trust is not None)
    private = repetitions(one for one in every if one.is_private)
    for key, group in groupby(private, key=lambda one: (one.first.label, one.first.clients, one.first.partition)):
        same = tuple(one for one in beside if (one.first.clients, one.first.partition) == key[1:])
        yield Budgets(tuple(group), same)


def statement(one: Budgets, dataset: DatasetRecord) -> Iterator[str]:
    """Yield what the numbers mean and rest on."""
    if not one.noisy:
        return
    first = one.noisy[0]
    releases = sorted({record.sums for record in one.noisy if record.sums})
    yield (
        f"Unit of privacy: one {first.unit}. Adjacency: {first.adjacency}"
        f"{' (a client is zeroed out, its noise stays)' if first.unit == 'client' else ''}. delta {first.delta:g}. "
        f"{' or '.join(map(str, releases))} releases share each epsilon."
    )
    n_protected = first.clients if first.unit == "client" else dataset.train_rows
    if wrong := large_delta(first.delta or 0.0, n_protected, first.unit or "record"):
        yield f"WARNING: {wrong}."
    yield (
        f"Distributed: whoever sees the totals, and up to {first.colluders} colluding clients. It rests on at least "
        f"{first.min_noise_shares} of {first.clients} clients in every released total (the sum aborts below), on "
        "each of them adding its share, and on a secure sum that shows nothing but the total."
    )
    if "plain" in one.modes:
        yield "Over plain the server sees every upload, whose own share of noise is too little: it is no such sum."
    yield "Central: whoever sees the model, if the server is trusted with the exact totals and adds the noise."
    yield "Local: every upload is private on its own; no secure sum is needed."
    is_safle = first.learner == "safle"
    ball = "has a one in every group" if is_safle else "is clipped in exact integers to the public norm 1"
    yield (
        f"Every row {ball}; format, number of classes, largest number of rows, clip, thresholds and the sign of "
        "features are taken as public. Row counts are never released. Budgets are per run: repetitions on the same "
        "people would add up."
    )
    shared = [one.of("distributed", epsilon).first for epsilon in one.epsilons]
    yield from tuning_sentences(first.label, ((run.target_epsilon or 0.0, run.tuned) for run in shared))
    if one.beside:
        yield (
            "dpsgd: a softmax head by DP-SGD for who trusts the server with exact gradients, as central noise does; "
            "rows of norm 1, centred by the same release of their mean from the same part of the budget."
        )
        yield from tuning_sentences("dpsgd", ((run.first.target_epsilon or 0.0, run.first.tuned) for run in one.beside))
    yield from _personal(one)
    for other in one.beside:
        for trust in BESIDE_DPSGD:
            yield difference(one.of(trust, other.first.target_epsilon), other, dataset)
    yield "Accuracies are on test rows of a public data set and no release; noise is seeded: this is no deployment."
    if found := dict.fromkeys(name for own in one.every for run in own.records for name in run.uncertified):
        yield f"Not certified, the bits are this machine's: {', '.join(found)}."
    yield from _depth_advice(one, dataset.train_rows)


def _personal(one: Budgets) -> Iterator[str]:
    """Yield the accuracies of personal models beside those of the global one."""
    for own in one.told:
        of_alphas = [run.personalised_test_accuracy for run in own.records if run.personalised_test_accuracy]
        of_global = [run.local_test_accuracy for run in own.records if run.local_test_accuracy is not None]
        if not of_alphas:
            continue
        epsilon = own.first.target_epsilon
        of = "without noise" if epsilon is None else f"{own.first.trust}, epsilon {epsilon:g}"
        shown = ", ".join(
            f"{statistics.fmean(scores[alpha] for scores in of_alphas):.3f} with alpha {alpha}"
            for alpha in of_alphas[0]
        )
        yield f"On clients' own test rows, {of}: {statistics.fmean(of_global):.3f} by the global model, {shown}."


def difference(ours: Repetitions, theirs: Repetitions, dataset: DatasetRecord) -> str:
    """Compare two accuracies over the same splits, with the standard error of their mean difference."""
    pairs = [one.quality - other.quality for one, other in zip(ours.records, theirs.records, strict=True)]
    error = standard_error(pairs, n_train=dataset.train_rows, n_test=dataset.test_rows)
    own, other = ours.records[-1], theirs.records[-1]
    return (
        f"{own.label}, {own.trust}, minus {other.label} at epsilon {other.target_epsilon:g}: "
        f"{statistics.fmean(pairs):+.4f}, standard error {error:.4f} over {len(pairs)} overlapping splits; "
        f"{other.messages_per_client} rounds and {other.bytes_up_per_client / 1e6:.3g} MB a client against {own.sums} "
        f"sums and {own.bytes_up_per_client / 1e6:.3g} MB."
    )


def standard_error(values: Sequence[float], *, n_train: int, n_test: int) -> float:
    """The standard error of a mean over J splits of one pool of rows: s sqrt(1/J + n_test / n_train); NaN of one split.

    The splits share rows, so that s / sqrt J, the error of independent ones, is too small (Nadeau and Bengio, Machine
    Learning 2003, eq. 7).

    Args:
        values: one number for each split.
        n_train, n_test: rows of each split's two parts.
    """
    if len(values) < 2:
        return math.nan
    return statistics.stdev(values) * math.sqrt(1.0 / len(values) + n_test / n_train)


def _depth_advice(one: Budgets, n_rows: int) -> Iterator[str]:
    """Whether a deep learner's 2T + 1 releases are expected to be worth it, by the public rule."""
    for run in one.noisy:
        if not run.option("n_layers") or run.trust != "central" or run.sigma_gram is None:
            continue
        width = run.option("d_phi")
        if noise_drowns(n_rows=n_rows, row_norm=1.0, sigma_gram=run.sigma_gram, n_features=width):
            yield (
                f"At epsilon {run.target_epsilon:g} the noise of each of the {run.sums} sums exceeds the mean "
                f"eigenvalue of a layer's Gram ({n_rows} rows, width {width}): T = 0 is expected to do better."
            )


def depth_verdicts(every: Sequence[Budgets]) -> Iterator[tuple[Budgets, str]]:
    """Yield where a T above 0 does worse than the T = 0 that was run beside it: (which, a sentence)."""
    for deep in every:
        for flat in every:
            same = (flat.first.clients, flat.first.partition) == (deep.first.clients, deep.first.partition)
            if same and flat.first.label == FLAT and deep.first.option("n_layers"):
                for sentence in depth_verdict(deep, flat):
                    yield deep, sentence


def depth_verdict(deep: Budgets, flat: Budgets) -> Iterator[str]:
    """Yield where T = 0 really did better with the same budget, in a simulation that ran both."""
    for own in deep.told:
        run = own.first
        other = flat.of(run.trust, run.target_epsilon)
        if run.target_epsilon is not None and run.option("n_layers") and other.quality > own.quality:
            yield (
                f"{run.trust}, epsilon {run.target_epsilon:g}: T = 0 does better ({other.quality:.3f}) than T = "
                f"{run.option('n_layers')} ({own.quality:.3f})."
            )
