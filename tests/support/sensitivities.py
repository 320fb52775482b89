"""Declared against measured sensitivity of every sum of a private form, on neighbouring data sets.

Grey box, the idea of DP-Recorder (PETS 2026): the learner's own client statistics are run on both data sets of a
pair, and their difference is measured in the noise's own metric, in exact integers: sum of d^2 / 2 v is what the pair
costs in zCDP.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from analytic.errors import AnalyticError
from analytic.learner import ClientRows
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg.dp import DistributedNoise
from secagg.dp.noise import CoordinateNoise
from simulations.audit.two_worlds import extreme_rows, toy_rows

Pair = tuple[ClientRows, ClientRows]
"""One client's rows in two neighbouring data sets."""

TRIED_EXACTLY = 6
"""Pairs of a sum, the farthest ones in float64, whose cost is then computed in exact integers."""

PAIRS = 60
"""Replaced pairs of each kind that are tried in a sum."""

ANGLES = np.linspace(0.5, 1.0, 11) * np.pi
"""Between the rows of a replaced pair: from a right angle to the opposite direction."""

MODELS = 3
"""Runs with noise, from whose models each further sum's statistics are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One sum: what its noise was priced for, and the most that a pair costs.

    Args:
        label: the sum's.
        declared: zCDP cost by the release.
        worst: the largest of all pairs.
        leaves_withheld_alone: whether no pair differs where there is no noise.
    """

    label: str
    declared: Fraction
    worst: Fraction
    leaves_withheld_alone: bool

    @property
    def ratio(self) -> float:
        """Worst over declared sensitivity, both in standard deviations."""
        return math.sqrt(self.worst / self.declared)


def measured(form: PrivateForm, n_features: int, n_classes: int, rng: np.random.Generator) -> list[Measured]:
    """Measure every sum of a private form.

    Args:
        form: what a plan made of a learner.
        n_features, n_classes: of its rows.
        rng: draws rows and noise.
    """
    pairs = _pairs(form.plan, n_features, n_classes, rng)
    cohort = toy_rows(rng, 12, n_features, n_classes, form.plan)
    found: dict[int, list[tuple[Fraction, bool]]] = {}
    for _ in range(MODELS):
        for number, costs in enumerate(_run(form, cohort, pairs, rng)):
            found.setdefault(number, []).extend(costs)
    return [
        Measured(
            label=release.label,
            declared=release.rho,
            worst=max(cost for cost, _ in found[number]),
            leaves_withheld_alone=all(still for _, still in found[number]),
        )
        for number, release in enumerate(form.releases)
    ]


def _pairs(plan: PrivacyPlan, n_features: int, n_classes: int, rng: np.random.Generator) -> list[Pair]:
    """Neighbours: extreme rows that come, go or replace each other beside others, or whole clients of such rows."""
    rows = extreme_rows(rng, n_features, n_classes, plan)
    empty, beside = rows[0].taken(np.zeros(0, dtype=np.intp)), toy_rows(rng, 2, n_features, n_classes, plan)
    if plan.adjacency == "add-remove":
        found = [(empty, row) for row in rows]
    else:
        found = [(rows[i], rows[j]) for i, j in rng.permutation(np.transpose(np.triu_indices(len(rows), 1)))[:PAIRS]]
        opposite = [(one, other) for one in rows for other in rows if _are_opposite(one, other)]
        found += [opposite[place] for place in rng.permutation(len(opposite))[:PAIRS]]
        found += [] if plan.nonnegative else list(_at_angles(rows[0], rng))
    if plan.unit == "client":
        return found
    return [(_both(beside, one), _both(beside, other)) for one, other in found]


def _are_opposite(one: ClientRows, other: ClientRows) -> bool:
    return len(one) == len(other) and np.array_equal(one.features, -other.features)


def _at_angles(row: ClientRows, rng: np.random.Generator) -> Iterator[Pair]:
    """Rows of one class at obtuse angles: two directions of rows that are as long as any."""
    n_features = row.features.shape[1]
    for _ in range(3):
        one, other = np.linalg.qr(rng.standard_normal((n_features, 2)))[0].T
        for angle in ANGLES:
            turned = np.cos(angle) * one + np.sin(angle) * other
            yield ClientRows(one[None], row.targets[:1]), ClientRows(turned[None], row.targets[:1])


def _both(first: ClientRows, second: ClientRows) -> ClientRows:
    return ClientRows(
        np.concatenate([first.features, second.features]), np.concatenate([first.targets, second.targets])
    )


def _run(
    form: PrivateForm, cohort: ClientRows, pairs: Sequence[Pair], rng: np.random.Generator
) -> Iterator[list[tuple[Fraction, bool]]]:
    """What pairs cost in each sum of one run with noise, and whether they leave alone what has none.

    Both data sets of a pair go through the run's models with a memory of their own, as in a real run.
    """
    learner: Any = form.learner
    model, held = learner.init(), _fresh(cohort)
    kept = [(_fresh(one), _fresh(other)) for one, other in pairs]
    for noise in form.noises:
        spec = learner.next_sum(model)
        total = noise.total if isinstance(noise, DistributedNoise) else noise
        apart = []
        for one, other in kept:
            try:
                vectors = [spec.to_vector(learner.client_statistics(model, rows)) for rows in (one, other)]
            except AnalyticError:
                continue  # a refused row leaves no client
            apart.append(vectors[0] - vectors[1])
        yield _costs(apart, total)
        exact = spec.to_vector(learner.client_statistics(model, held))
        noisy = exact + np.round(_sigmas(total) * rng.standard_normal(len(exact))).astype(np.int64)
        model = learner.update(model, spec.from_vector(noisy), 1)


def _sigmas(noise: CoordinateNoise) -> np.ndarray[Any, Any]:
    sigmas: np.ndarray[Any, Any] = np.sqrt(np.array([0.0, *map(float, noise.variances)]))[noise.levels]
    return sigmas


def _fresh(rows: ClientRows) -> ClientRows:
    return ClientRows(rows.features, rows.targets)


def _costs(apart: Sequence[np.ndarray[Any, Any]], noise: CoordinateNoise) -> list[tuple[Fraction, bool]]:
    """Of the pairs that are farthest apart, in exact integers; every pair is looked at where there is no noise."""
    assert apart, "a learner that refuses every row has no sensitivity to measure"
    noisy = noise.levels > 0
    sigmas = _sigmas(noise)[noisy]
    lengths = [float(np.square(one[noisy] / sigmas).sum()) for one in apart]
    farthest = np.argsort(lengths)[::-1][:TRIED_EXACTLY]
    still = not any(one[~noisy].any() for one in apart)
    return [(_cost(apart[place], noise), still) for place in farthest]


def _cost(difference: np.ndarray[Any, Any], noise: CoordinateNoise) -> Fraction:
    cost = Fraction(0)
    for level, variance in enumerate(noise.variances, start=1):
        cost += Fraction(sum(int(d) ** 2 for d in difference[noise.levels == level]), 2 * variance)
    return cost
