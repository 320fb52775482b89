"""Ways to score that several attacks share."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from secagg.layout import IntVector
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Picture, Score
from simulations.audit.side_information import IntRows, Labels

PICTURES = 6
"""Rows that one score shows."""


def score_vector(guess: IntVector | None, truth: Truth) -> Score:
    """One trial: the whole contribution, every entry of it. A blind guess hits less often than a row of the pool."""
    hit = guess is not None and np.array_equal(guess, truth.vector)
    return Score(hits=int(hit), trials=1, chance=1 / truth.pool_size)


def score_rows(rows: IntRows, labels: Labels, truth: Truth) -> Score:
    """One trial a true row: is it among the guessed rows, every entry and its label?

    A blind guess that names as many rows of the pool as the target holds is right about that part of them.
    """
    guessed = Counter(_key(row, label) for row, label in zip(rows, labels, strict=True))
    hits, pictures = 0, list[Picture]()
    for row, label in zip(truth.rows, truth.labels, strict=True):
        exact = guessed[_key(row, label)] > 0
        guessed[_key(row, label)] -= exact
        hits += exact
        if len(pictures) < PICTURES:
            pictures.append(Picture(true=row, rebuilt=row if exact else _nearest(row, rows), exact=exact))
    n = len(truth.rows)
    return Score(hits=hits, trials=n, chance=min(1.0, n / truth.pool_size), pictures=tuple(pictures))


def _key(row: NDArray[np.int64], label: int) -> tuple[bytes, int]:
    return np.asarray(row, dtype=np.int64).tobytes(), int(label)


def _nearest(row: NDArray[np.int64], rows: IntRows) -> NDArray[np.int64] | None:
    """The guess that comes closest, for the eye."""
    if not len(rows):
        return None
    best: NDArray[np.int64] = rows[int(np.argmin(np.abs(rows.astype(float) - row).sum(axis=1)))]
    return best
