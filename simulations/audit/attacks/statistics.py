"""Three questions that the statistics of a client answer outright, as long as its rows are linearly independent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy

from simulations.audit.attack import ANY_SUM, Limit, ReadingAttack, Unit
from simulations.audit.evaluate import Score
from simulations.audit.population import EnteringRows, Truth
from simulations.audit.view import Reading

Answers = Mapping[int, Any]
"""A number, or an array of whole numbers, for each thing asked."""


def scored(
    true: Callable[[Truth], Answers], chance: Callable[[Truth], float]
) -> Callable[[Answers | None, Truth, np.random.Generator], Score]:
    """What scores answers: one trial for each thing asked, right if every number of the answer is exact.

    Args:
        true: the right answers.
        chance: how often a guess that saw nothing is right.
    """

    def score(guess: Answers | None, truth: Truth, rng: np.random.Generator) -> Score:
        said = guess or {}
        found = [np.array_equal(said.get(asked, ()), answer) for asked, answer in true(truth).items()]
        return Score(hits=sum(found), trials=len(found), chance=chance(truth))

    return score


def _histogram(reading: Reading, rows: EnteringRows) -> Answers:
    """H^T G^+ H = Y^T Y = diag(n_c), exactly."""
    counts = reading.class_counts()
    return {} if counts is None else {0: counts}


def _lone(reading: Reading, rows: EnteringRows) -> Answers:
    """A class with one row has that row as its column of H; h^T G^+ h = 1 certifies that it is one row."""
    counts = reading.class_counts()
    return {} if counts is None else {int(label): reading.cross[:, label] for label in np.flatnonzero(counts == 1)}


def _likeliest(truth: Truth) -> float:
    """The probability of the likeliest histogram of classes that are equally frequent: an even one."""
    n_rows, n_classes = len(truth.labels), truth.n_classes
    even = np.full(n_classes, n_rows // n_classes)
    even[: n_rows % n_classes] += 1
    return float(scipy.stats.multinomial.pmf(even, n_rows, np.full(n_classes, 1 / n_classes)))


LABEL_HISTOGRAM = ReadingAttack(
    name="label_histogram",
    title="How many rows of each class there are",
    explanation=(
        "From the two matrices that a closed form needs (G and H), one product gives the number of rows of every "
        "class. Success: all classes of a client right. Chance: the likeliest histogram, guessed by somebody who knows "
        "how many rows there are."
    ),
    read=_histogram,
    scored=scored(lambda truth: {0: np.bincount(truth.labels, minlength=truth.n_classes)}, _likeliest),
    sees=ANY_SUM,
)

CLASS_MEANS = ReadingAttack(
    name="class_means",
    title="The average row of each class of a client",
    explanation=(
        "Each column of H is the sum of the rows of one class. Success: the sum of a class that the client holds, "
        "every number exact. Chance: less than naming one row out of the pool."
    ),
    read=lambda reading, rows: dict(enumerate(reading.cross.T)),
    scored=scored(
        lambda truth: {int(one): truth.rows[truth.labels == one].sum(axis=0) for one in np.unique(truth.labels)},
        lambda truth: truth.likeliest_row,
    ),
)

LONE_ROWS = ReadingAttack(
    name="lone_rows",
    title="A row that is the only one of its class",
    explanation=(
        "Where a client holds a single row of a class, the sum of that class is the row itself, picture and all. "
        "Success: the row, every number exact. Chance: naming one row of that class out of the pool of all rows."
    ),
    read=_lone,
    scored=scored(
        lambda truth: {
            int(label): truth.rows[truth.labels == label][0]
            for label in np.flatnonzero(np.bincount(truth.labels, minlength=truth.n_classes) == 1)
        },
        lambda truth: min(1.0, truth.n_classes * truth.likeliest_row),
    ),
    sees=ANY_SUM,
    unit=Unit.ROW,
    limit=Limit.REBUILT_ROWS,
)
