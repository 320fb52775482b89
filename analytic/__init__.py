"""Closed forms from exact sums of rows: learners, their rows and formats, the pooled fit, and model files.

What stands here is what programs need; so do `analytic.estimators` (scikit-learn) and `analytic.torch_export`
(PyTorch), which are modules of their own because of what they load. All other modules are how it is done and may
change.
"""

from analytic.afl import AFL, LinearModel, absolute_aggregation
from analytic.agreeing import Agreed, AgreedModel, agreed_format
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.choosing import Chosen
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
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe, SAFLeModel
from analytic.statistics import LABELS
from analytic.total_error import r2, squared_errors
from analytic.weighted import Weighted

__all__ = [
    "AFL",
    "LABELS",
    "LDA",
    "QDA",
    "Agreed",
    "AgreedModel",
    "AnalyticError",
    "AnalyticLearner",
    "Chosen",
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
    "QuantileThresholds",
    "RandomMap",
    "RegressionEvaluation",
    "RegressionReport",
    "RowFormat",
    "RowsOutsideFormatError",
    "SAFLe",
    "SAFLeModel",
    "SpecificationError",
    "SumSpec",
    "Weighted",
    "absolute_aggregation",
    "agreed_format",
    "fit_pooled",
    "load_model",
    "r2",
    "save_model",
    "squared_errors",
]
