"""DP-SGD of a linear softmax head by Opacus, for comparison only: what a private run has to beat.

The rows are brought to norm 1 as private learners bring theirs; the promise is for one record, added or removed, by
whoever trusts the server with every step's exact sum of clipped gradients (noise from the clients would cost no more
here). Abadi et al., CCS 2016; Poisson sampling is ours, the PRV accountant, the tightest that
it has, and noise are Opacus', whose sampler is of floats.

Per-sample norms are Opacus' "ghost clipping", which makes no gradient of a sample: the same steps in a seventh of the
time. Its settings are tuned on held-out training rows, as ``tuning`` says.
"""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from analytic.row_map import normalised
from analytic_secagg.console.arguments import Option, Reader
from analytic_secagg.errors import UsageError
from secagg.dp.errors import MissingExtraError
from simulations.compare.baselines import BASELINES, PARAMETER_BYTES, Averaging
from simulations.compare.deal import Deal
from simulations.compare.reference import accuracy
from simulations.compare.run import Run
from simulations.compare.tuning import Grid

MOMENTUM = 0.9
"""Of every step."""

RATES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""The learning rates that are tried where nothing is said."""

NEEDS_BUDGET = "dpsgd is trained for privacy budgets: add --epsilon, or leave it out of --baselines"

Rows = tuple[NDArray[Any], NDArray[Any]]
"""Features and labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Settings of a head's training.

    Args:
        epochs: passes over all rows, in expectation.
        batch_size: expected rows in a step.
        learning_rate: of SGD with momentum.
        clip: largest norm of a row's gradient; a row of norm 1, with its bias, has one of at most 2.

    Raises:
        UsageError: a number out of range.
    """

    epochs: int = 10
    batch_size: int = 4096
    learning_rate: float = 8.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size // 16) < 1 or not min(self.learning_rate, self.clip) > 0:
            raise UsageError(
                "DP-SGD needs an epoch, a batch size of at least 16, which is hardly ever empty, and a learning "
                f"rate and a clip above 0, not {self.epochs}, {self.batch_size}, {self.learning_rate} and {self.clip}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DPSGD:
    """The baseline as the command line names it."""

    name: ClassVar[str] = "dpsgd"
    options: ClassVar[Mapping[str, Reader]] = {
        "epochs": int,
        "batch_size": int,
        "learning_rate": float,
        "clip": float,
    }
    grid: ClassVar[Grid] = {"learning_rate": RATES}
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
            MissingExtraError: Opacus is not installed.
        """
        if run.target_epsilon is None or run.delta is None:
            raise UsageError(NEEDS_BUDGET)
        started, data, steps = time.perf_counter(), deal.data, Steps(**run.options)
        train, test = (data.x_train, data.y_train), (data.x_test, data.y_test)
        reached, spent, multiplier, n_steps = _train(
            train, test, steps, n_classes, run.target_epsilon, run.delta, run.seed
        )
        tick()
        seconds = time.perf_counter() - started
        return {
            "test_accuracy": reached,
            "epsilon": spent,
            "noise_multiplier": multiplier,
            "messages_per_client": n_steps,
            "vector_messages_per_client": n_steps,
            "bytes_up_per_client": n_steps * (data.n_features + 1) * n_classes * PARAMETER_BYTES,
            "client_seconds": seconds / run.clients,
            "wall_seconds": seconds,
        }


METHODS: Mapping[str, Averaging | DPSGD] = {**BASELINES, "dpsgd": DPSGD()}
"""Every gradient method by name."""


def _train(
    train: Rows, test: Rows, own: Steps, n_classes: int, epsilon: float, delta: float, seed: int
) -> tuple[float, float, float, int]:
    """(accuracy, epsilon, noise multiplier, steps) of one head."""
    torch, clipping = _load("torch"), _load("opacus.utils.fast_gradient_clipping_utils")
    modules = _load("opacus.grad_sample.grad_sample_module_fast_gradient_clipping")
    optimizers = _load("opacus.optimizers.optimizer_fast_gradient_clipping")
    rng, n = np.random.default_rng([seed, *b"dpsgd"]), len(train[0])
    rate = min(1.0, own.batch_size / n)
    steps = max(1, round(own.epochs / rate))
    multiplier, spent = _calibrated(epsilon, delta, rate, steps)
    head = torch.nn.Linear(train[0].shape[1], n_classes)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    private = modules.GradSampleModuleFastGradientClipping(head, max_grad_norm=own.clip, use_ghost_clipping=True)
    optimizer = optimizers.DPOptimizerFastGradientClipping(
        torch.optim.SGD(private.parameters(), lr=own.learning_rate, momentum=MOMENTUM),
        noise_multiplier=multiplier,
        max_grad_norm=own.clip,
        expected_batch_size=rate * n,
        generator=torch.Generator().manual_seed(seed),
    )
    loss = clipping.DPLossFastGradientClipping(private, optimizer, torch.nn.CrossEntropyLoss())
    rows = torch.from_numpy(_unit(train[0]))
    labels = torch.from_numpy(train[1].astype(np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows ask for no gradient, which PyTorch remarks upon
        for _ in range(steps):
            chosen = np.flatnonzero(rng.random(n) < rate)
            optimizer.zero_grad()
            loss(private(rows[chosen]), labels[chosen]).backward()
            optimizer.step()
    with torch.no_grad():
        scores = head(torch.from_numpy(_unit(test[0]))).numpy().astype(np.float64)
    return accuracy(scores, test[1]), spent, multiplier, steps


@lru_cache(maxsize=256)
def _calibrated(epsilon: float, delta: float, rate: float, steps: int) -> tuple[float, float]:
    """The noise multiplier of so many steps, and the epsilon that they cost with it."""
    accountants, utils = _load("opacus.accountants"), _load("opacus.accountants.utils")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the accountant thinks of its own grid
        multiplier = float(
            utils.get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=rate,
                steps=steps,
                accountant="prv",
                epsilon_tolerance=epsilon / 200,
            )
        )
        accountant = accountants.PRVAccountant()
        accountant.history = [(multiplier, rate, steps)]
        return multiplier, float(accountant.get_epsilon(delta))


def _unit(features: NDArray[Any]) -> NDArray[np.float32]:
    return normalised(features.astype(np.float64)).astype(np.float32)


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            "DP-SGD is Opacus': install analytic-secagg[dp] for it, or leave dpsgd out of --baselines"
        ) from error
