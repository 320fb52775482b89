"""Random projections: drawn as specified, entry by entry."""

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
from analytic.features import BIASED, PROJECTIONS, Projection, random_projection


def _specified(
    seed: int,
    layer: int,
    kind: str,
    shape: tuple[int, int],
    projection: str,
    variance: Fraction = Fraction(1),
    biases: bool = False,
) -> list[int]:
    """The module's docstring, entry by entry, in units of 2^-16; or its biases."""
    rows, columns = shape
    uniform = biases or projection in ("linear", "affine")
    own_kind = kind.lower() if biases else kind
    header = b"analytic/projection/v2" + seed.to_bytes(8, "big") + layer.to_bytes(4, "big") + own_kind.encode()
    header += rows.to_bytes(4, "big") + columns.to_bytes(4, "big") + (b"U" if uniform else b"N")
    entry_bytes = 4 if uniform else 24
    stream = hashlib.shake_256(header).digest(entry_bytes * columns * (1 if biases else rows))
    scale = math.isqrt(math.floor(2**60 * variance / (1 if projection == "normal" else rows)))
    entries = []
    for start in range(0, len(stream), entry_bytes):
        piece = stream[start : start + entry_bytes]
        if uniform:
            n = 2 * int.from_bytes(piece, "little") + 1 - 2**32
            phase = biases and projection == "fourier"
            entries.append((n * 843314857 + 2**43) // 2**44 if phase else (n * scale + 2**45) // 2**46)
        else:
            n = sum(int.from_bytes(piece[i : i + 2], "little") for i in range(0, 24, 2)) - 393210
            entries.append((n * scale + 2**29) // 2**30)
    return entries


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["A", "B"]),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.sampled_from(PROJECTIONS),
    st.sampled_from([1.0, 0.1, 3.999]),
)
def test_a_second_implementation_draws_the_same_bits(seed, layer, kind, shape, projection, variance) -> None:
    drawn = random_projection(seed, layer, kind, shape, projection, variance)
    address = seed, layer, kind, shape, projection, Fraction(variance)
    assert (drawn.values * 2**16).ravel().tolist() == _specified(*address)
    assert drawn.values.shape == shape
    assert drawn.fraction_bits == 16
    assert (drawn.biases is None) == (projection not in BIASED)
    if drawn.biases is not None:
        assert (drawn.biases * 2**16).tolist() == _specified(*address, biases=True)
        reach = math.pi if projection == "fourier" else math.sqrt(variance / shape[0])
        assert np.abs(drawn.biases).max() <= reach + 2**-16


KNOWN: dict[Projection, list[int]] = {
    "linear": [9420, -15919, 19320],
    "nin": [-39118, 25216, 36092],
    "normal": [-78236, 50432, 72184],
    "affine": [9420, -15919, 19320],
    "fourier": [-39118, 25216, 36092],
}


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_known_answers_of_version_2(projection: Projection) -> None:
    """These may never change under the label v2: models are public by their seed."""
    known = KNOWN[projection]
    assert (random_projection(2026, 3, "B", (4, 3), projection).values.ravel()[:3] * 2**16).tolist() == known
    assert _specified(2026, 3, "B", (4, 3), projection)[:3] == known


def test_each_part_of_the_address_gives_another_matrix() -> None:
    addresses = itertools.product((0, 1), (0, 1), ("A", "B"), ((4, 4), (2, 8)), PROJECTIONS)
    drawn = {random_projection(*address).values.tobytes() for address in addresses}
    assert len(drawn) == 2 * 2 * 2 * 2 * 3  # laws with biases have the entries of those without


def test_a_projection_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        random_projection(0, 0, "A", (2, 2), "nin").values[0, 0] = 1.0


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
