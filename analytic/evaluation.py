"""A complete model judged on rows that stay where they are: one sum of counts, and the report that its total makes.

An evaluation is a learner of one sum: any mode, ``federate`` and ``fit_pooled`` take it as they take AFL, and a site
has its own report, which it tells nobody, from ``fit_pooled(evaluation, own_rows)``. All that is summed are whole
numbers, so the report of a federation equals that of the pooled rows, bit for bit: rows are scored exactly, and rounded
once. (A learner with a row map scores in float64, where a tie may fall as BLAS adds.) They must be other rows than the
model's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, SpecificationError
from analytic.intervals import Interval, delong, wilson
from analytic.learner import RECEIVED, AnalyticLearner, ClientRows, SumSpec, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.row_format import MAX_BITS, FloatMatrix, RowFormat
from analytic.statistics import LABELS, UNKNOWN, Statistics, bits_of_squares, check_labels
from analytic.tallies import IntArray, Tallies, TallySpec
from analytic.whole_numbers import settle_whole_numbers

Count = tuple[int, int]
"""How many, and of how many."""

CONFIDENCE = RowFormat(integer_bits=1, fraction_bits=20, signed=False)
"""In which confidences, 0 to 1, are added up."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(ABC, Generic[R]):
    """A learner of one sum whose model is a report; its kinds say of what.

    A row's scores are float64 and its machine's, as ``decision_function`` says; what is counted of them is exact.

    Args:
        learner: the closed form.
        model: its complete model, which all parties hold; None where only the configuration is asked for.
        max_rows: largest number of rows that all clients together may hold.
    """

    name: ClassVar[str]

    learner: AnalyticLearner[Any]
    model: Any = field(metadata=RECEIVED)
    max_rows: int

    @property
    def n_features(self) -> int:
        """Columns of the rows that are judged."""
        return int(self.learner.n_features)

    @property
    @abstractmethod
    def spec(self) -> TallySpec:
        """What is summed."""

    @abstractmethod
    def client_statistics(self, model: R | None, rows: ClientRows) -> Tallies:
        """What one client's rows add to the sum."""

    @abstractmethod
    def report(self, total: Tallies) -> R:
        """What a total says."""

    @abstractmethod
    def tallies(self, report: R) -> Tallies:
        """The total that a report was made of."""

    def init(self) -> R | None:
        """Nothing is known before the sum."""
        return None

    def next_sum(self, model: R | None) -> SumSpec[Any] | None:
        """The one sum."""
        return self.spec if model is None else None

    def update(self, model: R | None, total: Tallies, survivors: int) -> R:
        """Return the report of a total."""
        return self.report(total)

    def exact_total(self, model: R | None, total: Any, survivors: int) -> Statistics:
        """Return how many rows were judged."""
        return Statistics.of_counts(int(total["count"]))

    def decision_function(self, model: R | None, features: NDArray[Any]) -> FloatMatrix:
        """Return the scores of the model that is judged, shape (n, c)."""
        return self.learner.decision_function(self.model, features)

    def take_apart(self, model: R | None) -> Parts:
        """Return the report's counts by name."""
        found = {} if model is None else self.tallies(model)
        return Parts({name: np.atleast_1d(array) for name, array in found.items()})

    def weights_bytes(self, model: R | None) -> bytes:
        """Return the report's counts as bytes, to compare and to hash."""
        return b"".join(array.tobytes() for _, array in sorted(self.take_apart(model).arrays.items()))

    def context_bytes(self, model: R | None) -> bytes:
        """Return what is counted, and the configuration and bytes of the model that is judged."""
        judged = self.learner.context_bytes(self.model), self.learner.weights_bytes(self.model)
        return canonical_context(self, *judged, *([self.weights_bytes(model)] if model else []))

    def put_together(self, parts: Parts) -> R | None:
        """Return the report of these counts; None where there are none yet."""
        shapes = self.spec.shapes
        if next(iter(shapes)) not in parts:
            return None
        tallies = {name: parts.integers(name, shape) for name, shape in shapes.items()}
        if "count" in parts:
            tallies["count"] = parts.integers("count", (1,)).reshape(())
        return self.report(tallies)

    def _check(self) -> None:
        if self.model is not None and self.learner.next_sum(self.model) is not None:
            raise SpecificationError(
                f"this model of {self.learner.name} still needs a sum: complete it before it is judged"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreReport(ABC):
    """What binned scores say of a classifier; where a class has no rows, its figures are NaN.

    Args:
        own: shape (c, n_bins), rows of class i by the score of class i.
        others: shape (c, n_bins), rows of other classes by the score of class i.
        confidence: shape (3, n_bins), by a score from 0 to 1: how many there are, those of them that were right, and
            their sum in units of 2^-20. The scores are those of the classes that were chosen; of several classes a row
            all of known labels, and right is a yes.
        low, high: between which the bins of ``own`` and ``others`` divide scores evenly; the outer ones are open.
    """

    own: IntArray
    others: IntArray
    confidence: IntArray
    low: float
    high: float

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows that were judged."""

    @property
    @abstractmethod
    def correct(self) -> Count:
        """How many rows, or known labels, were classified correctly, and of how many."""

    @property
    @abstractmethod
    def found(self) -> tuple[Count, ...]:
        """How many of each class's rows were found, and of how many."""

    @property
    @abstractmethod
    def confirmed(self) -> tuple[Count, ...]:
        """How many of the rows that were taken for a class were right, and of how many."""

    @property
    def accuracy(self) -> float:
        """Part of the rows, or of their known labels, that was classified correctly."""
        return _part(*self.correct)

    @property
    def accuracy_interval(self) -> Interval:
        """Wilson's interval of the accuracy; labels of one row depend on each other, so that rows are counted."""
        return wilson(*self.correct, n_rows=self.n_rows)

    @property
    def recall(self) -> tuple[float, ...]:
        """Of each class's rows the part that was found."""
        return tuple(_part(*one) for one in self.found)

    @property
    def recall_interval(self) -> tuple[Interval, ...]:
        """Wilson's interval of each recall."""
        return tuple(wilson(*one) for one in self.found)

    @property
    def precision(self) -> tuple[float, ...]:
        """Of the rows that were taken for a class the part that was right."""
        return tuple(_part(*one) for one in self.confirmed)

    @property
    def precision_interval(self) -> tuple[Interval, ...]:
        """Wilson's interval of each precision."""
        return tuple(wilson(*one) for one in self.confirmed)

    @property
    def figures(self) -> dict[str, Any]:
        """What a report says in short, by name, None where it is undefined: ``auc_within`` goes with ``auc``."""
        labels = range(len(self.own))
        areas = [self.auc(label) for label in labels]
        return {
            "rows": self.n_rows,
            "accuracy": _known(self.accuracy),
            "accuracy_interval": _known_bounds(self.accuracy_interval),
            "recall": tuple(map(_known, self.recall)),
            "recall_interval": tuple(map(_known_bounds, self.recall_interval)),
            "precision": tuple(map(_known, self.precision)),
            "precision_interval": tuple(map(_known_bounds, self.precision_interval)),
            "auc": tuple(_known(area) for area, _ in areas),
            "auc_within": tuple(_known(off) for _, off in areas),
            "auc_interval": tuple(_known_bounds(self.auc_interval(label)) for label in labels),
            "calibration_error": _known(self.calibration_error),
        }

    def to_frame(self) -> Any:
        """Return ``figures`` as a data frame of pandas, a row for each class; an interval is two columns.

        Raises:
            ImportError: pandas is not installed.
        """
        return _frame(self.figures, "class", len(self.own))

    def auc(self, label: int) -> tuple[float, float]:
        """Return the area under the curve of one class against the rest, and how far that of unbinned scores can be.

        Two rows in one bin count as a tie; whatever their order is, the area moves by half of their part at most.
        """
        own, others = ([int(count) for count in counts[label]] for counts in (self.own, self.others))
        won, below = 0, 0
        for mine, theirs in zip(own, others, strict=True):
            won += 2 * mine * below + mine * theirs
            below += theirs
        ties, pairs = sum(a * b for a, b in zip(own, others, strict=True)), 2 * sum(own) * sum(others)
        return _part(won, pairs), _part(ties, pairs)

    def auc_interval(self, label: int) -> Interval:
        """Return DeLong's interval of that area, wider by how far the area of unbinned scores can be."""
        (_, off), (low, high) = self.auc(label), delong(self.own[label].tolist(), self.others[label].tolist())
        return (low, high) if np.isnan(off) else (max(0.0, low - off), min(1.0, high + off))

    @property
    def calibration(self) -> tuple[tuple[int, float, float], ...]:
        """For each bin of the confidence: how many, the part of them that was right, and their mean confidence."""
        unit = 1 << CONFIDENCE.fraction_bits
        return tuple((n, _part(right, n), _part(units, n * unit)) for n, right, units in self.confidence.T.tolist())

    @property
    def calibration_error(self) -> float:
        """Mean distance of confidence from accuracy over bins, weighted (ECE; Naeini et al., AAAI 2015)."""
        off = sum(n * abs(right - sure) for n, right, sure in self.calibration if n)
        n_scores = int(self.confidence[0].sum())
        return off / n_scores if n_scores else float("nan")


def _frame(figures: Mapping[str, Any], unit: str, n: int) -> Any:
    """Return a row for each of n units; what is said of all of them is in every row."""
    columns: dict[str, list[Any]] = {unit: list(range(n))}
    for name, value in figures.items():
        values = list(value) if isinstance(value, tuple) and name != "accuracy_interval" else [value] * n
        what, is_interval, _ = name.partition("_interval")
        if is_interval:
            for end, at in (("low", 0), ("high", 1)):
                columns[f"{what}_{end}"] = [None if one is None else one[at] for one in values]
        else:
            columns[name] = values
    return import_module("pandas").DataFrame(columns)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassReport(ScoreReport):
    """How a classifier did on all survivors' rows; where a class has no rows, its figures are NaN.

    Args:
        confusion: shape (c, c), rows of class i that were taken for class j.
    """

    confusion: IntArray

    @property
    def n_rows(self) -> int:
        """Rows that were judged."""
        return int(self.confusion.sum())

    @property
    def correct(self) -> Count:
        """How many rows were classified correctly, and of how many."""
        return int(self.confusion.trace()), self.n_rows

    @property
    def found(self) -> tuple[Count, ...]:
        """How many of each class's rows were found, and of how many."""
        return tuple((int(self.confusion[k, k]), int(row.sum())) for k, row in enumerate(self.confusion))

    @property
    def confirmed(self) -> tuple[Count, ...]:
        """How many of the rows that were taken for a class were right, and of how many."""
        return tuple((int(self.confusion[k, k]), int(row.sum())) for k, row in enumerate(self.confusion.T))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabelsReport(ScoreReport):
    """How a classifier of several classes a row did, class by class, on the rows that are labelled for the class.

    Args:
        n_rows: rows that were judged.
        taken: shape (c, 2, 2), rows that are of class i or not (0, 1) and were taken for it or not (0, 1).
    """

    n_rows: int
    taken: IntArray

    @property
    def correct(self) -> Count:
        """How many known labels were right, and of how many."""
        return int(self.taken.trace(axis1=1, axis2=2).sum()), int(self.taken.sum())

    @property
    def found(self) -> tuple[Count, ...]:
        """How many of each class's rows were taken for it, and of how many."""
        return tuple((yes, no + yes) for no, yes in self.taken[:, 1].tolist())

    @property
    def confirmed(self) -> tuple[Count, ...]:
        """How many of the rows that were taken for a class are of it, and of how many."""
        return tuple((right, wrong + right) for wrong, right in self.taken[:, :, 1].tolist())


S = TypeVar("S", bound=ScoreReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEvaluation(Evaluation[S]):
    """Judge a classifier by binned scores; ``ClassEvaluation`` and ``LabelsEvaluation`` say of how many classes a row.

    Scores of lda and logistic are no estimates of one-hot labels and mostly lie beyond the range: of these the AUC is
    bounded loosely, the calibration says nothing, and the recall of classes is what it is.

    Args:
        n_classes: c, how many classes.
        n_bins: bins of scores; more bins bound the AUC more closely and cost 2 c + 3 entries each.
        low, high: between which scores are told apart.

    Raises:
        SpecificationError: an incomplete model, no classes, bins or range.
    """

    n_classes: int
    n_bins: int = 200
    low: float = -0.5
    high: float = 1.5

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "max_rows", "n_classes", "n_bins")
        self._check()
        if min(self.n_classes, self.n_bins, self.max_rows) < 1 or not -np.inf < self.low < self.high < np.inf:
            raise SpecificationError(
                f"an evaluation needs classes, bins and rows, and scores from low to high, not {self.n_classes}, "
                f"{self.n_bins}, {self.max_rows} and {self.low:g} to {self.high:g}"
            )

    @property
    @abstractmethod
    def _outcomes(self) -> tuple[str, tuple[int, ...]]:
        """How the counts of outcomes are called, and their shape."""

    @abstractmethod
    def _count(self, rows: ClientRows, tallies: Tallies) -> None:
        """Count a client's rows, of which there are some."""

    @property
    def spec(self) -> TallySpec:
        """Counts, at most all rows, of confidences all labels; the summed confidences are at most 1 each."""
        (name, shape), c, bins = self._outcomes, self.n_classes, self.n_bins
        shapes = {name: shape, "own": (c, bins), "others": (c, bins), "confidence": (3, bins)}
        labels = self.max_rows if shape == (c, c) else self.max_rows * c
        bounds = dict.fromkeys(shapes, self.max_rows) | {"confidence": labels << CONFIDENCE.fraction_bits}
        return TallySpec(shapes=shapes, bounds=bounds, max_rows=self.max_rows)

    def client_statistics(self, model: S | None, rows: ClientRows) -> Tallies:
        """Count a client's rows.

        Raises:
            InvalidRowsError: targets that are none of these classes, or scores of another number of classes.
        """
        refuse_weights(rows)
        tallies = {name: np.zeros(shape, dtype=np.int64) for name, shape in self.spec.shapes.items()}
        tallies["count"] = np.array(len(rows))
        if len(rows):
            self._count(rows, tallies)
        return tallies

    def exact_total(self, model: S | None, total: Any, survivors: int) -> Statistics:
        """Return how many rows of each class were judged: a class of one row shows that row's scores."""
        return Statistics.of_counts(int(total["count"]), total["own"].sum(axis=1))

    def _add_confidence(self, tallies: Tallies, scores: FloatMatrix, right: NDArray[np.bool_]) -> None:
        confidence = scores.clip(0.0, 1.0)
        units, place = CONFIDENCE.quantise(confidence).astype(np.int64), _bins(confidence, 0.0, 1.0, self.n_bins)
        for row, added in zip(tallies["confidence"], (np.ones_like(units), right, units), strict=True):
            np.add.at(row, place, added)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEvaluation(ScoreEvaluation[ClassReport]):
    """Judge a classifier of one class a row: confusion, ROC and AUC of each class, calibration.

    Labels are 0 to c - 1, and the class of a row is that of its largest score.
    """

    name: ClassVar[str] = "evaluation-of-classes"

    @property
    def _outcomes(self) -> tuple[str, tuple[int, ...]]:
        return "confusion", (self.n_classes, self.n_classes)

    def _count(self, rows: ClientRows, tallies: Tallies) -> None:
        if rows.targets.ndim != 1:
            raise InvalidRowsError(f"a classifier is judged on labels of shape (n,), not {rows.targets.shape}")
        check_labels(rows.targets, self.n_classes)
        labels, scores = rows.targets.astype(np.intp), _scores(self, rows, self.n_classes)
        chosen = scores.argmax(axis=1)
        np.add.at(tallies["confusion"], (labels, chosen), 1)
        places = _bins(scores, self.low, self.high, self.n_bins)
        for label in range(self.n_classes):
            is_own = labels == label
            tallies["own"][label] = np.bincount(places[is_own, label], minlength=self.n_bins)
            tallies["others"][label] = np.bincount(places[~is_own, label], minlength=self.n_bins)
        self._add_confidence(tallies, scores.max(axis=1), chosen == labels)

    def report(self, total: Tallies) -> ClassReport:
        """Return what a total says."""
        return ClassReport(**{name: total[name] for name in self.spec.shapes}, low=self.low, high=self.high)

    def tallies(self, report: ClassReport) -> Tallies:
        """Return the total that a report was made of."""
        return {name: getattr(report, name) for name in self.spec.shapes}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelsEvaluation(ScoreEvaluation[LabelsReport]):
    """Judge a classifier of several classes a row, class by class, on the rows that are labelled for the class.

    Targets have shape (n, c): 1 where a row is of a class, 0 where not, -1 where nobody says; a row is taken for each
    class whose score is above one half.
    """

    name: ClassVar[str] = "evaluation-of-labels"

    @property
    def _outcomes(self) -> tuple[str, tuple[int, ...]]:
        return "taken", (self.n_classes, 2, 2)

    def _count(self, rows: ClientRows, tallies: Tallies) -> None:
        targets = rows.targets
        if targets.shape != (len(rows), self.n_classes) or not np.isin(targets, (UNKNOWN, 0, 1)).all():
            raise InvalidRowsError(
                f"a classifier of several classes is judged on entries 1, 0 and, where nobody says, -1 of shape (n, "
                f"{self.n_classes}), not on shape {targets.shape} or other entries"
            )
        known, scores = targets != UNKNOWN, _scores(self, rows, self.n_classes)
        places = _bins(scores, self.low, self.high, self.n_bins)
        for label in range(self.n_classes):
            own, is_known = targets[:, label] == 1, known[:, label]
            taken = scores[is_known, label] > 0.5
            np.add.at(tallies["taken"][label], (own[is_known].astype(np.intp), taken.astype(np.intp)), 1)
            tallies["own"][label] = np.bincount(places[own, label], minlength=self.n_bins)
            tallies["others"][label] = np.bincount(places[~own & is_known, label], minlength=self.n_bins)
        self._add_confidence(tallies, scores[known], targets[known] == 1)

    def report(self, total: Tallies) -> LabelsReport:
        """Return what a total says."""
        found = {name: total[name] for name in self.spec.shapes}
        return LabelsReport(**found, n_rows=int(total["count"]), low=self.low, high=self.high)

    def tallies(self, report: LabelsReport) -> Tallies:
        """Return the total that a report was made of."""
        return {name: getattr(report, name) for name in self.spec.shapes} | {"count": np.array(report.n_rows)}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionReport:
    """How a regression did on all survivors' rows, target by target; NaN where there are no rows or no spread.

    Args:
        n_rows: rows that were judged.
        moments: shape (4, c), sums over rows of y and y^2, in units of the targets' format, and of |r| and r^2, in
            units of the residuals' format, where r = y - prediction.
        by_target: shape (2, c, n_bins), by bins of the target: rows, and the sum of |r|.
        target_format, residual_format: the units.
    """

    n_rows: int
    moments: IntArray
    by_target: IntArray
    target_format: RowFormat
    residual_format: RowFormat

    @property
    def figures(self) -> dict[str, Any]:
        """What a report says in short, target by target, by name; None where it is undefined."""
        named = {name: tuple(map(_known, getattr(self, name))) for name in ("r2", "mae", "rmse")}
        return {"rows": self.n_rows, **named}

    def to_frame(self) -> Any:
        """Return ``figures`` as a data frame of pandas, a row for each target.

        Raises:
            ImportError: pandas is not installed.
        """
        return _frame(self.figures, "target", self.moments.shape[1])

    @property
    def r2(self) -> tuple[float, ...]:
        """1 - sum r^2 / sum (y - mean)^2, exact in the units of both formats and rounded once."""
        f, f_r, found = self.target_format.fraction_bits, self.residual_format.fraction_bits, []
        for y, yy, _, rr in self.moments.T.tolist():
            spread = Fraction(yy) - Fraction(y * y, self.n_rows) if self.n_rows else Fraction(0)
            found.append(float(1 - Fraction(rr, 4**f_r) / (spread / 4**f)) if spread else float("nan"))
        return tuple(found)

    @property
    def mae(self) -> tuple[float, ...]:
        """Mean |r|."""
        return tuple(_part(r, self.n_rows << self.residual_format.fraction_bits) for r in self.moments[2].tolist())

    @property
    def rmse(self) -> tuple[float, ...]:
        """Root of the mean r^2."""
        f_r = self.residual_format.fraction_bits
        return tuple(float(np.sqrt(_part(rr, self.n_rows << 2 * f_r))) for rr in self.moments[3].tolist())

    @property
    def mae_by_target(self) -> FloatMatrix:
        """Mean |r| by bins of the target, shape (c, n_bins); they divide the range of the targets' format evenly."""
        unit = 1 << self.residual_format.fraction_bits
        counts, sums = self.by_target
        parts = [_part(r, n * unit) for n, r in zip(counts.ravel().tolist(), sums.ravel().tolist(), strict=True)]
        return np.array(parts).reshape(counts.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionEvaluation(Evaluation[RegressionReport]):
    """Judge a regression: R2, mean absolute and squared error, and the error by the size of the target.

    Args:
        n_targets: c, columns of targets.
        target_format: of the targets; a row outside it is refused.
        residual_format: of y - prediction; None takes the targets' with one integer bit more, signed.
        n_bins: bins of the targets' range.

    Raises:
        SpecificationError: an incomplete model, no targets or bins, or a sum that could leave int64.
    """

    name: ClassVar[str] = "evaluation-of-targets"

    n_targets: int
    target_format: RowFormat
    residual_format: RowFormat | None = None
    n_bins: int = 10

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "max_rows", "n_targets", "n_bins")
        self._check()
        if min(self.n_targets, self.n_bins, self.max_rows) < 1:
            raise SpecificationError(
                f"an evaluation needs targets, bins and rows, not {self.n_targets}, {self.n_bins} and {self.max_rows}"
            )
        _ = self.spec

    @property
    def residuals(self) -> RowFormat:
        """The format of residuals, with its default worked out."""
        if self.residual_format is not None:
            return self.residual_format
        return replace(self.target_format, integer_bits=self.target_format.integer_bits + 1, signed=True)

    @property
    def spec(self) -> TallySpec:
        """Sums of targets and residuals."""
        largest = max(self.target_format.magnitude, self.residuals.magnitude)
        return TallySpec(
            shapes={"moments": (4, self.n_targets), "by_target": (2, self.n_targets, self.n_bins)},
            bounds={"moments": self.max_rows * largest**2, "by_target": self.max_rows * largest},
            max_rows=self.max_rows,
        )

    def client_statistics(self, model: RegressionReport | None, rows: ClientRows) -> Tallies:
        """Add up a client's targets and residuals.

        Raises:
            InvalidRowsError: targets or predictions of another shape.
            RowsOutsideFormatError: targets or residuals outside their formats.
        """
        refuse_weights(rows)
        moments, by_target = (np.zeros(shape, dtype=np.int64) for shape in self.spec.shapes.values())
        if len(rows):
            if rows.targets.shape != (len(rows), self.n_targets):
                raise InvalidRowsError(f"targets must have shape (n, {self.n_targets}), not {rows.targets.shape}")
            scores = _scores(self, rows, self.n_targets)
            y = self.target_format.quantise(rows.targets).astype(np.int64)
            r = self.residuals.quantise(rows.targets - scores).astype(np.int64)
            moments[...] = y.sum(axis=0), (y * y).sum(axis=0), abs(r).sum(axis=0), (r * r).sum(axis=0)
            ends = 2.0**self.target_format.integer_bits
            places = _bins(rows.targets, -ends if self.target_format.signed else 0.0, ends, self.n_bins)
            for place, off, (counts, sums) in zip(places.T, abs(r).T, by_target.swapaxes(0, 1), strict=True):
                np.add.at(counts, place, 1)
                np.add.at(sums, place, off)
        return {"moments": moments, "by_target": by_target, "count": np.array(len(rows))}

    def report(self, total: Tallies) -> RegressionReport:
        """Return what a total says."""
        return RegressionReport(
            n_rows=int(total["count"]),
            moments=total["moments"],
            by_target=total["by_target"],
            target_format=self.target_format,
            residual_format=self.residuals,
        )

    def tallies(self, report: RegressionReport) -> Tallies:
        """Return the total that a report was made of."""
        return {"moments": report.moments, "by_target": report.by_target, "count": np.array(report.n_rows)}


def evaluation_of(
    learner: Any, model: Any, *, n_targets: int, target_format: RowFormat, max_rows: int, several: bool = False
) -> Evaluation[Any]:
    """Return the sum that judges a complete model: of classes, or of real targets in formats that so many rows fit.

    Args:
        learner: the closed form.
        model: its complete model; None where only the configuration is asked for.
        n_targets: classes, or columns of real targets.
        target_format: ``LABELS``, or a format whose range holds all targets; residuals have 16 times that range.
        max_rows: largest number of rows that all clients together may hold.
        several: whether a row may have several classes.

    Raises:
        SpecificationError: an incomplete model, or so many rows that no bit is left.
    """
    if target_format == LABELS:
        kind = LabelsEvaluation if several else ClassEvaluation
        return kind(learner=learner, model=model, n_classes=n_targets, max_rows=max_rows)
    integer_bits = target_format.integer_bits + 4
    bits = min(MAX_BITS, bits_of_squares(max_rows)) - integer_bits
    residuals = RowFormat(integer_bits=integer_bits, fraction_bits=min(bits, target_format.fraction_bits))
    return RegressionEvaluation(
        learner=learner,
        model=model,
        n_targets=n_targets,
        max_rows=max_rows,
        target_format=replace(target_format, fraction_bits=residuals.fraction_bits),
        residual_format=residuals,
    )


def _known(figure: float) -> float | None:
    return None if np.isnan(figure) else figure


def _known_bounds(interval: Interval) -> Interval | None:
    return None if np.isnan(interval).any() else interval


def _scores(evaluation: Evaluation[Any], rows: ClientRows, n_outputs: int) -> FloatMatrix:
    if bad := len(rows) - int(np.isfinite(rows.features).all(axis=1).sum()):
        raise InvalidRowsError(f"{bad} of {len(rows)} rows have features that are NaN or infinite; leave them out")
    learner, is_exact = evaluation.learner, getattr(evaluation.learner, "row_map", None) is None
    score = getattr(learner, "exact_scores", learner.decision_function) if is_exact else learner.decision_function
    scores: FloatMatrix = score(evaluation.model, rows.features)
    if scores.shape != (len(rows), n_outputs):
        raise InvalidRowsError(
            f"the evaluation is of {n_outputs} outputs and this model has {scores.shape[1]}; state as many"
        )
    return scores


def _bins(values: FloatMatrix, low: float, high: float, n_bins: int) -> NDArray[np.intp]:
    """In which of so many even parts of low to high each value lies; the outer ones take what lies beyond."""
    return ((values - low) * (n_bins / (high - low))).clip(0, n_bins - 1).astype(np.intp)


def _part(count: int, of: int) -> float:
    return float(Fraction(count, of)) if of else float("nan")
