"""A sum of arrays has every whole number exactly and every real one within its bound, or refuses by name."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.examples import examples

from secagg import ArraySumSpec, ConfigurationError, InsecureSeededEntropy, InvalidVectorError, SumResult

WHOLE = ["?", "i1", "u1", "i2", "u4", "i8", "u8"]


@examples(1)
@given(data=st.data())
def test_sums_are_exact_for_whole_numbers_and_within_the_bound_for_real_ones(data: st.DataObject) -> None:
    n, entry_bytes = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 6))
    real, whole = data.draw(st.floats(1e-9, 1e9)), data.draw(st.integers(0, 2**60))
    spec = ArraySumSpec(
        shapes=(("x", (2, 2)), ("n", (3,))),
        bounds=(real, whole),
        n_clients=n,
        entry_bytes=entry_bytes,
        rounding=data.draw(st.sampled_from(["nearest", "stochastic"])),
    )
    clients = []
    for _ in range(data.draw(st.integers(1, n))):
        kind = np.dtype(data.draw(st.sampled_from(WHOLE)))
        least, most = (0, 1) if kind.kind == "b" else (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        numbers = arrays(kind, 3, elements=st.integers(max(least, -whole), min(most, whole)).map(kind.type))
        clients.append(
            {"x": data.draw(arrays(np.float64, (2, 2), elements=st.floats(-real, real))), "n": data.draw(numbers)}
        )
    vectors = [spec.vector(one, entropy=InsecureSeededEntropy(i)) for i, one in enumerate(clients)]
    for vector in vectors:
        spec.layout.check(vector, n)
    sums = spec.sums(SumResult(total=sum(vectors), survivors=tuple(range(1, len(clients) + 1))))
    assert sums["n"].dtype == np.int64
    assert sums["n"].flags.writeable
    assert sums["n"].tolist() == [sum(int(one["n"][i]) for one in clients) for i in range(3)]
    bounds = spec.error_bound()
    assert bounds["n"] == 0
    for place in np.ndindex(2, 2):
        exact = sum(Fraction(float(one["x"][place])) for one in clients)
        assert abs(Fraction(float(sums["x"][place])) - exact) <= Fraction(bounds["x"])


SPEC = ArraySumSpec(shapes=(("x", (2,)), ("n", (1,))), bounds=(2.0, 100), n_clients=3)
FITS: dict[str, Any] = {"x": np.ones(2), "n": np.ones(1, np.int8)}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"n": np.array([101])}, r"'n': 1 of 1 numbers lie beyond the bound 100"),
        ({"n": np.array([-101], np.int8)}, r"'n': 1 of 1 numbers lie beyond the bound 100"),
        ({"n": np.array([2**64 - 1], np.uint64)}, r"'n': 1 of 1 numbers lie beyond"),
        ({"n": np.array([1.0])}, r"'n': the type needed is whole numbers of at most 64 bits, not float64"),
        ({"x": np.array([1, 2])}, r"'x': the type needed is float16, float32 or float64, not int64"),
        ({"x": np.array([2.5, -3.0])}, r"'x': 2 of 2 numbers lie beyond the bound 2.0"),
        ({"x": np.array([2.5, 3.0])}, r"'x': 2 of 2 numbers lie beyond the bound 2.0"),
        ({"x": np.array([np.nan, 0.0])}, r"'x': 1 of 2 numbers are NaN"),
        ({"x": np.ones(3)}, r"'x': shape \(2,\) is needed, not \(3,\)"),
        ({"y": np.ones(3)}, r"unknown \['y'\]"),
    ],
)
def test_what_no_sum_may_hold_is_refused_by_name(values: dict[str, Any], says: str) -> None:
    SPEC.vector(FITS)
    with pytest.raises(InvalidVectorError, match=says):
        SPEC.vector(FITS | values)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"bounds": (2.0,)}, "each of 2 arrays needs a bound"),
        ({"bounds": (2.0, True)}, "each of 2 arrays needs a bound"),
        ({"bounds": (0.0, 1)}, "above 0"),
        ({"bounds": (1.0, -1)}, "'n': the bound of the sum must be 0 to"),
        ({"bounds": (1.0, 2**62)}, "'n': the bound of the sum must be 0 to"),
        ({"shapes": (("x" * 65, (2,)), ("n", (1,)))}, "a segment's name"),
        ({"n_clients": 0}, "n_clients"),
        ({"entry_bytes": 7}, "entry_bytes is one of 2, 3, 4, 5, 6, not 7"),
        ({"rounding": "down"}, "rounding"),
    ],
)
def test_a_description_that_cannot_hold_is_never_made(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        replace(SPEC, **changes)


def test_a_bound_that_is_no_power_of_two_is_the_bound() -> None:
    """Also one below the smallest step."""
    for bound, beyond in ((5.0, 7.0), (1e-30, 1e-20), (0.1, float(np.float32(0.1)))):
        spec = ArraySumSpec(shapes=(("x", (1,)),), bounds=(bound,), n_clients=3)
        spec.vector({"x": np.array([bound])})
        with pytest.raises(InvalidVectorError, match=f"'x': 1 of 1 numbers lie beyond the bound {bound}"):
            spec.vector({"x": np.array([beyond])})


def test_descriptions_that_differ_add_nothing_to_each_other() -> None:
    """Where segments are alike too: the step, the shape and the rounding are in the layout's own bytes."""
    others = [
        replace(SPEC, bounds=(4.0, 100)),
        replace(SPEC, shapes=(("x", (2, 1)), ("n", (1,)))),
        replace(SPEC, rounding="stochastic"),
    ]
    assert len({one.layout.canonical() for one in (SPEC, *others)}) == 4
    with pytest.raises(InvalidVectorError, match="take the result of a sum over its layout"):
        SPEC.sums(SumResult(total=np.zeros(9, dtype=np.int64), survivors=(1,)))
    with pytest.raises(ConfigurationError, match="bound needs one number or one for each"):
        ArraySumSpec.of(FITS, n_clients=2, bound={"x": 1.0})
