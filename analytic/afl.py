"""AFL: the linear least-squares classifier or regressor of all clients' rows, from one sum."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.layers import Layer, Linear
from analytic.learner import ClientRows, canonical_context
from analytic.model_arrays import Parts
from analytic.row_format import FloatMatrix, RowFormat
from analytic.solve import Solution, solve_ridge
from analytic.statistics import INT64_MAX, LABELS, Statistics, StatisticsSpec
from analytic.whole_numbers import settle_whole_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearModel:
    """Weights of a linear map and how they were found; before the sum ``solution`` is None."""

    solution: Solution | None = None

    @property
    def weights(self) -> FloatMatrix:
        """W, shape (d, c).

        Raises:
            NotReadyError: the total has not arrived yet.
        """
        if self.solution is None:
            raise NotReadyError("this model has no weights yet: it still needs the total of its clients' statistics")
        return self.solution.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL:
    """Analytic federated learning (He et al., CVPR 2025): W = (sum G_k)^-1 sum H_k.

    The paper's clients upload C_k^r = G_k + gamma I and W_k^r = (C_k^r)^-1 H_k, and its server joins them
    by the absolute aggregation law (eq. 7-11). Since C_k^r W_k^r = H_k, sums suffice: after K clients
    W = (sum C_k^r - K gamma I + ridge I)^-1 sum H_k, which is what a secure sum can compute. In integers
    the RI process (eq. 16) is removed exactly, for any gamma and K.

    Args:
        n_features: d.
        n_targets: c: classes, or columns of real targets.
        feature_format: fixed-point format of the features.
        target_format: ``LABELS`` for class labels, else the format of real targets.
        max_rows: largest number of rows that all clients together may hold.
        max_clients: largest cohort; sizes the room that the RI process needs (without one it limits nothing).
        ridge: penalty of the one solve, in the features' own units squared.
        ri_gamma: the paper's gamma, what each client adds to its Gram's diagonal.
        clip: clip features into the format instead of refusing them.
    """

    n_features: int
    n_targets: int
    feature_format: RowFormat
    target_format: RowFormat = LABELS
    max_rows: int
    max_clients: int = 1
    ridge: float = 0.0
    ri_gamma: float = 0.0
    clip: bool = False

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_targets", "max_rows", "max_clients")
        if not (isinstance(self.feature_format, RowFormat) and isinstance(self.target_format, RowFormat)):
            raise SpecificationError(
                f"formats are RowFormats, not {self.feature_format!r} and {self.target_format!r}; RowFormat.parse "
                "makes one of a text"
            )
        if not (np.isfinite(self.ri_gamma) and self.ri_gamma >= 0):
            raise SpecificationError(f"gamma must be a finite number >= 0, not {self.ri_gamma}")
        if self.ri_gamma > 0 and self.ri_units == 0:
            raise SpecificationError(
                f"gamma {self.ri_gamma:g} is below half a unit of the Gram, "
                f"2^-{2 * self.feature_format.fraction_bits}; use a larger gamma or 0"
            )
        if self.max_clients < 1:
            raise SpecificationError(f"a cohort needs at least one client, not {self.max_clients}")
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise SpecificationError(f"a ridge must be a finite number >= 0, not {self.ridge}")
        _ = self.spec

    @property
    def name(self) -> str:
        """The learner's name on the command line and in reports."""
        return "afl"

    @property
    def ri_units(self) -> int:
        """Gamma in units of the Gram: what is added, and so what is taken off again."""
        units = round(Fraction(float(self.ri_gamma)) * (1 << 2 * self.feature_format.fraction_bits))
        if self.max_clients * units > INT64_MAX:
            raise SpecificationError(
                f"gamma {self.ri_gamma:g} from {self.max_clients} clients does not fit an int64 Gram; use a smaller one"
            )
        return units

    @property
    def spec(self) -> StatisticsSpec:
        """The one sum that AFL needs."""
        return StatisticsSpec(
            n_features=self.n_features,
            n_targets=self.n_targets,
            feature_format=self.feature_format,
            target_format=self.target_format,
            max_rows=self.max_rows,
            diagonal_allowance=self.max_clients * self.ri_units,
        )

    def init(self) -> LinearModel:
        """The model before its sum."""
        return LinearModel()

    def next_sum(self, model: LinearModel) -> StatisticsSpec | None:
        """The one sum, then nothing more."""
        return self.spec if model.solution is None else None

    def client_statistics(self, model: LinearModel, rows: ClientRows) -> Statistics:
        """Local stage: G_k + gamma I and H_k."""
        own = Statistics.from_rows(self.spec, rows.features, rows.targets, clip=self.clip)
        return own.with_diagonal(self.ri_units)

    def update(self, model: LinearModel, total: Statistics, survivors: int) -> LinearModel:
        """Aggregation stage: take K gamma I off again, exactly, and solve once.

        Raises:
            InvalidRowsError: more survivors than ``max_clients``, so that the RI process left its room.
        """
        return LinearModel(solution=self.solve(self.without_ri(total, survivors)))

    def without_ri(self, total: Statistics, survivors: int) -> Statistics:
        """The survivors' pooled statistics: the total without the K gamma I that they added."""
        return ri_taken_off(total, survivors, units=self.ri_units, max_clients=self.max_clients)

    def solve(self, pooled: Statistics) -> Solution:
        """Weights of exact statistics: each entry rounded to float64 once, then one solve."""
        gram, cross = dequantised(pooled, self.feature_format, self.target_format)
        return solve_ridge(gram, cross, ridge=self.ridge)

    def decision_function(self, model: LinearModel, features: NDArray[Any]) -> FloatMatrix:
        """X W, shape (n, c), of features as they are: only training rows are quantised.

        Raises:
            NotReadyError: the total has not arrived yet.
            InvalidRowsError: features of another shape than (n, d).
        """
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise InvalidRowsError(f"features must have shape (n, {self.n_features}), not {rows.shape}")
        return rows @ model.weights

    def layers(self, model: LinearModel) -> tuple[Layer, ...]:
        """Return X W as one layer."""
        return (Linear(model.weights),)

    def weights_bytes(self, model: LinearModel) -> bytes:
        """W's bytes."""
        return model.weights.tobytes()

    def context_bytes(self, model: LinearModel) -> bytes:
        """The configuration, and W once there is one: before its sum a client receives nothing."""
        return canonical_context(self, *([] if model.solution is None else [model.weights.tobytes()]))

    def take_apart(self, model: LinearModel) -> Parts:
        """Return the weights with their conditioning, once there are any."""
        parts = Parts()
        if model.solution is not None:
            parts.add_solution("weights", model.solution)
        return parts

    def put_together(self, parts: Parts) -> LinearModel:
        """Return the model of these parts."""
        shape = self.n_features, self.n_targets
        return LinearModel(solution=parts.solution("weights", shape) if "weights" in parts else None)


