"""Rows that count several times: whole-number weights of rows and of classes, exact, for every learner of exact sums.

A row of weight w is w copies of it. What a client adds to a sum is a sum over its rows, so it is taken apart by the
bits of the weights: sum over b of 2^b times what the rows whose weight has bit b add. Every product in it is one that
copies would make, so all bounds hold by the sum of the weights, and the result is that of the copies, bit for bit.

Balanced class weights follow from a first sum of class counts, as scikit-learn's do: n / (c n_k) for a row of class k,
in whole units of one over a stated denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytic.counts import CountSpec
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.learner import ClientRows, SumSpec
from analytic.parts import PartsSpec
from analytic.statistics import LABELS, IntVector, Statistics, StatisticsSpec, check_labels
from analytic.tallies import TallySpec, refuse_impossible
from analytic.whole_numbers import INT64_MAX, settle_whole_numbers

BALANCED: Literal["balanced"] = "balanced"
"""Class weights that give every class the same weight in all."""

DENOMINATOR = 1024
"""Default denominator of balanced weights; larger for more classes."""

MEMORY = "rows by bits of their weights"
"""Key in a client's own memory of its rows between sums, apart by the bits of their weights."""


def denominator_for(n_classes: int) -> int:
    """Return the denominator of balanced weights of so many classes."""
    return max(DENOMINATOR, 1 << (n_classes - 1).bit_length())


