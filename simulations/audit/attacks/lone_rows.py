"""Rows that are alone in their class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Picture, Score
from simulations.audit.reading import Reading
from simulations.audit.scoring import PICTURES
from simulations.audit.view import AdversaryView

Rows = dict[int, NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class LoneRows:
    """A class with one row has that row as its column of H; h^T G^+ h = 1 certifies that it is one row."""

    name: str = "lone_rows"
    title: str = "A row that is the only one of its class at a client"
    explanation: str = (
        "Where a client holds a single row of a class, the sum of that class is the row itself, picture and all. "
        "Success: the row, every number exact. Chance: naming one row of that class out of the pool of all rows."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Rows:
        """The row of every class that has one, by class."""
        vector = view.read(target)
        if vector is None:
            return {}
        reading = Reading.of(view.sums[-1].layout, vector)
        counts = reading.class_counts()
        if counts is None:
            return {}
        return {int(label): reading.cross[:, label] for label in np.flatnonzero(counts == 1)}

    def score(self, guess: Rows, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a lone row."""
        counts = np.bincount(truth.labels, minlength=truth.n_classes)
        pictures = []
        for label in np.flatnonzero(counts == 1):
            true, rebuilt = truth.rows[truth.labels == label][0], guess.get(int(label))
            exact = rebuilt is not None and np.array_equal(true, rebuilt)
            pictures.append(Picture(true=true, rebuilt=rebuilt, exact=exact))
        return Score(
            hits=sum(picture.exact for picture in pictures),
            trials=len(pictures),
            chance=min(1.0, truth.n_classes / truth.pool_size),
            pictures=tuple(pictures[:PICTURES]),
        )
