"""Activations for random features, with the law that bounds them: |sigma(z)| <= min(|z|, ceiling)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erf

from analytic.errors import SpecificationError
from analytic.row_format import FloatMatrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """An elementwise function that never grows a value.

    Args:
        function: sigma, elementwise on float64.
        ceiling: largest |sigma(z)| over all z; infinity when there is none.
    """

    function: Callable[[FloatMatrix], FloatMatrix]
    ceiling: float = math.inf


def activation_named(name: str) -> Activation:
    """The activation of that name.

    Raises:
        SpecificationError: unknown name.
    """
    if name not in ACTIVATIONS:
        raise SpecificationError(f"an activation is one of {', '.join(ACTIVATIONS)}, not {name!r}")
    return ACTIVATIONS[name]


def _gelu(z: FloatMatrix) -> FloatMatrix:
    """The exact function, z times the normal distribution function, not its tanh approximation."""
    return 0.5 * z * (1.0 + erf(z * math.sqrt(0.5)))


def _relu(z: FloatMatrix) -> FloatMatrix:
    return np.maximum(z, 0.0)


def _leaky_relu(z: FloatMatrix) -> FloatMatrix:
    return np.where(z > 0, z, 0.01 * z)


def _hardswish(z: FloatMatrix) -> FloatMatrix:
    return z * np.clip(z + 3.0, 0.0, 6.0) / 6.0


def _softshrink(z: FloatMatrix) -> FloatMatrix:
    return z - np.clip(z, -0.5, 0.5)


def _identity(z: FloatMatrix) -> FloatMatrix:
    return z


ACTIVATIONS: dict[str, Activation] = {
    "gelu": Activation(function=_gelu),
    "relu": Activation(function=_relu),
    "leaky_relu": Activation(function=_leaky_relu),
    "tanh": Activation(function=np.tanh, ceiling=1.0),
    "hardswish": Activation(function=_hardswish),
    "softshrink": Activation(function=_softshrink),
    "none": Activation(function=_identity),
}
"""DeepAFL's table 5, with PyTorch's default slopes and thresholds."""
