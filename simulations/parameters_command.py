"""The command ``parameters``: what a masked sum's graph and threshold guarantee and cost, by cohort size."""

from __future__ import annotations

import argparse

from secagg import Assumptions, Layout, MaskedSum
from secagg.masked.assumptions import Plan, plan
from secagg.masked.explain import client_cost
from simulations.errors import UsageError

NAME = "parameters"
SUMMARY = "show the neighbours, threshold, guarantees and costs of masked sums by cohort size"
EXAMPLES = """examples:
  python -m simulations parameters
      10 to 10 000 clients, a tenth corrupt, three tenths vanishing, both kinds of server
  python -m simulations parameters --clients 50,200 --corruption 0.2 --dropout 0.1 --features 1024
      your own cohort sizes and threat model

The table is Markdown, so that it can stand in a document as it is.
"""
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
    parser.description, parser.epilog = f"{SUMMARY[0].upper()}{SUMMARY[1:]}.", EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--clients", default="10,100,1000,10000", metavar="N,...", help="cohort sizes")
    parser.add_argument("--corruption", type=float, default=0.1, help="largest fraction that colludes (default 0.1)")
    parser.add_argument("--dropout", type=float, default=0.3, help="largest fraction that vanishes (default 0.3)")
    parser.add_argument("--security-bits", type=float, default=40.0, help="privacy fails with 2^-BITS (default 40)")
    parser.add_argument("--correctness-bits", type=float, default=40.0, help="a sum is stuck with 2^-BITS (default 40)")
    parser.add_argument("--features", type=int, default=512, help="columns of the Gram (default 512)")
    parser.add_argument("--targets", type=int, default=10, help="columns of the cross-correlation (default 10)")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    sizes = _sizes(arguments.clients)
    print(f"| {' | '.join(HEADER)} |")
    print("|" + " ---: |" * len(HEADER))
    for n_clients in sizes:
        for malicious in (False, True):
            assumptions = Assumptions(
                corruption=arguments.corruption,
                dropout=arguments.dropout,
                malicious_server=malicious,
                security_bits=arguments.security_bits,
                correctness_bits=arguments.correctness_bits,
            )
            print(f"| {' | '.join(_row(n_clients, assumptions, arguments.features, arguments.targets))} |")
    return 0


def _row(n_clients: int, assumptions: Assumptions, features: int, targets: int) -> tuple[str, ...]:
    found = plan(n_clients, assumptions)
    config = _configured(n_clients, assumptions, features, targets)
    cost = client_cost(config)
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
    """A sum of 16-bit statistics of 1 000 rows a client."""
    rows = 1000 * n_clients
    layout = Layout.of(
        [
            ("gram", features * (features + 1) // 2, rows * (2**16 - 1) ** 2),
            ("cross", features * targets, rows * (2**16 - 1)),
            ("count", 1, rows),
        ]
    )
    identities = (
        tuple(number.to_bytes(32, "big") for number in range(n_clients)) if assumptions.malicious_server else ()
    )
    return MaskedSum.planned(
        layout=layout,
        clients=tuple(range(1, n_clients + 1)),
        session_id=bytes(16),
        assumptions=assumptions,
        graph_seed=bytes(16),
        identities=identities,
    )


def _powers(found: Plan) -> tuple[str, ...]:
    powers = (found.log2_opened, found.log2_split, found.log2_stuck)
    return tuple("never" if power == float("-inf") else f"2^{power:.1f}" for power in powers)


def _sizes(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise UsageError(f"--clients needs whole numbers with commas between, such as 10,100, not {text!r}") from error
