"""Sums of named arrays of whole numbers, and the row count at the end of every sum's vector."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from analytic.errors import ImpossibleTotalError, InvalidRowsError, SpecificationError
from analytic.whole_numbers import INT64_MAX

IntArray = NDArray[np.int64]
IntVector = NDArray[np.int64]
Tallies = Mapping[str, IntArray]
"""What is summed, by name; every array is int64."""

COUNT_ROOM = 2**62
"""The bound of a row count in every sum, far above what any cohort holds."""


def count_segment(max_rows: int) -> tuple[str, int, int]:
    """The segment of the row count: wide enough that it cannot wrap around, whatever the cohort does.

    All other bounds follow from ``max_rows`` rows in all. A cohort that holds more could leave them and wrap; its
    count then says so, and ``from_vector`` refuses the total.

    Raises:
        SpecificationError: so many rows that a million clients' counts could leave int64.
    """
    if max_rows > COUNT_ROOM >> 20:
        raise SpecificationError(f"max_rows must be at most 2^42, not {max_rows}")
    return ("count", 1, COUNT_ROOM)


def checked_count(vector: IntVector, segments: Sequence[tuple[str, int, int]], max_rows: int) -> int:
    """Return the row count at the end of a vector of these segments, or of a total.

    Raises:
        InvalidRowsError: another size or type than the segments say, or a count that no total can have.
    """
    size = sum(size for _, size, _ in segments)
    if vector.dtype != np.int64 or vector.shape != (size,):
        raise InvalidRowsError(
            f"this sum needs an int64 vector of shape ({size},), not {vector.dtype} of shape {vector.shape}"
        )
    if not 0 <= vector[-1] <= max_rows:
        raise InvalidRowsError(f"a total of {int(vector[-1])} rows is outside 0 to {max_rows}")
    return int(vector[-1])


def too_many_rows(count: int, max_rows: int) -> InvalidRowsError:
    """Return the error for more rows than the specification sized its sum for."""
    return InvalidRowsError(
        f"{count} rows are more than the {max_rows} that the specification allows for all clients together; "
        "agree on a larger max_rows or use fewer rows"
    )


def refuse_impossible(broken: Iterator[str], count: int) -> None:
    """Raise where a condition is broken.

    Raises:
        ImpossibleTotalError: names the first one.
    """
    if (first := next(broken, None)) is not None:
        raise ImpossibleTotalError(
            f"a total of {count} rows needs {first}, and this one does not have that: no rows add up to it, and no "
            "model is made. A client sent something else than statistics of its rows, or a key holder another total. "
            "Have each site check its rows and version; do not sum again without one site, since the difference of "
            "two totals would be that site"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TallySpec:
    """Named arrays of whole numbers, and the row count behind them.

    Args:
        shapes: name to shape.
        bounds: name to the largest absolute value of an entry of the total.
        max_rows: largest number of rows that all clients together may hold, each of the largest weight.
        heaviest: largest weight of one row.
        partitions: arrays whose last axis counts every row once.
        max_count: largest sum of the weights of all rows; None where rows have none, for ``max_rows``.

    Raises:
        SpecificationError: a total could leave int64.
    """

    shapes: Mapping[str, tuple[int, ...]]
    bounds: Mapping[str, int]
    max_rows: int
    heaviest: int = 1
    partitions: tuple[str, ...] = ()
    max_count: int | None = None

    def __post_init__(self) -> None:
        name, bound = max(self.bounds.items(), key=lambda item: item[1])
        if bound > INT64_MAX:
            raise SpecificationError(
                f"the total of {name} over {self._most} rows can reach 2^{bound.bit_length() - 1} and must stay "
                "below 2^63: allow fewer rows or fewer bits"
            )

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        arrays = ((name, prod(shape), self.bounds[name]) for name, shape in self.shapes.items())
        return (*arrays, count_segment(self._most))

    @property
    def _most(self) -> int:
        return self.max_rows if self.max_count is None else self.max_count

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most."""
        weight = max_rows * self.heaviest
        arrays = (-(-self.bounds[name] * weight // self._most) for name in self.shapes)
        return (*arrays, weight)

    def to_vector(self, statistics: Tallies) -> IntVector:
        """One contribution, int64, its arrays in the order of ``shapes``.

        Raises:
            InvalidRowsError: more rows than ``max_rows``, or of more weight than ``max_count``.
        """
        count = int(statistics["count"])
        if count > self._most:
            raise too_many_rows(count, self._most)
        return np.concatenate([*(statistics[name].ravel() for name in self.shapes), np.array([count])])

    def from_vector(self, vector: IntVector) -> Tallies:
        """The arrays that ``to_vector`` wrote, or a sum of such vectors.

        Raises:
            InvalidRowsError: another size or type, or a count that no total can have.
        """
        tallies = {"count": np.array(checked_count(vector, self.segments, self._most))}
        ends = np.cumsum([size for _, size, _ in self.segments])
        for (name, shape), part in zip(self.shapes.items(), np.split(vector, ends[:-1]), strict=False):
            tallies[name] = part.reshape(shape)
            tallies[name].setflags(write=False)
        return tallies

    def check_total(self, total: Tallies, survivors: int) -> None:
        """Refuse a total in which arrays that count every row once do not.

        Raises:
            ImpossibleTotalError: says which.
        """
        count = int(total["count"])
        lines = ((name, total[name].reshape(-1, self.shapes[name][-1])) for name in self.partitions)
        broken = (name for name, own in lines if (own < 0).any() or (own.sum(axis=1) != count).any())
        refuse_impossible((f"{name} that count every row once" for name in broken), count)
