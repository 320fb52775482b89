"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from analytic_secagg.console.process import run_as_process


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the arguments name; the exit code of ``run_as_process``."""
    return run_as_process(lambda: _run(argv), alone=argv is None)


def _run(argv: Sequence[str] | None) -> int:
    # Here, since loading takes a second or more, in which Ctrl-C must do what it does at any other moment.
    from analytic_secagg.console.command_parser import run_single
    from benchmarks.command import COMMAND

    return run_single(COMMAND, argv, prog="python -m benchmarks")


if __name__ == "__main__":
    sys.exit(main())
