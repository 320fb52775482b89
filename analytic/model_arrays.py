"""Models as named arrays with what is known of their conditioning, and back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.deepafl import DeepAFL, DeepModel
from analytic.errors import AnalyticError, SpecificationError
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.row_bounds import RowBounds
from analytic.row_format import FloatMatrix
from analytic.safle import SAFLe, SAFLeModel
from analytic.solve import ResidualBlock, Solution
from analytic.statistics import IntMatrix, Statistics

LEARNERS: dict[str, type[Any]] = {"afl": AFL, "fedhip": FedHiP, "deepafl": DeepAFL, "safle": SAFLe}

Arrays = dict[str, NDArray[Any]]
Conditioning = dict[str, dict[str, Any]]
"""How well each solved array was determined, by the array's name."""


class ModelFileError(AnalyticError, ValueError):
    """A saved model cannot be read or written, or is not what its digests and its configuration say."""


def taken_apart(learner: Any, model: Any) -> tuple[Arrays, Conditioning]:
    """The arrays of a model, and the conditioning of those that a solve gave.

    Raises:
        SpecificationError: a learner that is not one of ``LEARNERS``.
    """
    if LEARNERS.get(getattr(learner, "name", "")) is not type(learner):
        raise SpecificationError(
            f"only models of {', '.join(LEARNERS)} have a file format, not of {type(learner).__name__}; save its "
            "arrays yourself"
        )
    if isinstance(model, DeepModel):
        return _deep_parts(model)
    arrays: Arrays = {}
    if isinstance(model, SAFLeModel) and model.thresholds is not None:
        arrays["thresholds"] = model.thresholds
    if isinstance(model, FedHiPModel) and model.total is not None:
        count = np.array([model.total.count], dtype=np.int64)
        arrays |= {"total.gram": model.total.gram, "total.cross": model.total.cross, "total.count": count}
    if model.solution is None:
        return arrays, {}
    return arrays | {"weights": model.solution.weights}, {"weights": _solved(model.solution)}


def _deep_parts(model: DeepModel) -> tuple[Arrays, Conditioning]:
    arrays: Arrays = {
        "bounds.features": model.bounds.features,
        "bounds.hidden": np.array(model.bounds.hidden, dtype=np.float64),
        "bounds.residuals": np.array([model.bounds.residuals], dtype=np.float64),
    }
    conditioning: Conditioning = {}
    for layer, solution in enumerate(model.classifiers):
        arrays[f"classifier.{layer}"] = solution.weights
        conditioning[f"classifier.{layer}"] = _solved(solution)
    for layer, block in enumerate(model.blocks):
        arrays[f"transform.{layer}"] = block.transform
        report = {"rank": int(block.rank), "reciprocal_condition": float(block.reciprocal_condition)}
        conditioning[f"transform.{layer}"] = report
    return arrays, conditioning


def _solved(solution: Solution) -> dict[str, Any]:
    return {
        "method": solution.method,
        "rank": int(solution.rank),
        "reciprocal_condition": float(solution.reciprocal_condition),
    }


