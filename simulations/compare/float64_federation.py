"""The same federation in float64: what it deviates by when it adds rounded numbers instead of integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analytic.row_format import FloatMatrix
from analytic.solve import one_blas_thread
from analytic.statistics import one_hot

AFL_GAMMA = 1.0
"""What AFL's authors add to each client's diagonal (He et al., section 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Float64Deviation:
    """Largest absolute difference of a weight from those of the pooled rows, both in float64.

    Args:
        gram_sum: clients send their Gram matrices, the server adds and solves.
        solved_weights: clients send solved weights as AFL's authors do, the server aggregates by the absolute law.
    """

    gram_sum: float
    solved_weights: float


def float64_deviation(
    clients: Sequence[tuple[NDArray[np.floating], NDArray[np.integer]]], *, n_classes: int, ridge: float
) -> Float64Deviation:
    """How far two float64 federations end from the float64 model of the same rows, with one solver for all three.

    Args:
        clients: features of shape (n_k, d) and labels of shape (n_k,), in the order in which they are added.
        n_classes: labels are 0 to n_classes - 1.
        ridge: penalty of the solve.
    """
    rows = [(np.asarray(features, dtype=np.float64), one_hot(labels, n_classes)) for features, labels in clients]
    with one_blas_thread():
        pooled = _solve(*_products(np.concatenate([x for x, _ in rows]), np.concatenate([y for _, y in rows])), ridge)
        gram, cross = np.zeros((pooled.shape[0],) * 2), np.zeros(pooled.shape)
        shifted, weighted = gram.copy(), cross.copy()
        gamma = AFL_GAMMA * np.eye(len(gram))
        for features, targets in rows:
            own_gram, own_cross = _products(features, targets)
            gram += own_gram
            cross += own_cross
            own_shifted = own_gram + gamma
            shifted += own_shifted
            weighted += own_shifted @ np.linalg.solve(own_shifted, own_cross)
        added = _solve(gram, cross, ridge)
        aggregated = _solve(shifted - len(rows) * gamma, weighted, ridge)
    return Float64Deviation(
        gram_sum=float(np.abs(added - pooled).max()), solved_weights=float(np.abs(aggregated - pooled).max())
    )


def _products(features: FloatMatrix, targets: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    return features.T @ features, features.T @ targets


def _solve(gram: FloatMatrix, cross: FloatMatrix, ridge: float) -> FloatMatrix:
    """Weights by SVD; directions without any row carry none, as in ``simulations.compare.reference.float64_ridge``."""
    cutoff = np.finfo(np.float64).eps * len(gram)
    return np.asarray(np.linalg.lstsq(gram + ridge * np.eye(len(gram)), cross, rcond=cutoff)[0], dtype=np.float64)
