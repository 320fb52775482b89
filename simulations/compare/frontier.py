"""The frontier: models that no other beats at the same cost for a client."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from simulations.compare.record import Cost, RunRecord

COSTS: Mapping[Cost, str] = {
    "bytes": "bytes_up_per_client",
    "messages": "messages_per_client",
    "seconds": "client_seconds",
}
"""What a client pays, and the field that says how much."""


@dataclass(frozen=True, slots=True)
class Repetitions:
    """Records that differ in their seed alone.

    Args:
        records: at least one.
    """

    records: tuple[RunRecord, ...]

    @property
    def first(self) -> RunRecord:
        """The record that says what all of them were asked for."""
        return self.records[0]

    @property
    def quality(self) -> float:
        """Mean accuracy, or R2 of real targets."""
        return statistics.fmean(one.quality for one in self.records)

    @property
    def spread(self) -> float:
        """Standard deviation of the accuracies."""
        return statistics.pstdev(one.quality for one in self.records)

    @property
    def text(self) -> str:
        """Mean and spread; a star where what was tuned is at the edge of its grid."""
        star = "*" if self.first.tuned and self.first.tuned.at_edge else ""
        return f"{self.quality:.3f} +- {self.spread:.3f}{star}"

    def cost(self, cost: Cost) -> float:
        """Return a client's cost, in the mean."""
        return statistics.fmean(float(getattr(one, COSTS[cost])) for one in self.records)

    def is_rival_of(self, other: Repetitions) -> bool:
        """Whether the two are two answers to one question."""
        ours, theirs = self.first, other.first
        same = all(getattr(ours, name) == getattr(theirs, name) for name in ("clients", "partition", "target_epsilon"))
        return same and (ours.mode == theirs.mode or ours.is_baseline or theirs.is_baseline)

    def beats(self, other: Repetitions, cost: Cost) -> bool:
        """Whether it is at least as good for at most as much, and not the same in both."""
        ours, theirs = (self.quality, -self.cost(cost)), (other.quality, -other.cost(cost))
        return ours != theirs and all(own >= its for own, its in zip(ours, theirs, strict=True))


def repetitions(records: Iterable[RunRecord]) -> list[Repetitions]:
    """Group records that differ in their seed alone, in the order of the first of each."""
    groups: dict[str, list[RunRecord]] = {}
    for one in records:
        groups.setdefault(one.but_for_the_seed, []).append(one)
    return [Repetitions(tuple(group)) for group in groups.values()]


def points(records: Iterable[RunRecord]) -> list[Repetitions]:
    """Return what is compared: exact runs, noise from the clients, and gradient methods."""
    return repetitions(one for one in records if one.is_exact or one.is_baseline or one.trust == "distributed")


def with_unbeaten(records: Sequence[RunRecord]) -> tuple[RunRecord, ...]:
    """Return the records with the costs for which nothing beats them."""
    every = points(records)
    found: dict[int, tuple[Cost, ...]] = {}
    for point in every:
        rivals = [other for other in every if other.is_rival_of(point)]
        costs = tuple(cost for cost in COSTS if not any(other.beats(point, cost) for other in rivals))
        found |= {id(one): costs for one in point.records}
    return tuple(one.model_copy(update={"unbeaten": found.get(id(one))}) for one in records)
