"""Trained models as PyTorch modules, to stand on a backbone or to go to other tools.

torch comes with the ``vision`` extra and is imported only when a module is asked for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.bucketing import Encoding, public_shuffle
from analytic.deepafl import DeepAFL, DeepModel
from analytic.errors import AnalyticError, NotReadyError, SpecificationError
from analytic.features import activation_named, map_rows, random_projection
from analytic.learner import AnalyticLearner
from analytic.row_format import FloatMatrix
from analytic.safle import SAFLe, SAFLeModel

if TYPE_CHECKING:
    from torch.nn import Module

Precision = Literal["float64", "float32"]
"""What a module computes in."""

ROUNDOFF: dict[Precision, float] = {"float64": 2.0**-53, "float32": 2.0**-24}
"""u: the largest relative error of one rounded operation."""

STEEPEST = {"gelu": 1.13, "hardswish": 1.5}
"""Largest slopes of activations, 1 where not named: what an error before them grows by at most."""

ACTIVATION_ROUNDOFFS = 16
"""An activation is evaluated to within this many u times |z|: erf and tanh to 4 ulp (libraries promise 1 to 2), and the
few products and sums around them."""


class TorchMissingError(AnalyticError, ImportError):
    """PyTorch is not installed."""


def to_torch(learner: AnalyticLearner[Any], model: Any, *, precision: Precision = "float64") -> Module:
    """A module that maps features, shape (n, d), to the logits of ``decision_function``, shape (n, c).

    AFL and FedHiP become ``nn.Linear`` without a bias, DeepAFL a residual network, SAFLe a lookup of bucketed features
    in an ``nn.EmbeddingBag``. Logits agree to within ``logit_tolerance``, which bounds what the order of additions,
    the libraries' erf and tanh, and rounding to float32 can do. SAFLe's buckets agree exactly, for float32 modules on
    features that are float32 numbers. A row with NaN or infinity, where ``decision_function`` of SAFLe raises
    an error, has logits NaN. Weights are parameters and may be fine-tuned; save the module's ``state_dict``.

    Args:
        learner: the closed form.
        model: its complete model.
        precision: type of the parameters, and of the features to pass.

    Raises:
        TorchMissingError: torch is not installed.
        NotReadyError: the model still needs a sum.
        SpecificationError: an unknown learner or precision.
    """
    _check(learner, model, precision)
    dtype = getattr(_torch(), precision)
    if isinstance(learner, AFL):
        module = _linear(model.weights, dtype)
    elif isinstance(learner, DeepAFL):
        module = _residual_network(learner, model, dtype)
    else:
        assert isinstance(learner, SAFLe)
        module = _lookup(learner, model, dtype)
    return module


def logit_tolerance(
    learner: AnalyticLearner[Any], model: Any, features: NDArray[Any], *, precision: Precision = "float64"
) -> FloatMatrix:
    """How far each logit of ``to_torch``'s module may be from ``decision_function``'s, shape (n, c).

    A sum of k products in any order has an error of at most gamma_k = k u / (1 - k u) times the sum of their absolute
    values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); rounding both factors to u first adds
    two to k. Errors of inner layers pass through products as |E| |M| and through activations times their steepest
    slope. Both sides may err, hence the factor of 2.

    Raises:
        NotReadyError: the model still needs a sum.
        SpecificationError: an unknown learner or precision.
    """
    _check(learner, model, precision)
    u = ROUNDOFF[precision]
    if isinstance(learner, AFL):
        return 2 * _WithError(np.asarray(features, dtype=np.float64), u).times(model.weights).error
    if isinstance(learner, DeepAFL):
        return 2 * _deep_error(learner, model, features, u)
    assert isinstance(learner, SAFLe)
    n_groups = learner.spec.n_groups
    largest = np.abs(model.weights).reshape(n_groups, -1, learner.n_classes).max(axis=1).sum(axis=0)
    return np.tile(2 * _gamma(n_groups + 2, u) * largest, (len(features), 1))


def _check(learner: Any, model: Any, precision: str) -> None:
    if not isinstance(learner, (AFL, DeepAFL, SAFLe)):
        raise SpecificationError(f"there is no module for {type(learner).__name__}; build one from its weights")
    if precision not in ROUNDOFF:
        raise SpecificationError(f"a precision is {' or '.join(ROUNDOFF)}, not {precision!r}")
    if learner.next_sum(model) is not None:
        raise NotReadyError("a module needs a complete model; this one still needs totals of its clients' statistics")


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise TorchMissingError(
            "to_torch needs PyTorch, which is not installed; install the extra: pip install 'analytic-secagg[vision]'"
        ) from error
    return torch


# --- modules ------------------------------------------------------------------------------------------------


def _linear(matrix: FloatMatrix, dtype: Any) -> Module:
    """X M as ``nn.Linear``, which keeps M transposed."""
    torch = _torch()
    empty = torch.nn.Linear(*matrix.shape, bias=False, dtype=dtype, device="meta")
    module: Module = empty.to_empty(device="cpu")  # no random start, which would move torch's generator
    with torch.no_grad():
        module.get_parameter("weight").copy_(torch.from_numpy(matrix.T.copy()))
    return module


def _residual_network(learner: DeepAFL, model: DeepModel, dtype: Any) -> Module:
    nn = _torch().nn
    activations = {
        "gelu": nn.GELU,
        "relu": nn.ReLU,
        "leaky_relu": nn.LeakyReLU,
        "tanh": nn.Tanh,
        "hardswish": nn.Hardswish,
        "softshrink": nn.Softshrink,
        "none": nn.Identity,
    }

    class ResidualNetwork(nn.Module):  # type: ignore[misc, name-defined]
        """Phi_T W_T (DeepAFL, Algorithm 2)."""

        def __init__(self) -> None:
            super().__init__()
            projections, transforms = _projections(learner), [block.transform for block in model.blocks]
            self.activation = activations[learner.activation]()
            self.lift = _linear(projections[0], dtype)
            self.hidden = nn.ModuleList(_linear(matrix, dtype) for matrix in projections[1:])
            self.transforms = nn.ModuleList(_linear(matrix, dtype) for matrix in transforms)
            self.head = _linear(model.classifiers[-1].weights, dtype)

        def forward(self, features: Any) -> Any:
            first = phi = self.activation(self.lift(features))
            for hidden, transform in zip(self.hidden, self.transforms, strict=True):
                source = first if learner.fed_by_first else phi
                phi = phi + transform(self.activation(hidden(source)))
            return self.head(phi)

    return ResidualNetwork()


def _lookup(learner: SAFLe, model: SAFLeModel, dtype: Any) -> Module:
    torch = _torch()
    nn = torch.nn
    spec, bucketing, grouping = learner.spec, learner.bucketing, learner.grouping
    assert model.thresholds is not None
    thresholds = model.thresholds if dtype == torch.float64 else _rounded_up(model.thresholds)

    class EmbeddingLookup(nn.Module):  # type: ignore[misc, name-defined]
        """The sum of each group's embedding (SAFLe, eq. 3-5)."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("thresholds", torch.from_numpy(thresholds.copy()))
            order = torch.tensor(public_shuffle(grouping.seed, grouping.n_digits))
            self.register_buffer("order", order.reshape(grouping.n_groups, grouping.group_size))
            self.register_buffer("powers", torch.tensor([grouping.base**place for place in range(grouping.group_size)]))
            self.register_buffer("offsets", torch.arange(spec.n_groups) * spec.n_values)
            self.embeddings = nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(model.weights.copy()).to(dtype), freeze=False, mode="sum"
            )

        def forward(self, features: Any) -> Any:
            buckets = torch.searchsorted(self.thresholds, features.T.contiguous(), right=True).T
            digits = self._digits(buckets).flatten(1)
            indices = (digits[:, self.order] * self.powers).sum(dim=2) + self.offsets
            finite = torch.isfinite(features).all(dim=1, keepdim=True)
            return torch.where(finite, self.embeddings(indices), torch.nan)

        def _digits(self, buckets: Any) -> Any:
            if bucketing.encoding is Encoding.INTEGER:
                return buckets
            numbers = torch.arange(bucketing.n_buckets, device=buckets.device)
            overlapping = bucketing.encoding is Encoding.BINARY_OVERLAPPING
            bits = buckets[..., None] > numbers if overlapping else buckets[..., None] == numbers
            return bits.long()

    return EmbeddingLookup()


