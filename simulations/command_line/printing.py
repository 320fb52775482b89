"""Tables on standard output, for people at terminals and for pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

WIDTH_WITHOUT_TERMINAL = 120


def print_tables(draw: Callable[[Console], None], *, width_without_terminal: int = WIDTH_WITHOUT_TERMINAL) -> None:
    """Print what ``draw`` puts on a console, all of it at once.

    Args:
        draw: puts tables and sentences on the console that it is given.
        width_without_terminal: columns where standard output is no terminal that has a width of its own.

    Raises:
        BrokenPipeError: nobody reads the output any more. Rich alone would end the process here with code 1, which is
            that of a finding.
    """
    console = Console(width=None if sys.stdout.isatty() else width_without_terminal)
    with console.capture() as capture:
        draw(console)
    print(capture.get(), end="", flush=True)
