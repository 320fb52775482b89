"""A learner of another package: a ridge on rows less the mean of everybody's rows, which a first sum finds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import dequantised
from analytic.errors import NotReadyError
from analytic.layers import Layer, Linear
from analytic.learner import ClientRows, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.row_format import FloatMatrix, RowFormat
from analytic.solve import Solution, solve_ridge
from analytic.statistics import LABELS, IntVector, Statistics, StatisticsSpec
from analytic.tallies import TallySpec
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import WEIGHING, LearnerEntry, LearnerSettings


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentredModel:
    """The columns' means in units of the format, once they are known; then the weights of centred rows."""

    centre: IntVector | None = None
    solution: Solution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CentredRidge:
    """The dialogue: its fields are its configuration, which model files hold and which every party agrees on."""

    n_features: int
    n_targets: int
    feature_format: RowFormat
    max_rows: int
    ridge: float = 1.0

    name = "centred-ridge"
    target_format = LABELS

    @property
    def first(self) -> TallySpec:
        largest = 1 << self.feature_format.integer_bits + self.feature_format.fraction_bits
        bounds = {"sums": self.max_rows * largest}
        return TallySpec(shapes={"sums": (self.n_features,)}, bounds=bounds, max_rows=self.max_rows)

    @property
    def second(self) -> StatisticsSpec:
        wider = replace(self.feature_format, integer_bits=self.feature_format.integer_bits + 1, signed=True)
        return StatisticsSpec(
            n_features=self.n_features, n_targets=self.n_targets, feature_format=wider, max_rows=self.max_rows
        )

    # What parties call, in the order in which they do

    def init(self) -> CentredModel:
        return CentredModel()

    def next_sum(self, model: CentredModel) -> TallySpec | StatisticsSpec | None:
        if model.centre is None:
            return self.first
        return self.second if model.solution is None else None

    def client_statistics(self, model: CentredModel, rows: ClientRows) -> Any:
        refuse_weights(rows)
        units = self.feature_format.quantise(rows.features).astype(np.int64)
        if model.centre is None:
            return {"sums": units.sum(axis=0), "count": np.array(len(rows))}
        centred = self._in_own_units((units - model.centre).astype(np.float64))
        return Statistics.from_rows(self.second, centred, rows.targets)

    def exact_total(self, model: CentredModel, total: Any, survivors: int) -> Statistics:
        return Statistics.of_counts(int(total["count"])) if model.centre is None else total

    def update(self, model: CentredModel, total: Any, survivors: int) -> CentredModel:
        if model.centre is None:
            return CentredModel(centre=total["sums"] // max(1, int(total["count"])))
        gram, cross = dequantised(total, self.second.feature_format, self.second.target_format)
        return CentredModel(centre=model.centre, solution=solve_ridge(gram, cross, ridge=self.ridge))

    def decision_function(self, model: CentredModel, features: NDArray[Any]) -> FloatMatrix:
        centre, weights = self._complete(model)
        return np.asarray((features - self._in_own_units(centre)) @ weights)

    # What is compared, agreed on, stored and exported

    def weights_bytes(self, model: CentredModel) -> bytes:
        return b"".join(part.tobytes() for part in self._complete(model))

    def context_bytes(self, model: CentredModel) -> bytes:
        return canonical_context(self, *([] if model.centre is None else [model.centre.tobytes()]))

    def take_apart(self, model: CentredModel) -> Parts:
        parts = Parts() if model.centre is None else Parts({"centre": model.centre})
        if model.solution is not None:
            parts.add_solution("weights", model.solution)
        return parts

    def put_together(self, parts: Parts) -> CentredModel:
        centre = parts.integers("centre", (self.n_features,)) if "centre" in parts else None
        shape = self.n_features, self.n_targets
        return CentredModel(centre=centre, solution=parts.solution("weights", shape) if "weights" in parts else None)

    def over(self, denominator: int) -> CentredRidge:
        """For weights of rows: sums then hold everything so many times."""
        return replace(self, ridge=self.ridge * denominator)

    def layers(self, model: CentredModel) -> tuple[Layer, ...]:
        centre, weights = self._complete(model)
        return (Linear(weights, -self._in_own_units(centre) @ weights),)

    def _complete(self, model: CentredModel) -> tuple[IntVector, FloatMatrix]:
        if model.centre is None or model.solution is None:
            raise NotReadyError("this model needs two sums")
        return model.centre, model.solution.weights

    def _in_own_units(self, units: NDArray[Any]) -> FloatMatrix:
        return np.ldexp(units.astype(np.float64), -self.feature_format.fraction_bits)


def head(settings: LearnerSettings) -> CentredRidge:
    """Return the learner that the command line, a run's settings or ``federate`` ask for."""
    if settings.agreement is not None or settings.ri_gamma or settings.ridge == "cv":
        raise UsageError("centred-ridge needs a stated format and ridge, and has no RI process: leave the others out")
    return CentredRidge(
        n_features=settings.n_features,
        n_targets=settings.n_classes,
        feature_format=settings.feature_format,
        max_rows=settings.max_rows,
        ridge=settings.ridge or 1.0,
    )


ENTRY = LearnerEntry(
    name=CentredRidge.name,
    head=head,
    options=WEIGHING,
    n_sums=lambda options: 2,
    labels_only=True,
    learner_class=CentredRidge,
)
