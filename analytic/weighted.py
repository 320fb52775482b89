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
from analytic.evaluation import TallySpec
from analytic.learner import Around, ClientRows, SumSpec, canonical_context
from analytic.model_arrays import Parts
from analytic.parts import PartsSpec, PatternsSpec
from analytic.row_format import RowFormat
from analytic.statistics import INT64_MAX, LABELS, IntVector, Statistics, StatisticsSpec, check_labels
from analytic.total_check import refuse_impossible
from analytic.whole_numbers import settle_whole_numbers

BALANCED: Literal["balanced"] = "balanced"
"""Class weights that give every class the same weight in all."""

DENOMINATOR = 1024
"""What balanced weights are counted in where nobody says it; more where there are more classes."""

MEMORY = "rows by bits of their weights"
"""Where a client keeps its rows between sums, apart by the bits of their weights."""


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
        spec = self.spec.parts if isinstance(self.spec, PatternsSpec) else self.spec
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightedModel:
    """What the sums so far have shown.

    Args:
        model: the learner's own model.
        class_weights: of each class, in units of one over the denominator; empty where classes weigh the same.
        denominator: what class weights are counted in.
    """

    model: Any
    class_weights: tuple[int, ...] = ()
    denominator: int = 1

    @property
    def path(self) -> Any:
        """How a penalty was chosen, in the units of weights as they are meant: a ridge that can be stated."""
        return self.model.path.of_one(self.denominator)

    @property
    def ridge(self) -> float:
        """The penalty that was chosen, likewise."""
        return float(self.model.ridge) / self.denominator

    def __getattr__(self, name: str) -> Any:
        """What the learner's own model has: its weights, a ridge that was chosen, and so on."""
        if name in WeightedModel.__slots__:
            raise AttributeError(name)
        return getattr(self.model, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(Around):
    """A learner whose rows have weights of their own, or of their class; a learner of the same sums, or of one more.

    Args:
        learner: AFL, FedHiP, random, DeepAFL, SAFLe, or a ``Chosen`` one, without a private form. Its ``max_rows`` is
            the largest sum of all rows' weights, by which its formats have room. Its penalties are in the units of
            weights as they are meant, which is a sum's over the denominator.
        max_weight: largest weight that a client gives a row of its own; 1 lets only classes weigh.
        class_weights: whole numbers of units of one over the denominator, one a class; ``balanced`` takes them from a
            first sum of class counts; none let classes weigh the same. A row's weight is its own times its class's.
        denominator: a power of two: what class weights are counted in, so that balanced ones need no fractions.

    Raises:
        SpecificationError: a learner behind a row map (its noise covers rows that count once), class weights for real
            targets or of another number, and numbers that a sum has no room for.
    """

    learner: Any
    max_weight: int = 1
    class_weights: tuple[int, ...] | Literal["balanced"] = ()
    denominator: int = 1

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "max_weight", "denominator")
        inner = self._plain
        if not hasattr(self.learner, "over") or getattr(inner, "row_map", None) is not None:
            raise SpecificationError(
                "weights are for exact sums of afl, fedhip, random, deepafl and safle: noise is made for rows that "
                "count once each. Leave weights, or noise and row maps, out"
            )
        if self.max_weight < 1 or self.denominator < 1 or self.denominator & (self.denominator - 1):
            raise SpecificationError(
                f"weights need a largest one of at least 1 and a power of two to count them in, not {self.max_weight} "
                f"and {self.denominator}"
            )
        heaviest = self.max_weight * max(self.class_weights, default=1) if self.class_weights != BALANCED else 1
        if max(heaviest, self.max_weight) > self.max_rows:
            raise SpecificationError(
                f"a row may weigh {max(heaviest, self.max_weight)}, more than the {self.max_rows} that all rows may "
                "together: allow a larger max_rows, or smaller weights"
            )
        if self.class_weights and inner.target_format != LABELS:
            raise SpecificationError("real targets have no classes to weigh: leave class_weights out")
        if self.class_weights != BALANCED:
            stated = tuple(map(int, self.class_weights))
            object.__setattr__(self, "class_weights", stated)
            if stated and (len(stated) != inner.n_targets or min(stated) < 0):
                raise SpecificationError(
                    f"{inner.n_targets} classes need as many whole numbers >= 0 as class weights, not {stated}"
                )
        if self._squares > INT64_MAX:
            raise SpecificationError(
                f"the sum of squares of weights that add up to {self.max_rows} can reach "
                f"2^{self._squares.bit_length() - 1} and must stay below 2^63: allow fewer rows, a smaller largest "
                "weight or a smaller denominator"
            )

    @property
    def _plain(self) -> Any:
        """The closed form itself, without what chooses its penalty; where columns are agreed on, with that."""
        return self.learner if hasattr(self.learner, "agreement") else getattr(self.learner, "learner", self.learner)

    @property
    def _inner(self) -> Any:
        """The learner with its penalties in the units of the sum."""
        return self.learner.over(self.denominator)

    @property
    def name(self) -> str:
        """The learner's name in reports and files."""
        return f"weighted-{self.learner.name}"

    @property
    def _squares(self) -> int:
        """The largest sum of squares: each weight is at most the largest one, and at most the sum."""
        if self.class_weights == BALANCED:
            return self.max_rows**2
        return self.max_rows * min(self.max_rows, self.max_weight * max(self.class_weights, default=1))

    @property
    def _counts(self) -> TallySpec:
        """The first sum of balanced weights: the rows of each class, each by its own weight."""
        return TallySpec(
            shapes={"classes": (self.n_targets,)},
            bounds={"classes": self.max_rows},
            max_rows=self._rows,
            heaviest=self.max_weight,
            partitions=("classes",),
            max_count=self.max_rows,
        )

    @property
    def _rows(self) -> int:
        """How many rows of the largest weight there is room for; balanced classes weigh the denominator on average."""
        stated = self.denominator if self.class_weights == BALANCED else max((1, *self.class_weights))
        return self.max_rows // (self.max_weight * stated)

    def init(self) -> WeightedModel:
        """Class weights are known before any sum where they are stated."""
        stated = () if self.class_weights == BALANCED else self.class_weights
        return WeightedModel(model=self._inner.init(), class_weights=stated, denominator=self.denominator)

    def _awaits_counts(self, model: WeightedModel) -> bool:
        return self.class_weights == BALANCED and not model.class_weights

    def next_sum(self, model: WeightedModel) -> SumSpec[Any] | None:
        """The class counts where weights are to be balanced, then the learner's own sums."""
        if self._awaits_counts(model):
            return self._counts
        own = self._inner.next_sum(model.model)
        if own is None:
            return None
        heaviest = self.max_weight * max((1, *model.class_weights))
        n_classes = self.n_targets if self._plain.target_format == LABELS else 0
        return WeightedSpec(
            spec=own, squares=self._squares, heaviest=heaviest, max_rows=self._rows, n_classes=n_classes
        )

    def weights_of(self, model: WeightedModel, rows: ClientRows) -> IntVector:
        """How often each row counts, shape (n,), in units of one over the denominator.

        Raises:
            InvalidRowsError: a weight above the largest one, or rows without a class where classes weigh.
            NotReadyError: the class counts are still to come.
        """
        if self._awaits_counts(model):
            raise NotReadyError("balanced weights need the total of the class counts, which has not arrived yet")
        own = self._own_weights(rows)
        if not model.class_weights:
            return own
        return own * np.array(model.class_weights, dtype=np.int64)[self._labels(rows)]

    def _own_weights(self, rows: ClientRows) -> IntVector:
        if rows.weights is None:
            return np.ones(len(rows), dtype=np.int64)
        if (above := int(np.count_nonzero(rows.weights > self.max_weight))) > 0:
            raise InvalidRowsError(
                f"{above} of {len(rows)} rows weigh more than the {self.max_weight} that was agreed on; agree on a "
                "larger max_weight or scale the weights down"
            )
        return rows.weights

    def _labels(self, rows: ClientRows) -> NDArray[np.intp]:
        if rows.targets.ndim != 1:
            raise InvalidRowsError(
                f"class weights need one class a row, labels of shape (n,), not {rows.targets.shape}"
            )
        if len(rows):
            check_labels(rows.targets, self.n_targets)
        return rows.targets.astype(np.intp)

    def client_statistics(self, model: WeightedModel, rows: ClientRows) -> Any:
        """One client's class counts, or its contribution to the learner's own sum.

        Raises:
            InvalidRowsError: see ``weights_of``, weights that add up to more than ``max_rows``, and what the learner
                refuses.
        """
        if self._awaits_counts(model):
            weights, labels = self._own_weights(rows), self._labels(rows)
            if (count := sum(weights.tolist())) > self.max_rows:
                raise InvalidRowsError(f"rows whose weights add up to {count} are more than max_rows={self.max_rows}")
            classes = np.zeros(self.n_targets, dtype=np.int64)
            np.add.at(classes, labels, weights)
            return {"classes": classes, "count": weights.sum()}
        inner, weights = self._inner, self.weights_of(model, rows)
        spec = inner.next_sum(model.model)
        total = self._summed(rows, weights, spec, lambda part: inner.client_statistics(model.model, part))
        squares = weights * weights
        return np.array([squares.sum(), *self._by_class(rows.targets, squares)], dtype=np.int64), total

    def _by_class(self, targets: NDArray[Any], squares: IntVector) -> list[int]:
        """The sum of these of each class's rows, where rows have classes."""
        if self._plain.target_format != LABELS:
            return []
        if not len(targets):
            return [0] * self.n_targets
        is_of = targets[:, None] == np.arange(self.n_targets) if targets.ndim == 1 else targets == 1
        return [int(squares[own].sum()) for own in is_of.T]

    def _summed(
        self, rows: ClientRows, weights: IntVector, spec: SumSpec[Any], contribution: Callable[[ClientRows], Any]
    ) -> Any:
        """What weighted rows add to a sum; what a client adds without rows (the RI process) it adds once."""
        if (count := sum(weights.tolist())) > self.max_rows:
            raise InvalidRowsError(
                f"rows whose weights add up to {count} are more than the {self.max_rows} that the sum has room for; "
                "agree on a larger max_rows or on smaller weights"
            )
        once = spec.to_vector(contribution(rows.taken(np.zeros(0, dtype=np.intp)).unweighted))
        vector = once.copy()
        for bit, part in self._by_bits(rows, weights):
            vector += (spec.to_vector(contribution(part)) - once) << bit
        return spec.from_vector(vector)

    @staticmethod
    def _by_bits(rows: ClientRows, weights: IntVector) -> Iterator[tuple[int, ClientRows]]:
        """(b, rows whose weight has bit b), the same objects in every sum, so that a learner finds what it kept."""
        known, parts = rows.memory.get(MEMORY, (b"", {}))
        if known != weights.tobytes():
            bits = range(int(weights.max(initial=0)).bit_length())
            parts = {bit: rows.taken(np.flatnonzero(weights >> bit & 1)).unweighted for bit in bits}
            rows.memory[MEMORY] = weights.tobytes(), parts
        return ((bit, part) for bit, part in parts.items() if len(part))

    def update(self, model: WeightedModel, total: Any, survivors: int) -> WeightedModel:
        """Class weights from the counts, or the learner's own model with the next total.

        Raises:
            SpecificationError: counts whose balanced weights add up to more than ``max_rows``.
        """
        if self._awaits_counts(model):
            return replace(model, class_weights=self._balanced(total["classes"].tolist()))
        return replace(model, model=self._inner.update(model.model, total[1], survivors))

    def _balanced(self, counts: list[int]) -> tuple[int, ...]:
        """The weights of ``balanced``, if sums have room for them."""
        if min(counts) < 0:
            raise InvalidRowsError("a class has fewer than no rows in this total: a client gave wrong counts; try anew")
        units = self.denominator * sum(counts)
        if units > self.max_rows or self.denominator < len(counts):
            raise SpecificationError(
                f"balanced weights of {sum(counts)} rows of {len(counts)} classes in units of 1/{self.denominator} "
                f"need a denominator of at least the number of classes and a max_rows of {units}, not {self.max_rows}: "
                "agree on another denominator, or a larger max_rows"
            )
        return balanced(counts, self.denominator)

    def exact_total(
        self, model: WeightedModel, total: Any, survivors: int
    ) -> Statistics | tuple[Statistics, ...] | IntVector | None:
        """What the learner's own total shows, with the rows that its weights are worth as their count.

        Weights w are worth (sum w)^2 / sum w^2 equal ones (Kish): a heavy row hides behind the others no better than
        one among so many. Each class is counted by its own squares, a QDA's parts as well. Other parts (folds,
        patterns) are counted by the figures of all, which is too many rows where a part's own weights are heavier. What
        has a row has one at least.
        """
        if self._awaits_counts(model):
            return Statistics.of_counts(int(total["count"]), total["classes"])
        squares, own = total
        found = self._inner.exact_total(model.model, own, survivors)
        if found is None or isinstance(found, np.ndarray):
            return found
        parts: Sequence[Statistics] = (found,) if isinstance(found, Statistics) else found
        worth = self._worth(parts, *squares.tolist())
        return worth[0] if isinstance(found, Statistics) else worth

    def _worth(self, parts: Sequence[Statistics], squares: int, *by_class: int) -> tuple[Statistics, ...]:
        """These parts with the rows that their weights are worth, by the sums of squares of all and of each class."""
        known = [part.class_rows for part in parts if part.class_rows is not None]
        if len(parts) == len(by_class) > 1 and not known:  # a part for each class
            pairs = zip(parts, by_class, strict=True)
            return tuple(replace(part, count=part.count**2 // max(1, square)) for part, square in pairs)
        count = sum(part.count for part in parts)
        worth = [replace(part, count=max(part.count * count // max(1, squares), min(1, part.count))) for part in parts]
        if by_class and {len(rows) for rows in known} == {len(by_class)}:
            own = np.array(known).astype(object)
            equal = np.maximum(own * own.sum(axis=0) // np.maximum(1, by_class), own > 0)
            worth = [replace(part, target_sum=n) for part, n in zip(worth, equal.astype(np.int64), strict=True)]
        return tuple(worth)

    def settled(self, model: WeightedModel) -> tuple[Any, Any]:
        """The closed form with its penalty in the units of the sum, and its model: what predicts."""
        inner, own = self._inner, model.model
        return inner.settled(own) if hasattr(inner, "settled") else (inner, own)

    def personalise(self, model: WeightedModel, rows: ClientRows, alphas: Sequence[float]) -> list[WeightedModel]:
        """Models of a client's own for each alpha, from its weighted rows (``FedHiP.personalise``).

        Raises:
            SpecificationError: a learner that has none.
        """
        learner, complete = self.settled(model)
        if not hasattr(learner, "personal_models"):
            raise SpecificationError(f"{self.name} makes no personal models; take fedhip")
        own = self.own_statistics(model, rows)
        adopted = getattr(self.learner, "adopted", lambda before, found: found)
        found = learner.personal_models(complete, own, alphas)
        return [replace(model, model=adopted(model.model, one)) for one in found]

    def evaluation_format(self, model: WeightedModel) -> RowFormat:
        """The format in which real targets are judged, of columns that were agreed on (``Agreed``)."""
        found: RowFormat = self.learner.evaluation_format(model.model)
        return found

    def own_statistics(self, model: WeightedModel, rows: ClientRows) -> Statistics:
        """A client's own statistics as a complete linear model's total holds them, of its weighted rows."""
        learner, _ = self.settled(model)
        found: Statistics = self._summed(rows, self.weights_of(model, rows), learner.spec, learner.own_statistics)
        return found

    def _predicting(self, model: WeightedModel) -> tuple[Any, Any]:
        return self._plain, getattr(model.model, "complete", model.model)

    def weights_bytes(self, model: WeightedModel) -> bytes:
        """The bytes of the learner's own weights."""
        weights: bytes = self._inner.weights_bytes(model.model)
        return weights

    def context_bytes(self, model: WeightedModel) -> bytes:
        """The configuration, the class weights as far as they are known, and what the learner's clients received."""
        known = np.array(model.class_weights, dtype="<i8").tobytes()
        return canonical_context(self, known, self._inner.context_bytes(model.model))

    def take_apart(self, model: WeightedModel) -> Parts:
        """The arrays of the learner's own model, and the class weights that were found."""
        is_personal = hasattr(self._inner, "settled") and not hasattr(type(model.model), "complete")
        parts: Parts = (self._plain if is_personal else self._inner).take_apart(model.model)
        if self.class_weights == BALANCED and model.class_weights:
            parts.arrays["class_weights"] = np.array(model.class_weights, dtype=np.int64)
        return parts

    def put_together(self, parts: Parts) -> WeightedModel:
        """The model of these parts."""
        found = self.init().class_weights
        if "class_weights" in parts:
            found = tuple(parts.integers("class_weights", (self.n_targets,)).tolist())
        own = self._inner.put_together(parts)
        return WeightedModel(model=own, class_weights=found, denominator=self.denominator)