def balanced(counts: Sequence[int], denominator: int) -> tuple[int, ...]:
    """Return n / (c n_k) of each class in units of one over the denominator, rounded down.

    A class without rows has the weight of a class of one.
    """
    return tuple(denominator * sum(counts) // (len(counts) * max(1, count)) for count in counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSpec:
    """The sum of a learner over weighted rows, and beside it the sum of the weights' squares, and that of each class.

    Args:
        spec: the learner's own sum.
        squares: largest sum of squares.
        heaviest: largest weight of one row.
        n_classes: how many classes rows have; 0 for real targets.
        max_rows: largest number of rows of all clients together, each of the largest weight.
    """

    spec: SumSpec[Any]
    squares: int
    heaviest: int
    max_rows: int
    n_classes: int = 0

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        """(name, size, bound of the sum) a segment."""
        return (("weight squares", 1 + self.n_classes, self.squares), *self.spec.segments)

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        """Largest absolute value of an entry of each segment of one client with so many rows at most."""
        return (max_rows * self.heaviest**2, *self.spec.client_bounds(max_rows * self.heaviest))

    def to_vector(self, statistics: tuple[IntVector, Any]) -> IntVector:
        """One contribution as an int64 vector."""
        squares, own = statistics
        return np.concatenate([squares, self.spec.to_vector(own)])

    def from_vector(self, vector: IntVector) -> tuple[IntVector, Any]:
        """The sums of squares, and the learner's own contribution or total.

        Raises:
            InvalidRowsError: what the learner's own sum refuses.
        """
        n_squares = 1 + self.n_classes
        return vector[:n_squares].copy(), self.spec.from_vector(vector[n_squares:])

    def check_total(self, total: tuple[IntVector, Any], survivors: int) -> None:
        """Refuse a total that no rows add up to, or whose squares no whole weights have.

        Whole weights of 0 to the heaviest have squares of at least their sum and at most the heaviest times that, of
        all rows and of each class whose rows the total counts; a class has at most the squares of all.

        Raises:
            ImpossibleTotalError: says what it would need.
        """
        squares, own = total
        self.spec.check_total(own, survivors)
        refuse_impossible(self._broken(squares.tolist(), own), _count(own))

    def _broken(self, squares: list[int], total: Any) -> Iterator[str]:
        """The conditions that fail."""
        every, *of_classes = squares
        if not _count(total) <= every <= self.heaviest * _count(total):
            yield f"squares of weights from their sum to {self.heaviest} times it"
        if of_classes and not 0 <= min(of_classes) <= max(of_classes) <= every:
            yield "squares of a class's weights of 0 to those of all"
        rows = self._class_rows(total) if of_classes else None
        if rows is not None and any(
            not weight <= square <= self.heaviest * weight for weight, square in zip(rows, of_classes, strict=True)
        ):
            yield f"squares of each class's weights from their sum to {self.heaviest} times it"

    def _class_rows(self, total: Any) -> list[int] | None:
        """The sum of the weights of each class; None where a total does not say it."""
        spec = self.spec
        if isinstance(spec, CountSpec | StatisticsSpec):
            rows = spec.class_rows(total)
            return None if rows is None else rows.tolist()
        if not isinstance(spec, PartsSpec):
            return None
        if len(total) == self.n_classes and all(part.one_class and part.n_targets == 1 for part in spec.parts):
            return [own.count for own in total]  # a part for each class
        known = [part.class_rows(own) for part, own in zip(spec.parts, total, strict=True)]
        found = [rows for rows in known if rows is not None and len(rows) == self.n_classes]
        return np.sum(found, axis=0).tolist() if len(found) == len(total) else None


def _count(total: Any) -> int:
    """The sum of the weights of all rows in a learner's own total."""
    if isinstance(total, tuple):
        return sum(own.count for own in total)
    return int(total["count"] if isinstance(total, dict) else total.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of rows, or of their classes: a slot of ``Pipeline``, for every learner of exact sums.

    A learner's ``max_rows`` is then the largest sum of all rows' weights, by which its formats have room. Its penalties
    are in the units of weights as they are meant, which is a sum's over the denominator.

    Args:
        max_weight: largest weight that a client gives a row of its own; 1 lets only classes weigh.
        class_weights: whole numbers of units of one over the denominator, one a class; ``balanced`` takes them from a
            first sum of class counts; none let classes weigh the same. A row's weight is its own times its class's.
        denominator: a power of two: what class weights are counted in, so that balanced ones need no fractions.

    Raises:
        SpecificationError: a largest weight below one, or a denominator that is no power of two.

    Example:
        >>> Weights(max_weight=3, class_weights=[1, 2]).class_weights
        (1, 2)
    """

    max_weight: int = 1
    class_weights: tuple[int, ...] | Literal["balanced"] = ()
    denominator: int = 1

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "max_weight", "denominator")
        if self.max_weight < 1 or self.denominator < 1 or self.denominator & (self.denominator - 1):
            raise SpecificationError(
                f"weights need a largest one of at least 1 and a power of two to count them in, not {self.max_weight} "
                f"and {self.denominator}"
            )
        if isinstance(self.class_weights, str) and not self.is_balanced:
            raise SpecificationError(f"class_weights are whole numbers or {BALANCED!r}, not {self.class_weights!r}")
        if not self.is_balanced:
            object.__setattr__(self, "class_weights", tuple(map(int, self.class_weights)))

    def check(self, head: Any) -> None:
        """Refuse a learner whose rows cannot weigh so.

        Raises:
            SpecificationError: a learner behind a row map (its noise covers rows that count once), class weights for
                real targets or of another number, and numbers that a sum has no room for.
        """
        if not hasattr(head, "over") or getattr(head, "row_map", None) is not None:
            raise SpecificationError(
                "weights are for exact sums of afl, fedhip, random, deepafl and safle: noise is made for rows that "
                "count once each. Leave weights, or noise and row maps, out"
            )
        stated = self.stated
        heaviest = max(self.max_weight, self.max_weight * max(stated, default=1))
        if heaviest > head.max_rows:
            raise SpecificationError(
                f"a row may weigh {heaviest}, more than the {head.max_rows} that all rows may together: allow a larger "
                "max_rows, or smaller weights"
            )
        if self.class_weights and head.target_format != LABELS:
            raise SpecificationError("real targets have no classes to weigh: leave class_weights out")
        if stated and (len(stated) != head.n_targets or min(stated) < 0):
            raise SpecificationError(
                f"{head.n_targets} classes need as many whole numbers >= 0 as class weights, not {stated}"
            )
        if (squares := self._squares(head)) > INT64_MAX:
            raise SpecificationError(
                f"the sum of squares of weights that add up to {head.max_rows} can reach "
                f"2^{squares.bit_length() - 1} and must stay below 2^63: allow fewer rows, a smaller largest weight or "
                "a smaller denominator"
            )

    @property
    def is_balanced(self) -> bool:
        """Whether class weights follow from a first sum of class counts."""
        return self.class_weights == BALANCED

    @property
    def stated(self) -> tuple[int, ...]:
        """The class weights that are known before any sum."""
        return () if self.class_weights == BALANCED else self.class_weights

    def _squares(self, head: Any) -> int:
        """The largest sum of squares: each weight is at most the largest one, and at most the sum."""
        most: int = head.max_rows
        return most**2 if self.is_balanced else most * min(most, self.max_weight * max(self.stated, default=1))

    def _rows(self, head: Any) -> int:
        """Return how many rows of the largest weight fit; balanced classes weigh the denominator on average."""
        heaviest = self.denominator if self.is_balanced else max((1, *self.stated))
        most: int = head.max_rows
        return most // (self.max_weight * heaviest)

    def counts_spec(self, head: Any) -> TallySpec:
        """The first sum of balanced weights: the rows of each class, each by its own weight."""
        return TallySpec(
            shapes={"classes": (head.n_targets,)},
            bounds={"classes": head.max_rows},
            max_rows=self._rows(head),
            heaviest=self.max_weight,
            partitions=("classes",),
            max_count=head.max_rows,
        )

    def spec(self, own: SumSpec[Any], class_weights: tuple[int, ...], head: Any) -> WeightedSpec:
        """A learner's sum over weighted rows."""
        return WeightedSpec(
            spec=own,
            squares=self._squares(head),
            heaviest=self.max_weight * max((1, *class_weights)),
            max_rows=self._rows(head),
            n_classes=head.n_targets if head.target_format == LABELS else 0,
        )

    def of(self, rows: ClientRows, class_weights: tuple[int, ...], n_classes: int) -> IntVector:
        """Return the weight of each row, shape (n,), in units of one over the denominator.

        Raises:
            InvalidRowsError: a weight above the largest one, or rows without a class where classes weigh.
            NotReadyError: the class counts are still to come.
        """
        if self.is_balanced and not class_weights:
            raise NotReadyError("balanced weights need the total of the class counts, which has not arrived yet")
        own = self._own(rows)
        return own * np.array(class_weights, dtype=np.int64)[_labels(rows, n_classes)] if class_weights else own

    def _own(self, rows: ClientRows) -> IntVector:
        if rows.weights is None:
            return np.ones(len(rows), dtype=np.int64)
        if (above := int(np.count_nonzero(rows.weights > self.max_weight))) > 0:
            raise InvalidRowsError(
                f"{above} of {len(rows)} rows weigh more than the {self.max_weight} that was agreed on; agree on a "
                "larger max_weight or scale the weights down"
            )
        return rows.weights

    def class_counts(self, rows: ClientRows, head: Any) -> dict[str, Any]:
        """One client's part in the first sum of balanced weights.

        Raises:
            InvalidRowsError: weights that are too large, or add up to more than ``max_rows``; rows without a class.
        """
        weights, labels = self._own(rows), _labels(rows, head.n_targets)
        if (count := sum(weights.tolist())) > head.max_rows:
            raise InvalidRowsError(f"rows whose weights add up to {count} are more than max_rows={head.max_rows}")
        classes = np.zeros(head.n_targets, dtype=np.int64)
        np.add.at(classes, labels, weights)
        return {"classes": classes, "count": weights.sum()}

    def balanced(self, counts: list[int], max_rows: int) -> tuple[int, ...]:
        """The weights of ``balanced``, if sums have room for them.

        Raises:
            InvalidRowsError: counts below zero.
            SpecificationError: weights that add up to more than ``max_rows``.
        """
        if min(counts) < 0:
            raise InvalidRowsError(
                "a class has fewer than 0 rows in this total: a client sent wrong counts; check versions"
            )
        units = self.denominator * sum(counts)
        if units > max_rows or self.denominator < len(counts):
            raise SpecificationError(
                f"balanced weights of {sum(counts)} rows of {len(counts)} classes in units of 1/{self.denominator} "
                f"need a denominator of at least the number of classes and a max_rows of {units}, not {max_rows}: "
                "agree on another denominator, or a larger max_rows"
            )
        return balanced(counts, self.denominator)

    def squares_of(self, rows: ClientRows, weights: IntVector, head: Any) -> IntVector:
        """The sum of the squares of these weights, of all rows and then of each class's where rows have classes."""
        squares, targets = weights * weights, rows.targets
        if head.target_format != LABELS:
            return np.array([squares.sum()], dtype=np.int64)
        if not len(rows):
            return np.zeros(1 + head.n_targets, dtype=np.int64)
        is_of = targets[:, None] == np.arange(head.n_targets) if targets.ndim == 1 else targets == 1
        return np.array([squares.sum(), *(squares[own].sum() for own in is_of.T)], dtype=np.int64)


def _labels(rows: ClientRows, n_classes: int) -> NDArray[np.intp]:
    if rows.targets.ndim != 1:
        raise InvalidRowsError(f"class weights need one class a row, labels of shape (n,), not {rows.targets.shape}")
    if len(rows):
        check_labels(rows.targets, n_classes)
    return rows.targets.astype(np.intp)


def weighted_sum(
    rows: ClientRows, weights: IntVector, spec: SumSpec[Any], contribution: Callable[[ClientRows], Any], max_rows: int
) -> Any:
    """Return what weighted rows add to a sum; what a client adds without rows (the RI process) it adds once.

    Raises:
        InvalidRowsError: weights that add up to more than ``max_rows``, and what the contribution refuses.
    """
    if (count := sum(weights.tolist())) > max_rows:
        raise InvalidRowsError(
            f"rows whose weights add up to {count} are more than the {max_rows} that the sum has room for; agree on a "
            "larger max_rows or on smaller weights"
        )
    once = spec.to_vector(contribution(rows.taken(np.zeros(0, dtype=np.intp)).unweighted))
    vector = once.copy()
    for bit, part in _by_bits(rows, weights):
        vector += (spec.to_vector(contribution(part)) - once) << bit
    return spec.from_vector(vector)


def _by_bits(rows: ClientRows, weights: IntVector) -> Iterator[tuple[int, ClientRows]]:
    """(b, rows whose weight has bit b), the same objects in every sum, so that a learner finds what it kept."""
    known, parts = rows.memory.get(MEMORY, (b"", {}))
    if known != weights.tobytes():
        bits = range(int(weights.max(initial=0)).bit_length())
        parts = {bit: rows.taken(np.flatnonzero(weights >> bit & 1)).unweighted for bit in bits}
        rows.memory[MEMORY] = weights.tobytes(), parts
    return ((bit, part) for bit, part in parts.items() if len(part))


def worth(parts: Sequence[Statistics], squares: IntVector) -> tuple[Statistics, ...]:
    """Return statistics of weighted rows with the rows that their weights are worth as their counts.

    Weights w are worth (sum w)^2 / sum w^2 equal ones (Kish): a heavy row hides behind the others no better than one
    among so many. Each class is counted by its own squares, a QDA's parts as well. Other parts (folds, patterns) are
    counted by the figures of all, which is too many rows where a part's own weights are heavier. What has a row has one
    at least.

    Args:
        parts: a total, or what it is of.
        squares: sums of squared weights, of all rows and of each class (``Weights.squares_of``).
    """
    of_all, *by_class = squares.tolist()
    known = [part.class_rows for part in parts if part.class_rows is not None]
    if len(parts) == len(by_class) > 1 and not known:  # a part for each class
        pairs = zip(parts, by_class, strict=True)
        return tuple(replace(part, count=part.count**2 // max(1, square)) for part, square in pairs)
    count = sum(part.count for part in parts)
    found = [replace(part, count=max(part.count * count // max(1, of_all), min(1, part.count))) for part in parts]
    if by_class and {len(rows) for rows in known} == {len(by_class)}:
        own = np.array(known).astype(object)
        equal = np.maximum(own * own.sum(axis=0) // np.maximum(1, by_class), own > 0)
        found = [replace(part, target_sum=n) for part, n in zip(found, equal.astype(np.int64), strict=True)]
    return tuple(found)
