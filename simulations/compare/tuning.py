"""Settings chosen on held-out training rows, in the same way for private learners and for what they are compared with.

What tuning tells of the held-out rows stands on nobody's bill, as is usual in experiments; a deployment has no such
rows.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.console.arguments import Configurable, Option, parse_options
from federation.errors import UsageError
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
    """Settings whose smallest or largest value was chosen: a wider grid may find a better one."""


def read_grids(texts: Iterable[str], takers: Iterable[Configurable]) -> dict[str, dict[str, tuple[Option, ...]]]:
    """For each taker the values of its settings that are tried, out of ``NAME=VALUE,...`` or ``WHOSE.NAME=VALUE,...``.

    Raises:
        UsageError: an option that no taker has, or a value that it cannot have.
    """
    grids: dict[str, dict[str, tuple[Option, ...]]] = {taker.name: {} for taker in takers}
    for text in texts:
        place, _, values = text.partition("=")
        found: dict[str, dict[str, tuple[Option, ...]]] = {name: {} for name in grids}
        for value in values.split(","):
            for name, own in parse_options([f"{place}={value}"], tuple(takers), "--tune").items():
                for option, one in own.items():
                    found[name][option] = (*found[name].get(option, ()), one)
        for name, added in found.items():
            grids[name] |= added
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
    return Tuned(
        chosen=chosen,
        tried=len(every),
        repetitions=len(repetitions),
        at_edge=tuple(
            name for name, values in grid.items() if len(set(values)) > 1 and chosen[name] in (min(values), max(values))
        ),
    )


def held_out(rows: Rows) -> tuple[Rows, Rows]:
    """Training rows without their last fifth, and that fifth."""
    (x, y), cut = rows, len(rows[0]) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def tuning_sentences(label: str, tuned: Iterable[tuple[float, Tuned | None]]) -> Iterator[str]:
    """What was chosen for each budget, and a warning where that lies at the edge of its grid."""
    for epsilon, one in tuned:
        if one is None or one.tried == 1:
            continue
        shown = ", ".join(
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in one.chosen.items()
        )
        yield (
            f"{label} at epsilon {epsilon:g}: {shown}, the best of {one.tried} combinations on the held-out fifth of "
            f"the training rows of {one.repetitions} repetition{'s' if one.repetitions > 1 else ''}."
        )
        if one.at_edge:
            yield (
                f"WARNING: {label} at epsilon {epsilon:g}: {', '.join(one.at_edge)} lies at the edge of what was "
                "tried, so it may do better with a wider grid."
            )
