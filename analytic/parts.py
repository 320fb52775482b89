"""Statistics of several parts of the rows in one sum: folds, or rows that are labelled alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from analytic.errors import InvalidRowsError
from analytic.statistics import IntVector, Statistics, StatisticsSpec
from analytic.tallies import refuse_impossible, too_many_rows

MAX_PARTIES = 2**31
"""No more sites can be in a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSpec:
    """The public shape of a sum of statistics, one for each part; every row is in one part.

    Args:
        parts: each part's own shape, with room for all rows.
        counts_sites: whether the sum says how many sites have rows of each part, which gates need to judge it alone.
    """

    parts: tuple[StatisticsSpec, ...]
    counts_sites: bool = False

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment, part by part."""
        own = (
            (f"{name} {place}", size, bound)
            for place, part in enumerate(self.parts, start=1)
            for name, size, bound in part.segments
        )
        return (("sites", len(self.parts), MAX_PARTIES), *own) if self.counts_sites else tuple(own)

    @property
    def max_rows(self) -> int:
        """Largest number of rows of all clients together."""
        return self.parts[0].max_rows

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most, one site."""
        own = (bound for part in self.parts for bound in part.client_bounds(max_rows))
        return (1, *own) if self.counts_sites else tuple(own)

    def to_vector(self, statistics: Sequence[Statistics]) -> IntVector:
        """One contribution as an int64 vector.

        Raises:
            InvalidRowsError: another number or shape of parts, or more rows in all than ``max_rows``.
        """
        count = sum(one.count for one in statistics)
        if count > self.max_rows:
            raise too_many_rows(count, self.max_rows)
        vectors = [part.to_vector(one) for part, one in zip(self.parts, statistics, strict=True)]
        sites = np.array([one.count > 0 for one in statistics], dtype=np.int64)
        return np.concatenate([sites, *vectors] if self.counts_sites else vectors)

    def from_vector(self, vector: IntVector) -> tuple[Statistics, ...]:
        """The statistics of each part.

        Raises:
            InvalidRowsError: another size or type, or counts that no total can have.
        """
        n_sites = len(self.parts) * self.counts_sites
        sizes = [n_sites, *(sum(size for _, size, _ in part.segments) for part in self.parts)]
        if vector.dtype != np.int64 or vector.shape != (sum(sizes),):
            raise InvalidRowsError(
                f"this sum needs an int64 vector of shape ({sum(sizes)},), not {vector.dtype} of shape {vector.shape}"
            )
        sites, *vectors = np.split(vector, np.cumsum(sizes)[:-1])
        statistics = tuple(part.from_vector(own) for part, own in zip(self.parts, vectors, strict=True))
        count = sum(one.count for one in statistics)
        if count > self.max_rows:
            raise InvalidRowsError(f"a total of {count} rows is outside 0 to {self.max_rows}")
        if self.counts_sites:
            pairs = zip(statistics, sites.tolist(), strict=True)
            return tuple(replace(one, n_clients=n_clients) for one, n_clients in pairs)
        return statistics

    def check_total(self, total: Sequence[Statistics], survivors: int) -> None:
        """Refuse a total with a part that no rows add up to, or that more sites have rows of than took part.

        Changes over time (sites that leave, or take rows out) leave fewer sites in the count, never more.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        if max((own.n_clients or 0 for own in total), default=0) > survivors:
            needed = f"at most the {survivors} sites that took part to have rows of a class or pattern"
            refuse_impossible(iter((needed,)), sum(own.count for own in total))
        for part, own in zip(self.parts, total, strict=True):
            part.check_total(own, survivors)


def together(statistics: Sequence[Statistics]) -> Statistics:
    """The statistics of all parts' rows."""
    return reduce(add, statistics)
