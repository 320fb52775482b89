"""Flower's SuperNode, kept awake: ``python -m analytic_secagg.flower.supernode`` has ``flower-supernode``'s flags.

Flower's own looks for a message every three seconds, whatever goes on; this one soon after each, and then less and less
often. It starts the warm executor in place of Flower's.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from analytic_secagg.flower.warm import Pace, log_as_json, replace, start_executor


def main() -> None:
    """Run Flower's SuperNode with the flags of this command."""
    log_as_json()
    replace(
        start_client_internal,
        time=SimpleNamespace(sleep=Pace().sleep),
        subprocess=SimpleNamespace(Popen=start_executor),
    )
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
