"""Complete models as layers, described as data, so that an exporter needs to know no learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from analytic.bucketing import Bucketing, Grouping
from analytic.errors import NotReadyError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.shape_repr import shape_repr


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """X M + b; ``matrix`` is M, shape (inputs, outputs), and ``bias`` b, shape (outputs,), or None for none."""

    matrix: FloatMatrix
    bias: FloatMatrix | None = None

    __repr__ = shape_repr


@dataclass(frozen=True, slots=True)
class Activated:
    """An elementwise activation, by its name in ``analytic.integer_maps.ACTIVATIONS``."""

    name: str


@dataclass(frozen=True, slots=True)
class Rounded:
    """Entries become the nearest multiples of 2^-fraction_bits, ties to the even one."""

    fraction_bits: int


@dataclass(frozen=True, slots=True)
class Clipped:
    """Entries below ``low`` or above ``high`` become these."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Residual:
    """Rows plus a branch of them.

    Args:
        branch: layers that end in as many columns as the rows have.
        of_first: the branch takes the rows that entered the model's first residual layer, and not this one.
    """

    branch: tuple[Layer, ...]
    of_first: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lookup:
    """The sum of the embeddings of a row's groups of digits; NaN and infinity have no bucket.

    Args:
        thresholds: shape (d, n_thresholds), ascending along a row.
        bucketing: how a feature and its thresholds become digits.
        grouping: which digits are one index.
        embeddings: shape (E V, c), group by group.
    """

    thresholds: FloatMatrix
    bucketing: Bucketing
    grouping: Grouping
    embeddings: FloatMatrix

    __repr__ = shape_repr


Layer = Linear | Activated | Rounded | Clipped | Residual | Lookup
"""A layer of a model."""


def complete_layers(learner: Any, model: Any, kind: str) -> tuple[Layer, ...]:
    """Return the layers of a complete model for an export of this kind.

    Raises:
        NotReadyError: the model still needs a sum.
        SpecificationError: a learner without layers.
    """
    if not isinstance(learner, Layered):
        raise SpecificationError(f"there is no {kind} for {type(learner).__name__}; build one from its weights")
    if learner.next_sum(model) is not None:
        raise NotReadyError(f"a {kind} needs a complete model; this one still needs totals of its clients' statistics")
    return learner.layers(model)


@runtime_checkable
class Layered(Protocol):
    """A learner whose complete models are stacks of layers, from features to the scores of ``decision_function``."""

    def next_sum(self, model: Any) -> Any:
        """Return the sum that the model still needs; None when it is complete."""
        ...

    def layers(self, model: Any) -> tuple[Layer, ...]:
        """Return the layers of a complete model, the first one first."""
        ...
