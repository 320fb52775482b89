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
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.row_map import normalised
from analytic_secagg.console.arguments import Option, Reader
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from secagg.dp.errors import MissingExtraError
from simulations.compare.baselines import PARAMETER_BYTES
from simulations.compare.reference import accuracy
from simulations.compare.tuning import Grid, Rows, Tuned, candidates, held_out, n_trials, tune
from simulations.report.document import Count, Natural, NotNegative, Part, Positive, Record

MOMENTUM = 0.9
"""Of every step."""

RATES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""The learning rates that are tried where nothing is said."""


class PrivateBaseline(Record, title="private baseline"):
    """DP-SGD at one budget; no closed form, and no bitwise law."""

    learner: str
    """The method: dpsgd."""
    target_epsilon: Positive
    """The budget that was asked for."""
    epsilon: Positive
    """What Opacus' PRV accountant says of the steps that were made."""
    noise_multiplier: Positive
    """Standard deviation of a step's noise over the clipping bound."""
    rounds: Count
    """Steps, each a round of communication."""
    batch_size: Count
    """Expected rows in a step."""
    learning_rate: Positive
    """The one that held-out training rows chose."""
    learning_rates: tuple[Positive, ...]
    """Those that were tried."""
    clip: Positive
    """Largest norm of a row's gradient in a step."""
    tuned: Tuned
    """How these settings were chosen."""
    accuracy_mean: Part
    """Part of the test rows that are classified correctly; mean over repetitions."""
    accuracy_spread: NotNegative
    """Standard deviation over repetitions."""
    accuracies: tuple[Part, ...]
    """The accuracy of each repetition."""
    bytes_up_per_client: Natural
    """Bytes of the gradients that a client sends, as float32, if it has a row in every step."""
    train_seconds: NotNegative
    """Time of one training in one process, all clients' together; mean over repetitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DPSGD:
    """The baseline as the command line names it.

    Args:
        epochs: passes over all rows, in expectation.
        batch_size: expected rows in a step.
        learning_rate: of SGD with momentum.
        clip: largest norm of a row's gradient; a row of norm 1, with its bias, has one of at most 2.
        grid: settings that are tuned, whose values take the place of those above.

    Raises:
        UsageError: a number out of range.
    """

    epochs: int = 10
    batch_size: int = 4096
    learning_rate: float = 8.0
    clip: float = 1.0
    grid: Grid = field(default_factory=lambda: {"learning_rate": RATES}, compare=False)
    name: str = "dpsgd"
    options: Mapping[str, Reader] = field(
        default_factory=lambda: {"epochs": int, "batch_size": int, "learning_rate": float, "clip": float}, compare=False
    )

    def __post_init__(self) -> None:
        for own in candidates(self.grid):
            epochs, batch_size, rate, clip = ({**_settings(self), **own}[name] for name in _settings(self))
            if min(epochs, batch_size // 16) < 1 or not min(rate, clip) > 0:
                raise UsageError(
                    "DP-SGD needs an epoch, a batch size of at least 16, which is hardly ever empty, and a learning "
                    f"rate and a clip above 0, not {epochs}, {batch_size}, {rate} and {clip}"
                )

    def with_values(self, values: Mapping[str, Option], grid: Grid) -> Self:
        """The same with options and grids that were asked for; a stated option is not tuned, others as they were."""
        kept = {name: own for name, own in self.grid.items() if name not in values}
        return replace(self, **values, grid={**kept, **grid})

    def n_trainings(self, n_seeds: int, tune_seeds: int) -> int:
        """How many heads are trained for one budget."""
        return n_seeds + n_trials(self.grid, tune_seeds)

    def run(
        self,
        dataset: Dataset,
        splits: Callable[[int], tuple[Rows, Rows]],
        *,
        epsilon: float,
        delta: float,
        seeds: range,
        tune_seeds: int = 1,
        tick: Callable[[], None] = lambda: None,
    ) -> PrivateBaseline:
        """Tune on the first repetitions' training rows, then train on all of each repetition's.

        Args:
            dataset: whose sizes count.
            splits: training and test rows of a seed.
            epsilon, delta: the budget.
            seeds: of the repetitions.
            tune_seeds: how many of them are tuned on.
            tick: called before each training.

        Raises:
            MissingExtraError: Opacus is not installed.
        """

        def score(own: Mapping[str, Option], seed: int) -> float:
            tick()
            rows = held_out(splits(seed)[0])
            return replace(self, **own, grid={})._train(*rows, dataset.n_classes, epsilon, delta, seed)[0]

        tuned = tune(self.grid, score, repetitions=seeds[:tune_seeds])
        best = replace(self, **tuned.chosen, grid={})
        outcomes, started = [], time.perf_counter()
        for seed in seeds:
            tick()
            train, test = splits(seed)
            outcomes.append(best._train(train, test, dataset.n_classes, epsilon, delta, seed))
        accuracies = tuple(one[0] for one in outcomes)
        _, spent, multiplier, steps = outcomes[-1]
        return PrivateBaseline(
            learner=self.name,
            target_epsilon=epsilon,
            epsilon=spent,
            noise_multiplier=multiplier,
            rounds=steps,
            batch_size=min(best.batch_size, len(train[0])),
            learning_rate=best.learning_rate,
            learning_rates=self.grid.get("learning_rate", (best.learning_rate,)),
            clip=best.clip,
            tuned=tuned,
            accuracy_mean=statistics.fmean(accuracies),
            accuracy_spread=statistics.pstdev(accuracies),
            accuracies=accuracies,
            bytes_up_per_client=steps * (dataset.n_features + 1) * dataset.n_classes * PARAMETER_BYTES,
            train_seconds=(time.perf_counter() - started) / len(seeds),
        )

    def _train(
        self, train: Rows, test: Rows, n_classes: int, epsilon: float, delta: float, seed: int
    ) -> tuple[float, float, float, int]:
        """(accuracy, epsilon, noise multiplier, steps) of one head."""
        torch, clipping = _load("torch"), _load("opacus.utils.fast_gradient_clipping_utils")
        modules = _load("opacus.grad_sample.grad_sample_module_fast_gradient_clipping")
        optimizers = _load("opacus.optimizers.optimizer_fast_gradient_clipping")
        rng, n = np.random.default_rng([seed, *b"dpsgd"]), len(train[0])
        rate = min(1.0, self.batch_size / n)
        steps = max(1, round(self.epochs / rate))
        multiplier, spent = _calibrated(epsilon, delta, rate, steps)
        head = torch.nn.Linear(train[0].shape[1], n_classes)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        private = modules.GradSampleModuleFastGradientClipping(head, max_grad_norm=self.clip, use_ghost_clipping=True)
        optimizer = optimizers.DPOptimizerFastGradientClipping(
            torch.optim.SGD(private.parameters(), lr=self.learning_rate, momentum=MOMENTUM),
            noise_multiplier=multiplier,
            max_grad_norm=self.clip,
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


def _settings(baseline: DPSGD) -> dict[str, Option]:
    return {name: getattr(baseline, name) for name in baseline.options}


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
