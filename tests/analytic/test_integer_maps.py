"""Integer maps: what Python's integers and ball arithmetic say, in every batch and under every BLAS kernel."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import acb, arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.processors import kernels_that_run

from analytic.errors import InvalidRowsError, RowsOutsideFormatError
from analytic.integer_maps import (
    ACTIVATIONS,
    BLOCK_ROWS,
    FixedMatrix,
    FixedRows,
    activation_named,
    add_mapped_rows,
    map_rows,
    products,
    quadratic_forms,
    rounded_transform,
    scores,
    split_classifier,
)

NAMES = sorted(ACTIVATIONS)
SIZES = [1, 2, 3, 7, 8, 9, 31, 64, 100]
BITS = 20


def _problem(seed: int, n: int, d: int, m: int, spread: int = 3) -> tuple[FixedRows, FixedMatrix]:
    """Rows of 2^-24 up to about 2^spread, and a matrix of 2^-16."""
    rng = np.random.default_rng(seed)
    rows = FixedRows.truncated(np.ldexp(rng.standard_normal((n, d)), spread), 24)
    return rows, FixedMatrix.rounded(rng.standard_normal((d, m)) / np.sqrt(d), 16)


def _part(rows: FixedRows, place: Any) -> FixedRows:
    return FixedRows(values=rows.values[place], fraction_bits=rows.fraction_bits)


# --- a second implementation: one entry at a time, in Python's integers and ball arithmetic


def _slow_activation(name: str, z: Fraction, bits: int) -> Fraction:
    """Sigma(z) to the nearest 2^-bits: the rational ones as they are written, the others from 4 000 bits."""
    rational = {
        "relu": z if z > 0 else 0,
        "leaky_relu": z if z > 0 else z / 100,
        "hardswish": 0 if z <= -3 else z if z >= 3 else z * (z + 3) / 6,
        "softshrink": z - Fraction(1, 2) if z > 0.5 else z + Fraction(1, 2) if z < -0.5 else 0,
        "none": z,
    }
    if name in rational:
        return Fraction(round(Fraction(rational[name]) * 2**bits), 2**bits)
    with ctx.workprec(4000):
        x = arb(z.numerator) / z.denominator
        value = {
            "tanh": lambda: 1 - 2 / ((2 * x).exp() + 1),
            "gelu": lambda: x * (1 + (x / arb(2).sqrt()).erf()) / 2,
            "sine": lambda: acb(0, x).exp().imag,
        }[name]()
        nearest = (value * 2**bits + arb("0.5")).floor().unique_fmpz() if z else 0
    assert nearest is not None
    return Fraction(int(nearest), 2**bits)


def _slow_product(rows: NDArray[np.float64], matrix: NDArray[np.float64]) -> list[list[Fraction]]:
    exact = [[Fraction(x) for x in row] for row in rows.tolist()]
    columns = [[Fraction(m) for m in column] for column in matrix.T.tolist()]
    return [[sum((x * m for x, m in zip(row, c, strict=True)), Fraction()) for c in columns] for row in exact]


@given(st.sampled_from(NAMES), st.integers(0, 2**32), st.integers(0, 5), st.integers(1, 6), st.integers(-8, 19))
def test_rows_are_those_of_pythons_integers(name: str, seed: int, n: int, d: int, spread: int) -> None:
    """Spreads from 15 on take products in radix digits."""
    rows, matrix = _problem(seed, n, d, 3, spread)
    biases = np.ldexp(np.random.default_rng(seed).integers(-(2**20), 2**20, 3), -16)
    matrix = FixedMatrix(values=matrix.values, fraction_bits=matrix.fraction_bits, biases=biases if seed % 2 else None)
    found = map_rows(rows, matrix, activation_named(name), BITS).values
    added = [Fraction(x) if seed % 2 else 0 for x in biases.tolist()]
    exact = [[z + b for z, b in zip(row, added, strict=True)] for row in _slow_product(rows.values, matrix.values)]
    slow = [[_slow_activation(name, z, BITS) for z in row] for row in exact]
    assert [[Fraction(x) for x in row] for row in found.tolist()] == slow
    assert b"\x80" not in {value.tobytes()[-1:] for value in found.ravel() if value == 0}  # one zero


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(-8, 12))
def test_updates_and_scores_are_those_of_pythons_integers(seed: int, d: int, spread: int) -> None:
    rows, matrix = _problem(seed, 4, d, 3, spread)
    weights = np.random.default_rng(seed).standard_normal((d, 3)) * 2.0**-spread
    out = FixedRows.truncated(np.ones((4, 3)), BITS)
    add_mapped_rows(out, rows, matrix)
    exact = _slow_product(rows.values, matrix.values)
    assert out.values.tolist() == [[float(1 + _slow_activation("none", z, BITS)) for z in row] for row in exact]
    parts = [_slow_product(rows.values, part.values) for part in split_classifier(weights)]
    expected = [[float(a) + float(b) for a, b in zip(*pair, strict=True)] for pair in zip(*parts, strict=True)]
    assert scores(rows, weights).tolist() == expected


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 61))
def test_quadratic_forms_are_exact(seed: int, d: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    gram = rng.integers(-(2**bits), 2**bits, (d, d), endpoint=True)
    matrix = FixedMatrix.rounded(rng.standard_normal((d, 4)), 20)
    units = np.ldexp(matrix.values, matrix.fraction_bits).astype(int).tolist()
    expected = [sum(units[i][j] * int(gram[i, k]) * units[k][j] for i in range(d) for k in range(d)) for j in range(4)]
    assert quadratic_forms(gram, matrix) == expected


# --- activations


def _mapped(name: str, numerators: list[int], unit_bits: int, bits: int = BITS) -> list[Fraction]:
    """Sigma of integers of 2^-unit_bits, through the fast path."""
    rows = FixedRows(
        values=np.ldexp(np.array(numerators, dtype=np.float64)[:, None], -unit_bits), fraction_bits=unit_bits
    )
    one = FixedMatrix(values=np.ones((1, 1)), fraction_bits=0)
    return [Fraction(x) for x in map_rows(rows, one, activation_named(name), bits).values.ravel().tolist()]


@pytest.mark.parametrize("name", NAMES)
@given(numerators=st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=20), unit_bits=st.integers(10, 52))
def test_activations_are_correctly_rounded(name: str, numerators: list[int], unit_bits: int) -> None:
    expected = [
        _slow_activation(name, Fraction(z, 2**unit_bits), BITS) for z in numerators if abs(z) < 2**unit_bits * 64
    ]
    near = [z for z in numerators if abs(z) < 2**unit_bits * 64]
    assert _mapped(name, near, unit_bits) == expected


def _beside_a_middle(name: str, k: int, unit_bits: int) -> list[int]:
    """The integers of 2^-unit_bits just below and above the z > 0 with sigma(z) = (k + 1/2) 2^-BITS."""
    with ctx.workprec(300):
        low, high = 0, 2**unit_bits * 3 // 2 if name == "sine" else 12 * 2**unit_bits
        middle = arb(2 * k + 1) / 2 ** (BITS + 1)
        while high - low > 1:
            z = (low + high) // 2
            x = arb(z) / 2**unit_bits
            value = {
                "tanh": lambda x: x.tanh(),
                "sine": lambda x: x.sin(),
                "gelu": lambda x: x * (-x / arb(2).sqrt()).erfc() / 2,
                "hardswish": lambda x: x if x > 3 else x * (x + 3) / 6,
                "softshrink": lambda x: x - arb("0.5"),
            }.get(name, lambda x: x)(x)
            low, high = (z, high) if value <= middle else (low, z)
    return [low, high]


@pytest.mark.parametrize("name", NAMES)
def test_the_nearest_inputs_to_a_middle_are_rounded_rightly(name: str) -> None:
    """Where float64 cannot tell on which side of the middle sigma(z) lies, exact arithmetic does."""
    rng = np.random.default_rng(len(name))
    tops = rng.integers(0, 2**BITS * ({"tanh": 1, "sine": 0.99}.get(name, 8)), 60).tolist()
    inputs = [z for k in tops for z in _beside_a_middle(name, k, 48)]
    inputs += [-z for z in inputs] if name in ("tanh", "sine", "softshrink", "none", "leaky_relu") else []
    expected = [_slow_activation(name, Fraction(z, 2**48), BITS) for z in inputs]
    assert _mapped(name, inputs, 48) == expected
    if not activation_named(name).exact and name != "softshrink":
        alone = activation_named(name).function(np.ldexp(np.array(inputs, dtype=np.float64), -48))
        undecided = np.abs(alone * 2**BITS - np.rint(alone * 2**BITS)) > 0.5 - 2.0**-20
        assert undecided.mean() > 0.3  # the inputs are as near as they should be


def test_ties_go_to_the_even_one_and_gelu_stays_below_its_argument() -> None:
    halves = [2 * k + 1 for k in range(-(2**21) * 12, 2**21 * 12, 2**17 + 1)]
    for name in NAMES:
        expected = [_slow_activation(name, Fraction(z, 2 ** (BITS + 1)), BITS) for z in halves]
        assert _mapped(name, halves, BITS + 1) == expected
    far = [2 * (10 * 2**BITS + k) + 1 for k in range(4)]  # z lies in the middle, and GELU just below
    assert _mapped("gelu", far, BITS + 1) == [Fraction(z - 1, 2 ** (BITS + 1)) for z in far]


@given(st.sampled_from(NAMES), st.lists(st.integers(-(2**52), 2**52), min_size=1))
def test_no_activation_grows_a_value(name: str, numerators: list[int]) -> None:
    for z, value in zip(numerators, _mapped(name, numerators, 30), strict=True):
        assert abs(value) <= min(abs(Fraction(z, 2**30)) + Fraction(1, 2 ** (BITS + 1)), activation_named(name).ceiling)


# --- the same bits in every batch and on every machine


@given(st.integers(0, 2**32), st.integers(1, 300), st.sampled_from(SIZES), st.sampled_from(SIZES), st.data())
def test_any_split_and_order_give_the_same_bits(seed: int, n: int, d: int, m: int, data: st.DataObject) -> None:
    rows, matrix = _problem(seed, n, d, m)
    name = data.draw(st.sampled_from(NAMES))
    order = np.random.default_rng(seed).permutation(n)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    whole = map_rows(rows, matrix, activation_named(name), BITS).values[order]
    parts = [_part(rows, place) for place in np.split(order, cuts)]
    again = [map_rows(part, matrix, activation_named(name), BITS).values for part in parts]
    assert np.concatenate(again).tobytes() == whole.tobytes()
    together = np.concatenate([products(part, matrix) for part in parts])
    assert together.tobytes() == products(rows, matrix)[order].tobytes()


def test_an_outlier_changes_no_other_row() -> None:
    """It takes the rows of its block through radix digits; they have the bits of one product."""
    rows, matrix = _problem(0, BLOCK_ROWS + 3, 40, 9)
    gelu = activation_named("gelu")
    clean = map_rows(rows, matrix, gelu, BITS).values
    rows.values[5] *= 2.0**12
    beside = map_rows(rows, matrix, gelu, BITS).values
    assert np.delete(beside, 5, axis=0).tobytes() == np.delete(clean, 5, axis=0).tobytes()
    assert beside[5].tobytes() != clean[5].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_type_and_memory_layout_leave_no_trace(dtype: type) -> None:
    rows = np.random.default_rng(5).integers(0, 200, (230, 37)).astype(dtype)
    expected = FixedRows.truncated(rows.astype(np.float64), 20).values.tobytes()
    wide = np.zeros((461, 76), dtype=dtype)
    wide[1::2, 1:75:2] = rows
    shifted = np.frombuffer(b"\0" * rows.itemsize + rows.tobytes(), dtype=dtype)[1:].reshape(rows.shape)
    for layout in (rows, np.asfortranarray(rows), wide[1::2, 1:75:2], shifted):
        assert FixedRows.truncated(layout, 20).values.tobytes() == expected


HASH_OF_ROWS = """
import hashlib, numpy as np
from analytic.features import random_projection
from analytic.integer_maps import *
from analytic.integer_maps import ACTIVATIONS
from analytic.integer_maps import SummedRows
rng = np.random.default_rng(7)
rows = FixedRows.truncated(rng.standard_normal((700, 200)) * 3, 27)
found = hashlib.sha256()
for name in sorted(ACTIVATIONS):
    phi = map_rows(rows, random_projection(1, 0, "A", (200, 150), "linear"), ACTIVATIONS[name], 24)
    hidden = map_rows(phi, random_projection(1, 0, "B", (150, 90), "nin"), ACTIVATIONS[name], 24)
    add_mapped_rows(phi, hidden, rounded_transform(rng.integers(-99, 99, (90, 150)) / 300))
    found.update(phi.values.tobytes() + scores(phi, rng.integers(-99, 99, (150, 7)) / 70).tobytes())
