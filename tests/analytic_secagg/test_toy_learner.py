"""A learner of two sums, defined in this file alone, through everything that knows learners.

No other file names it: what works here works for a learner that somebody brings along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.extras import modes
from support.rehearsed import CLIENTS, edit_all, is_exact, rehearse, run_config

from analytic import model_files
from analytic.afl import dequantised
from analytic.errors import NotReadyError
from analytic.learner import ClientRows, canonical_context, fit_pooled
from analytic.model_arrays import Parts
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.row_format import FloatMatrix, RowFormat
from analytic.solve import Solution, solve_ridge
from analytic.statistics import IntVector, Statistics, StatisticsSpec
from analytic_secagg import federate
from analytic_secagg.learners import LEARNERS, LearnerEntry, LearnerSettings
from analytic_secagg.modes import Mode
from analytic_secagg.trial import Trial
from secagg.errors import TooFewSurvivorsError
from simulations.__main__ import main


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSums:
    """The first sum: every column's sum in units of the format, and the number of rows."""

    n_features: int
    largest: int
    max_rows: int

    @property
    def segments(self) -> tuple[tuple[str, int, int], ...]:
        return (("sums", self.n_features, self.max_rows * self.largest), ("count", 1, self.max_rows))

    def client_bounds(self, max_rows: int) -> tuple[int, ...]:
        return (max_rows * self.largest, max_rows)

    def to_vector(self, statistics: IntVector) -> IntVector:
        return statistics

    def check_total(self, total: IntVector, survivors: int) -> None:
        """Any sums may be: nothing is refused."""

    def from_vector(self, vector: IntVector) -> IntVector:
        return vector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CentredModel:
    """The columns' means in whole units, once they are known; then the weights of centred rows."""

    centre: IntVector | None = None
    solution: Solution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CentredRidge:
    """A ridge on rows less the mean of everybody's rows, rounded down to a unit of the format."""

    n_features: int
    n_targets: int
    feature_format: RowFormat
    max_rows: int
    ridge: float = 1.0

    name = "centred-ridge"

    @property
    def first(self) -> ColumnSums:
        bits = self.feature_format.integer_bits + self.feature_format.fraction_bits
        return ColumnSums(n_features=self.n_features, largest=1 << bits, max_rows=self.max_rows)

    @property
    def second(self) -> StatisticsSpec:
        wider = replace(self.feature_format, integer_bits=self.feature_format.integer_bits + 1, signed=True)
        return StatisticsSpec(
            n_features=self.n_features, n_targets=self.n_targets, feature_format=wider, max_rows=self.max_rows
        )

    def init(self) -> CentredModel:
        return CentredModel()

    def next_sum(self, model: CentredModel) -> ColumnSums | StatisticsSpec | None:
        if model.centre is None:
            return self.first
        return self.second if model.solution is None else None

    def client_statistics(self, model: CentredModel, rows: ClientRows) -> Any:
        units = self.feature_format.quantise(rows.features).astype(np.int64)
        if model.centre is None:
            return np.append(units.sum(axis=0), len(rows))
        return Statistics.from_rows(self.second, self._centred(units, model.centre), rows.targets)

    def update(self, model: CentredModel, total: Any, survivors: int) -> CentredModel:
        if model.centre is None:
            return CentredModel(centre=total[:-1] // max(1, int(total[-1])))
        gram, cross = dequantised(total, self.second.feature_format, self.second.target_format)
        return CentredModel(centre=model.centre, solution=solve_ridge(gram, cross, ridge=self.ridge))

    def exact_total(self, model: CentredModel, total: Any, survivors: int) -> Statistics | None:
        return None if model.centre is None else total

    def decision_function(self, model: CentredModel, features: NDArray[Any]) -> FloatMatrix:
        if model.centre is None or model.solution is None:
            raise NotReadyError("this model needs two sums")
        units = self.feature_format.quantise(features).astype(np.int64)
        return np.asarray(self._centred(units, model.centre) @ model.solution.weights)

    def weights_bytes(self, model: CentredModel) -> bytes:
        if model.centre is None or model.solution is None:
            raise NotReadyError("this model needs two sums")
        return model.centre.tobytes() + model.solution.weights.tobytes()

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

    def _centred(self, units: NDArray[Any], centre: IntVector) -> FloatMatrix:
        return np.ldexp((units - centre).astype(np.float64), -self.feature_format.fraction_bits)


def build(settings: LearnerSettings) -> CentredRidge:
    return CentredRidge(
        n_features=settings.n_features,
        n_targets=settings.n_classes,
        feature_format=settings.feature_format,
        max_rows=settings.max_rows,
        ridge=settings.ridge or 1.0,
    )


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner, known to everybody within the test: one line for its name, one for its files."""
    entry = LearnerEntry(name=CentredRidge.name, build=build, n_sums=lambda options: 2)
    monkeypatch.setitem(LEARNERS, entry.name, entry)  # type: ignore[arg-type]
    monkeypatch.setitem(model_files.LEARNERS, CentredRidge.name, CentredRidge)


def toy(max_rows: int = 100) -> CentredRidge:
    return CentredRidge(n_features=4, n_targets=3, feature_format=RowFormat.parse("Q3.5"), max_rows=max_rows)


def dealt() -> dict[int, ClientRows]:
    rng = np.random.default_rng(0)
    return {party: ClientRows(rng.uniform(-7, 7, (9, 4)), rng.integers(0, 3, 9)) for party in range(1, 6)}


@pytest.mark.parametrize("mode", modes(["plain", "masked", "committee", "bfv"]))
def test_one_call_gives_the_survivors_pooled_bytes(mode: Mode) -> None:
    rows = dealt()
    stayed = ClientRows.pool([own for party, own in rows.items() if party != 2])
    model = federate(rows, toy(), mode.name, dropouts={2: 0}).model
    assert toy().weights_bytes(model) == toy().weights_bytes(fit_pooled(toy(), stayed))


def test_its_model_is_stored_and_read_back_between_its_sums_and_after() -> None:
    pooled = ClientRows.pool(list(dealt().values()))
    half = toy().update(toy().init(), toy().client_statistics(toy().init(), pooled), 1)
    for model in (toy().init(), half, fit_pooled(toy(), pooled)):
        read = model_from_bytes(model_to_bytes(toy(), model))
        assert read.learner == toy()
        assert read.learner.context_bytes(read.model) == toy().context_bytes(model)
    assert read.learner.weights_bytes(read.model) == toy().weights_bytes(model)


def test_comparisons_and_the_audit_take_it_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    shared = ["--learner", CentredRidge.name, "--modes", "plain,masked"]
    assert main(["compare", *shared, "--clients", "5", "--dropout", "0.2"]) == 0
    assert "all 2 runs equal the pooled model of the surviving clients, bit for bit" in capsys.readouterr().out
    few = ["--attacks", "label_histogram,class_means", "--epsilon", "none", "--cohorts", "3", "--sessions", "1"]
    assert main(["audit", *shared, *few, "--clients", "10"]) == 0
    assert "masked: no evidence of leakage" in capsys.readouterr().out


def test_sites_that_allow_it_train_it_and_no_others(trial: Trial) -> None:
    """Each delivery is a fresh process, and comes twice: sessions are stored, restored and repeat themselves."""
    config = run_config(learner=CentredRidge.name, mode="masked")
    with pytest.raises(TooFewSurvivorsError, match="no sum is released"):
        rehearse(trial.folder, config)
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{CentredRidge.name}"]'))
    rehearse(trial.folder, config, deliveries=2)
    is_exact(trial, list(CLIENTS))
