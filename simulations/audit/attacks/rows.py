"""All rows of a client, from the lattice that its exact Gram is the Gram of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from flint import fmpz_mat, nmod_mat
from numpy.typing import NDArray

from simulations.audit.attack import ANY_SUM, Limit, ReadingAttack, RebuiltRows, TooLargeError, Unit, score_rows
from simulations.audit.view import IntMatrix, Reading

MAX_ROWS = 100
"""Beyond it Z^n needs stronger reduction than LLL, and LLL more than some seconds."""

ETA = 0.51
"""Size reduction that bears rounding."""

FIRST, FINAL = 0.75, 0.99
"""Lovász's factors: his own where the numbers are long, which takes longest, and a stronger one for what is left."""

ROUNDS, MIXED = 40, 3
"""How often a reduced basis is mixed and reduced again, and how many others are added to each of its vectors."""

BESIDE = 40
"""Columns beside as many independent ones as there are rows, at least: so many random ones generate Z^n."""

PRIME = 2**61 - 1
"""A rank modulo it is never too large."""

Integers = NDArray[np.object_]


def rebuild(reading: Reading) -> RebuiltRows | None:
    """The rows behind exact statistics with one-hot labels; None where these numbers are no such statistics.

    The columns of [Y, X] generate Z^n, and all their inner products are known: [[Y'Y, H'], [H, G]]. So their Gram is
    that of Z^n in disguise. A reduced basis of it is +-e_1, ..., +-e_n, as soon as every basis vector has length 1, and
    e_i = [Y, X] T_i gives row i as X^T e_i = [H, G] T_i.

    Raises:
        TooLargeError: they are such statistics, and lattice reduction as it is done here does not come to an end.
    """
    counts = reading.class_counts()
    n_rows = 0 if counts is None else int(counts.sum())
    if counts is None or not 0 < n_rows <= len(counts) + len(reading.gram):
        return None
    scale = reading.scale
    gram, cross = reading.gram // scale**2, reading.cross // scale
    if (gram.diagonal() < 0).any() or max(abs(int(gram.min())), int(gram.max())) >= 2**62:
        return None
    inner = np.block([[np.diag(counts), cross.T], [cross, gram]])
    columns = _generators(inner, n_rows)
    if columns is None:
        return None
    if n_rows > MAX_ROWS:
        raise TooLargeError(f"rows from a lattice of {n_rows} rows: beyond {MAX_ROWS} it takes stronger reduction")
    products = inner[np.ix_(columns, columns)].astype(object)
    basis = reduced_basis(products)
    if basis is None:
        return None
    units = _unit_vectors(basis, products)
    if not len(units) and fmpz_mat((basis @ products @ basis.T).tolist()).det() == 1:
        raise TooLargeError(f"rows from a lattice of {n_rows} rows: they are there, and it takes stronger reduction")
    images = units @ inner[columns].astype(object)  # e_i times every column of [Y, X]
    return _rows_of(images, len(counts), scale, reading)


def rebuilt_rows(reading: Reading) -> RebuiltRows | None:
    """Return the rows behind exact statistics, class by class where a sum has them apart; see ``rebuild``."""
    return class_by_class(rebuild, reading)


def class_by_class(read: Callable[[Reading], RebuiltRows | None], reading: Reading) -> RebuiltRows | None:
    """What there is to be read of each class, where a sum has them apart: fewer rows, and as many features."""
    if not reading.classes:
        return read(reading)
    found = [one for part in reading.classes if part.count and (one := read(part)) is not None]
    return RebuiltRows(
        rows=np.concatenate([np.zeros((0, len(reading.gram)), dtype=np.int64), *(one.rows for one in found)]),
        labels=np.concatenate([np.zeros(0, dtype=np.int64), *(one.labels for one in found)]),
        certified=bool(found) and all(one.certified for one in found),
    )


