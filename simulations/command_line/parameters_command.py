"""The command ``parameters``: what a masked sum's graph and threshold guarantee and cost, by cohort size."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from federation.console.arguments import checked, number, whole, wholes
from federation.console.process import exit_codes
from secagg import Assumptions, MaskedSum
from secagg.config import MAX_CLIENTS
from secagg.masked.assumptions import Plan, plan
from secagg.sums import CLIENT_ROLE
from simulations.command_line.example_layout import layout_of_statistics

NAME = "parameters"
SUMMARY = "show the neighbours, threshold, guarantees and costs of masked sums by cohort size"
EXAMPLES = """examples:
  python -m simulations parameters
      10 to 10 000 clients, a tenth corrupt, three tenths vanishing, both kinds of server
  python -m simulations parameters --clients 50,200 --corruption 0.2 --dropout 0.1 --features 1024
      your own cohort sizes and threat model

The table is Markdown, so that it can stand in a document as it is.

{exit_codes}"""
MOST_COLUMNS = 2**15
"""A Gram of more columns takes gigabytes, and no layout holds much more."""

HEADER = (
    "clients",
    "server",
    "neighbours",
    "threshold",
    "survivors needed",
    "opened",
    "split",
    "stuck",
    "messages up",
    "bytes up",
    "of them vector",
    "bytes down",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``parameters`` understands."""
    parser.description = f"{SUMMARY[0].upper()}{SUMMARY[1:]}."
    parser.epilog = EXAMPLES.format(exit_codes=exit_codes("the table is printed"))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--clients",
        type=checked(lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS)),
        default=(10, 100, 1000, 10000),
        metavar="N,...",
        help="cohort sizes (default: 10,100,1000,10000)",
    )
    for name, default, help_text in (
        ("--corruption", 0.1, "largest fraction that colludes (default: 0.1)"),
        ("--dropout", 0.3, "largest fraction that vanishes (default: 0.3)"),
    ):
        parser.add_argument(name, type=checked(_fraction), default=default, metavar="RATE", help=help_text)
    for name, help_text in (
        ("--security-bits", "privacy fails with probability 2^-BITS at most (default: 40)"),
        ("--correctness-bits", "a sum is stuck with probability 2^-BITS at most (default: 40)"),
    ):
        parser.add_argument(name, type=checked(_bits), default=40.0, metavar="BITS", help=help_text)
    for name, default, help_text in (
        ("--features", 512, "columns of the Gram (default: 512)"),
        ("--targets", 10, "columns of the cross-correlation (default: 10)"),
    ):
        parser.add_argument(name, type=checked(_columns), default=default, metavar="N", help=help_text)


def run(arguments: argparse.Namespace) -> int:
    """Print the table, once all of it is known.

    Raises:
        secagg.errors.ConfigurationError: a threat model that no parameters meet.
    """
    lines = [
        f"| {' | '.join(_row(n_clients, assumptions, arguments.features, arguments.targets))} |"
        for n_clients in arguments.clients
        for assumptions in _both_servers(arguments)
    ]
    print(f"| {' | '.join(HEADER)} |")
    print("|" + " ---: |" * len(HEADER))
    print("\n".join(lines))
    return 0


def _both_servers(arguments: argparse.Namespace) -> Iterator[Assumptions]:
    for malicious in (False, True):
        yield Assumptions(
            corruption=arguments.corruption,
            dropout=arguments.dropout,
            malicious_server=malicious,
            security_bits=arguments.security_bits,
            correctness_bits=arguments.correctness_bits,
        )


def _row(n_clients: int, assumptions: Assumptions, features: int, targets: int) -> tuple[str, ...]:
    found = plan(n_clients, assumptions)
    config = _configured(n_clients, assumptions, features, targets)
    cost = config.costs[CLIENT_ROLE]
    return (
        f"{n_clients}",
        "malicious" if assumptions.malicious_server else "semi-honest",
        f"{found.degree}{' (all)' if found.is_complete else ''}",
        f"{found.threshold}",
        f"{config.survivors_needed}",
        *_powers(found),
        f"{cost.messages_up}",
        f"{cost.bytes_up}",
        f"{cost.vector_bytes}",
        f"{cost.bytes_down}",
    )


def _configured(n_clients: int, assumptions: Assumptions, features: int, targets: int) -> MaskedSum:
    identities = (
        tuple(number.to_bytes(32, "big") for number in range(n_clients)) if assumptions.malicious_server else ()
    )
    return MaskedSum.planned(
        layout=layout_of_statistics(n_clients, n_features=features, n_targets=targets),
        clients=tuple(range(1, n_clients + 1)),
        session_id=bytes(16),
        assumptions=assumptions,
        graph_seed=bytes(16),
        identities=identities,
    )


def _powers(found: Plan) -> tuple[str, ...]:
    powers = (found.log2_opened, found.log2_split, found.log2_stuck)
    return tuple("never" if power == float("-inf") else f"2^{power:.1f}" for power in powers)


def _fraction(text: str) -> float:
    return number(text, "a number from 0 to below 1, such as 0.1", lambda fraction: 0 <= fraction < 1)


def _bits(text: str) -> float:
    return number(text, "a number above 0, such as 40", lambda bits: bits > 0)


def _columns(text: str) -> int:
    return whole(text, at_least=1, at_most=MOST_COLUMNS)
