"""Closed forms from exact sums of rows: learners, their rows and formats, the pooled fit, and model files.

What stands here is what programs need; so do `analytic.estimators` (scikit-learn) and `analytic.torch_export`
(PyTorch), which are modules of their own because of what they load. All other modules are how it is done and may
change.
"""

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
