"""Models as named arrays with what is known of their conditioning, and back: each learner says how, for its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import AnalyticError
from analytic.row_format import FloatMatrix
from analytic.solve.minimum_norm import Solution
from analytic.statistics import IntMatrix

FLOAT64 = "eigenvectors in float64"
"""Solver of an array of which a file states nothing more."""


class ModelFileError(AnalyticError, ValueError):
    """A saved model cannot be read or written, or is not what its digests and its configuration say."""


class Parts:
    """Arrays with their conditioning; those of a file are taken once each, as the configuration asks for them.

    Args:
        source: where they come from, for errors.
        arrays: by name.
        conditioning: of solved arrays by name.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]] | None = None,
        conditioning: Mapping[str, Any] | None = None,
        *,
        source: str = "the model to be saved",
    ) -> None:
        self.source = source
        self.arrays, self.conditioning = dict(arrays or {}), dict(conditioning or {})
        self._left = set(self.arrays)

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def add_solution(self, name: str, solution: Solution) -> None:
        """Add the weights of a solve with their conditioning."""
        self.arrays[name] = solution.weights
        self.conditioning[name] = {
            "method": solution.method,
            "rank": int(solution.rank),
            "reciprocal_condition": float(solution.reciprocal_condition),
            "certified": bool(solution.certified),
        }

    @property
    def uncertified(self) -> tuple[str, ...]:
        """Solved arrays whose bits are this machine's, each by name with how it was solved; empty where none is.

        All others are proven to be exact solutions rounded once, the same on every machine.
        """
        reports = self.conditioning.items()
        return tuple(f"{name} by {one.get('method', FLOAT64)}" for name, one in reports if not one["certified"])

    def floats(self, name: str, shape: tuple[int, ...]) -> FloatMatrix:
        """Take the float64 array of that name and shape."""
        return self._array(name, shape, np.dtype(np.float64))

    def integers(self, name: str, shape: tuple[int, ...]) -> IntMatrix:
        """Take the int64 array of that name and shape."""
        return self._array(name, shape, np.dtype(np.int64))

    def report(self, name: str, *keys: str) -> dict[str, Any]:
        """Return what is said of that array's conditioning, under exactly these keys."""
        report = self.conditioning.get(name)
        if not isinstance(report, dict) or sorted(report) != sorted(keys):
            raise ModelFileError(f"{self.source}: the conditioning of {name} must state {', '.join(keys)}")
        return report

    def solution(self, name: str, shape: tuple[int, ...]) -> Solution:
        """Take the weights of that name and shape with their conditioning."""
        report = self.report(name, "method", "rank", "reciprocal_condition", "certified")
        return Solution(weights=self.floats(name, shape), **report)

    def check_all_taken(self) -> None:
        """Refuse arrays that nothing asked for."""
        if self._left:
            raise ModelFileError(
                f"{self.source}: its configuration has no place for the arrays {', '.join(sorted(self._left))}; parts "
                "of two models were mixed up: save the model again"
            )

    def check_finite(self) -> None:
        """Refuse NaN and infinity."""
        if bad := sorted(name for name, array in self.arrays.items() if not np.isfinite(array).all()):
            raise ModelFileError(
                f"{self.source} must hold finite numbers; there is NaN or infinity in {', '.join(bad)}: train again"
            )

    def _array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        if name not in self.arrays:
            raise ModelFileError(
                f"{self.source}: the array {name} is missing; there are {', '.join(sorted(self.arrays)) or 'none'}"
            )
        array = self.arrays[name]
        if array.shape != shape or array.dtype != dtype:
            raise ModelFileError(
                f"{self.source}: {name} must be {dtype} of shape {shape} by the configuration, not {array.dtype} of "
                f"shape {array.shape}; parts of two models were mixed up: save the model again"
            )
        self._left.discard(name)
        array.setflags(write=False)
        return array
