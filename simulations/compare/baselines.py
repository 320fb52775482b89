"""Gradient baselines, for comparison only: FedAvg and FedProx train a linear head on the same frozen features.

They are no closed forms: their weights depend on who holds which rows, on the seed and on how long they train, and no
bitwise law holds for them. Sums are made in the clear, since only the accuracy is of interest here.

The defaults are the only complete settings in the papers at hand (FedHiP, section V-A): SGD with batches of 32 and
a learning rate of 0.005, 3 local epochs, 200 rounds. AFL's are in a supplement that we do not have. All clients take
part in every round, and mu is ours. The head has a bias and starts at zero; the loss is convex, so a random start would
only add noise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic.row_format import FloatMatrix
from analytic.solve.certified import one_blas_thread
from analytic.statistics import one_hot
from analytic_secagg.console.arguments import Option, Reader
from analytic_secagg.errors import FederationError, UsageError
from simulations.compare.deal import Deal
from simulations.compare.reference import accuracy, with_ones
from simulations.compare.run import Run

FEDPROX_MU = 0.01
"""FedProx's default mu. It is ours: the papers at hand compare with FedProx without saying theirs."""

PARAMETER_BYTES = 4
"""A parameter travels as float32, as deep-learning frameworks send it; we compute in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSettings:
    """Settings of clients' training between two averages.

    Args:
        rounds: averages of all clients' heads.
        local_epochs: passes over a client's own rows in a round.
        batch_size: rows in one step.
        learning_rate: step length of SGD, without momentum or decay.
        mu: FedProx's pull toward the round's common head.
        seed: draws the order of rows in every epoch.

    Raises:
        UsageError: a number out of range.
    """

    rounds: int = 200
    local_epochs: int = 3
    batch_size: int = 32
    learning_rate: float = 0.005
    mu: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.rounds, self.local_epochs, self.batch_size) < 1 or self.seed < 0:
            raise UsageError(
                "a gradient baseline needs rounds, local epochs and a batch size of at least 1 and a seed of at least "
                f"0, not {self.rounds}, {self.local_epochs}, {self.batch_size} and {self.seed}"
            )
        if not (np.isfinite(self.learning_rate) and self.learning_rate > 0 and np.isfinite(self.mu) and self.mu >= 0):
            raise UsageError(
                f"a gradient baseline needs a learning rate > 0 and mu >= 0, not {self.learning_rate} and {self.mu}"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """Result of a training.

    Args:
        weights: the last head, shape (c, d + 1), the bias last; read-only.
        accuracies: test accuracy after each round.
        seconds: wall-clock time of training and testing.
        client_seconds: the part of it that one client trained, in the mean.
    """

    weights: FloatMatrix
    accuracies: tuple[float, ...]
    seconds: float
    client_seconds: float


def train(
    name: str,
    clients: Sequence[ClientRows],
    x_test: NDArray[Any],
    y_test: NDArray[Any],
    *,
    settings: GradientSettings,
    tick: Callable[[], None] = lambda: None,
) -> Trained:
    """Federated averaging (McMahan et al., AISTATS 2017) of linear heads under softmax cross-entropy, or FedProx.

    Each round every client trains the common head on its own rows by SGD; the next common head is the average of
    theirs, weighted by numbers of rows. Clients without rows are left out. The same inputs give the same bits.

    FedProx (Li et al., MLSys 2020) adds mu/2 |W - W_common|^2 to each client's loss; with mu 0 it is FedAvg to the bit.

    Args:
        name: ``fedavg`` or ``fedprox``.
        clients: features of shape (n_k, d) and integer labels of shape (n_k,).
        x_test: shape (m, d).
        y_test: integer labels, shape (m,).
        settings: how clients train.
        tick: called after each round.

    Raises:
        UsageError: no rows, or FedAvg with ``mu`` other than 0.
        FederationError: training diverged.
    """
    if name == "fedavg" and settings.mu:
        raise UsageError(f"FedAvg has no mu, not even {settings.mu}; FedProx has")
    started = time.perf_counter()
    holders = [client for client in clients if len(client)]
    if not holders or not len(x_test):
        raise UsageError("a gradient baseline needs a client with rows, and test rows")
    n_classes = 1 + int(max(labels.max() for labels in (y_test, *(client.targets for client in holders))))
    parts = [(with_ones(client.features, intercept=True), one_hot(client.targets, n_classes)) for client in holders]
    shares = np.array([len(client) for client in holders]) / sum(map(len, holders))
    test, weights, accuracies = with_ones(x_test, intercept=True), np.zeros((n_classes, x_test.shape[1] + 1)), []
    in_rounds = 0.0
    for number in range(settings.rounds):
        # The lock on BLAS threads is taken anew each round, so that nobody waits for it through all of them.
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            round_started = time.perf_counter()
            weights = _round(weights, parts, shares, settings, number)
            in_rounds += time.perf_counter() - round_started
            accuracies.append(accuracy(test @ weights.T, y_test))
        if not np.isfinite(weights).all():
            raise FederationError(
                f"{name} diverged in round {number + 1} with a learning rate of {settings.learning_rate:g}; use a "
                "smaller one, or scale the features"
            )
        tick()
    weights.setflags(write=False)
    return Trained(
        weights=weights,
        accuracies=tuple(accuracies),
        seconds=time.perf_counter() - started,
        client_seconds=in_rounds / len(holders),
    )


def _round(
    common: FloatMatrix,
    parts: list[tuple[FloatMatrix, FloatMatrix]],
    shares: NDArray[np.float64],
    settings: GradientSettings,
    number: int,
) -> FloatMatrix:
    """The average of all clients' heads after they trained from the common one."""
    average = np.zeros_like(common)
    for client, ((features, targets), share) in enumerate(zip(parts, shares, strict=True)):
        rng = np.random.default_rng([settings.seed, number, client])
        average += share * _local_training(common, features, targets, settings, rng)
    return average


