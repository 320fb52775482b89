"""What accuracy costs: every way to train against bytes, messages and seconds of a client, and which nothing beats."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal

from simulations.compare.rows import Row
from simulations.report.document import Count, Natural, NotNegative, Positive, Record

Cost = Literal["bytes", "messages", "seconds"]
COSTS: Mapping[Cost, str] = {
    "bytes": "bytes_up_per_client",
    "messages": "messages_per_client",
    "seconds": "client_seconds",
}
"""What a client pays, and the field that says how much."""


class FrontierPoint(Record, title="frontier point"):
    """One way to train, what it reached and what it cost a client."""

    learner: str
    """The closed form or baseline, with the size that --sweep gave it, or its depth where it is private."""
    mode: str
    """How the sums were made; baseline where no closed form was trained."""
    clients: Count
    """Clients of the cohort."""
    partition: str
    """How training rows were dealt."""
    epsilon: Positive | None
    """The budget that was asked for, with noise from the clients (from the server for dpsgd); null without noise."""
    quality: float
    """Part of the test rows that are classified correctly, or R2 of real targets; mean over repetitions under noise."""
    bytes_up_per_client: Natural
    """Bytes that a client sent over all sums or rounds."""
    messages_per_client: Count
    """Messages in which it sent them."""
    client_seconds: NotNegative
    """Time that a client computed; of a baseline its whole training, the server's part in it, divided by clients."""
    unbeaten: tuple[Cost, ...]
    """The costs for which nothing else of the same cohort, partition, budget and mode, and no baseline, was at least as
    good for at most as much."""

    @property
    def family(self) -> str:
        """The learner without its size."""
        return self.learner.partition(" ")[0]

    def cost(self, cost: Cost) -> float:
        """What a client paid."""
        return float(getattr(self, COSTS[cost]))

    def is_rival_of(self, other: FrontierPoint) -> bool:
        """Whether the two are two answers to one question."""
        same = (self.clients, self.partition, self.epsilon) == (other.clients, other.partition, other.epsilon)
        return same and (self.mode == other.mode or "baseline" in (self.mode, other.mode))

    def beats(self, other: FrontierPoint, cost: Cost) -> bool:
        """Whether it is at least as good for at most as much, and not the same in both."""
        ours, theirs = (self.quality, -self.cost(cost)), (other.quality, -other.cost(cost))
        return ours != theirs and all(own >= its for own, its in zip(ours, theirs, strict=True))


def frontier(trained: Iterable[Row]) -> Iterator[FrontierPoint]:
    """Yield a point for each exact run, gradient baseline and budget: noise from clients, or dpsgd's."""
    told = (row for row in trained if row.trust in (None, "distributed") or row.mode == "baseline")
    points = [_point(list(repetitions)) for _, repetitions in groupby(told, key=_but_for_the_seed)]
    for point in points:
        yield point.model_copy(update={"unbeaten": tuple(cost for cost in COSTS if _unbeaten(point, points, cost))})


def _unbeaten(point: FrontierPoint, points: Sequence[FrontierPoint], cost: Cost) -> bool:
    return not any(other.is_rival_of(point) and other.beats(point, cost) for other in points)


def _but_for_the_seed(row: Row) -> tuple[object, ...]:
    return tuple(row.model_dump(exclude={"seed", "test_accuracy"}).values())


def _point(repetitions: Sequence[Row]) -> FrontierPoint:
    """Rows that differ in their seed alone."""
    first = repetitions[0]
    return FrontierPoint(
        **{name: getattr(first, name) for name in ("learner", "mode", "clients", "partition", *COSTS.values())},
        epsilon=first.target_epsilon,
        quality=statistics.fmean(row.quality for row in repetitions),
        unbeaten=(),
    )
