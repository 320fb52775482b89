"""DP-SGD of a linear softmax head, for comparison only: what a private run has to beat.

The promise is for one record, added or removed, by whoever trusts the server with every step's exact sum of clipped
gradients (noise from the clients would cost no more here). Abadi et al., CCS 2016. It is given what private learners
have: rows of norm 1, centred by the same release of their mean from the same part of the budget, the average of the
last half of its iterates, and settings tuned on the same held-out rows, as ``tuning`` says.

Full batches are accounted by the exact curve of the composed Gaussian mechanism, as private learners are; Poisson
sampling by Opacus' PRV accountant, the tightest that it has, together with the mean's release.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from analytic.row_map import RowTerms
from analytic_secagg.console.arguments import Option, Reader, yes_or_no
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from secagg.dp.conversions import gdp_epsilon, gdp_rho
from secagg.dp.noise import CoordinateNoise
from secagg.entropy import InsecureSeededEntropy
from simulations.compare.baselines import BASELINES, PARAMETER_BYTES, Averaging, softmax
from simulations.compare.deal import Deal
from simulations.compare.reference import accuracy
from simulations.compare.run import Run
from simulations.compare.second_opinions import accounting
from simulations.compare.tuning import Grid

ALL_ROWS = 0
"""The batch size that takes all rows in every step."""

RATES = (3.0, 10.0, 30.0, 100.0, 300.0)
"""The learning rates that are tried where nothing is said."""

NEEDS_BUDGET = "dpsgd is trained for privacy budgets: add --epsilon, or leave it out of --baselines"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Settings of a head's training.

    Args:
        epochs: passes over all rows, in expectation.
        batch_size: expected rows in a step, each drawn on its own (Poisson sampling); 0 takes all rows in every step.
        learning_rate: of SGD.
        momentum: of SGD.
        clip: largest norm of a row's gradient; a row of norm 1, with its bias, has one of at most 2.
        average: whether the head is the average of the last half of the iterates; costs nothing.

    Raises:
        UsageError: a number out of range.
    """

    epochs: int = 20
    batch_size: int = ALL_ROWS
    learning_rate: float = 30.0
    momentum: float = 0.0
    clip: float = 0.3
    average: bool = True

    def __post_init__(self) -> None:
        hardly_empty = self.batch_size == ALL_ROWS or self.batch_size >= 16
        if self.epochs < 1 or not hardly_empty or not min(self.learning_rate, self.clip) > 0:
            raise UsageError(
                "DP-SGD needs an epoch, a batch size of at least 16, which is hardly ever empty, or 0 for all rows, "
                "and a learning rate and a clip above 0, not "
                f"{self.epochs}, {self.batch_size}, {self.learning_rate} and {self.clip}"
            )
        if not 0 <= self.momentum < 1:
            raise UsageError(f"the momentum of DP-SGD is 0 to below 1, not {self.momentum}")

    def rate(self, n_rows: int) -> float:
        """Return the probability that a row is in a step."""
        return 1.0 if self.batch_size == ALL_ROWS else min(1.0, self.batch_size / n_rows)

    def steps(self, n_rows: int) -> int:
        """Return the number of steps."""
        return max(1, round(self.epochs / self.rate(n_rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DPSGD:
    """The baseline as the command line names it."""

    name: ClassVar[str] = "dpsgd"
    options: ClassVar[Mapping[str, Reader]] = {
        "epochs": int,
        "batch_size": int,
        "learning_rate": float,
        "momentum": float,
        "clip": float,
        "average": yes_or_no,
    }
    grid: ClassVar[Grid] = {"learning_rate": RATES, "batch_size": (ALL_ROWS, 256), "clip": (0.3, 1.0)}
    is_private: ClassVar[bool] = True

    def complete(self, options: Mapping[str, Option]) -> dict[str, Option]:
        """Return every option with its value.

        Raises:
            UsageError: a number out of range.
        """
        return asdict(Steps(**options))

    def results(self, run: Run, deal: Deal, n_classes: int, tick: Callable[[], None]) -> dict[str, Any]:
        """Train on all training rows under the run's budget, and test.

        Returns:
            The results of a record, by field.

        Raises:
            UsageError: a run without a budget.
            MissingExtraError: Opacus is not installed, and batches are drawn.
        """
        if run.target_epsilon is None or run.delta is None:
            raise UsageError(NEEDS_BUDGET)
        started, data, own = time.perf_counter(), deal.data, Steps(**run.options)
        share, n = run.mean_share or 0.0, len(data.x_train)
        rate, n_steps = own.rate(n), own.steps(n)
        rho_mean = share * gdp_rho(run.target_epsilon, run.delta)
        multiplier, spent = calibrated(run.target_epsilon, run.delta, rate, n_steps, rho_mean)
        train, test = placed(data, rho_mean, n_classes, run.seed)
        rng = np.random.default_rng([run.seed, *b"dpsgd"])
        weights = trained(train, data.y_train, own, n_classes, multiplier, rng)
        tick()
        seconds, n_means = time.perf_counter() - started, int(share > 0)
        return {
            "test_accuracy": accuracy((test @ weights).astype(np.float64), data.y_test),
            "epsilon": spent,
            "noise_multiplier": multiplier,
            "messages_per_client": n_steps + n_means,
            "vector_messages_per_client": n_steps + n_means,
            "bytes_up_per_client": (data.n_features + 1) * (n_steps * n_classes + n_means) * PARAMETER_BYTES,
            "client_seconds": seconds / run.clients,
            "wall_seconds": seconds,
        }


METHODS: Mapping[str, Averaging | DPSGD] = {**BASELINES, "dpsgd": DPSGD()}
"""Every gradient method by name."""


def placed(data: Dataset, rho_mean: float, n_classes: int, seed: int) -> tuple[Floats, Floats]:
    """Return training and test rows as private learners place them, with a last column of ones for the bias.

    Args:
        data: the rows.
        rho_mean: zCDP cost of the release of the training rows' mean, by the sum and the noise of ``AFL``'s private
            form; 0 leaves rows where they are.
        n_classes: labels are below it.
        seed: of the simulated noise.
    """
    sizes: dict[str, Any] = {"n_features": data.n_features, "n_targets": n_classes, "max_rows": len(data.x_train)}
    plain = AFL(**sizes, feature_format=RowFormat(integer_bits=1, fraction_bits=16))
    learner = plain.bounded(RowTerms(nonnegative=data.is_nonnegative, centred=rho_mean > 0))
    model = learner.init()
    if learner.mean_spec is not None:
        of_mean = learner.bounded_sums("record", "add-remove")[0]
        scales = of_mean.sensitivity.scales(Fraction(rho_mean), gram_share=0.5)
        noise = CoordinateNoise(levels=of_mean.levels, variances=scales.variances)
        exact = learner.client_statistics(model, ClientRows(data.x_train, data.y_train))
        model = learner.update(model, exact + noise.draw(InsecureSeededEntropy(seed, "mean of dpsgd")), 1)
    return _with_bias(learner, model, data.x_train), _with_bias(learner, model, data.x_test)


def _with_bias(learner: AFL, model: LinearModel, features: NDArray[Any]) -> Floats:
    rows = learner.lattice_rows(model, ClientRows(features, np.zeros(len(features), dtype=np.intp))).values
    return np.hstack([rows, np.ones((len(rows), 1))]).astype(np.float32)


def trained(
    rows: Floats, labels: NDArray[Any], own: Steps, n_classes: int, multiplier: float, rng: np.random.Generator
) -> Floats:
    """Return the head, shape (d + 1, c), after all steps.

    A row's gradient is x (p - y)^T, of norm |x| |p - y|; so clipping scales the row of p - y.

    Args:
        rows: with the column of ones, shape (n, d + 1).
        labels: shape (n,).
        own: the settings.
        n_classes: c, how many classes.
        multiplier: standard deviation of a step's noise over the clip.
        rng: draws batches and the simulated noise.
    """
    n, rate, steps = len(rows), own.rate(len(rows)), own.steps(len(rows))
    targets = np.eye(n_classes, dtype=np.float32)[labels]
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    weights, velocity, total = (np.zeros((rows.shape[1], n_classes), dtype=np.float32) for _ in range(3))
    kept = max(1, steps // 2) if own.average else 1
    for step in range(steps):
        chosen: Any = slice(None) if rate == 1.0 else np.flatnonzero(rng.random(n) < rate)
        residuals = softmax(rows[chosen] @ weights) - targets[chosen]
        norms = lengths[chosen] * np.sqrt(np.square(residuals).sum(axis=1, keepdims=True))
        residuals *= np.minimum(1.0, own.clip / np.maximum(norms, 1e-30))
        noise = rng.standard_normal(weights.shape, dtype=np.float32) * np.float32(multiplier * own.clip)
        velocity = own.momentum * velocity + (rows[chosen].T @ residuals + noise) / np.float32(rate * n)
        weights = weights - np.float32(own.learning_rate) * velocity
        total += weights if step >= steps - kept else 0.0
    found: Floats = (total / np.float32(kept)).astype(np.float32)
    return found


@lru_cache(maxsize=512)
def calibrated(epsilon: float, delta: float, rate: float, steps: int, rho_mean: float) -> tuple[float, float]:
    """Return the least noise multiplier of so many steps beside the mean's release, and the epsilon of all together.

    Args:
        epsilon, delta: the budget of all.
        rate: probability of a row in a step; 1 is accounted exactly, less by Opacus' PRV accountant.
        steps: how many.
        rho_mean: zCDP cost of the mean's release; 0 for none.

    Raises:
        MissingExtraError: Opacus is not installed, and the rate is below 1.
    """
    if rate == 1.0:
        multiplier = math.sqrt(steps / (2.0 * (gdp_rho(epsilon, delta) - rho_mean)))
        return multiplier, gdp_epsilon(math.sqrt(2.0 * rho_mean + steps / multiplier**2), delta)
    of_mean = [(1.0 / math.sqrt(2.0 * rho_mean), 1.0, 1)] if rho_mean else []

    def spent(multiplier: float) -> float:
        accountant = accounting("opacus.accountants").PRVAccountant()
        accountant.history = [*of_mean, (multiplier, rate, steps)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the accountant thinks of its own grid
            return float(accountant.get_epsilon(delta))

    high = math.sqrt(steps / gdp_rho(epsilon, delta))  # enough without sampling, and so with it
    while spent(high / 2.0) <= epsilon:
        high /= 2.0
    low = high / 2.0
    while high - low > high / 500.0:
        middle = (low + high) / 2.0
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high, spent(high)
