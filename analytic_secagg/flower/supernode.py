"""Flower's SuperNode, kept awake: ``python -m analytic_secagg.flower.supernode`` has ``flower-supernode``'s flags.

Flower's own looks for a message every three seconds, whatever goes on; this one soon after each, and then less and less
often. It starts the warm executor in place of Flower's, and is patient where it is started again within a minute.
"""

from __future__ import annotations

import sys

from flwr.supernode.cli import flower_supernode

from analytic_secagg.flower import replaced
from analytic_secagg.flower.fork_server import LOG, Backoff, log_as_json, start_executor

ACTIVATION_SECONDS = 90.0

ANSWER_SECONDS = 0.5
"""Flower's pause while a message's answer is made; without a message it pauses for three seconds."""


def main() -> None:
    """Run Flower's SuperNode with the flags of this command."""
    log_as_json()
    replaced.in_supernode(start_executor, Backoff(answer_seconds=ANSWER_SECONDS).sleep)
    replaced.in_activation(ACTIVATION_SECONDS, LOG)
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
