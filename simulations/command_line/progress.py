"""Progress on standard error: bars on terminals only, lines of what takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from simulations.compare.comparison import Progress

SILENT_SECONDS = 60
"""Without a terminal nothing is said of the audit's progress for so long."""

FIRST_SECONDS, NEXT_SECONDS = 2, 10
"""Without a terminal a comparison says how far it is after so long, and then so often at most."""


@contextmanager
def progress_bar(n_runs: int) -> Iterator[Progress]:
    """Yield what feeds a bar over runs and one over the current run's contributions; lines where no terminal is."""
    if not sys.stderr.isatty():
        yield _lines(n_runs)
        return
    from simulations.compare.comparison import Progress  # here and below, since other commands have no runs

    with _bar() as bar:
        runs, contributions = bar.add_task("runs", total=n_runs), bar.add_task("")
        started = 0

        def start(label: str, steps: int) -> None:
            nonlocal started
            bar.update(runs, completed=started)
            bar.reset(contributions, description=label, total=steps)
            started += 1

        yield Progress(start=start, tick=lambda: bar.advance(contributions))


def _lines(n_runs: int) -> Progress:
    from simulations.compare.comparison import Progress

    begun = time.monotonic()
    due, started, current = begun + FIRST_SECONDS, 0, ""

    def start(label: str, steps: int) -> None:
        nonlocal started, current
        started, current = started + 1, label
        tick()

    def tick() -> None:
        nonlocal due
        if (now := time.monotonic()) >= due:
            due = now + NEXT_SECONDS
            print(f"after {now - begun:.0f} s: run {started} of {n_runs}, {current}", file=sys.stderr, flush=True)

    return Progress(start=start, tick=tick)


@contextmanager
def image_bar(label: str, n_images: int) -> Iterator[Callable[[int], None]]:
    """Yield what feeds a bar over images with numbers of them."""
    with _bar() as bar:
        task = bar.add_task(label, total=n_images)
        yield lambda images: bar.advance(task, images)


def _bar() -> Bar:
    from rich.console import Console  # takes longer to import than an image to read
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Bar(*columns, console=Console(file=sys.stderr), transient=True, disable=not sys.stderr.isatty())
