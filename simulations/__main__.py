"""The command line: ``python -m simulations COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from analytic_secagg.console.process import run_as_process


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0 as it should be, 1 a finding, or what `analytic_secagg.console` says."""
    return run_as_process(lambda: _run(argv), alone=argv is None)


def _run(argv: Sequence[str] | None) -> int:
    # Here, since loading takes a second or more, in which Ctrl-C must do what it does at any other moment.
    from simulations.command_line.commands import run_command

    return run_command(argv)


if __name__ == "__main__":
    sys.exit(main())
