"""Projections are what their specification says, computed here a second time from hashlib and integers alone."""

from __future__ import annotations

import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.errors import SpecificationError
from analytic.projections import PROJECTIONS, Projection, random_projection


def _specified(seed: int, layer: int, kind: str, shape: tuple[int, int], projection: str) -> list[float]:
    """The module's docstring, entry by entry."""
    rows, columns = shape
    distribution = b"U" if projection == "linear" else b"N"
    header = b"analytic/projection/v1" + seed.to_bytes(8, "big") + layer.to_bytes(4, "big") + kind.encode()
    header += rows.to_bytes(4, "big") + columns.to_bytes(4, "big") + distribution
    entry_bytes = 4 if projection == "linear" else 24
    stream = hashlib.shake_256(header).digest(entry_bytes * rows * columns)
    scale = 1.0 if projection == "normal" else 1.0 / math.sqrt(rows)
    entries = []
    for start in range(0, len(stream), entry_bytes):
        piece = stream[start : start + entry_bytes]
        if projection == "linear":
            exact = Fraction(2 * int.from_bytes(piece, "little") + 1 - 2**32, 2**32)
        else:
            total = sum(int.from_bytes(piece[i : i + 2], "little") for i in range(0, 24, 2))
            exact = Fraction(total - 393210, 2**16)
        entries.append(float(exact) * scale)
    return entries


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["A", "B"]),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from(PROJECTIONS),
)
def test_a_second_implementation_draws_the_same_bits(seed, layer, kind, shape, projection) -> None:
    drawn = random_projection(seed, layer, kind, shape, projection)
    assert drawn.ravel().tolist() == _specified(seed, layer, kind, shape, projection)
    assert drawn.shape == shape
    assert drawn.dtype == np.float64


KNOWN: dict[Projection, list[str]] = {
    "linear": ["0x1.b324820200000p-2", "0x1.4184210000000p-9", "-0x1.f93ac9da00000p-2"],
    "nin": ["0x1.7352000000000p-2", "0x1.f4d0000000000p-4", "0x1.4e9b000000000p-1"],
    "normal": ["0x1.7352000000000p-1", "0x1.f4d0000000000p-3", "0x1.4e9b000000000p+0"],
}


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_known_answers_of_version_1(projection: Projection) -> None:
    """These may never change under the label v1: models are public by their seed."""
    known = [float.fromhex(text) for text in KNOWN[projection]]
    assert random_projection(2026, 3, "B", (4, 3), projection).ravel()[:3].tolist() == known
    assert _specified(2026, 3, "B", (4, 3), projection)[:3] == known


def test_each_part_of_the_address_gives_another_matrix() -> None:
    addresses = itertools.product((0, 1), (0, 1), ("A", "B"), ((4, 4), (2, 8)), PROJECTIONS)
    drawn = {random_projection(*address).tobytes() for address in addresses}
    assert len(drawn) == 2 * 2 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("projection", "variance", "bound"), [("linear", 1 / 300, 0.1), ("nin", 0.01, 0.6), ("normal", 1.0, 6.0)]
)
def test_moments_are_those_of_the_law(projection: Projection, variance: float, bound: float) -> None:
    """The draw is fixed, so this cannot flake; the limits are five standard errors of 100 x 400 entries."""
    entries = random_projection(7, 0, "A", (100, 400), projection).ravel()
    assert abs(entries.mean()) < 5 * math.sqrt(variance / entries.size)
    assert abs(entries.var() / variance - 1) < 5 * math.sqrt(2 / entries.size)
    assert np.abs(entries).max() < bound


def test_a_projection_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        random_projection(0, 0, "A", (2, 2), "nin")[0, 0] = 1.0


def test_any_integer_type_names_the_same_matrix() -> None:
    drawn = random_projection(np.uint64(5), 1, "A", (2, 3), "nin")
    assert drawn.ravel().tolist() == _specified(5, 1, "A", (2, 3), "nin")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, 0, "A", (2, 2), "nin"), "seed"),
        ((2**64, 0, "A", (2, 2), "nin"), "seed"),
        ((0, -1, "A", (2, 2), "nin"), "layer"),
        ((0, 0, "A", (0, 2), "nin"), "sizes"),
        ((0, 0, "A", (2, 2), "orthogonal"), "linear, nin, normal"),
    ],
)
def test_an_impossible_address_is_refused(arguments, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        random_projection(*arguments)
