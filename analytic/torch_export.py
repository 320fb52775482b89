"""Trained models as PyTorch modules, to stand on a backbone or to go to other tools.

torch comes with the ``vision`` extra and is imported only when a module is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from analytic.bucketing import Encoding
from analytic.errors import AnalyticError, SpecificationError
from analytic.layers import Activated, Clipped, Layer, Layered, Linear, Lookup, Residual, Rounded, complete_layers
from analytic.row_format import FloatMatrix

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["TorchMissingError", "to_torch"]

Precision = Literal["float64", "float32"]
"""Precision in which a module computes."""

ACTIVATION_MODULES = {
    "gelu": "GELU",
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "tanh": "Tanh",
    "hardswish": "Hardswish",
    "softshrink": "Softshrink",
    "none": "Identity",
}
"""torch.nn's classes by our names; its default slopes and thresholds are ours."""


class TorchMissingError(AnalyticError, ImportError):
    """PyTorch is not installed."""


def to_torch(learner: Layered, model: Any, *, precision: Precision = "float64") -> Module:
    """Return a module that maps features, shape (n, d), to the logits of ``decision_function``, shape (n, c).

    AFL and FedHiP become ``nn.Linear``, with a bias where they have an intercept, random features a small network that
    rounds its entries as they were in training (which has no gradient, so that its last layer alone can be fine-tuned),
    DeepAFL a residual network, SAFLe a lookup of bucketed features in an ``nn.EmbeddingBag``; any learner with
    ``layers`` becomes what those say. Logits differ from the learner's ``exact_scores`` by what rounded sums in any
    order, the libraries' erf and tanh, and rounding to float32 can do. DeepAFL's differ also by what its integer maps
    round: X by less than ``DeepAFL.unit``, each activation and update by half of it, carried on through the later
    layers (the tests derive that bound, layer by layer). A random feature that is nearly halfway between two multiples
    of its unit may become the other one. SAFLe's buckets agree exactly, for float32 modules on features that are
    float32 numbers. A row with NaN or infinity, where ``decision_function`` of SAFLe raises an error, has logits NaN.
    Weights are parameters and may be fine-tuned; save the module's ``state_dict``.

    Args:
        learner: the closed form.
        model: its complete model.
        precision: type of the parameters, and of the features to pass.

    Raises:
        TorchMissingError: torch is not installed.
        NotReadyError: the model still needs a sum.
        SpecificationError: a learner without layers, or an unknown precision.
    """
    if precision not in get_args(Precision):
        raise SpecificationError(f"a precision is {' or '.join(get_args(Precision))}, not {precision!r}")
    return _stack(complete_layers(learner, model, "module"), getattr(_torch(), precision))


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise TorchMissingError(
            "to_torch needs PyTorch, which is not installed; install the extra: pip install '.[vision]'"
        ) from error
    return torch


def _stack(layers: tuple[Layer, ...], dtype: Any) -> Module:
    """Return the layers one after the other, or the only one."""
    nn = _torch().nn

    class Stack(nn.Module):  # type: ignore[misc, name-defined]
        """Layers in turn, of which some add a branch to their rows."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(_module(layer, dtype) for layer in layers)

        def forward(self, rows: Any) -> Any:
            first = None
            for layer, module in zip(layers, self.layers, strict=True):
                if isinstance(layer, Residual):
                    first = rows if first is None else first
                    rows = rows + module(first if layer.of_first else rows)
                else:
                    rows = module(rows)
            return rows

    return _module(layers[0], dtype) if len(layers) == 1 else Stack()


def _module(layer: Layer, dtype: Any) -> Module:
    """Return the module of one layer; of a residual one, that of its branch."""
    match layer:
        case Linear():
            return _linear(layer, dtype)
        case Activated("sine"):
            return _sine()
        case Activated(name):
            activation: Module = getattr(_torch().nn, ACTIVATION_MODULES[name])()
            return activation
        case Rounded(fraction_bits):
            return _rounding(fraction_bits)
        case Clipped(low, high):
            ends: Module = _torch().nn.Hardtanh(low, high)
            return ends
        case Residual(branch=branch):
            return _stack(branch, dtype)
        case Lookup():
            return _lookup(layer, dtype)


def _linear(layer: Linear, dtype: Any) -> Module:
    """Return X M + b as ``nn.Linear``, which keeps M transposed."""
    torch, bias = _torch(), layer.bias
    empty = torch.nn.Linear(*layer.matrix.shape, bias=bias is not None, dtype=dtype, device="meta")
    module: Module = empty.to_empty(device="cpu")  # no random start, which would move torch's generator
    with torch.no_grad():
        module.get_parameter("weight").copy_(torch.from_numpy(layer.matrix.T.copy()))
        if bias is not None:
            module.get_parameter("bias").copy_(torch.from_numpy(bias.copy()))
    return module


def _sine() -> Module:
    torch = _torch()

    class Sine(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The sine of each entry, which torch.nn has no module for."""

        def forward(self, rows: Any) -> Any:
            return torch.sin(rows)

    return Sine()


def _rounding(fraction_bits: int) -> Module:
    torch = _torch()

    class Rounding(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The nearest multiple of 2^-fraction_bits, ties to the even one."""

        def forward(self, rows: Any) -> Any:
            return torch.round(rows * 2.0**fraction_bits) * 2.0**-fraction_bits

    return Rounding()


def _lookup(layer: Lookup, dtype: Any) -> Module:
    torch = _torch()
    nn, bucketing, grouping = torch.nn, layer.bucketing, layer.grouping
    thresholds = layer.thresholds if dtype == torch.float64 else _rounded_up(layer.thresholds)

    class EmbeddingLookup(nn.Module):  # type: ignore[misc, name-defined]
        """The sum of each group's embedding (SAFLe, eq. 3-5)."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("thresholds", torch.from_numpy(thresholds.copy()))
            self.register_buffer("order", torch.from_numpy(grouping.order))
            self.register_buffer("powers", torch.tensor([grouping.base**place for place in range(grouping.group_size)]))
            self.register_buffer("offsets", torch.arange(grouping.n_groups) * grouping.n_values)
            self.embeddings = nn.EmbeddingBag.from_pretrained(
                torch.from_numpy(layer.embeddings.copy()).to(dtype), freeze=False, mode="sum"
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


def _rounded_up(thresholds: FloatMatrix) -> NDArray[np.float32]:
    """Return the smallest float32 number at or above each threshold: a float32 feature reaches both or neither."""
    with np.errstate(over="ignore"):  # beyond float32 lies infinity, which no feature reaches
        nearest = thresholds.astype(np.float32)
    return np.where(nearest < thresholds, np.nextafter(nearest, np.float32(np.inf)), nearest)
