"""The one command: ``analytic-secagg COMMAND``, or ``python -m simulations COMMAND``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from analytic_secagg.__main__ import EPILOG, SECTIONS, program
from analytic_secagg.console.command_line import DISTRIBUTION, Listed, run_line

EXPERIMENTS = (
    Listed("compare", "simulations.command_line.compare:COMMAND", "compare privacy modes and learners, bit for bit"),
    Listed("audit", "simulations.command_line.audit:COMMAND", "attack a federation and report what it reveals"),
    Listed("features", "simulations.data.features_command:COMMAND", "compute features of images or texts"),
    Listed("parameters", "simulations.command_line.parameters_command:COMMAND", "guarantees and costs by cohort size"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0 as it should be, 1 a finding, or what `analytic_secagg.console` says."""
    line = program(
        {"Experiments": EXPERIMENTS, **SECTIONS},
        "Secure aggregation for closed-form federated learning.",
        "compare",
        EPILOG,
    )
    with_version = click.version_option(
        package_name=DISTRIBUTION, prog_name=DISTRIBUTION, message="%(prog)s %(version)s"
    )
    prog = DISTRIBUTION if Path(sys.argv[0]).stem == DISTRIBUTION else "python -m simulations"
    return run_line(with_version(line), argv, prog=prog)


if __name__ == "__main__":
    sys.exit(main())
