"""Statistics of several parts of the rows in one sum: folds, or rows that are labelled alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from analytic.errors import InvalidRowsError
from analytic.statistics import IntVector, Statistics, StatisticsSpec
from analytic.total_check import checked_count, refuse_impossible, too_many_rows

MAX_PARTIES = 2**31
"""No more sites can be in a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSpec:
    """The public shape of a sum of statistics, one for each part; every row is in one part.

    Args:
        parts: each part's own shape, with room for all rows.
    """

    parts: tuple[StatisticsSpec, ...]

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment, part by part."""
        return tuple(
            (f"{name} {place}", size, bound)
            for place, part in enumerate(self.parts, start=1)
            for name, size, bound in part.segments
        )

    @property
    def max_rows(self) -> int:
        """Largest number of rows of all clients together."""
        return self.parts[0].max_rows

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most."""
        return tuple(bound for part in self.parts for bound in part.client_bounds(max_rows))

    def to_vector(self, statistics: Sequence[Statistics]) -> IntVector:
        """One contribution as an int64 vector.

        Raises:
            InvalidRowsError: another number or shape of parts, or more rows in all than ``max_rows``.
        """
        count = sum(one.count for one in statistics)
        if count > self.max_rows:
            raise too_many_rows(count, self.max_rows)
        return np.concatenate([part.to_vector(one) for part, one in zip(self.parts, statistics, strict=True)])

    def from_vector(self, vector: IntVector) -> tuple[Statistics, ...]:
        """The statistics of each part.

        Raises:
            InvalidRowsError: another size or type, or counts that no total can have.
        """
        sizes = [sum(size for _, size, _ in part.segments) for part in self.parts]
        if vector.dtype != np.int64 or vector.shape != (sum(sizes),):
            raise InvalidRowsError(
                f"this sum needs an int64 vector of shape ({sum(sizes)},), not {vector.dtype} of shape {vector.shape}"
            )
        vectors = np.split(vector, np.cumsum(sizes)[:-1])
        statistics = tuple(part.from_vector(own) for part, own in zip(self.parts, vectors, strict=True))
        count = sum(one.count for one in statistics)
        if count > self.max_rows:
            raise InvalidRowsError(f"a total of {count} rows is outside 0 to {self.max_rows}")
        return statistics

    def check_total(self, total: Sequence[Statistics], survivors: int) -> None:
        """Refuse a total with a part that no rows add up to.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        for part, own in zip(self.parts, total, strict=True):
            part.check_total(own, survivors)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternsSpec:
    """The public shape of a sum of statistics by pattern, and of how many sites have rows of each.

    Args:
        parts: the statistics.
    """

    parts: PartsSpec

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        return (("sites", len(self.parts.parts), MAX_PARTIES), *self.parts.segments)

    @property
    def max_rows(self) -> int:
        """Largest number of rows of all clients together."""
        return self.parts.max_rows

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most, one site."""
        return (1, *self.parts.client_bounds(max_rows))

    def to_vector(self, statistics: Sequence[Statistics]) -> IntVector:
        """One contribution as an int64 vector: one site, where it has such rows."""
        sites = [int(one.count > 0) for one in statistics]
        return np.concatenate([np.array(sites, dtype=np.int64), self.parts.to_vector(statistics)])

    def from_vector(self, vector: IntVector) -> tuple[Statistics, ...]:
        """The statistics of each pattern.

        Raises:
            InvalidRowsError: another size or type, or counts that no total can have.
        """
        n = len(self.parts.parts)
        checked_count(vector, self, self.max_rows)
        found = self.parts.from_vector(vector[n:])
        return tuple(replace(one, n_clients=count) for one, count in zip(found, vector[:n].tolist(), strict=True))

    def check_total(self, total: Sequence[Statistics], survivors: int) -> None:
        """Refuse a total with a pattern that no rows add up to, or that more sites have rows of than took part.

        Changes over time (sites that leave, or take rows out) leave fewer sites in the count, never more.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        most = max((own.n_clients or 0 for own in total), default=0)
        if most > survivors:
            needed = f"at most the {survivors} sites that took part to have rows of a class or pattern"
            refuse_impossible(iter((needed,)), sum(own.count for own in total))
        self.parts.check_total(total, survivors)


def together(statistics: Sequence[Statistics]) -> Statistics:
    """The statistics of all parts' rows."""
    return reduce(add, statistics)
