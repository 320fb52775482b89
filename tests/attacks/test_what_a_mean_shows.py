"""What the mean itself gives away, whatever hides the updates behind it: rows and members of small rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from analytic.learner import ClientRows
from secagg import PartyId, secure_mean

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mean:
    """What a server learns of one round: each client makes one full-batch step of softmax regression from zeros.

    Args:
        update: the weighted mean of the clients' updates, shape (d + 1, c); the last row is the bias.
        weight: number of all rows.
    """

    update: Floats
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


all_x, all_y = load_digits(return_X_y=True)
EVERYBODY = ClientRows(all_x / 16, all_y)


def rows_of(label: int, some: slice) -> ClientRows:
    return EVERYBODY.taken(np.flatnonzero(all_y == label)[some])


def test_a_row_of_a_class_that_nobody_else_has_is_read_off_the_mean() -> None:
    """Of nine clients with a row each, every row is found exactly; of classes of 50 rows, their sums alone."""
    lone = {c + 1: rows_of(c, slice(1)) for c in range(9)}
    rows, labels = Mean.of(lone, 10).lone_rows()
    assert labels.tolist() == list(range(9))
    for c in range(9):
        assert np.abs(rows[c] - lone[c + 1].features[0]).max() < 1e-4
    many = Mean.of({c + 1: rows_of(c, slice(50)) for c in range(9)}, 10)
    assert many.lone_rows()[1].size == 0
    means = many.update * many.weight / 50
    for c in range(9):
        of_class = means[:-1, c] - means[:-1, 9]
        assert np.abs(of_class - rows_of(c, slice(50)).features.mean(axis=0)).max() < 1e-3
        assert np.abs(EVERYBODY.features - of_class).max(axis=1).min() > 0.1  # and it is none of them


def membership_auc(n_clients: int, n_rows: int, seed: int) -> float:
    """How well the score tells the rows of a round from rows that were in no client's.

    The attacker knows the sum of the population's updates, and takes its expectation off.
    """
    order = np.random.default_rng(seed).permutation(len(all_y))
    inside, outside = order[: n_clients * n_rows], order[len(all_y) // 2 :][: n_clients * n_rows]
    clients = {p + 1: EVERYBODY.taken(held) for p, held in enumerate(np.split(inside, n_clients))}
    scores = Mean.of(clients, 10).scores(EVERYBODY.taken(np.concatenate([inside, outside])), EVERYBODY)
    return float(roc_auc_score([1] * len(inside) + [0] * len(outside), scores))


def test_who_was_in_a_small_round_is_found_and_in_a_large_one_hardly() -> None:
    """Three clients of 4 rows, seeds 0 to 19, then three of 250, seeds 0 to 4: the mean areas under the curve."""
    small = np.mean([membership_auc(3, 4, seed) for seed in range(20)])
    large = np.mean([membership_auc(3, 250, seed) for seed in range(5)])
    assert small > 0.75
    assert large < 0.65