class _WithDiagonal(Protocol):
    def with_diagonal(self, units: int) -> Self: ...


_Total = TypeVar("_Total", bound=_WithDiagonal)


def ri_taken_off(total: _Total, survivors: int, *, units: int, max_clients: int) -> _Total:
    """A total without the K gamma I that K survivors added to its Gram (the RI process), exact.

    Args:
        total: statistics or counts.
        survivors: K.
        units: gamma in units of the Gram.
        max_clients: for how many clients the layout had room.

    Raises:
        InvalidRowsError: more survivors than that, whose diagonals may have wrapped around.
    """
    if units and not 0 <= survivors <= max_clients:
        raise InvalidRowsError(
            f"the RI process has room for {max_clients} clients and {survivors} took part; agree on a larger "
            "max_clients"
        )
    return total.with_diagonal(-survivors * units)


def dequantised(
    total: Statistics, feature_format: RowFormat, target_format: RowFormat
) -> tuple[FloatMatrix, FloatMatrix]:
    """Gram and cross-correlation of a total as float64, each entry rounded once."""
    f, f_target = feature_format.fraction_bits, target_format.fraction_bits
    return (
        np.ldexp(total.gram.astype(np.float64), -2 * f),
        np.ldexp(total.cross.astype(np.float64), -f - f_target),
    )


def absolute_aggregation(
    weights_u: FloatMatrix, gram_u: FloatMatrix, weights_v: FloatMatrix, gram_v: FloatMatrix
) -> tuple[FloatMatrix, FloatMatrix]:
    """Join two clients' weights into those of their pooled rows, pairwise (AFL eq. 7-8, sign corrected).

    W = W_u' W_u + W_v' W_v with W_u' = I - R_u C_v + R_u C_v (C_u + C_v)^-1 C_v; the paper prints the last
    sign as minus. It needs each client's matrices in the clear and so is a cross-check, not the way to sum.

    Args:
        weights_u: (d, c), the first client's weights.
        gram_u: (d, d), its Gram, regular.
        weights_v: (d, c), the second client's weights.
        gram_v: (d, d), its Gram, regular.

    Returns:
        The joint weights (d, c) and the joint Gram (d, d).
    """
    joint = gram_u + gram_v

    def share(own: FloatMatrix, other: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        ratio = np.linalg.solve(own, other)
        return weights - ratio @ weights + ratio @ np.linalg.solve(joint, other @ weights)

    return share(gram_u, gram_v, weights_u) + share(gram_v, gram_u, weights_v), joint
