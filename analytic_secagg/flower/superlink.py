"""Flower's SuperLink with the warm executor: ``python -m analytic_secagg.flower.superlink`` takes its flags.

A run then begins in a process that has read everything, whose token stands in no command line.
"""

from __future__ import annotations

import sys
from importlib import import_module

from analytic_secagg.flower import replaced
from analytic_secagg.flower.fork_server import log_as_json, start_executor


def main() -> None:
    """Run Flower's SuperLink with the flags of this command."""
    log_as_json()
    flower = import_module("flwr.superlink.cli.flower_superlink")
    replaced.in_superlink(start_executor)
    sys.argv[0] = "flower-superlink"
    flower.flower_superlink()


if __name__ == "__main__":
    main()
