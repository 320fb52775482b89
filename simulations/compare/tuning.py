"""Settings chosen on held-out training rows, in the same way for private learners and for what they are compared with.

What tuning tells of the held-out rows stands on nobody's bill, as is usual in experiments; a deployment has no such
rows.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from analytic_secagg.console.arguments import Configurable, Option, parse_options
from analytic_secagg.errors import UsageError
from simulations.compare.run import Run
from simulations.report.document import Count, Record

Grid = Mapping[str, tuple[Option, ...]]
"""The values of each setting that are tried, with those of every other."""


class Tuned(Record, title="tuned"):
    """Settings that held-out training rows chose for one budget."""

    chosen: Mapping[str, Any]
    """The settings with the best mean accuracy there; the first of several."""
    grid: Mapping[str, tuple[Any, ...]]
    """The values of each setting that were tried, in all combinations."""
    tried: Count
    """How many combinations of settings were tried."""
    repetitions: Count
    """Of how many repetitions' training rows the last fifth was held out."""
    at_edge: tuple[str, ...]
    """Settings of three numbers or more of which the smallest or largest was chosen: a wider grid may find a better
    one."""
    of_two: tuple[str, ...]
    """Settings with two numbers to choose from, which have no inside: whether a wider grid finds a better one is not
    known."""


def read_grids(
    texts: Iterable[str], takers: Sequence[Configurable], stated: Mapping[str, Collection[str]]
) -> dict[str, dict[str, tuple[Option, ...]]]:
    """For each taker the different values of its settings that are tried.

    Args:
        texts: ``NAME=VALUE,...`` or ``WHOSE.NAME=VALUE,...``; of one setting all of them count.
        takers: whose settings there are.
        stated: by taker the settings that have a value already.

    Raises:
        UsageError: an option that no taker has, a value that it cannot have, or a setting that is stated too.
    """
    grids: dict[str, dict[str, tuple[Option, ...]]] = {taker.name: {} for taker in takers}
    for text in texts:
        place, _, values = text.partition("=")
        for value in values.split(","):
            for name, own in parse_options([f"{place}={value}"], takers, "--tune").items():
                for option, one in own.items():
                    if option in stated.get(name, ()):
                        raise UsageError(f"{option} of {name} is both stated and tuned: leave one of the two out")
                    grids[name][option] = tuple(dict.fromkeys((*grids[name].get(option, ()), one)))
    return grids


def candidates(grid: Grid) -> Iterator[dict[str, Option]]:
    """Every combination of a grid's values; one of no settings where there is none."""
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Runs of one kind under one budget, whose settings may be chosen on held-out training rows first.

    Args:
        runs: in the order of their records; the first one says what is tried.
        grid: settings that are tried; without any the runs are as they are.
        seeds: of the repetitions whose training rows judge them.
    """

    runs: tuple[Run, ...]
    grid: Grid = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.runs:
            raise UsageError("a comparison needs at least one run")
        if empty := [name for name, values in self.grid.items() if not values]:
            raise UsageError(f"a grid needs a value for each of {', '.join(empty)}")

    @property
    def trials(self) -> tuple[dict[str, Option], ...]:
        """Every combination of settings, where there is a choice."""
        every = tuple(candidates(self.grid))
        return every if len(every) > 1 else ()

    @property
    def trial_runs(self) -> tuple[Run, ...]:
        """What is trained to choose settings: each trial with each seed, the last fastest."""
        first = self.runs[0]
        return tuple(first.with_settings(one).held_out(seed) for one in self.trials for seed in self.seeds)

    @property
    def n_runs(self) -> int:
        """Number of models that are trained."""
        return len(self.runs) + len(self.trials) * len(self.seeds)

    def tuned(self, accuracies: Iterable[float]) -> tuple[tuple[Run, ...], Tuned | None]:
        """Return the runs with the settings of the best mean accuracy, and how they were chosen.

        Args:
            accuracies: of ``trial_runs`` on their held-out rows, in that order.
        """
        if not self.grid:
            return self.runs, None
        following = iter(accuracies)
        found = [statistics.fmean(itertools.islice(following, len(self.seeds))) for _ in self.trials]
        chosen = self.trials[int(np.argmax(found))] if found else next(candidates(self.grid))
        numbers = {name: {one for one in own if isinstance(one, (int, float))} for name, own in self.grid.items()}
        tuned = Tuned(
            chosen=chosen,
            grid=self.grid,
            tried=max(1, len(found)),
            repetitions=len(self.seeds),
            at_edge=tuple(n for n, own in numbers.items() if len(own) > 2 and chosen[n] in (min(own), max(own))),
            of_two=tuple(name for name, own in numbers.items() if len(own) == 2),
        )
        return tuple(run.with_settings(chosen) for run in self.runs), tuned


def tuning_sentences(label: str, tuned: Iterable[tuple[float, Tuned | None]]) -> Iterator[str]:
    """Yield the choice of each budget, the rows it was made on, and where its grid may have been too narrow."""
    for epsilon, one in tuned:
        if one is None or one.tried == 1:
            continue
        shown = ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in one.chosen.items()
        )
        yield (
            f"{label} at epsilon {epsilon:g}: {shown}, the best of {one.tried} combinations on the held-out fifth of "
            f"the training rows of {one.repetitions} repetition{'s' if one.repetitions > 1 else ''}, which shares rows "
            "with the test rows of others."
        )
        if one.at_edge:
            yield (
                f"WARNING: {label} at epsilon {epsilon:g}: {', '.join(one.at_edge)} lies at the edge of what was "
                "tried, so it may do better with a wider grid."
            )
        if one.of_two:
            yield f"{label} at epsilon {epsilon:g}: of {', '.join(one.of_two)} two values were tried, and none between."
