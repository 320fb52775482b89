"""Activations equal their textbook formulas and obey the bound that public formats rest on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.activations import ACTIVATIONS, activation_named
from analytic.errors import SpecificationError

TEXTBOOK: dict[str, Callable[[float], float]] = {
    "gelu": lambda z: z * 0.5 * (1 + math.erf(z / math.sqrt(2))),
    "relu": lambda z: max(z, 0.0),
    "leaky_relu": lambda z: z if z > 0 else z / 100,
    "tanh": math.tanh,
    "hardswish": lambda z: 0.0 if z <= -3 else z if z >= 3 else z * (z + 3) / 6,
    "softshrink": lambda z: z - 0.5 if z > 0.5 else z + 0.5 if z < -0.5 else 0.0,
    "none": lambda z: z,
}


def test_every_activation_of_the_paper_is_there() -> None:
    assert set(ACTIVATIONS) == set(TEXTBOOK)


@given(st.sampled_from(sorted(TEXTBOOK)), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_values_are_the_textbook_ones(name: str, values: list[float]) -> None:
    """Four operations, each rounded once, and erf or tanh within 4 ulp: absolute error below 8 eps max(|z|, 1)."""
    found = activation_named(name).function(np.array(values))
    for z, value in zip(values, found.tolist(), strict=True):
        assert abs(value - TEXTBOOK[name](z)) <= 8 * 2.0**-52 * max(abs(z), 1.0)


@given(st.sampled_from(sorted(TEXTBOOK)), st.lists(st.floats(-1e300, 1e300), min_size=1))
def test_no_activation_grows_a_value(name: str, values: list[float]) -> None:
    activation, z = activation_named(name), np.array(values)
    limit = np.minimum(np.abs(z), activation.ceiling)
    assert np.all(np.abs(activation.function(z)) <= limit * (1 + 4 * 2.0**-52))


def test_gelu_is_the_exact_one() -> None:
    """The tanh approximation is off by up to 5e-4."""
    assert activation_named("gelu").function(np.array([1.0]))[0] == pytest.approx(0.8413447460685429, abs=1e-15)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SpecificationError, match=r"gelu, relu.*not 'swish'"):
        activation_named("swish")
