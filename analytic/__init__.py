"""Closed forms from exact sums of rows: learners, their rows and formats, the pooled fit, and model files.

What stands here is what programs need; so do `analytic.estimators` (scikit-learn) and `analytic.torch_export`
(PyTorch), which are modules of their own because of what they load. All other modules are how it is done and may
change.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analytic.afl import AFL
    from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
    from analytic.deepafl import DeepAFL
    from analytic.discriminant import LDA, QDA
    from analytic.errors import (
        AnalyticError,
        DivergedError,
        ImpossibleTotalError,
        InvalidRowsError,
        NotPositiveDefiniteError,
        NotReadyError,
        RowsOutsideFormatError,
        SpecificationError,
    )
    from analytic.evaluation import (
        ClassEvaluation,
        LabelsEvaluation,
        RegressionEvaluation,
    )
    from analytic.fedhip import FedHiP
    from analytic.learner import AnalyticLearner, ClientRows, fit_pooled
    from analytic.logistic import Logistic
    from analytic.model_files import ModelFileError, load_model, save_model
    from analytic.naive_bayes import NaiveBayes
    from analytic.partial_labels import PartialLabels
    from analytic.pipeline import Pipeline
    from analytic.random_map import RandomMap
    from analytic.row_format import ColumnMap, RowFormat
    from analytic.safle import SAFLe
    from analytic.scaling import Scaler, agreed_format
    from analytic.selection import RidgeCV
    from analytic.statistics import LABELS
    from analytic.weights import Weights

__all__ = [
    "AFL",
    "LABELS",
    "LDA",
    "QDA",
    "AnalyticError",
    "AnalyticLearner",
    "ClassEvaluation",
    "ClientRows",
    "ColumnMap",
    "DeepAFL",
    "DivergedError",
    "Encoding",
    "FedHiP",
    "FixedThresholds",
    "ImpossibleTotalError",
    "InvalidRowsError",
    "LabelsEvaluation",
    "Logistic",
    "ModelFileError",
    "NaiveBayes",
    "NotPositiveDefiniteError",
    "NotReadyError",
    "PartialLabels",
    "Pipeline",
    "QuantileThresholds",
    "RandomMap",
    "RegressionEvaluation",
    "RidgeCV",
    "RowFormat",
    "RowsOutsideFormatError",
    "SAFLe",
    "Scaler",
    "SpecificationError",
    "Weights",
    "agreed_format",
    "fit_pooled",
    "load_model",
    "save_model",
]

_MODULES = (
    "afl",
    "bucketing",
    "deepafl",
    "discriminant",
    "errors",
    "evaluation",
    "fedhip",
    "learner",
    "logistic",
    "model_files",
    "naive_bayes",
    "partial_labels",
    "pipeline",
    "random_map",
    "row_format",
    "safle",
    "scaling",
    "selection",
    "statistics",
    "weights",
)


def __getattr__(name: str) -> object:
    """Load a name when it is first asked for, so that who needs one module does not wait for all."""
    if name in __all__:
        modules = (importlib.import_module(f"analytic.{module}") for module in _MODULES)
        return next(vars(module)[name] for module in modules if name in vars(module))
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("analytic-secagg")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Name what there is, loaded or not."""
    return [*globals(), *__all__]