class Parts:
    """Arrays and conditioning of a file, each to be taken once, in the shape that the configuration asks for."""

    def __init__(self, folder: Path, arrays: Arrays, conditioning: Any) -> None:
        self._folder, self._arrays, self._left = folder, arrays, set(arrays)
        self._conditioning = conditioning

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def floats(self, name: str, shape: tuple[int, ...]) -> FloatMatrix:
        """The float64 array of that name and shape."""
        return self._array(name, shape, np.dtype(np.float64))

    def integers(self, name: str, shape: tuple[int, ...]) -> IntMatrix:
        """The int64 array of that name and shape."""
        return self._array(name, shape, np.dtype(np.int64))

    def conditioning(self, name: str, *keys: str) -> dict[str, Any]:
        """What is said of that array's conditioning, under exactly these keys."""
        report = self._conditioning.get(name) if isinstance(self._conditioning, dict) else None
        if not isinstance(report, dict) or sorted(report) != sorted(keys):
            raise ModelFileError(f"{self._folder}: the conditioning of {name} must state {', '.join(keys)}")
        return report

    def solution(self, name: str, shape: tuple[int, ...]) -> Solution:
        """The weights of that name and shape with their conditioning."""
        report = self.conditioning(name, "method", "rank", "reciprocal_condition")
        return Solution(weights=self.floats(name, shape), **report)

    def check_all_taken(self) -> None:
        """Refuse arrays that nothing asked for."""
        if self._left:
            raise ModelFileError(
                f"{self._folder}: its configuration has no place for the arrays {', '.join(sorted(self._left))}; files "
                "of two models were mixed up: save the model again"
            )

    def _array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        if name not in self._arrays:
            raise ModelFileError(
                f"{self._folder}: the array {name} is missing; there are {', '.join(sorted(self._arrays)) or 'none'}"
            )
        array = self._arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ModelFileError(
                f"{self._folder}: {name} must be {dtype} of shape {shape} by the configuration, not {array.dtype} of "
                f"shape {array.shape}; files of two models were mixed up: save the model again"
            )
        self._left.discard(name)
        array.setflags(write=False)
        return array


def put_together(learner: Any, parts: Parts) -> Any:
    """The model whose arrays these are.

    Raises:
        ModelFileError: an array or its conditioning is missing, or is not what the learner's configuration asks for.
    """
    if isinstance(learner, DeepAFL):
        return _deep_model(learner, parts)
    if isinstance(learner, SAFLe):
        return _safle_model(learner, parts)
    shape = learner.n_features, learner.n_targets
    solution = parts.solution("weights", shape) if "weights" in parts else None
    if not isinstance(learner, FedHiP):
        return LinearModel(solution=solution)
    if "total.gram" not in parts:
        return FedHiPModel(solution=solution)
    total = Statistics(
        gram=parts.integers("total.gram", (learner.n_features, learner.n_features)),
        cross=parts.integers("total.cross", shape),
        count=int(parts.integers("total.count", (1,))[0]),
    )
    return FedHiPModel(solution=solution, total=total)


def _safle_model(learner: SAFLe, parts: Parts) -> SAFLeModel:
    shape = learner.spec.n_cells, learner.n_classes
    thresholds = None
    if "thresholds" in parts or "weights" in parts:
        thresholds = parts.floats("thresholds", (learner.n_features, learner.bucketing.n_thresholds))
    return SAFLeModel(thresholds=thresholds, solution=parts.solution("weights", shape) if "weights" in parts else None)


def _deep_model(learner: DeepAFL, parts: Parts) -> DeepModel:
    n_classifiers = _count(f"classifier.{layer}" in parts for layer in range(learner.n_layers + 1))
    n_blocks = _count(f"transform.{layer}" in parts for layer in range(learner.n_layers))
    # They come in turn, so that a gap among them is a missing array and not a smaller model.
    n_classifiers, n_blocks = max(n_classifiers, n_blocks), max(n_blocks, n_classifiers - 1)
    next_hidden = int(n_blocks < min(n_classifiers, learner.n_layers))
    n_hidden = learner.n_layers * min(n_classifiers, 1) if learner.fed_by_first else next_hidden
    return DeepModel(
        bounds=RowBounds(
            features=parts.floats("bounds.features", (learner.d_phi,)),
            hidden=tuple(float(bound) for bound in parts.floats("bounds.hidden", (n_hidden,))),
            residuals=float(parts.floats("bounds.residuals", (1,))[0]),
        ),
        classifiers=tuple(
            parts.solution(f"classifier.{layer}", (learner.d_phi, learner.n_targets)) for layer in range(n_classifiers)
        ),
        blocks=tuple(
            ResidualBlock(
                transform=parts.floats(f"transform.{layer}", (learner.d_f, learner.d_phi)),
                **parts.conditioning(f"transform.{layer}", "rank", "reciprocal_condition"),
            )
            for layer in range(n_blocks)
        ),
    )


def _count(present: Iterable[bool]) -> int:
    """One more than the last place that holds something."""
    return max((place + 1 for place, held in enumerate(present) if held), default=0)
