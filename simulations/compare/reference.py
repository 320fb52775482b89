"""References of a run: the pooled model of its survivors, and float64 ridges that share no code with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows, fit_in_the_clear
from analytic.pipeline import Pipeline
from analytic.row_format import FloatMatrix
from analytic.solve.certified import one_blas_thread
from analytic.statistics import UNKNOWN, one_hot
from analytic_secagg.datasets import Dataset
from secagg import PartyId
from simulations.data.partitions import Indices

BLOCK_ROWS = 2048
"""Rows of a float64 reference that are read at a time."""
WELL_CONDITIONED = 1e-10
"""Least ratio of eigenvalues, with the diagonal at one, with which normal equations are corrected to the last bits."""
SMALL_CORRECTION = 2.0**-28
"""Size of a first correction, beside the solution, after which a second one is left out: its square is below 2^-53."""


def accuracy(scores: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Part of the rows whose largest score stands at their label; of several classes, of what is known of them."""
    if labels.ndim == 2:
        return float(np.mean(((scores > 0.5) == (labels == 1))[labels != UNKNOWN]))
    return float(np.mean(scores.argmax(axis=1) == labels))


def r2(scores: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """1 - sum of squared residuals / sum of squares around the mean; the mean over targets, NaN without spread."""
    spread = ((targets - targets.mean(axis=0)) ** 2).sum(axis=0)
    if not spread.all():
        return float("nan")
    return float(np.mean(1 - ((targets - scores) ** 2).sum(axis=0) / spread))


def with_ones(features: NDArray[Any], *, intercept: bool) -> NDArray[Any]:
    """Feature rows with a last column of ones, where there is an intercept."""
    return np.column_stack([features, np.ones(len(features))]) if intercept else features


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """The pooled counterparts of one survivor set.

    Args:
        model: the learner's own closed form on the survivors' pooled rows.
        weights_bytes: everything that it learned.
        float64_weights: an unquantised float64 ridge on the rows of the first sum, shape (d, c); with an intercept,
            which has no penalty, (d + 1, c).
    """

    model: Any
    weights_bytes: bytes
    float64_weights: FloatMatrix

    def float64_scores(self, features: NDArray[Any]) -> FloatMatrix:
        """What the float64 ridge says of rows, shape (n, c); nothing that counts where float64 cannot hold weights."""
        has_intercept = len(self.float64_weights) > features.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            found: FloatMatrix = with_ones(features, intercept=has_intercept) @ self.float64_weights
        return found


class Float64Ridges:
    """Float64 ridges of parts of the training rows and of federations over them, each solved once for all learners.

    Args:
        dataset: whose training rows are pooled.
        ridge: the penalty; None where each model has chosen its own.
        intercept: whether there is a column of ones, without a penalty.
    """

    def __init__(self, dataset: Dataset, *, ridge: float | None, intercept: bool = False) -> None:
        self._dataset, self._ridge, self._intercept = dataset, ridge, intercept
        self._known: dict[bytes, FloatMatrix] = {}
        self._federated: dict[bytes, Float64Deviation] = {}

    def of(self, rows: Indices, learner: Any, model: Any) -> FloatMatrix:
        """The weights of these rows' ridge, shape (d, c), with the penalty and the weights of rows that a model has."""
        own, units, weights = _rows_of(self._dataset, rows), None, None
        if isinstance(learner, Pipeline):
            units = None if learner.scaler is None else learner.column_map(model).units
            weights = learner.weights_of(model, own) / model.denominator
        ridge = model.ridge if self._ridge is None else self._ridge
        heavy = b"" if weights is None else weights.tobytes()
        key = hashlib.sha256(repr((ridge, units)).encode() + rows.tobytes() + heavy).digest()
        if key not in self._known:
            n_classes = self._dataset.n_classes
            self._known[key] = float64_ridge(
                own.features,
                own.targets,
                n_classes,
                ridge=ridge,
                intercept=self._intercept,
                units=units,
                weights=weights,
            )
        return self._known[key]

    def deviation(self, clients: Sequence[Indices]) -> Float64Deviation:
        """How far federations in float64 end from the pooled model, each client holding some of the rows."""
        key = hashlib.sha256(b"".join(hashlib.sha256(rows.tobytes()).digest() for rows in clients)).digest()
        if key not in self._federated:
            data = self._dataset
            self._federated[key] = float64_deviation(
                [(data.x_train[rows], data.y_train[rows]) for rows in clients],
                n_classes=data.n_classes,
                ridge=self._ridge or 0.0,
                intercept=self._intercept,
            )
        return self._federated[key]


class References:
    """Solves each survivor set of one learner once, however many modes, cohorts and partitions lead to it.

    Args:
        dataset: whose training rows are pooled.
        learner_for: the learner for a number of holders of rows.
        float64: ridges to compare with.
    """

    def __init__(
        self, dataset: Dataset, learner_for: Callable[[int], AnalyticLearner[Any]], float64: Float64Ridges
    ) -> None:
        self._dataset, self._learner_for, self._float64 = dataset, learner_for, float64
        self._known: dict[bytes, Reference] = {}

    def of(self, parts: Mapping[PartyId, Indices], survivors: Sequence[tuple[PartyId, ...]]) -> Reference:
        """The reference for clients that hold the rows ``parts`` and took part in the sums as ``survivors`` says."""
        groups = _groups(parts, survivors)
        key = _digest(groups)
        if key not in self._known:
            first_sum = np.sort(np.concatenate([rows for sums, rows in groups.items() if 0 in sums]))
            learner = self._learner_for(len(groups))
            n_sums = 1 + max(number for sums in groups for number in sums)
            took_part = [[place for place, sums in enumerate(groups) if number in sums] for number in range(n_sums)]
            # where other rows take part in each sum: one holder a group of rows, added in the clear
            model = fit_in_the_clear(learner, [_rows_of(self._dataset, rows) for rows in groups.values()], took_part)
            self._known[key] = Reference(
                model=model,
                weights_bytes=learner.weights_bytes(model),
                float64_weights=self._float64.of(first_sum, learner, model),
            )
        return self._known[key]

    def float64_deviation(
        self, parts: Mapping[PartyId, Indices], survivors: Sequence[tuple[PartyId, ...]]
    ) -> Float64Deviation:
        """How far the clients of the first sum end from their pooled rows when they add float64 numbers."""
        return self._float64.deviation([parts[party] for party in sorted(survivors[0])])


def _rows_of(dataset: Dataset, rows: Indices) -> ClientRows:
    """The training rows at these places; all of them in their order are not copied."""
    are_all = np.array_equal(rows, np.arange(len(dataset.x_train)))
    return dataset.training if are_all else dataset.training.taken(rows)


def float64_ridge(
    features: NDArray[Any],
    labels: NDArray[Any],
    n_classes: int,
    *,
    ridge: float,
    intercept: bool = False,
    units: tuple[float, ...] | None = None,
    weights: FloatMatrix | None = None,
) -> FloatMatrix:
    """Weights of a ridge on rows as they are, in float64; shape (d, c), with an intercept (d + 1, c).

    The penalty is of columns in units of ``units``, or as they are. Rows may have weights, shape (n,), by whose square
    roots they are multiplied.

    It shares no code with ``analytic``: no fixed point, no digits, numpy instead of LAPACK through scipy. Rows are read
    in blocks, which memory holds. Where normal equations lose too much, it is QR and SVD at six times the cost.
    Directions without any row carry no weight, as there.
    """
    if labels.ndim == 2 and labels.dtype.kind == "i" and (labels == UNKNOWN).any():
        whole = np.ones(len(features)) if weights is None else weights
        columns = []
        for label in range(n_classes):
            known = labels[:, label] != UNKNOWN
            own = labels[known, label : label + 1].astype(np.float64)
            columns.append(
                float64_ridge(features[known], own, 1, ridge=ridge, intercept=intercept, weights=whole[known])
            )
        return np.hstack(columns)
    d = features.shape[1] + intercept
    penalties = np.zeros(d)
    penalties[: features.shape[1]] = ridge * np.square(np.array(units or 1.0))

    def blocks() -> Iterator[tuple[FloatMatrix, FloatMatrix]]:
        for start in range(0, len(features), BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            block = np.empty((len(features[rows]), d + n_classes))
            block[:, : features.shape[1]] = features[rows]
            block[:, features.shape[1] : d] = 1.0
            if labels.ndim == 2:
                block[:, d:] = labels[rows]
            else:
                block[:, d:] = 0.0
                block[np.arange(len(block)), d + labels[rows].astype(np.intp)] = 1.0
            if weights is not None:
                block *= np.sqrt(weights[rows])[:, None]
            yield block[:, :d], block[:, d:]

    with one_blas_thread():
        found = _seminormal(blocks, penalties, n_classes)
        return _by_qr(blocks, penalties, len(features), n_classes) if found is None else found


Blocks = Callable[[], Iterable[tuple[FloatMatrix, FloatMatrix]]]
"""Rows and targets, some at a time, as often as they are asked for."""


def _seminormal(blocks: Blocks, penalties: FloatMatrix, n_targets: int) -> FloatMatrix | None:
    """Solve the normal equations and correct the solution by the rows' own residuals; None if ill-conditioned.

    Each correction leaves of an error the rounding of the Gram times its condition number, 1e-6 here at most, so that
    two leave what QR leaves (Bjoerck, Stability analysis of the method of seminormal equations, 1987). Where the first
    one shows that part to be below ``SMALL_CORRECTION``, a second one would be below the last bit.
    """
    gram, cross = np.diag(penalties), np.zeros((len(penalties), n_targets))
    for rows, targets in blocks():
        gram += rows.T @ rows
        cross += rows.T @ targets
    scale = gram.diagonal() ** -0.5 if (gram.diagonal() > 0).all() else np.zeros(len(gram))
    scaled = scale[:, None] * gram * scale
    values = np.linalg.eigvalsh(scaled) if np.isfinite(scaled).all() else np.zeros(1)
    if not values[0] > WELL_CONDITIONED * values[-1]:
        return None
    found: FloatMatrix = scale[:, None] * np.linalg.solve(scaled, scale[:, None] * cross)
    for _ in range(2):
        gradient = -penalties[:, None] * found
        for rows, targets in blocks():
            gradient += rows.T @ (targets - rows @ found)
        correction = np.linalg.solve(scaled, scale[:, None] * gradient)
        found += scale[:, None] * correction
        if np.linalg.norm(correction) <= SMALL_CORRECTION * np.linalg.norm(found / scale[:, None]):
            break
    return found


def _by_qr(blocks: Blocks, penalties: FloatMatrix, n_rows: int, n_targets: int) -> FloatMatrix:
    """Solve by QR of the rows and of sqrt(penalty) I below them, and by SVD of the triangle."""
    d = len(penalties)
    triangle = np.hstack([np.diag(np.sqrt(penalties)), np.zeros((d, n_targets))])
    for block in blocks():
        triangle = np.asarray(np.linalg.qr(np.concatenate([triangle, np.hstack(block)]), mode="r"))
    cutoff = np.finfo(np.float64).eps * max(n_rows + d, d + n_targets)
    found: FloatMatrix = np.linalg.lstsq(triangle[:, :d], triangle[:, d:], rcond=cutoff)[0]
    return found


def largest_deviation(weights: bytes, reference: bytes) -> float | None:
    """Largest absolute difference of two models' float64 weights; None when no number says it (another shape, NaN)."""
    if weights == reference:
        return 0.0
    if len(weights) != len(reference) or len(weights) % 8:
        return None
    largest = float(np.abs(np.frombuffer(weights) - np.frombuffer(reference)).max())
    return largest if np.isfinite(largest) else None


def _groups(
    parts: Mapping[PartyId, Indices], survivors: Sequence[tuple[PartyId, ...]]
) -> dict[frozenset[int], Indices]:
    """Rows that took part in the same sums, pooled and ascending, by those sums; others took part in none."""
    by_sums: dict[frozenset[int], list[Indices]] = {}
    for party, rows in parts.items():
        sums = frozenset(number for number, took_part in enumerate(survivors) if party in took_part)
        by_sums.setdefault(sums, []).append(rows)
    by_sums.pop(frozenset(), None)
    return {sums: np.sort(np.concatenate(rows)) for sums, rows in by_sums.items()}


def _digest(groups: Mapping[frozenset[int], Indices]) -> bytes:
    digest = hashlib.sha256()
    for sums in sorted(groups, key=sorted):
        digest.update(repr((sorted(sums), len(groups[sums]))).encode() + groups[sums].tobytes())
    return digest.digest()


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
    clients: Sequence[tuple[NDArray[np.floating], NDArray[Any]]],
    *,
    n_classes: int,
    ridge: float,
    intercept: bool = False,
) -> Float64Deviation:
    """How far two float64 federations end from the float64 model of the same rows, with one solver for all three.

    Args:
        clients: features of shape (n_k, d) and labels of shape (n_k,) or real targets of shape (n_k, c), in the order
            in which they are added.
        n_classes: labels are 0 to n_classes - 1.
        ridge: penalty of the solve.
        intercept: whether there is a column of ones, without a penalty.
    """
    rows = [
        (
            with_ones(np.asarray(features, dtype=np.float64), intercept=intercept),
            np.maximum(labels, 0)
            if labels.dtype.kind == "i" and labels.ndim == 2
            else labels
            if labels.ndim == 2
            else one_hot(labels, n_classes),
        )
        for features, labels in clients
    ]
    penalties = np.full(rows[0][0].shape[1], ridge)
    penalties[len(penalties) - intercept :] = 0.0
    with one_blas_thread():
        every, all_targets = (np.concatenate(parts) for parts in zip(*rows, strict=True))
        pooled = _solve_float64(every.T @ every, every.T @ all_targets, penalties)
        gram, cross = np.zeros((pooled.shape[0],) * 2), np.zeros(pooled.shape)
        shifted, weighted = gram.copy(), cross.copy()
        gamma = AFL_GAMMA * np.eye(len(gram))
        for features, targets in rows:
            own_gram, own_cross = features.T @ features, features.T @ targets
            gram += own_gram
            cross += own_cross
            own_shifted = own_gram + gamma
            shifted += own_shifted
            weighted += own_shifted @ np.linalg.solve(own_shifted, own_cross)
        added = _solve_float64(gram, cross, penalties)
        aggregated = _solve_float64(shifted - len(rows) * gamma, weighted, penalties)
    return Float64Deviation(
        gram_sum=float(np.abs(added - pooled).max()), solved_weights=float(np.abs(aggregated - pooled).max())
    )


def _solve_float64(gram: FloatMatrix, cross: FloatMatrix, penalties: FloatMatrix) -> FloatMatrix:
    """Weights by SVD; directions without any row carry none, as in ``float64_ridge``."""
    cutoff = np.finfo(np.float64).eps * len(gram)
    return np.asarray(np.linalg.lstsq(gram + np.diag(penalties), cross, rcond=cutoff)[0], dtype=np.float64)
