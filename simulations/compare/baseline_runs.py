"""Gradient baselines as a comparison runs them: on the same rows as the closed forms, and marked as what they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from analytic.learner import ClientRows
from federation.console.options import Option, Reader
from federation.datasets import Dataset
from simulations.compare.baselines import FEDPROX_MU, GradientSettings, train
from simulations.compare.records import BaselineRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineEntry:
    """A baseline as the command line names it.

    Args:
        name: the name in ``--baselines`` and in reports.
        options: its own parameters, each with what reads it from text.
        defaults: values of options that differ from those of ``GradientSettings``.
    """

    name: str
    options: Mapping[str, Reader]
    defaults: Mapping[str, Option] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBaseline:
    """A baseline with the options that were asked for."""

    entry: BaselineEntry
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The baseline's name."""
        return self.entry.name

    def settings(self, seed: int) -> GradientSettings:
        """How it trains.

        Raises:
            UsageError: a number out of range.
        """
        return GradientSettings(**{"seed": seed, **self.entry.defaults, **self.options})

    def run(
        self,
        dataset: Dataset,
        clients: Sequence[ClientRows],
        *,
        n_clients: int,
        partition: str,
        seed: int,
        tick: Callable[[], None],
    ) -> BaselineRecord:
        """Train on the rows of the clients that stay, and test on the common test rows.

        Raises:
            UsageError, FederationError: as ``simulations.compare.baselines`` says.
        """
        settings = self.settings(seed)
        result = train(self.name, clients, dataset.x_test, dataset.y_test, settings=settings, tick=tick)
        return BaselineRecord(
            learner=self.name,
            clients=n_clients,
            partition=partition,
            survivors=len(clients),
            rounds=result.rounds,
            local_epochs=settings.local_epochs,
            batch_size=settings.batch_size or 0,
            learning_rate=settings.learning_rate,
            mu=settings.mu,
            test_accuracy=result.test_accuracy,
            best_test_accuracy=result.best_test_accuracy,
            bytes_up_per_client=result.bytes_up_per_client,
            bytes_down_per_client=result.bytes_down_per_client,
            wall_seconds=result.seconds,
        )


_OPTIONS: Mapping[str, Reader] = {"rounds": int, "local_epochs": int, "batch_size": int, "learning_rate": float}

ENTRIES: Mapping[str, BaselineEntry] = {
    entry.name: entry
    for entry in (
        BaselineEntry(name="fedavg", options=_OPTIONS),
        BaselineEntry(name="fedprox", options={**_OPTIONS, "mu": float}, defaults={"mu": FEDPROX_MU}),
    )
}
"""Every baseline by name."""