units = np.rint(phi.values * 2**14).astype(np.int64)
total = SummedRows(gram=units.T @ units, count=700, fraction_bits=14)
found.update(total.largest_products(random_projection(1, 1, "B", (150, 90), "nin")).tobytes())
print(found.hexdigest())
"""


@pytest.mark.skipif(len(kernels_that_run()) < 2, reason="names kernels of x86_64, as Linux says that they run")
def test_every_blas_kernel_thread_count_and_instruction_set_gives_the_same_rows() -> None:
    """Products, erf, tanh and bounds: the law of this module, on what this processor can play."""
    simd = " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))  # type: ignore[call-overload]
    kernels = kernels_that_run()
    settings = [{"OPENBLAS_CORETYPE": name, "OPENBLAS_NUM_THREADS": str(1 + i % 2)} for i, name in enumerate(kernels)]
    settings[-1]["NPY_DISABLE_CPU_FEATURES"] = simd
    running = [
        subprocess.Popen(
            [sys.executable, "-c", HASH_OF_ROWS], env=os.environ | setting, stdout=subprocess.PIPE, text=True
        )
        for setting in settings
    ]
    printed = [process.communicate()[0].strip() for process in running]
    assert [len(line) for line in printed] == [64] * len(kernels)
    assert len(set(printed)) == 1


# --- formats and refusals


@given(st.integers(0, 2**32), st.integers(-40, 40))
def test_public_matrices_are_rounded_to_the_nearest_unit(seed: int, scale: int) -> None:
    matrix = np.ldexp(np.random.default_rng(seed).standard_normal((30, 4)), scale)
    transform = rounded_transform(matrix)
    assert np.abs(transform.values - matrix).max() <= math.ldexp(0.5, -transform.fraction_bits)
    assert transform.fraction_bits >= min(22, 20 - scale)
    high, low = split_classifier(matrix)
    assert np.abs((high.values + low.values) - matrix).max() <= np.abs(matrix).max() * 2.0**-40
    assert min(part.digit_bits for part in (transform, high, low)) >= 20
    units = np.ldexp(transform.values, transform.fraction_bits)
    assert transform.sums.tolist() == np.abs(units).astype(int).sum(axis=0).tolist()


def test_matrices_of_zeros_are_matrices_too() -> None:
    rows, nothing = _problem(0, 5, 3, 2)[0], np.zeros((3, 2))
    assert not scores(rows, nothing).any()
    assert not map_rows(rows, rounded_transform(nothing), activation_named("gelu"), BITS).values.any()


@pytest.mark.parametrize(
    "rows", [np.zeros(4), np.zeros((2, 4), dtype=complex), np.zeros((2, 4), "U1"), np.zeros((2, 4), np.longdouble)]
)
def test_rows_that_are_no_matrix_of_real_numbers_are_refused(rows: NDArray[Any]) -> None:
    with pytest.raises(InvalidRowsError, match="features must be a matrix of real numbers"):
        FixedRows.truncated(rows, 20)


def test_rows_that_no_exact_product_holds_are_refused() -> None:
    for bad in (np.nan, np.inf, -np.inf, 1e300):
        rows = np.ones((5, 3))
        rows[2, 1] = bad
        with pytest.raises(RowsOutsideFormatError, match=r"1 of 5 rows hold NaN or infinity, or entries of"):
            FixedRows.truncated(rows, 20)
    huge, matrix = FixedRows.truncated(np.full((2, 3), 2.0**35), 20), FixedMatrix.rounded(np.ones((3, 2)), 16)
    with pytest.raises(RowsOutsideFormatError, match=r"features reach 3.4.*e\+10.*more than 62 bits"):
        products(huge, matrix)
    with pytest.raises(InvalidRowsError, match=r"shape \(n, 3\), not \(2, 4\)"):
        products(FixedRows.truncated(np.ones((2, 4)), 20), matrix)
