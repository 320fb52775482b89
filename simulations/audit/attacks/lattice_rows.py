"""All rows of a small client, from the lattice that its exact Gram is the Gram of."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.attacks.lattice_reduction import ReductionLimitError, reduce_generators
from simulations.audit.evaluate import Score
from simulations.audit.reading import IntMatrix, Reading
from simulations.audit.scoring import score_rows
from simulations.audit.side_information import IntRows, Labels
from simulations.audit.view import AdversaryView

MAX_ROWS = 64
"""Beyond it Z^n needs stronger reduction than LLL, and the reduction takes more than some seconds."""

MAX_STEPS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RebuiltRows:
    """Rows with their labels.

    Args:
        rows: shape (n, d), in the units of the row format.
        labels: shape (n,).
        certified: whether these rows give the statistics back, and no other integer rows with labels do.
    """

    rows: IntRows = field(repr=False)
    labels: Labels = field(repr=False)
    certified: bool


@dataclass(frozen=True, slots=True)
class LatticeRows:
    """The columns of [Y, X] generate Z^n, and all their inner products are known: [[Y'Y, H'], [H, G]].

    So their Gram is that of Z^n in disguise. A reduced basis of it is +-e_1, ..., +-e_n, as soon as every basis vector
    has length 1, and e_i = [Y, X] T_i gives row i as X^T e_i = [H, G] T_i.
    """

    name: str = "lattice_rows"
    title: str = "All rows of a small client"
    explanation: str = (
        "Exact sums of whole-number rows are a lattice, and lattice reduction (LLL, 1982) finds the rows in it, labels "
        "included, as long as there are fewer rows than features. It proves its result: no other rows give the same "
        "sums. Success: a row and its label, every number exact. Chance: naming as many rows of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> RebuiltRows | None:
        """The rows as far as they were found."""
        vector = view.read(target)
        return None if vector is None else rebuild(Reading.of(view.sums[-1].layout, vector))

    def score(self, guess: RebuiltRows | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a row."""
        d = truth.rows.shape[1]
        rows = np.empty((0, d), dtype=np.int64) if guess is None else guess.rows
        return score_rows(rows, np.empty(0, dtype=np.int64) if guess is None else guess.labels, truth)


def rebuild(reading: Reading) -> RebuiltRows | None:
    """The rows behind exact statistics with one-hot labels; None where these numbers are no such statistics."""
    counts = reading.class_counts()
    if counts is None or not 0 < counts.sum() <= MAX_ROWS:
        return None
    scale = reading.scale
    gram, cross = reading.gram // scale**2, reading.cross // scale
    if (gram.diagonal() < 0).any() or max(abs(int(gram.min())), int(gram.max())) >= 2**62:
        return None
    inner = np.block([[np.diag(counts), cross.T], [cross, gram]])
    order = np.argsort(inner.diagonal(), kind="stable")
    order = order[inner.diagonal()[order] > 0]
    basis = _reduced(inner[np.ix_(order, order)])
    if basis is None:
        return None
    images = inner[order].T.astype(object) @ basis.T.astype(object)  # e_i times every column of [Y, X]
    return _rows_of(images, len(counts), scale, reading)


def _reduced(inner: IntMatrix) -> NDArray[np.object_] | None:
    """The basis vectors of length 1, as coefficients, shape (n, generators)."""
    exact = [[int(value) for value in row] for row in inner]
    if any(a * a > exact[i][i] * exact[j][j] for i, row in enumerate(exact) for j, a in enumerate(row)):
        return None  # no inner products: Cauchy and Schwarz
    try:
        columns = reduce_generators(exact, max_steps=MAX_STEPS)
    except ReductionLimitError:
        return None
    basis = np.array(columns, dtype=object).reshape(len(columns), len(exact))
    lengths = ((basis @ inner.astype(object)) * basis).sum(axis=1)
    return basis[[isqrt(max(0, int(length))) == 1 and int(length) == 1 for length in lengths]]


def _rows_of(images: NDArray[np.object_], n_classes: int, scale: int, reading: Reading) -> RebuiltRows:
    labels, rows = [], []
    for image in images.T:
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
