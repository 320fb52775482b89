"""A private comparison for people and machines: arguments, table, JSON and the statement behind the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table

from analytic.noisy_solve import noise_drowns
from federation.datasets import Dataset
from federation.errors import UsageError
from simulations.compare.options import CompareOptions
from simulations.compare.private_comparison import (
    TRUSTS,
    PrivacyTerms,
    PrivateComparison,
    PrivateSettings,
    without_depth,
)
from simulations.compare.records import PrivateRecord
from simulations.data.partitions import Partition

DEEP = {"n_layers": 1, "d_phi": 64, "d_f": 64}
"""The options that the private form of deepafl has, with its own defaults."""


def settings_from(
    options: CompareOptions,
    dataset: Dataset,
    *,
    n_clients: int,
    partition: Partition,
    deep: Mapping[str, int] | None,
) -> PrivateSettings:
    """The settings that arguments ask for; cohort and partition are ``compare``'s own.

    Args:
        options: what was given.
        dataset: the rows.
        n_clients: the cohort.
        partition: how they are dealt.
        deep: the options of a deep learner; None for the linear one.

    Raises:
        UsageError: a parameter out of range, or an option that the private form of a deep learner does not have.
    """
    privacy, federation = options.privacy, options.federation
    unknown = (deep or {}).keys() - DEEP.keys()
    if unknown:
        raise UsageError(
            f"with --epsilon deepafl takes {', '.join(DEEP)} with --option, not {', '.join(sorted(unknown))}; leave "
            "that out, or --epsilon"
        )
    terms = PrivacyTerms(
        delta=privacy.delta,
        unit=privacy.unit,
        adjacency=privacy.adjacency,
        gram_share=privacy.gram_share,
        mean_share=privacy.mean_share if deep is None else 0.0,
        client_rows=-(-len(dataset.x_train) // n_clients),
    )
    if deep is not None:
        chosen: dict[str, Any] = {**DEEP, **deep}
        terms = replace(terms, **chosen)
    if options.learning.ridge is not None:
        terms = replace(terms, ridge=options.learning.ridge)
    if privacy.epsilon is None:
        raise UsageError("a private comparison needs --epsilon")
    return PrivateSettings(
        epsilons=privacy.epsilon,
        terms=terms,
        n_clients=n_clients,
        partition=partition,
        promised_survivors=privacy.promise,
        colluders=privacy.colluders,
        dropouts=federation.dropouts,
        n_seeds=privacy.seeds,
        seed=federation.seed,
    )


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


def depth_verdicts(comparisons: Sequence[PrivateComparison]) -> Iterator[tuple[PrivateComparison, str]]:
    """Where a T above 0 does worse than the T = 0 that was run beside it: (which, a sentence)."""
    flat = {one.title: one for one in comparisons if one.settings.terms.n_layers == 0}
    for deep in comparisons:
        if deep.settings.terms.n_layers:
            for sentence in depth_verdict(deep, flat[without_depth(deep.settings).title]):
                yield deep, sentence


def depth_verdict(deep: PrivateComparison, flat: PrivateComparison) -> Iterator[str]:
    """Where T = 0 really did better with the same budget, in a simulation that ran both."""
    for record in deep.records:
        other = flat.of(record.trust, record.target_epsilon)
        if record.target_epsilon is not None and other.accuracy_mean > record.accuracy_mean:
            yield (
                f"{record.trust}, epsilon {record.target_epsilon:g}: T = 0 does better ({other.accuracy_mean:.3f}) "
                f"than T = {record.layers} ({record.accuracy_mean:.3f})."
            )


def print_private(comparisons: Sequence[PrivateComparison], console: Console) -> None:
    """Tables, each statement below the tables that it is about, and where a deep learner should have been flat."""
    for said, group in groupby(comparisons, key=lambda one: tuple(statement(one))):
        for comparison in group:
            console.print(table_of(comparison))
        for sentence in said:
            console.print(sentence)
    for deep, sentence in depth_verdicts(comparisons):
        console.print(f"{deep.title}: {sentence}")


def table_of(comparison: PrivateComparison) -> Table:
    """A row for each epsilon, a column for each kind of trust; mean and spread over seeds."""
    exact = comparison.of("non-private", None)
    table = Table(title=f"{comparison.dataset.name}, {comparison.title}: non-private {accuracy_text(exact)}")
    for name in ("epsilon", "tight", "rho", "sigma G", "sigma H", *(t for t in TRUSTS if t != "non-private")):
        table.add_column(name, justify="right")
    for epsilon in dict.fromkeys(r.target_epsilon for r in comparison.records if r.target_epsilon is not None):
        records = [comparison.of(trust, epsilon) for trust in TRUSTS if trust != "non-private"]
        first = records[0]
        numbers = (first.epsilon, first.epsilon_tight, first.rho, first.sigma_gram, first.sigma_cross)
        table.add_row(*(f"{number:.4g}" for number in numbers), *(accuracy_text(record) for record in records))
    return table


def accuracy_text(record: PrivateRecord) -> str:
    """Mean and spread over repetitions."""
    return f"{record.accuracy_mean:.3f} +- {record.accuracy_spread:.3f}"
