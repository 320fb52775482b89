"""What the mean itself gives away, whatever hides the updates behind it: rows and members of small rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from secagg import secure_mean

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]
all_x, all_y = load_digits(return_X_y=True)
all_x = all_x / 16


def update(rows: Rows, weights: Any = 0.0) -> Any:
    """One step of full-batch gradient descent of softmax regression, shape (64, 10)."""
    x, y = rows
    logits = np.exp(x @ (weights + np.zeros((64, 10))))
    p = logits / logits.sum(axis=1, keepdims=True)
    return x.T @ (np.eye(10)[y] - p) / len(x)


def mean_over_masks(clients: Mapping[int, Rows]) -> Any:
    """All that the server learns of one round."""
    updates = {party: {"w": update(rows)} for party, rows in clients.items()}
    return secure_mean(updates, weights={party: len(rows[1]) for party, rows in clients.items()}).arrays["w"]


def inverted(mean: Any, n_rows: int) -> Any:
    """Gradient inversion: the sum of each class's rows, where the model that was sent is all zeros.

    A class that nobody has shows the sum of all rows, since each row counts there with the known probability 1/10.
    """
    everybody = -10 * mean[:, np.argmin(mean.sum(axis=0))] * n_rows
    return mean * n_rows + everybody[:, None] / 10


def test_a_row_of_a_class_that_nobody_else_has_is_read_off_the_mean() -> None:
    """Of nine clients with a row each, every row is found exactly; of classes of 50 rows, their sums alone."""
    lone = {c + 1: (all_x[all_y == c][:1], all_y[all_y == c][:1]) for c in range(9)}
    found = inverted(mean_over_masks(lone), 9)
    for c in range(9):
        assert np.abs(found[:, c] - all_x[all_y == c][0]).max() < 1e-4
    many = {c + 1: (all_x[all_y < 9][c * 50 : c * 50 + 50], all_y[all_y < 9][c * 50 : c * 50 + 50]) for c in range(9)}
    sums = inverted(mean_over_masks(many), 450)
    pooled_x, pooled_y = (np.concatenate([rows[i] for rows in many.values()]) for i in (0, 1))
    for c in range(9):
        assert np.abs(sums[:, c] - pooled_x[pooled_y == c].sum(axis=0)).max() < 1e-2
        distance = np.abs(pooled_x - sums[:, c] / (pooled_y == c).sum()).max(axis=1).min()
        assert distance > 0.1  # the mean of a class's rows is none of them


def membership_auc(n_clients: int, n_rows: int, seed: int) -> float:
    """How well the score <mean, gradient of a row> tells the rows of a round from rows that were in no client's.

    The attacker knows the sum of the population's updates, and takes its expectation off.
    """
    order = np.random.default_rng(seed).permutation(len(all_y))
    inside, outside = order[: n_clients * n_rows], order[len(all_y) // 2 :][: n_clients * n_rows]
    clients = {
        p + 1: (all_x[inside[p * n_rows : (p + 1) * n_rows]], all_y[inside[p * n_rows : (p + 1) * n_rows]])
        for p in range(n_clients)
    }
    seen = mean_over_masks(clients) - update((all_x, all_y))
    scores = [float((seen * update((all_x[i : i + 1], all_y[i : i + 1]))).sum()) for i in [*inside, *outside]]
    return float(roc_auc_score([1] * len(inside) + [0] * len(outside), scores))


def test_who_was_in_a_small_round_is_found_and_in_a_large_one_hardly() -> None:
    """Three clients of 4 rows, seeds 0 to 19, then three of 250, seeds 0 to 4: the mean areas under the curve."""
    small = np.mean([membership_auc(3, 4, seed) for seed in range(20)])
    large = np.mean([membership_auc(3, 250, seed) for seed in range(5)])
    assert small > 0.75
    assert large < 0.65
