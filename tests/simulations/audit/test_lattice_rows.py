"""Rows come back from their exact Gram, by a basis that generates the same lattice and is reduced."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from flint import fmpz_mat
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simulations.audit.attacks.rows import rebuild, reduced_basis
from simulations.audit.reading import Reading

MATRICES = st.tuples(st.integers(1, 4), st.integers(1, 7)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-9, 9))
)


def reading_of(rows: np.ndarray, labels: np.ndarray, n_classes: int = 3) -> Reading:
    targets = np.eye(n_classes, dtype=np.int64)[labels]
    return Reading(gram=rows.T @ rows, cross=rows.T @ targets, count=len(rows))


def hermite(vectors: np.ndarray) -> list[list[int]]:
    """The Hermite normal form of the lattice that rows generate: one form for one lattice."""
    return [row for row in fmpz_mat(vectors.tolist()).hnf().tolist() if any(row)]


def gram_schmidt(basis: np.ndarray) -> tuple[list[list[Fraction]], list[Fraction]]:
    """The coefficients mu and the squared lengths of the orthogonal parts."""
    stars, mus = list[np.ndarray](), []
    for vector in basis:
        mus.append([vector @ star / (star @ star) for star in stars])
        stars.append(vector - sum((mu * star for mu, star in zip(mus[-1], stars, strict=True)), 0 * vector))
    return mus, [star @ star for star in stars]


@given(MATRICES)
def test_the_lattice_stays_the_same_and_its_basis_is_reduced(columns: np.ndarray) -> None:
    """By Lovász's condition with delta = 3/4 and |mu| <= 0.51; columns may depend on each other, or be zero."""
    generators = columns.T
    found = reduced_basis(generators @ generators.T)
    assert found is not None
    rank = np.linalg.matrix_rank(generators)
    basis = found.reshape(rank, len(generators)) @ generators.astype(object)
    assert hermite(basis) == hermite(generators)
    mus, lengths = gram_schmidt(np.vectorize(lambda entry: Fraction(int(entry)), otypes=[object])(basis))
    assert all(abs(mu) <= Fraction(51, 100) for row in mus for mu in row)
    for k in range(1, len(lengths)):
        assert lengths[k] >= (Fraction(3, 4) - mus[k][k - 1] ** 2) * lengths[k - 1]


def test_what_are_no_inner_products_has_no_basis() -> None:
    assert reduced_basis(np.array([[1, 0], [0, -1]])) is None
    assert reduced_basis(np.array([[1, 2], [2, 1]])) is None


def test_the_lattice_gives_rows_back_with_a_certificate() -> None:
    rng = np.random.default_rng(3)
    rows, labels = 64 * rng.integers(-40, 41, (15, 24)), rng.integers(0, 3, 15)
    found = rebuild(reading_of(rows, labels))
    assert found is not None
    assert found.certified
    order, true = np.lexsort(found.rows.T), np.lexsort(rows.T)
    assert np.array_equal(found.rows[order], rows[true])
    assert np.array_equal(found.labels[order], labels[true])


def test_the_lattice_claims_nothing_about_too_many_rows_or_noise() -> None:
    rng = np.random.default_rng(4)
    assert rebuild(reading_of(rng.integers(0, 16, (30, 12)), rng.integers(0, 3, 30))) is None
    noise = rng.integers(-(2**40), 2**40, (8, 8))
    assert rebuild(Reading(gram=noise + noise.T, cross=rng.integers(0, 2**40, (8, 3)), count=5)) is None


def test_two_equal_rows_are_no_certified_rows() -> None:
    rows = np.random.default_rng(5).integers(0, 16, (5, 9))
    rows[4] = rows[3]
    found = rebuild(reading_of(rows, np.array([0, 1, 2, 1, 1])))
    assert found is None or not found.certified
