"""Closed forms as scikit-learn estimators, for rows in one place and for the model that a federation returns.

Everything that a federation agrees on in public may be left to ``"auto"`` here, which *looks at the training rows*: the
row formats, DeepAFL's bound on the features, the range of SAFLe's thresholds. That is for pooled use. A federation
names each of them beforehand, and its model becomes an estimator by ``from_model``.

Least-squares scores are no probabilities: ``predict_proba`` is there once ``calibrate`` has fitted a link on rows that
took no part in training.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.discriminant import LDA, QDA
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.features import Projection
from analytic.fedhip import FedHiP
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from analytic.logistic import Logistic
from analytic.naive_bayes import NaiveBayes
from analytic.partial_labels import PartialLabels
from analytic.parts import together
from analytic.pipeline import Pipeline, settled
from analytic.random_map import RandomMap
from analytic.row_format import LARGEST_EXPONENT, MAX_BITS, ColumnMap, FloatMatrix, RowFormat
from analytic.safle import SAFLe
from analytic.selection import RidgeCV
from analytic.statistics import LABELS, UNKNOWN, Statistics, bits_of_squares
from analytic.validation_path import Path
from analytic.weights import BALANCED, DENOMINATOR, Weights, balanced, denominator_for
from analytic.whole_numbers import INT64_MAX

__all__ = [
    "AFLClassifier",
    "AFLRegressor",
    "DeepAFLClassifier",
    "DeepAFLRegressor",
    "FedHiPClassifier",
    "FedHiPRegressor",
    "LDAClassifier",
    "LogisticClassifier",
    "NaiveBayesClassifier",
    "QDAClassifier",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
    "SAFLeClassifier",
    "SAFLeRegressor",
]

AUTO, CROSS_VALIDATED = "auto", "cv"
FEATURE_BITS, TARGET_BITS = MAX_BITS, 24
"""Bits of automatic formats at most: fewer where so many rows would not add up exactly. Targets are fewer columns."""
STEEPEST_LINK = 16.0
"""Largest logarithm of a link's slope: beyond it all probabilities are 0 and 1 in float64."""
REAL = (np.float64, np.float32)
"""Feature types that are taken as they are; anything else becomes float64."""


class Estimator(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]  # scikit-learn has no types
    """Base class of all estimators: a learner, its model, and scores from the two.

    Attributes:
        learner_: the closed form with all its public parameters settled.
        model_: its complete model; ``learner_.weights_bytes(model_)`` compares two fits.
    """

    learner_: Any
    model_: Any
    n_features_in_: int
    _learner_type: ClassVar[type[Any]]
    _learners_alike: ClassVar[tuple[type[Any], ...]] = ()
    """Other learners whose models are read as those of ``_learner_type``."""

    @abstractmethod
    def _learner(self, rows: ClientRows, n_targets: int, target_format: RowFormat, most: int) -> Any:
        """The closed form that these parameters and rows lead to, for weights that add up to at most ``most``."""

    def _train(self, learner: Any, rows: ClientRows, unit: int = 1) -> None:
        """Fit rows whose weights, and whose penalties, are so many times what is meant."""
        whole = _weighing(learner, rows, unit)
        self.learner_, self.model_ = settled(whole, fit_pooled(whole, rows))

    def _scores(self, X: Any, *, exact: bool = False) -> FloatMatrix:
        """Scores or real targets, shape (n, c); exact ones are the same bits on every machine."""
        check_is_fitted(self, "model_")
        rows = validate_data(self, X, reset=False, dtype=REAL)
        found = self.learner_.exact_scores if exact else self.learner_.decision_function
        scores: FloatMatrix = found(self.model_, rows)
        return scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest score for each row, shape (n,), or X W in the shape that the targets had."""
        return self._answers(self._scores(X))

    def exact_predict(self, X: Any) -> NDArray[Any]:
        """Predict from scores that are exact and rounded once, the first of equals: the same on every machine."""
        return self._answers(self._scores(X, exact=True))

    @abstractmethod
    def _answers(self, scores: FloatMatrix) -> NDArray[Any]:
        """Return the predictions that follow from scores, in the terms of the targets."""

    @classmethod
    def _adopting(cls, learner: Any, model: Any) -> Self:
        """The fitted estimator of a model from elsewhere, with those of the learner's parameters that it has.

        Raises:
            NotReadyError: the model still needs a sum.
        """
        if learner.next_sum(model) is not None:
            raise NotReadyError("an estimator needs a complete model; this one still needs totals of its clients' rows")
        values = cls._parameters(learner, model)
        learner, model = settled(learner, model)
        estimator = cls(**{name: str(v) if isinstance(v, RowFormat) else v for name, v in values.items()})
        estimator.learner_, estimator.model_, estimator.n_features_in_ = learner, model, learner.n_features
        return estimator

    @classmethod
    def _closed_form(cls, learner: Any, targets: str, other: str) -> Any:
        """The closed form of a learner that the estimator has models of.

        Raises:
            SpecificationError: another kind of learner, or of targets.
        """
        plain = learner.head if isinstance(learner, Pipeline) else learner
        wanted = type(plain) in (cls._learner_type, *cls._learners_alike)
        if not wanted or (plain.target_format == LABELS) != issubclass(cls, ClassifierMixin):
            raise SpecificationError(
                f"{cls.__name__} takes models of {cls._learner_type.__name__} on {targets}, not of this "
                f"{type(learner).__name__}; use the learner's own estimator, and a {other}"
            )
        return plain

    @classmethod
    def _parameters(cls, learner: Any, model: Any) -> dict[str, Any]:
        """A learner's parameters that the estimator has; penalties, and weights of classes, as they are meant."""
        head = learner.head if isinstance(learner, Pipeline) else learner
        values = {name: getattr(head, name) for name in cls._get_param_names() if hasattr(head, name)}
        if not isinstance(learner, Pipeline):
            return values
        if learner.scaler is not None:
            values |= {name: AUTO for name in values if name in ("feature_format", "target_format")}
        if learner.selection is not None:
            values["ridge"] = model.ridge
        if learner.weights is not None and learner.weights.is_balanced:
            values["class_weight"] = BALANCED
        return values


