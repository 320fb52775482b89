"""DP-SGD of a linear softmax head by Opacus, for comparison only: what a private run has to beat.

The rows are brought to norm 1 as private learners bring theirs; the promise is for one record, added or removed, by
whoever trusts the server with every step's exact sum of clipped gradients (noise from the clients would cost no more
here). Abadi et al., CCS 2016; Poisson sampling and the RDP accountant are Opacus', whose sampler is of floats.

The learning rate is tuned on held-out training rows, the last fifth, and that tuning is not on the bill, as is usual.
"""

from __future__ import annotations

import importlib
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.row_map import normalised
from federation.console.arguments import Option, Reader, numbers
from federation.datasets import Dataset
from federation.errors import UsageError
from secagg.dp import MissingExtraError
from simulations.compare.baselines import PARAMETER_BYTES
from simulations.compare.reference import accuracy
from simulations.report.document import Count, Natural, NotNegative, Part, Positive, Record

MOMENTUM, CLIP = 0.9, 1.0
"""Of every step; a row of norm 1 has a gradient of at most sqrt 2."""


class PrivateBaseline(Record, title="private baseline"):
    """DP-SGD at one budget; no closed form, and no bitwise law."""

    learner: str
    """The method: dpsgd."""
    target_epsilon: Positive
    """The budget that was asked for."""
    epsilon: Positive
    """What Opacus' RDP accountant says of the steps that were made."""
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
        learning_rates: the grid; one is not tuned.

    Raises:
        UsageError: a number out of range.
    """

    epochs: int = 10
    batch_size: int = 4096
    learning_rates: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    name: str = "dpsgd"
    options: Mapping[str, Reader] = field(
        default_factory=lambda: {"epochs": int, "batch_size": int, "learning_rates": numbers}, compare=False
    )

    def __post_init__(self) -> None:
        if min(self.epochs, self.batch_size // 16) < 1 or not self.learning_rates or min(self.learning_rates) <= 0:
            raise UsageError(
                "DP-SGD needs an epoch, a batch size of at least 16, which is hardly ever empty, and learning rates "
                f"above 0, not {self.epochs}, {self.batch_size} and {self.learning_rates}"
            )

    def with_values(self, values: Mapping[str, Option]) -> Self:
        """The same with options that were asked for."""
        return replace(self, **values)

    def n_trainings(self, n_seeds: int) -> int:
        """How many heads are trained for one budget."""
        return n_seeds + (len(self.learning_rates) if len(self.learning_rates) > 1 else 0)

    def run(
        self,
        dataset: Dataset,
        splits: Callable[[int], tuple[tuple[NDArray[Any], NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]],
        *,
        epsilon: float,
        delta: float,
        seeds: range,
        tick: Callable[[], None] = lambda: None,
    ) -> PrivateBaseline:
        """Tune on the first repetition's training rows, then train on all of each repetition's.

        Args:
            dataset: whose sizes count.
            splits: training and test rows of a seed.
            epsilon, delta: the budget.
            seeds: of the repetitions.
            tick: called before each training.

        Raises:
            MissingExtraError: Opacus is not installed.
        """
        (x, y), _ = splits(seeds[0])
        cut = len(x) * 4 // 5
        found = {}
        for rate in self.learning_rates:
            if len(self.learning_rates) > 1:
                tick()
                held_out = (x[:cut], y[:cut]), (x[cut:], y[cut:])
                found[rate] = self._train(*held_out, dataset.n_classes, epsilon, delta, rate, seeds[0])[0]
        best = max(found, key=found.__getitem__) if found else self.learning_rates[0]
        outcomes, started = [], time.perf_counter()
        for seed in seeds:
            tick()
            outcomes.append(self._train(*splits(seed), dataset.n_classes, epsilon, delta, best, seed))
        accuracies = tuple(one[0] for one in outcomes)
        _, spent, multiplier, steps = outcomes[-1]
        return PrivateBaseline(
            learner=self.name,
            target_epsilon=epsilon,
            epsilon=spent,
            noise_multiplier=multiplier,
            rounds=steps,
            batch_size=min(self.batch_size, len(x)),
            learning_rate=best,
            learning_rates=self.learning_rates,
            accuracy_mean=statistics.fmean(accuracies),
            accuracy_spread=statistics.pstdev(accuracies),
            accuracies=accuracies,
            bytes_up_per_client=steps * (dataset.n_features + 1) * dataset.n_classes * PARAMETER_BYTES,
            train_seconds=(time.perf_counter() - started) / len(seeds),
        )

    def _train(
        self,
        train: tuple[NDArray[Any], NDArray[Any]],
        test: tuple[NDArray[Any], NDArray[Any]],
        n_classes: int,
        epsilon: float,
        delta: float,
        learning_rate: float,
        seed: int,
    ) -> tuple[float, float, float, int]:
        """(accuracy, epsilon, noise multiplier, steps) of one head."""
        torch, opacus = _load("torch"), _load("opacus")
        rng, n = np.random.default_rng([seed, *b"dpsgd"]), len(train[0])
        rate = min(1.0, self.batch_size / n)
        steps = max(1, round(self.epochs / rate))
        accountant = _load("opacus.accountants").RDPAccountant()
        multiplier = float(
            _load("opacus.accountants.utils").get_noise_multiplier(
                target_epsilon=epsilon, target_delta=delta, sample_rate=rate, steps=steps, accountant="rdp"
            )
        )
        accountant.history = [(multiplier, rate, steps)]
        head = torch.nn.Linear(train[0].shape[1], n_classes)
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        private = opacus.GradSampleModule(head)
        optimizer = _load("opacus.optimizers").DPOptimizer(
            torch.optim.SGD(private.parameters(), lr=learning_rate, momentum=MOMENTUM),
            noise_multiplier=multiplier,
            max_grad_norm=CLIP,
            expected_batch_size=rate * n,
            generator=torch.Generator().manual_seed(seed),
        )
        rows = torch.from_numpy(_unit(train[0]))
        labels = torch.from_numpy(train[1].astype(np.int64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows ask for no gradient, which PyTorch remarks upon
            for _ in range(steps):
                chosen = np.flatnonzero(rng.random(n) < rate)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(private(rows[chosen]), labels[chosen]).backward()
                optimizer.step()
        with torch.no_grad():
            scores = head(torch.from_numpy(_unit(test[0]))).numpy().astype(np.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an order at the end of Opacus' list
            spent = float(accountant.get_epsilon(delta))
        return accuracy(scores, test[1]), spent, multiplier, steps


def _unit(features: NDArray[Any]) -> NDArray[np.float32]:
    return normalised(features.astype(np.float64)).astype(np.float32)


def _load(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            "DP-SGD is Opacus': install analytic-secagg[dp] for it, or leave dpsgd out of --baselines"
        ) from error
