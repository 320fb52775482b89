"""What the scikit-learn estimators of closed forms share: a learner, its model, and scores from the two."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from analytic.errors import NotReadyError, SpecificationError
from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
from analytic.row_format import FloatMatrix, RowFormat
from analytic.row_map import refuse_row_map
from analytic.safle import SAFLe
from analytic.statistics import LABELS

REAL = (np.float64, np.float32)
"""Feature types that are taken as they are; anything else becomes float64."""


class Estimator(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]  # scikit-learn has no types
    """What all estimators share: a learner, its model, and scores from the two.

    Attributes:
        learner_: the closed form with all its public parameters settled.
        model_: its complete model; ``learner_.weights_bytes(model_)`` compares two fits.
    """

    learner_: Any
    model_: Any
    n_features_in_: int

    def _train(self, learner: Any, rows: ClientRows) -> None:
        self.model_ = fit_pooled(learner, rows)
        self.learner_ = learner

    def _scores(self, X: Any) -> FloatMatrix:
        """Scores or real targets, shape (n, c)."""
        check_is_fitted(self, "model_")
        rows = validate_data(self, X, reset=False, dtype=REAL)
        scores: FloatMatrix = self.learner_.decision_function(self.model_, rows)
        return scores

    @classmethod
    def _adopting(cls, learner: Any, model: Any) -> Self:
        """The fitted estimator of a model from elsewhere, with those of the learner's parameters that it has.

        Raises:
            NotReadyError: the model still needs a sum.
        """
        if learner.next_sum(model) is not None:
            raise NotReadyError("an estimator needs a complete model; this one still needs totals of its clients' rows")
        values = {name: getattr(learner, name) for name in cls._get_param_names() if hasattr(learner, name)}
        estimator = cls(**{name: str(v) if isinstance(v, RowFormat) else v for name, v in values.items()})
        estimator.learner_, estimator.model_, estimator.n_features_in_ = learner, model, learner.n_features
        return estimator


class Classifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier whose classes are the sorted distinct labels.

    Attributes:
        classes_: labels in the order of the columns of scores.
    """

    classes_: NDArray[Any]
    _learner_type: ClassVar[type[Any]]

    def fit(self, X: Any, y: Any) -> Self:
        """The model of these rows, as one client's.

        Args:
            X: features, shape (n, d).
            y: class labels of any type, shape (n,).

        Raises:
            ValueError: what scikit-learn refuses (NaN, shapes, real-valued labels), fewer than two classes, and what
                the learner refuses (``analytic.errors``).
        """
        rows, y = validate_data(self, X, y, dtype=REAL)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        check_number(classes)
        self._train(self._learner(rows, len(classes)), ClientRows(rows, labels))
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> FloatMatrix:
        """Scores in the order of ``classes_``, shape (n, c); of two classes the second's less the first's, (n,)."""
        scores = self._scores(X)
        return scores if scores.shape[1] > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of the largest score for each row, shape (n,)."""
        scores = self._scores(X)
        best: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return best

    @classmethod
    def from_model(cls, learner: AnalyticLearner[Any], model: Any, classes: Sequence[Any] | None = None) -> Self:
        """The fitted classifier of a model that a federation returned, or that was loaded.

        Args:
            learner: the closed form that all clients agreed on.
            model: its complete model.
            classes: what labels 0, 1, ... stand for; 0 to c - 1 when left out.

        Raises:
            NotReadyError: the model still needs a sum.
            SpecificationError: another kind of learner, a regression model, or not one distinct class a column.
        """
        target_format = getattr(learner, "target_format", LABELS)
        if not isinstance(learner, cls._learner_type) or target_format != LABELS:
            raise SpecificationError(
                f"{cls.__name__} takes models of {cls._learner_type.__name__} on class labels, not of "
                f"{type(learner).__name__} with targets in {target_format}; use the learner's own estimator"
            )
        refuse_row_map(learner, cls.__name__)
        n_classes = learner.n_classes if isinstance(learner, SAFLe) else learner.n_targets
        own = np.arange(n_classes) if classes is None else np.asarray(classes)
        if own.shape != (n_classes,) or len(np.unique(own)) != n_classes:
            raise SpecificationError(f"this model needs {n_classes} distinct classes in a row, not {own.tolist()}")
        check_number(own)
        estimator = cls._adopting(learner, model)
        estimator.classes_ = own
        return estimator

    @abstractmethod
    def _learner(self, rows: NDArray[Any], n_classes: int) -> AnalyticLearner[Any]:
        """The closed form that these parameters and rows lead to."""


def check_number(classes: NDArray[Any]) -> None:
    """Refuse a classifier of fewer than two classes."""
    if len(classes) < 2:
        raise SpecificationError(f"a classifier needs at least two classes, not {len(classes)} class")
