"""Flower's SuperNode, kept awake: ``python -m federation.flower.supernode`` takes the flags of ``flower-supernode``.

Flower's own looks for a message every three seconds, whatever goes on; this one soon after each, and then less and less
often. It starts the warm executor in place of Flower's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace

from flwr.supernode import start_client_internal
from flwr.supernode.cli import flower_supernode

from federation.flower.warm import Pace, replace


def start(words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the warm executor."""
    assert words[0] == "flower-superexec", f"a SuperNode starts no {words[0]}"
    command = [sys.executable, "-m", "federation.flower.superexec", *words[1:]]
    return subprocess.Popen(command)  # noqa: S603  the words are Flower's own


def main() -> None:
    """Run Flower's SuperNode with the flags of this command."""
    replace(start_client_internal, time=SimpleNamespace(sleep=Pace().sleep), subprocess=SimpleNamespace(Popen=start))
    sys.argv[0] = "flower-supernode"
    flower_supernode()


if __name__ == "__main__":
    main()
