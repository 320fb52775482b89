"""One secure mean of clients' updates: rows that are read off it, and whether a given row was in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic_secagg.modes import Mode
from secagg import PartyId, secure_mean
from simulations.audit.attack import Attack, Expectation, G, Guesser, Unit, attacked, score_members
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.workbench import Bench

Floats = NDArray[np.float64]

EXACT = 1e-3
"""Largest error of a number of a row that counts as read off, in parts of the row's largest number."""

_MODEL = (
    "Each client makes one step of gradient descent, with all its rows, of a softmax regression that begins at zeros; "
    "a secure mean of the steps is released. "
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mean:
    """What a server learns of one round.

    Args:
        update: the weighted mean of the clients' updates, shape (d + 1, c); the last row is the bias.
        weight: number of all rows.
    """

    update: Floats = field(repr=False)
    weight: int

    @classmethod
    def of(cls, clients: Mapping[PartyId, ClientRows], n_classes: int) -> Mean:
        """Return the mean of real masked sessions; two clients, too few for masks, send plain vectors."""
        found = secure_mean(
            {party: {"update": update_of(rows, n_classes)} for party, rows in clients.items()},
            weights={party: len(rows) for party, rows in clients.items()},
            mode="masked" if len(clients) > 2 else "plain",
        )
        return cls(update=found.arrays["update"], weight=found.weight)

    def lone_rows(self) -> tuple[Floats, NDArray[np.intp]]:
        """Return the row of each class that has only one, and its label.

        The bias tells how many rows each class has. A class of none tells the sum of all rows, since each counts there
        with the known probability 1 / c; that sum makes of a class's column the sum of its rows.
        """
        sums, n_classes = self.update * self.weight, self.update.shape[1]
        counts = np.rint(sums[-1] + self.weight / n_classes)
        empty, lone = np.flatnonzero(counts == 0), np.flatnonzero(counts == 1)
        if not len(empty):
            return sums[:0, :-1], lone[:0]
        everybody = -sums[:-1, empty[0]]
        return (sums[:-1, lone] + everybody[:, None]).T, lone

    def scores(self, rows: ClientRows, public: ClientRows) -> Floats:
        """Return for each row how much its own step resembles the mean, less what the population's does."""
        n_classes = self.update.shape[1]
        surplus = self.update - update_of(public, n_classes)
        return np.asarray(((_with_ones(rows) @ surplus) * _errors(rows, n_classes)).sum(axis=1))


def update_of(rows: ClientRows, n_classes: int) -> Floats:
    """Return one full-batch step of softmax regression with a bias from zeros, shape (d + 1, c)."""
    return np.asarray(_with_ones(rows).T @ _errors(rows, n_classes) / len(rows))


def _with_ones(rows: ClientRows) -> Floats:
    return np.column_stack([np.asarray(rows.features, dtype=np.float64), np.ones(len(rows))])


def _errors(rows: ClientRows, n_classes: int) -> Floats:
    return np.eye(n_classes)[np.asarray(rows.targets, dtype=np.intp)] - 1 / n_classes


class OnMean(Attack, Guesser[G]):
    """An attack on one mean of the bench's cohort."""

    made = "one mean of an update of {clients} clients"
    unit = Unit.ROW

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that it is about what is released, and that nothing is promised of it."""
        return Expectation.OPEN if mode is None else None

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the mean of one cohort."""
        cohort, n_classes = bench.cohort(bench.clients), bench.population.dataset.n_classes
        mean = Mean.of({party: bench.population.rows(held) for party, held in cohort.items()}, n_classes)
        held = np.concatenate(list(cohort.values()))
        truth = bench.truth(held, bench.vector(held))
        seen = Exposure(kind=Kind.MODEL, model=mean)
        return attacked(self, seen, bench.known(), truth, bench.rng)


class RowsOfMean(OnMean[tuple[Floats, NDArray[np.intp]]]):
    """Inverts the gradient (Zhu, Liu and Han, NeurIPS 2019), which needs no search where the model is linear."""

    name = "mean_rows"
    title = "Rows that are read off one mean of updates"
    explanation = (
        f"{_MODEL}Rows are read off it by arithmetic: that of each class with only one row, where some class has none. "
        "Success: a row and its label, every number to a thousandth of the largest. Chance: less than naming one row "
        "of the pool. Of deeper models and later rounds it says nothing."
    )
    needs = Knowledge.NOTHING

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
        """Return rows and labels."""
        found: Mean = seen.model
        return found.lone_rows()

    def score(self, guess: tuple[Floats, NDArray[np.intp]], truth: Truth, rng: np.random.Generator) -> Score:
        """Score a trial for each row behind the mean."""
        true, labels = np.asarray(truth.raw.features, dtype=np.float64), truth.raw.targets
        hits = 0
        for row, label in zip(*guess, strict=True):
            errors = np.abs(true[labels == label] - row).max(axis=1, initial=0.0)
            hits += bool((errors <= EXACT * max(np.abs(row).max(), 1e-12)).any())
        return Score(hits=hits, trials=len(true), chance=truth.likeliest_row)


class MembershipOfMean(OnMean[Floats]):
    """Takes the inner product of a row's own step and the mean for the evidence that the row was used."""

    name = "mean_membership"
    title = "Whether a given row was in one mean of updates"
    explanation = (
        f"{_MODEL}Somebody who has one row, and other rows of the same kind, asks whether it was used: a row that was "
        "pulls the mean towards its own step. Success: of a row that was used and one that was not, the right one. "
        "Chance: one half. More rows hide each of them; more rounds are not tried."
    )
    needs = Knowledge.ONE_ROW

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> Floats:
        """Return a score for each candidate."""
        found: Mean = seen.model
        return found.scores(known.candidates, known.public)

    def score(self, guess: Floats, truth: Truth, rng: np.random.Generator) -> Score:
        """Score pairs of a row that was used and one that was not."""
        return score_members(guess, truth, rng)


MEAN_ROWS, MEAN_MEMBERSHIP = RowsOfMean(), MembershipOfMean()
