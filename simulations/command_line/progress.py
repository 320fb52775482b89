"""A progress bar on standard error, on terminals only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from simulations.compare.comparison import Progress


@contextmanager
def progress_bar(n_runs: int) -> Iterator[Progress]:
    """What feeds a bar over runs and one over the current run's contributions; nothing when nobody watches."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        runs, contributions = bar.add_task("runs", total=n_runs), bar.add_task("")
        started = 0

        def start(label: str, steps: int) -> None:
            nonlocal started
            bar.update(runs, completed=started)
            bar.reset(contributions, description=label, total=steps)
            started += 1

        yield Progress(start=start, tick=lambda: bar.advance(contributions))
