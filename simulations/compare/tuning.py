"""Settings chosen on held-out training rows, in the same way for private learners and for what they are compared with.

What tuning tells of the held-out rows stands on nobody's bill, as is usual in experiments; a deployment has no such
rows.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.console.arguments import Configurable, Option, parse_options
from analytic_secagg.errors import UsageError
from simulations.report.document import Count, Record

Grid = Mapping[str, tuple[Option, ...]]
"""The values of each setting that are tried, with those of every other."""

Rows = tuple[NDArray[Any], NDArray[Any]]


class Tuned(Record, title="tuned"):
    """What held-out training rows chose for one budget."""

    chosen: Mapping[str, Any]
    """The settings with the best mean accuracy there; the first of several."""
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


def n_trials(grid: Grid, n_repetitions: int) -> int:
    """How many models tuning trains for one budget: none where there is nothing to choose from."""
    tried = sum(1 for _ in candidates(grid))
    return tried * n_repetitions if tried > 1 else 0


def tune(grid: Grid, score: Callable[[Mapping[str, Option], int], float], *, repetitions: range) -> Tuned:
    """The best combination of a grid.

    Args:
        grid: values by setting.
        score: (settings, seed of a repetition) -> accuracy on its held-out rows; not asked where there is no choice.
        repetitions: seeds over which accuracies are averaged.

    Raises:
        UsageError: a grid without a value.
    """
    every = list(candidates(grid))
    if not every:
        raise UsageError(f"a grid needs a value for each of {', '.join(grid)}")
    found = [statistics.fmean(score(one, seed) for seed in repetitions) for one in every] if len(every) > 1 else [0.0]
    chosen = every[int(np.argmax(found))]
    numbers = {name: {one for one in own if isinstance(one, (int, float))} for name, own in grid.items()}
    return Tuned(
        chosen=chosen,
        tried=len(every),
        repetitions=len(repetitions),
        at_edge=tuple(name for name, own in numbers.items() if len(own) > 2 and chosen[name] in (min(own), max(own))),
        of_two=tuple(name for name, own in numbers.items() if len(own) == 2),
    )


def held_out(rows: Rows) -> tuple[Rows, Rows]:
    """Training rows without their last fifth, and that fifth."""
    (x, y), cut = rows, len(rows[0]) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def tuning_sentences(label: str, tuned: Iterable[tuple[float, Tuned | None]]) -> Iterator[str]:
    """What was chosen for each budget, what that choice had seen, and where its grid may have been too narrow."""
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
