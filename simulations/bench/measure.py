"""Measuring side by side: every candidate once a round, so that a noisy machine disturbs all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

Timed = Callable[[], float]
"""Does its work once and says how many seconds the measured part of it took."""

LEAST_SECONDS = 0.1
MOST_RUNS = 60
"""Short work is repeated until it has taken LEAST_SECONDS in all, MOST_RUNS times at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median of several runs, between the smallest and the largest."""

    median: float
    low: float
    high: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of at least one value."""
        return cls(median=statistics.median(values), low=min(values), high=max(values), runs=len(values))


def cpu_seconds(work: Callable[[], object]) -> Timed:
    """CPU seconds of this process, all threads together: what other people's processes disturb least."""
    return _timed(work, time.process_time)


def wall_seconds(work: Callable[[], object]) -> Timed:
    """Seconds on the clock, for work that is spread over threads."""
    return _timed(work, time.perf_counter)


def alternate(candidates: Mapping[str, Timed], *, runs: int) -> Mapping[str, tuple[float, ...]]:
    """Seconds of each candidate, round by round, after a warming-up round that does not count: A B A B ..."""
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    first = seconds[next(iter(candidates))]
    while len(first) < runs or (sum(first) < LEAST_SECONDS and len(first) < MOST_RUNS):
        for name, candidate in candidates.items():
            seconds[name].append(candidate())
    return {name: tuple(values) for name, values in seconds.items()}


def quotient(above: Sequence[float], below: Sequence[float]) -> Spread:
    """The spread of the rounds' own quotients, each of two measurements that stood next to each other."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> Timed:
    def timed() -> float:
        started = clock()
        work()
        return clock() - started

    return timed
