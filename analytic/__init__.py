"""Closed forms from exact sums of rows: learners, their rows and formats, the pooled fit, and model files.

What stands here is what programs need; so do `analytic.estimators` (scikit-learn) and `analytic.torch_export`
(PyTorch), which are modules of their own because of what they load. All other modules are how it is done and may
change.
"""

from analytic.afl import AFL, LinearModel, absolute_aggregation
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL, DeepModel
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
    ClassReport,
    LabelsEvaluation,
    LabelsReport,
    RegressionEvaluation,
    RegressionReport,
)
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import AnalyticLearner, ClientRows, SumSpec, fit_pooled
from analytic.logistic import Logistic
from analytic.model_files import ModelFileError, load_model, save_model
from analytic.naive_bayes import NaiveBayes
from analytic.partial_labels import PartialLabels
from analytic.pipeline import Pipeline, PipelineModel
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe, SAFLeModel
from analytic.scaling import Scaler, agreed_format
from analytic.selection import RidgeCV
from analytic.statistics import LABELS
from analytic.total_error import r2, squared_errors
from analytic.weights import Weights

__all__ = [
    "AFL",
    "LABELS",
    "LDA",
    "QDA",
    "AnalyticError",
    "AnalyticLearner",
    "ClassEvaluation",
    "ClassReport",
    "ClientRows",
    "ColumnMap",
    "DeepAFL",
    "DeepModel",
    "DivergedError",
    "Encoding",
    "FedHiP",
    "FedHiPModel",
    "FixedThresholds",
    "ImpossibleTotalError",
    "InvalidRowsError",
    "LabelsEvaluation",
    "LabelsReport",
    "LinearModel",
    "Logistic",
    "ModelFileError",
    "NaiveBayes",
    "NotPositiveDefiniteError",
    "NotReadyError",
    "PartialLabels",
    "Pipeline",
    "PipelineModel",
    "QuantileThresholds",
    "RandomMap",
    "RegressionEvaluation",
    "RegressionReport",
    "RidgeCV",
    "RowFormat",
    "RowsOutsideFormatError",
    "SAFLe",
    "SAFLeModel",
    "Scaler",
    "SpecificationError",
    "SumSpec",
    "Weights",
    "absolute_aggregation",
    "agreed_format",
    "fit_pooled",
    "load_model",
    "r2",
    "save_model",
    "squared_errors",
]