def _projections(learner: DeepAFL) -> list[FloatMatrix]:
    """A, B_0, B_1, ..., drawn again from the public seed."""
    lift = random_projection(learner.seed, 0, "A", (learner.n_features, learner.d_phi), learner.projection)
    shape = learner.d_phi, learner.d_f
    return [lift] + [
        random_projection(learner.seed, t, "B", shape, learner.projection) for t in range(learner.n_layers)
    ]


def _rounded_up(thresholds: FloatMatrix) -> NDArray[np.float32]:
    """The smallest float32 number at or above each threshold: a float32 feature reaches both or neither."""
    with np.errstate(over="ignore"):  # beyond float32 lies infinity, which no feature reaches
        nearest = thresholds.astype(np.float32)
    return np.where(nearest < thresholds, np.nextafter(nearest, np.float32(np.inf)), nearest)


# --- tolerances ---------------------------------------------------------------------------------------------


class _WithError:
    """Computed rows with a bound on the error of each entry."""

    def __init__(self, rows: FloatMatrix, u: float, error: FloatMatrix | None = None) -> None:
        self.rows, self.u = rows, u
        self.error = np.zeros_like(rows) if error is None else error

    def times(self, matrix: FloatMatrix) -> _WithError:
        sizes, gamma = np.abs(matrix), _gamma(len(matrix) + 2, self.u)
        error = (self.error * (1 + gamma) + gamma * np.abs(self.rows)) @ sizes
        return _WithError(map_rows(self.rows, matrix), self.u, error)

    def activated(self, name: str) -> _WithError:
        error = STEEPEST.get(name, 1.0) * self.error + ACTIVATION_ROUNDOFFS * self.u * (np.abs(self.rows) + self.error)
        return _WithError(activation_named(name).function(self.rows), self.u, error)

    def plus(self, other: _WithError) -> _WithError:
        rows, error = self.rows + other.rows, self.error + other.error
        return _WithError(rows, self.u, error + self.u * (np.abs(rows) + error))


def _deep_error(learner: DeepAFL, model: DeepModel, features: NDArray[Any], u: float) -> FloatMatrix:
    lift, *hidden = _projections(learner)
    first = phi = _WithError(np.asarray(features, dtype=np.float64), u).times(lift).activated(learner.activation)
    for matrix, block in zip(hidden, model.blocks, strict=True):
        source = first if learner.fed_by_first else phi
        phi = phi.plus(source.times(matrix).activated(learner.activation).times(block.transform))
    return phi.times(model.classifiers[-1].weights).error


def _gamma(k: int, u: float) -> float:
    if k * u >= 0.5:
        raise SpecificationError(f"a sum of {k} products has no useful error bound in this precision; use float64")
    return k * u / math.fsum((1.0, -k * u))
