"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from analytic_secagg.console.command_line import Listed, run_line


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the arguments name; the exit code of ``run_line``."""
    return run_line(Listed("bench", "benchmarks.command:COMMAND", ""), argv, prog="python -m benchmarks")


if __name__ == "__main__":
    sys.exit(main())
