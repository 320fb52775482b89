"""A reduced basis generates the same lattice and is reduced; dependent generators are no trouble."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simulations.audit.attacks.lattice_reduction import ReductionLimitError, reduce_generators

MATRICES = st.tuples(st.integers(1, 4), st.integers(1, 7)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-9, 9))
)


def hermite(columns: np.ndarray) -> list[list[int]]:
    """The Hermite normal form of the lattice that columns generate: one form for one lattice."""
    rows = [[int(x) for x in row] for row in columns.T]
    done: list[list[int]] = []
    for place in range(columns.shape[0]):
        while sum(row[place] != 0 for row in rows) > 1:
            pivot = min((row for row in rows if row[place]), key=lambda row: abs(row[place]))
            rows = [
                row if row is pivot else [a - (row[place] // pivot[place]) * b for a, b in zip(row, pivot, strict=True)]
                for row in rows
            ]
        pivots = [row for row in rows if row[place]]
        rows = [row for row in rows if not row[place]]
        for pivot in pivots:
            signed = pivot if pivot[place] > 0 else [-a for a in pivot]
            done = [[a - (row[place] // signed[place]) * b for a, b in zip(row, signed, strict=True)] for row in done]
            done.append(signed)
    return done


def gram_schmidt(basis: list[list[Fraction]]) -> tuple[list[list[Fraction]], list[Fraction]]:
    stars, mus = [], []
    for vector in basis:
        star, row = list(vector), []
        for other in stars:
            mu = sum(a * b for a, b in zip(vector, other, strict=True)) / sum(a * a for a in other)
            row.append(mu)
            star = [a - mu * b for a, b in zip(star, other, strict=True)]
        stars.append(star)
        mus.append(row)
    return mus, [sum((a * a for a in star), Fraction(0)) for star in stars]


@given(MATRICES)
def test_the_lattice_stays_the_same_and_its_basis_is_reduced(generators: np.ndarray) -> None:
    columns = reduce_generators((generators.T @ generators).tolist(), max_steps=10_000)
    basis = generators.astype(object) @ np.array(columns, dtype=object).reshape(len(columns), generators.shape[1]).T
    assert basis.shape[1] == np.linalg.matrix_rank(generators)
    assert hermite(basis) == hermite(generators)
    mus, lengths = gram_schmidt([[Fraction(int(x)) for x in vector] for vector in basis.T])
    assert all(abs(mu) <= Fraction(1, 2) for row in mus for mu in row)
    for k in range(1, len(lengths)):
        assert lengths[k] >= (Fraction(3, 4) - mus[k][k - 1] ** 2) * lengths[k - 1]


def test_no_generators_give_no_basis() -> None:
    assert reduce_generators([], max_steps=1) == []
    assert reduce_generators([[0]], max_steps=5) == []


def test_it_gives_up_after_the_steps_allowed() -> None:
    generators = np.random.default_rng(0).integers(-9, 9, (6, 12))
    with pytest.raises(ReductionLimitError, match="steps allowed"):
        reduce_generators((generators.T @ generators).tolist(), max_steps=5)