def _local_training(
    common: FloatMatrix,
    features: FloatMatrix,
    targets: FloatMatrix,
    settings: GradientSettings,
    rng: np.random.Generator,
) -> FloatMatrix:
    """One client's head after its epochs of SGD."""
    weights = common.copy()
    n = len(features)
    for _ in range(settings.local_epochs):
        order = rng.permutation(n)
        shuffled, goals = features[order], targets[order]
        for start in range(0, n, settings.batch_size):
            batch = shuffled[start : start + settings.batch_size]
            errors = softmax(batch @ weights.T)
            errors -= goals[start : start + settings.batch_size]
            gradient = errors.T @ batch
            gradient *= settings.learning_rate / len(batch)
            if settings.mu:
                gradient += settings.learning_rate * settings.mu * (weights - common)
            weights -= gradient
    return weights


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    """Row-wise softmax, in place."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


# As a comparison runs them: on the same rows as the closed forms, and marked as what they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Averaging:
    """FedAvg or FedProx as the command line names it.

    Args:
        name: its name in ``--learner``, ``--baselines`` and in reports.
        options: its own parameters, each with what reads it from text.
        defaults: those that differ from the defaults of ``GradientSettings``.
    """

    name: str
    options: Mapping[str, Reader]
    defaults: Mapping[str, Option] = field(default_factory=dict)
    grid: ClassVar[Mapping[str, tuple[Option, ...]]] = {}
    is_private: ClassVar[bool] = False

    def complete(self, options: Mapping[str, Option]) -> dict[str, Option]:
        """Return every option with its value.

        Raises:
            UsageError: a number out of range.
        """
        settings = GradientSettings(**{**self.defaults, **options})
        return {name: getattr(settings, name) for name in self.options}

    def results(self, run: Run, deal: Deal, n_classes: int, tick: Callable[[], None]) -> dict[str, Any]:
        """Train on the rows of the clients that stay, and test on the common test rows.

        Returns:
            The results of a record, by field.

        Raises:
            UsageError, FederationError: as ``train`` says.
        """
        settings = GradientSettings(seed=run.seed, **{**self.defaults, **run.options})
        lost = frozenset(run.dropouts.lost(run.parties))
        clients = [deal.rows(rows) for party, rows in deal.parts.items() if party not in lost]
        trained = train(self.name, clients, deal.data.x_test, deal.data.y_test, settings=settings, tick=tick)
        sent = settings.rounds * trained.weights.size * PARAMETER_BYTES
        return {
            "survivors": len(clients),
            "test_accuracy": trained.accuracies[-1],
            "best_test_accuracy": max(trained.accuracies),
            "messages_per_client": settings.rounds,
            "vector_messages_per_client": settings.rounds,
            "bytes_up_per_client": sent,
            "bytes_down_per_client": sent,
            "client_seconds": trained.client_seconds,
            "wall_seconds": trained.seconds,
        }


_OPTIONS: Mapping[str, Reader] = {"rounds": int, "local_epochs": int, "batch_size": int, "learning_rate": float}

BASELINES: Mapping[str, Averaging] = {
    "fedavg": Averaging(name="fedavg", options=_OPTIONS),
    "fedprox": Averaging(name="fedprox", options={**_OPTIONS, "mu": float}, defaults={"mu": FEDPROX_MU}),
}
"""Every baseline without a budget by name."""