def _generators(inner: IntMatrix, n_rows: int) -> NDArray[np.intp] | None:
    """Columns that generate what all do, short ones first: independent ones, and some beside.

    Returns:
        Their places; None where fewer than ``n_rows`` are independent, so that they do not generate Z^n.
    """
    order = np.argsort(inner.diagonal(), kind="stable")
    order = order[inner.diagonal()[order] > 0]
    if len(order) < n_rows:
        return None
    table = nmod_mat(len(order), len(order), [int(v) % PRIME for v in inner[np.ix_(order, order)].ravel()], PRIME)
    echelon, rank = table.rref()
    if rank < n_rows:
        return None
    pivots = {next(place for place, value in enumerate(row) if int(value)) for row in echelon.tolist()[:rank]}
    others = [place for place in range(len(order)) if place not in pivots]
    return order[sorted([*pivots, *others[:: max(1, len(others) // BESIDE)]])]


def _unit_vectors(basis: Integers, products: Integers) -> Integers:
    """The vectors of length 1 of a lattice, by a basis that is reduced again and again; shape (found, g).

    What is found is orthogonal to the rest of Z^n, and taken off it. Reductions of the rest that begin with other
    bases find what one of them misses.
    """
    rng, found = np.random.default_rng(0), list[Integers]()
    for _ in range(ROUNDS):
        metric, change = fmpz_mat((basis @ products @ basis.T).tolist()).lll(True, FINAL, ETA, "gram")
        basis = np.array(change.tolist(), dtype=object) @ basis
        length = np.array(metric.tolist(), dtype=object).diagonal()
        units, basis = basis[length == 1], basis[length != 1]
        found.append(units)
        basis = basis - (basis @ products @ units.T) @ units
        if not len(basis):
            break
        mixed = np.eye(len(basis), dtype=np.int64)
        for place in range(1, len(basis)):
            mixed[place, rng.integers(0, place, MIXED)] += rng.integers(-1, 2, MIXED)
        basis = mixed[rng.permutation(len(basis))].astype(object) @ basis
    return np.concatenate(found)


def reduced_basis(inner: IntMatrix) -> Integers | None:
    """An LLL-reduced basis of the lattice that vectors with these inner products generate (exact, by FLINT).

    The vectors may depend on each other, which reduction by inner products alone does not allow. So their images, the
    rows of ``inner``, are reduced first, in a metric of their own: that finds a basis, and the second reduction goes
    by the lattice's own metric.

    Args:
        inner: symmetric, shape (g, g).

    Returns:
        The basis vectors as coefficients of the given ones, shape (rank, g); None where ``inner`` is not positive
        semidefinite, and so no inner products of anything.
    """
    products = fmpz_mat(inner.tolist())
    images, coefficients = products.lll(True, FIRST, ETA)
    pairs = zip(images.tolist(), coefficients.tolist(), strict=True)
    independent = [row for image, row in pairs if any(image)]
    basis = fmpz_mat(len(independent), len(inner), [entry for row in independent for entry in row])
    metric = basis * products * basis.transpose()
    table = metric.tolist()
    if not all(fmpz_mat([row[:size] for row in table[:size]]).det() > 0 for size in range(1, len(table) + 1)):
        return None  # by Sylvester's criterion; the reduction of an indefinite form need not end
    _, change = metric.lll(True, FIRST, ETA, "gram")
    return np.array((change * basis).tolist(), dtype=object).reshape(-1, len(inner))


def _rows_of(images: Integers, n_classes: int, scale: int, reading: Reading) -> RebuiltRows:
    labels, rows = [], []
    for image in images:
        one_hot = image[:n_classes]
        label = int(np.argmax(np.abs(one_hot)))
        sign = 1 if one_hot[label] > 0 else -1
        rows.append([sign * scale * int(value) for value in image[n_classes:]])
        labels.append(label)
    d = len(reading.gram)
    found = np.array(rows, dtype=np.int64).reshape(len(rows), d)
    targets = np.eye(n_classes, dtype=np.int64)[np.array(labels, dtype=np.int64)].reshape(len(rows), n_classes)
    certified = np.array_equal(found.T @ found, reading.gram) and np.array_equal(found.T @ targets, reading.cross)
    return RebuiltRows(rows=found, labels=np.array(labels, dtype=np.int64), certified=certified)


LATTICE_ROWS = ReadingAttack(
    name="lattice_rows",
    title="All rows, where there are few",
    explanation=(
        "Exact sums of whole-number rows are a lattice, and lattice reduction (LLL, 1982) finds the rows in it, labels "
        "included, as long as there are fewer rows than features. It proves its result: no other rows give the same "
        "sums. Success: a row and its label, every number exact. Chance: less than naming one row of the pool."
    ),
    read=lambda reading, rows: rebuilt_rows(reading),
    scored=score_rows,
    sees=ANY_SUM,
    unit=Unit.ROW,
    limit=Limit.REBUILT_ROWS,
)