def _is_calibrated(estimator: Any) -> bool:
    if not hasattr(estimator, "link_slope_"):
        raise AttributeError("scores are no probabilities: calibrate(X, y) on rows that took no part in training first")
    return True


class Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier whose classes are the sorted distinct labels.

    Of several classes a row has those whose scores are above one half.

    Attributes:
        classes_: labels in the order of the columns of scores; the columns' numbers where rows have several.
        multilabel_: whether a row may have several classes.
        link_slope_: a in the probabilities softmax(a scores), once ``calibrate`` has fitted it.
    """

    classes_: NDArray[Any]
    multilabel_: bool = False
    class_weight: Any
    _takes_several: ClassVar[bool] = True
    """Whether the learner takes several classes a row."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """The model of these rows, as one client's.

        Args:
            X: features, shape (n, d).
            y: class labels of any type, shape (n,). With AFL and DeepAFL a matrix of shape (n, c) of zeros and ones
                too, where rows have several classes, and with AFL -1 where nobody says whether a row is of a class.
            sample_weight: how often each row counts, whole numbers of shape (n,); None for once.

        Raises:
            ValueError: what scikit-learn refuses (NaN, shapes, real-valued labels), fewer than two classes, weights
                that are no whole numbers, and what the learner refuses (``analytic.errors``).
        """
        rows, y = validate_data(self, X, y, dtype=REAL, multi_output=self._takes_several)
        check_classification_targets(y)
        self.multilabel_ = y.ndim == 2 and y.shape[1] > 1
        if self.multilabel_:
            classes, labels = np.arange(y.shape[1]), _zeros_and_ones(y)
        else:
            classes, labels = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        check_number(classes)
        weighed, unit = self._weighed(ClientRows(rows, labels, _as_weights(sample_weight)), classes)
        learner = self._learner(_counted(weighed), len(classes), LABELS, _most(weighed))
        if (labels == UNKNOWN).any():
            learner = _partial(learner, labels)
        self._train(learner, weighed, unit)
        self.classes_ = classes
        self.__dict__.pop("link_slope_", None)  # it was another model's
        return self

    def calibrate(self, X: Any, y: Any) -> Self:
        """Fit the one number of the link softmax(a scores) by likelihood (Guo et al., 2017, temperature scaling).

        Args:
            X: features, shape (n, d), of rows that took no part in training.
            y: their labels, all of them among ``classes_``.

        Raises:
            InvalidRowsError: other labels.
        """
        if self.multilabel_:
            raise SpecificationError("the link is for one class a row, and rows of this model may have several")
        own = self._known(X, y)
        labels, scores = own.targets, self._scores(own.features)

        def loss(log_slope: float) -> float:
            likelihoods = log_softmax(np.exp(log_slope) * scores, axis=1)
            return -float(likelihoods[np.arange(len(labels)), labels].mean())

        found = minimize_scalar(loss, bounds=(-STEEPEST_LINK, STEEPEST_LINK), method="bounded", options={"xatol": 1e-9})
        self.link_slope_ = float(np.exp(found.x))
        return self

    @available_if(_is_calibrated)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatMatrix:
        """Probabilities of the classes by the calibrated link, shape (n, c); the most probable is ``predict``'s."""
        found: FloatMatrix = softmax(self.link_slope_ * self._scores(X), axis=1)
        return found

    def _known(self, X: Any, y: Any) -> ClientRows:
        """Further rows of the classes that a fitted model knows."""
        check_is_fitted(self, "model_")
        rows, y = validate_data(self, X, y, dtype=REAL, reset=False)
        return ClientRows(rows, self._places(y, self.classes_))

    @staticmethod
    def _places(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[Any]:
        """The places of labels among sorted classes."""
        order = np.argsort(classes)
        place: NDArray[Any] = order[np.minimum(np.searchsorted(classes, y, sorter=order), len(classes) - 1)]
        if unknown := int(np.count_nonzero(classes[place] != y)):
            raise InvalidRowsError(
                f"{unknown} of {len(y)} labels are none of the {len(classes)} classes that were stated; state all "
                "classes in the first call"
            )
        return place

    def decision_function(self, X: Any) -> FloatMatrix:
        """Scores in the order of ``classes_``, shape (n, c); of two classes the second's less the first's, (n,)."""
        scores = self._scores(X)
        return scores if scores.shape[1] > 2 or self.multilabel_ else scores[:, 1] - scores[:, 0]

    def _answers(self, scores: FloatMatrix) -> NDArray[Any]:
        best: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return (scores > 0.5).astype(np.intp) if self.multilabel_ else best

    @classmethod
    def from_model(
        cls,
        learner: AnalyticLearner[Any],
        model: Any,
        classes: Sequence[Any] | None = None,
        *,
        multilabel: bool = False,
    ) -> Self:
        """The fitted classifier of a model that a federation returned, or that was loaded.

        Args:
            learner: the closed form that all clients agreed on.
            model: its complete model.
            classes: what labels 0, 1, ... stand for; 0 to c - 1 when left out.
            multilabel: whether a row may have several; a model of partial labels always may.

        Raises:
            NotReadyError: the model still needs a sum.
            SpecificationError: another kind of learner, a regression model, or not one distinct class a column.
        """
        plain = cls._closed_form(learner, "class labels", "regressor for real targets")
        n_classes = plain.n_targets
        own = np.arange(n_classes) if classes is None else np.asarray(classes)
        if own.shape != (n_classes,) or len(np.unique(own)) != n_classes:
            raise SpecificationError(f"this model needs {n_classes} distinct classes in a row, not {own.tolist()}")
        check_number(own)
        estimator = cls._adopting(learner, model)
        estimator.classes_, estimator.multilabel_ = own, multilabel or isinstance(plain, PartialLabels)
        return estimator

    def _weighed(self, rows: ClientRows, classes: NDArray[Any]) -> tuple[ClientRows, int]:
        """Rows with the weights of their classes in theirs, and in which part of one these are counted."""
        wanted = self.class_weight
        if wanted is None:
            return rows, 1
        if rows.targets.ndim != 1:
            raise InvalidRowsError(
                "class weights need one class a row, and these rows may have several: leave them out"
            )
        own = np.ones(len(rows), dtype=np.int64) if rows.weights is None else rows.weights
        unit, n_classes = 1, len(classes)
        if wanted == BALANCED:
            unit, counts = denominator_for(n_classes), np.zeros(n_classes, dtype=np.int64)
            np.add.at(counts, rows.targets, own)
            by_class: Any = balanced(counts.tolist(), unit)
        elif isinstance(wanted, dict):
            stated = np.array([wanted.get(label, 1) for label in classes.tolist()])
            unit = 1 if (stated == np.floor(stated)).all() else DENOMINATOR
            by_class = np.where(stated > 0, np.maximum(1, np.floor(stated * unit)), stated)
        else:
            raise SpecificationError(f"class_weight is {BALANCED}, a dict or None, not {wanted!r}")
        return ClientRows(rows.features, rows.targets, own * np.array(by_class)[rows.targets]), unit

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = self._takes_several
        return tags


def check_number(classes: NDArray[Any]) -> None:
    """Refuse a classifier of fewer than two classes."""
    if len(classes) < 2:
        raise SpecificationError(f"a classifier needs at least two classes, not {len(classes)} class")


class Linear(Estimator):
    """Base class of estimators whose learner is AFL, or is made of the rows of its sum."""

    feature_format: str
    ridge: float | str
    clip: bool
    fit_intercept: bool
    _further: ClassVar[tuple[str, ...]] = ()
    """Parameters of the learner that AFL has not."""

    def _learner(self, rows: ClientRows, n_targets: int, target_format: RowFormat, most: int) -> Any:
        """The learner with room for as many rows as int64 can sum; weights do not depend on that room."""
        features, lift = rows.features, self._lift(rows.features)
        n_features = features.shape[1]
        features = features if lift is None else lift.apply(features).values
        targets = rows.targets if getattr(self, "target_format", None) == AUTO else None
        if self.feature_format == AUTO:
            bits = min(FEATURE_BITS, bits_of_squares(most))
            feature_format = RowFormat(integer_bits=0, fraction_bits=bits, signed=bool(features.min() < 0))
            columns = ColumnMap.covering(features, targets, intercept=1)
            if min(columns.exponents) == -LARGEST_EXPONENT:  # no scale brings these columns near one
                self._warn_of_coarse_columns(feature_format, columns.features(features)[:, : features.shape[1]])
        else:
            feature_format = RowFormat.parse(self.feature_format)
            if lift is None:
                self._warn_of_coarse_columns(feature_format, features)
            flat = ColumnMap.covering(features[:0], targets, intercept=int(feature_format.integer_bits == 0))
            columns = replace(flat, exponents=(0,) * features.shape[1])
        if not self.fit_intercept:
            columns = replace(columns, intercept=None)
        plain = not (any(columns.exponents) or columns.target_exponents or self.fit_intercept)
        widest = max(feature_format.magnitude, target_format.magnitude) ** 2
        chosen = self.ridge == CROSS_VALIDATED
        if isinstance(self.ridge, str) and not chosen:
            raise SpecificationError(f"a ridge is a number of at least 0 or {CROSS_VALIDATED}, not {self.ridge!r}")
        learner = self._learner_type(
            n_features=n_features,
            n_targets=n_targets,
            feature_format=feature_format,
            target_format=target_format,
            max_rows=most if chosen else max(most, INT64_MAX // widest),
            ridge=0.0 if chosen else self.ridge,
            clip=self.clip,
            columns=None if plain else columns,
            lift=lift,
            **{name: getattr(self, name) for name in self._further},
        )
        return Pipeline(head=learner, selection=RidgeCV()) if chosen else learner

    def _lift(self, rows: NDArray[Any]) -> RandomMap | None:
        """Random features that take the rows' place; None where there are none."""
        return getattr(self, "lift", None)

    def _warn_of_coarse_columns(self, feature_format: RowFormat, rows: NDArray[Any]) -> None:
        if coarse := feature_format.coarse_columns(rows):
            names = getattr(self, "feature_names_in_", range(rows.shape[1]))
            columns = {str(names[place]): float(np.abs(rows[:, place]).max()) for place in coarse}
            other = "" if self.feature_format == AUTO else f', or "{AUTO}"'
            warnings.warn(feature_format.warning(columns, rows.shape[1]) + other, stacklevel=4)


class AFLStatistics(Linear):
    """Base class of AFL's classifier and regressor: the exact sums over all rows so far, to which more can be added.

    Attributes:
        statistics_: those sums; None in an estimator of a federation's model, and of partial labels.
        ridge_, path_: with ``ridge="cv"``, the penalty that was chosen, and the validation errors that chose it.
    """

    ridge_: float
    path_: Path | None
    statistics_: Statistics | None = None

    def _train(self, learner: Any, rows: ClientRows, unit: int = 1) -> None:
        if isinstance(learner, PartialLabels):
            super()._train(learner, rows, unit)
            return
        if not isinstance(learner, Pipeline):
            self._solve(learner.over(unit), self._own(learner, rows))
            return
        whole: Any = _weighing(learner, rows, unit)
        found = fit_pooled(whole, rows)
        self.path_, self.ridge_, self.statistics_ = found.path, found.ridge, together(found.choice.folds)
        self.learner_, self.model_ = settled(whole, found)

    @staticmethod
    def _own(learner: AFL, rows: ClientRows) -> Statistics:
        """The statistics of rows, with their weights."""
        if rows.weights is None:
            return learner.own_statistics(rows)
        whole: Any = _weighing(replace(learner, max_rows=_most(rows)), rows)
        found: Statistics = whole.client_statistics(whole.init(), rows)[1]
        return found

    @property
    def coef_(self) -> FloatMatrix:
        """Weights of features as they are, or of random ones, shape (c, d)."""
        *_, layer = self.learner_.layers(self.model_)
        return np.ascontiguousarray(layer.matrix.T)

    @property
    def intercept_(self) -> FloatMatrix:
        """Intercepts, shape (c,); zeros where there are none."""
        *_, layer = self.learner_.layers(self.model_)
        return np.zeros(layer.matrix.shape[1]) if layer.bias is None else layer.bias

    def _add(self, rows: ClientRows) -> None:
        if self.statistics_ is None:
            raise NotReadyError("a federation's model comes without its rows' statistics; no rows can be added to it")
        total = self.statistics_ + self._own(self.learner_, rows)
        if total.count > self.learner_.max_rows:
            raise InvalidRowsError(
                f"{total.count} rows are more than the {self.learner_.max_rows} that sums in these formats have room "
                "for; use formats with fewer bits"
            )
        self._solve(self.learner_, total)

    def _solve(self, learner: AFL, total: Statistics) -> None:
        self.model_ = learner.update(learner.init(), total, 1)
        self.learner_, self.statistics_ = learner, total


def _has_formats(estimator: Any) -> bool:
    if estimator.ridge == CROSS_VALIDATED:
        raise AttributeError("partial_fit needs a stated ridge: one chosen from a batch is not that of all rows")
    if getattr(estimator, "class_weight", None) == BALANCED:
        raise AttributeError("partial_fit needs stated class weights: balanced ones of a batch are not those of all")
    if AUTO in (estimator.feature_format, getattr(estimator, "target_format", None)):
        raise AttributeError(
            "partial_fit needs explicit formats, since none covers rows that are still to come: set "
            'feature_format="Q5.11" (and target_format of a regressor), or use fit'
        )
    return True


@dataclass(kw_only=True, eq=False, repr=False)
class AFLClassifier(Classifier, AFLStatistics):
    """The least-squares classifier of analytic federated learning: one-hot targets, exact sums.

    ``fit`` equals ``partial_fit`` on any batches in any order bit for bit, given the same format, and both equal a
    federation whose clients hold those batches.

    Args:
        feature_format: fixed-point format such as ``Q5.11``, or ``auto``: 26 bits of each column's own range, which is
            scaled by a power of two that covers the training rows.
        ridge: penalty of the solve, in the units squared of features as they are scaled; an intercept has none. ``cv``
            takes that of least squared error in five folds (``analytic.selection``).
        clip: clip features into the format instead of refusing them.
        fit_intercept: whether there is an exact column of ones. The paper has none; a federation's model has what its
            ``AFL(columns=...)`` says.
        lift: a ``RandomMap`` to random features, which then take the features' place in all of this; None for none.
        class_weight: numbers by label (others weigh 1), or ``balanced``: n / (c n_k) of a class's n_k rows; what is no
            whole number is counted in parts of 1024 (more for more classes), rounded down to at least one of them.
    """

    _learner_type = AFL
    _learners_alike: ClassVar[tuple[type[Any], ...]] = (FedHiP, PartialLabels)
    feature_format: str = AUTO
    ridge: float | str = 0.0
    clip: bool = False
    fit_intercept: bool = True
    lift: RandomMap | None = None
    class_weight: dict[Any, int] | str | None = None

    @available_if(_has_formats)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """The model of all rows so far and these.

        Args:
            X: features, shape (n, d).
            y: class labels, shape (n,).
            classes: all labels that will ever come; the first call needs them.
            sample_weight: how often each row counts, as of ``fit``.

        Raises:
            AttributeError: ``feature_format`` is ``auto``.
            ValueError: no classes in the first call, a label that is none of them, more rows than an exact sum has
                room for, and what ``fit`` refuses.
            NotReadyError: this is the estimator of a federation's model.
        """
        first = not hasattr(self, "model_")
        rows, y = validate_data(self, X, y, dtype=REAL, reset=first)
        check_classification_targets(y)
        stated = self._stated_classes(classes, first=first)
        weighed = ClientRows(rows, self._places(y, stated), _as_weights(sample_weight))
        weighed, unit = self._weighed(weighed, stated)
        if first:
            self._train(self._learner(weighed, len(stated), LABELS, _most(weighed)), weighed, unit)
            self.classes_ = stated
        else:
            self._add(weighed)
        return self

    def _stated_classes(self, classes: Any, *, first: bool) -> NDArray[Any]:
        if first and classes is None:
            raise SpecificationError("the first call of partial_fit needs all classes: classes=numpy.unique(labels)")
        stated: NDArray[Any] = self.classes_ if classes is None else np.unique(column_or_1d(classes))
        if not first and not np.array_equal(stated, self.classes_):
            raise SpecificationError("classes differ from those of the first call; call fit to start again with others")
        check_number(stated)
        return stated


class Probabilistic(Classifier):
    """A classifier whose scores are logarithms of probabilities, up to what all classes share."""

    _takes_several = False

    def predict_proba(self, X: Any) -> FloatMatrix:
        """Probabilities of the classes, shape (n, c), where rows are as the model takes them; or of a calibrated link.

        Discriminants take the rows of a class for Gaussian, ``LogisticClassifier`` their scores for linear.
        """
        found: FloatMatrix = softmax(getattr(self, "link_slope_", 1.0) * self._scores(X), axis=1)
        return found


class LDAClassifier(Probabilistic, AFLClassifier):
    """Linear discriminant analysis from AFL's sum: one covariance for all classes (``analytic.discriminant``).

    Args:
        feature_format, clip, lift, class_weight: as of ``AFLClassifier``.
        ridge: what is added to the scatter within classes, in the units squared of features as they are scaled. Without
            one, columns that depend on each other are refused.
        fit_intercept: must be True.
    """

    _learner_type = LDA
    _learners_alike = ()


@dataclass(kw_only=True, eq=False, repr=False)
class QDAClassifier(Probabilistic, Linear):
    """Quadratic discriminant analysis: a covariance for each class (``analytic.discriminant``).

    Args:
        feature_format, clip, class_weight: as of ``AFLClassifier``.
        ridge: what is added to every class' scatter, in the units squared of features as they are scaled.
        shrinkage: how far each class' covariance is drawn toward the pooled one, 0 to 1.
    """

    _learner_type = QDA
    _further = ("shrinkage",)
    fit_intercept = True
    feature_format: str = AUTO
    ridge: float = 0.0
    shrinkage: float = 0.5
    clip: bool = False
    class_weight: dict[Any, int] | str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class NaiveBayesClassifier(QDAClassifier):
    """Gaussian naive Bayes: columns of a class are independent (``analytic.naive_bayes``).

    Args:
        feature_format, clip, class_weight: as of ``AFLClassifier``.
        ridge: what is added to every column's scatter within a class, in the units squared of features as they are
            scaled.
        shrinkage: how far each class' variances are drawn toward the pooled ones, 0 to 1.
    """

    _learner_type = NaiveBayes
    shrinkage: float = 0.01


@dataclass(kw_only=True, eq=False, repr=False)
class LogisticClassifier(Probabilistic, Linear):
    """Multinomial logistic regression by softmax rounds from exact sums (``analytic.logistic``).

    Args:
        feature_format, clip, fit_intercept, class_weight, lift: as in ``AFLClassifier``.
        ridge: of the solve that every step is made with, a number.
        n_rounds, step, scale: as in ``Logistic``.
    """

    _learner_type = Logistic
    _further = ("n_rounds", "step", "scale")
    feature_format: str = AUTO
    ridge: float = 0.0
    clip: bool = False
    fit_intercept: bool = True
    class_weight: dict[Any, int] | str | None = None
    lift: RandomMap | None = None
    n_rounds: int = 5
    step: float | None = None
    scale: float = 10.0


class Regressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """A regressor of one or more real targets.

    Attributes:
        target_ndim_: 1 where targets came as a vector, else 2.
    """

    target_ndim_: int
    target_format: str

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """The model of these rows, as one client's.

        Args:
            X: features, shape (n, d).
            y: real targets, shape (n,) or (n, c).
            sample_weight: how often each row counts, whole numbers of shape (n,); None for once.

        Raises:
            ValueError: what scikit-learn refuses (NaN, shapes), weights that are no whole numbers, and what the learner
                refuses (``analytic.errors``).
        """
        rows, targets, self.target_ndim_ = self._validated(X, y)
        weighed = ClientRows(rows, targets, _as_weights(sample_weight))
        most = _most(weighed)
        target_format = RowFormat(integer_bits=0, fraction_bits=min(TARGET_BITS, bits_of_squares(most)))
        if self.target_format != AUTO:
            target_format = RowFormat.parse(self.target_format)
        self._train(self._learner(_counted(weighed), targets.shape[1], target_format, most), weighed)
        return self

    def _validated(self, X: Any, y: Any, *, reset: bool = True) -> tuple[NDArray[Any], NDArray[Any], int]:
        """Rows, targets of shape (n, c), and how many dimensions these had."""
        rows, y = validate_data(self, X, y, dtype=REAL, multi_output=True, y_numeric=True, reset=reset)
        if y.dtype.kind not in "biuf":
            raise InvalidRowsError(f"real targets are numbers, not {y.dtype}; a classifier takes labels of any type")
        return rows, y.reshape(len(y), -1), y.ndim

    def _answers(self, scores: FloatMatrix) -> NDArray[Any]:
        return scores[:, 0] if self.target_ndim_ == 1 else scores

    @classmethod
    def from_model(cls, learner: AnalyticLearner[Any], model: Any) -> Self:
        """The fitted regressor of a model that a federation returned; a single target is predicted as shape (n,).

        Raises:
            NotReadyError: the model still needs a sum.
            SpecificationError: another kind of learner, or one on class labels.
        """
        plain = cls._closed_form(learner, "real targets", "classifier for class labels")
        estimator = cls._adopting(learner, model)
        estimator.target_ndim_ = min(plain.n_targets, 2)
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class ScaledRegressor(Regressor):
    """A regressor whose learner takes targets as they are, here times powers of two that bring them below one.

    Attributes:
        target_scales_: those powers; none in the estimator of a federation's model.
    """

    target_scales_: ColumnMap = ColumnMap(exponents=())

    def _train(self, learner: Any, rows: ClientRows, unit: int = 1) -> None:
        scales = ColumnMap(exponents=())
        if self.target_format == AUTO:
            scales = ColumnMap.covering(rows.features[:, :0], rows.targets, intercept=None)
        super()._train(learner, ClientRows(rows.features, scales.targets(rows.targets), rows.weights), unit)
        self.target_scales_ = scales  # a refused fit leaves the model before it as it was

    def _answers(self, scores: FloatMatrix) -> NDArray[Any]:
        return super()._answers(self.target_scales_.scores(scores))


@dataclass(kw_only=True, eq=False, repr=False)
class AFLRegressor(Regressor, AFLStatistics):
    """Least squares on one or more real targets from exact sums: AFL's closed form without classes.

    Args:
        feature_format: fixed-point format such as ``Q5.11``, or ``auto``: 26 bits of each column's own range, which is
            scaled by a power of two that covers the training rows.
        target_format: the targets' own format, or ``auto``: 24 bits of each target's range.
        ridge: penalty of the solve, in the units squared of features as they are scaled; an intercept has none. ``cv``
            takes that of least squared error in five folds (``analytic.selection``).
        clip: clip features and targets into their formats instead of refusing them.
        fit_intercept: whether there is an exact column of ones.
        lift: a ``RandomMap`` to random features, which then take the features' place in all of this; None for none.
    """

    _learner_type = AFL
    _learners_alike = (FedHiP,)
    feature_format: str = AUTO
    target_format: str = AUTO
    ridge: float | str = 0.0
    clip: bool = False
    fit_intercept: bool = True
    lift: RandomMap | None = None

    @available_if(_has_formats)  # type: ignore[untyped-decorator]
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """The model of all rows so far and these, which may have weights as in ``fit``.

        Raises:
            AttributeError: a format is ``auto``.
            ValueError: targets of another shape than before, more rows than an exact sum has room for, and what
                ``fit`` refuses.
            NotReadyError: this is the estimator of a federation's model.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, y, sample_weight)
        rows, targets, ndim = self._validated(X, y, reset=False)
        if ndim != self.target_ndim_:
            raise InvalidRowsError(f"targets must have {self.target_ndim_} dimensions as before, not {ndim}")
        self._add(ClientRows(rows, targets, _as_weights(sample_weight)))
        return self


class FedHiPClassifier(AFLClassifier):
    """FedHiP's global classifier, which is AFL's, and from the same total a model for each client.

    Args:
        feature_format, ridge, clip, fit_intercept, class_weight: as of ``AFLClassifier``; the paper has no intercept.
    """

    _learner_type = FedHiP

    def personalise(self, X: Any, y: Any, *, alpha: float) -> AFLClassifier:
        """The classifier of one client: its own rows weigh alpha times more (``FedHiP.personalise``).

        Args:
            X: the client's own features, shape (n, d), which are in the total already.
            y: their labels, all of them among ``classes_``.
            alpha: 0 for the global model, to 2^52.

        Raises:
            NotReadyError: this is the estimator of a model without its total.
            ValueError: other labels, and what the learner refuses.
        """
        (model,) = self.learner_.personalise(self.model_, self._known(X, y), [alpha])
        return AFLClassifier.from_model(self.learner_, model, list(self.classes_))


class FedHiPRegressor(AFLRegressor):
    """FedHiP's global regressor, which is AFL's, and from the same total a model for each client.

    Args:
        feature_format, target_format, ridge, clip, fit_intercept: as of ``AFLRegressor``; the paper has no intercept.
    """

    _learner_type = FedHiP

    def personalise(self, X: Any, y: Any, *, alpha: float) -> AFLRegressor:
        """The regressor of one client: its own rows weigh alpha times more (``FedHiP.personalise``).

        Args:
            X: the client's own features, shape (n, d), which are in the total already.
            y: their targets, shape (n,) or (n, c).
            alpha: 0 for the global model, to 2^52.

        Raises:
            NotReadyError: this is the estimator of a model without its total.
            ValueError: what the learner refuses.
        """
        check_is_fitted(self, "model_")
        rows, targets, _ = self._validated(X, y, reset=False)
        (model,) = self.learner_.personalise(self.model_, ClientRows(rows, targets), [alpha])
        estimator = AFLRegressor.from_model(self.learner_, model)
        estimator.target_ndim_ = self.target_ndim_
        return estimator


@dataclass(kw_only=True, eq=False, repr=False)
class RandomFeaturesParameters(AFLStatistics):
    """Parameters of both the classifier and the regressor of random features."""

    feature_bound: float | str = AUTO
    n_columns: int = 1024
    activation: str = "relu"
    projection: Projection = "nin"
    variance: float = 1.0
    seed: int = 0
    row_bits: int = 16
    feature_format = AUTO
    ridge: float | str = 0.0
    clip: bool = False
    fit_intercept: bool = True
    _learner_type = AFL

    def _lift(self, rows: NDArray[Any]) -> RandomMap:
        """The map, of entries as fine as the bits allow."""
        bound = float(np.abs(rows).max()) or 1.0 if self.feature_bound == AUTO else self.feature_bound
        own = {name: getattr(self, name) for name in ("n_columns", "activation", "projection", "variance", "seed")}
        whole = RandomMap(n_features=rows.shape[1], feature_bound=bound, **own)  # type: ignore[arg-type]
        return whole.with_bits(self.row_bits)

    @classmethod
    def _adopting(cls, learner: Any, model: Any) -> Self:
        """The fitted estimator of a model from elsewhere, with what its map has of these parameters.

        Raises:
            SpecificationError: a model without random features.
        """
        estimator = super()._adopting(learner, model)
        lift = estimator.learner_.lift
        if lift is None:
            raise SpecificationError(f"{cls.__name__} takes models of random features: use the estimator of afl")
        names = [name for name in cls._get_param_names() if hasattr(lift, name)]
        return estimator.set_params(**{name: getattr(lift, name) for name in names})  # type: ignore[no-any-return]


@dataclass(kw_only=True, eq=False, repr=False)
class RandomFeaturesClassifier(RandomFeaturesParameters, Classifier):
    """AFL of public random features, which are drawn from a seed: the learner ``random`` (``analytic.random_map``).

    Args:
        feature_bound: bound on every |feature|, or ``auto``: the largest in the training rows.
        n_columns: how many random features.
        activation, projection, variance, seed: as of ``RandomMap``.
        row_bits: bits of a random feature, the sign aside.
        ridge, clip, fit_intercept, class_weight: as of ``AFLClassifier``, for random features.
    """

    _learners_alike = (PartialLabels,)
    class_weight: dict[Any, int] | str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class RandomFeaturesRegressor(RandomFeaturesParameters, Regressor):
    """AFL of public random features on real targets: the learner ``random`` (``analytic.random_map``).

    Args:
        target_format: the targets' own format, or ``auto``: 24 bits of each target's range.
        feature_bound, n_columns, activation, projection, variance, seed: as of ``RandomFeaturesClassifier``.
        row_bits, ridge, clip, fit_intercept: the same.
    """

    target_format: str = AUTO


@dataclass(kw_only=True, eq=False, repr=False)
class DeepAFLParameters(Estimator):
    """Parameters of both DeepAFL's classifier and its regressor."""

    feature_bound: float | str = AUTO
    n_layers: int = 5
    d_phi: int = 1024
    d_f: int = 1024
    ridge: float = 1.0
    gamma: float = 0.01
    activation: str = "gelu"
    projection: Projection = "nin"
    seed: int = 0
    fed_by_first: bool = False
    row_bits: int = 0
    headroom_bits: int = 0
    clip: bool = False

    _learner_type = DeepAFL

    def _learner(self, rows: ClientRows, n_targets: int, target_format: RowFormat, most: int) -> DeepAFL:
        parameters = self.get_params(deep=False) | {"target_format": target_format}
        parameters.pop("class_weight", None)
        if self.feature_bound == AUTO:
            parameters["feature_bound"] = float(np.abs(rows.features).max()) or 1.0
        return DeepAFL(n_features=rows.features.shape[1], n_targets=n_targets, max_rows=most, **parameters)


@dataclass(kw_only=True, eq=False, repr=False)
class DeepAFLClassifier(DeepAFLParameters, Classifier):
    """The deep residual classifier of random features, every layer a closed form (``analytic.deepafl.DeepAFL``).

    Args:
        feature_bound: bound on every |feature|, or ``auto``: the largest in the training rows.
        n_layers: T, residual blocks.
        d_phi: columns of Phi_t.
        d_f: columns of F_t.
        ridge: lambda, the penalty of each classifier.
        gamma: the penalty of each transform.
        activation: gelu (exact), relu, leaky_relu, tanh, hardswish, softshrink or none.
        projection: law and scale of the random projections: linear, nin or normal.
        seed: public seed of the random projections.
        fed_by_first: feed every block from Phi_0 instead of Phi_t (eq. 89).
        row_bits: bits of each fixed-point entry, the sign aside; 0 for the most, at most 22, that the rows leave room
            for.
        headroom_bits: integer bits beyond the proven bound.
        clip: clip rows into their formats instead of refusing them.
        class_weight: as of ``AFLClassifier``.
    """

    class_weight: dict[Any, int] | str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class DeepAFLRegressor(DeepAFLParameters, ScaledRegressor):
    """The deep residual regressor of random features, every layer a closed form (``analytic.deepafl.DeepAFL``).

    Args:
        target_format: the targets' own format, or ``auto``: 24 bits of each target's range.
        feature_bound, n_layers, d_phi, d_f, ridge, gamma: as of ``DeepAFLClassifier``.
        activation, projection, seed, fed_by_first, row_bits, headroom_bits, clip: the same.
    """

    target_format: str = AUTO


@dataclass(kw_only=True, eq=False, repr=False)
class SAFLeParameters(Estimator):
    """Parameters of both SAFLe's classifier and its regressor."""

    thresholds: FixedThresholds | QuantileThresholds | str = AUTO
    encoding: str = "binary-overlapping"
    n_buckets: int = 8
    group_size: int = 2
    seed: int = 0
    ridge: float = 0.0

    _learner_type = SAFLe

    def _learner(self, rows: ClientRows, n_targets: int, target_format: RowFormat, most: int) -> SAFLe:
        features = rows.features
        parameters = self.get_params(deep=False) | {"real_format": None if target_format == LABELS else target_format}
        for name in ("target_format", "class_weight"):
            parameters.pop(name, None)
        if self.thresholds == AUTO:
            low, high = float(features.min()), float(features.max())
            parameters["thresholds"] = QuantileThresholds(low=low, high=high if high > low else low + 1.0)
        return SAFLe(n_features=features.shape[1], n_classes=n_targets, max_rows=most, **parameters)


@dataclass(kw_only=True, eq=False, repr=False)
class SAFLeClassifier(SAFLeParameters, Classifier):
    """The sum of embeddings of bucketed features, from counts (``analytic.safle.SAFLe``).

    Args:
        thresholds: ``FixedThresholds``, ``QuantileThresholds``, or ``auto``: each feature's quantiles on one grid of
            1024 bins from the smallest to the largest training entry, so features should have similar ranges.
        encoding: integer, one-hot or binary-overlapping.
        n_buckets: buckets a feature.
        group_size: digits a group; it must divide the number of digits.
        seed: public seed of the shuffle.
        ridge: penalty of the solve, in rows; 0 is the pseudo-inverse.
        class_weight: as of ``AFLClassifier``.
    """

    _takes_several = False
    class_weight: dict[Any, int] | str | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class SAFLeRegressor(SAFLeParameters, ScaledRegressor):
    """The sum of embeddings of bucketed features as a regressor (``analytic.safle.SAFLe``), beyond the paper.

    Args:
        target_format: the targets' own format, or ``auto``: 24 bits of each target's range.
        thresholds, encoding, n_buckets, group_size, seed, ridge: as of ``SAFLeClassifier``.
    """

    target_format: str = AUTO


def _zeros_and_ones(y: NDArray[Any]) -> NDArray[Any]:
    """Several classes a row as integers, if they are 0, 1 and -1."""
    if y.dtype.kind not in "biuf" or not np.isin(y, (0, 1, UNKNOWN)).all():
        raise InvalidRowsError(
            "several classes a row need columns of zeros and ones, one a class, with -1 where it is unknown; one class "
            "a row needs a vector"
        )
    return y.astype(np.int64)


def _as_weights(sample_weight: Any) -> NDArray[Any] | None:
    if sample_weight is None:
        return None
    weights = np.asarray(sample_weight)
    if not weights.any():
        raise InvalidRowsError("all sample weights are zero, so no row is left; give some row a weight of at least 1")
    return weights


def _most(rows: ClientRows) -> int:
    """Return the sum of the rows' weights; at least one."""
    return max(1, len(rows) if rows.weights is None else sum(rows.weights.tolist()))


def _counted(rows: ClientRows) -> ClientRows:
    """The rows that count: those of weight 0 settle no parameter."""
    weights = rows.weights
    return rows if weights is None or not weights.any() else rows.taken(weights > 0)


def _weighing(learner: Any, rows: ClientRows, unit: int = 1) -> Any:
    """The learner for rows with weights as large as these, counted in parts of one; itself where all count once."""
    if rows.weights is None:
        return learner
    weights = Weights(max_weight=max(1, int(rows.weights.max(initial=1))), denominator=unit)
    if isinstance(learner, Pipeline):
        return replace(learner, weights=weights)
    return Pipeline(head=learner, weights=weights)


def _partial(learner: Any, labels: NDArray[Any]) -> PartialLabels:
    """The learner for rows of which some are labelled for some classes only.

    Raises:
        SpecificationError: another learner than AFL with a stated ridge.
    """
    if type(learner) is not AFL:
        raise SpecificationError(f"labels of -1 are for afl with a stated ridge, not for {learner.name}: complete them")
    stated = {one.name: getattr(learner, one.name) for one in fields(AFL)}
    known = np.unique(labels != UNKNOWN, axis=0)
    patterns = tuple(tuple(np.flatnonzero(row).tolist()) for row in known if row.any())
    return PartialLabels(**stated, patterns=patterns)
