"""The coverage-guided fuzzer: `python tests/fuzz/run_atheris.py [libFuzzer options] [corpus]`, all targets at once.

The first byte chooses the target. FUZZ_TARGET=<name> chooses one for good. An input that lets anything but a documented
error out is written to `crash-...` in the current folder (`-artifact_prefix=` changes that) and ends the run with an
exit code that is not 0.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import atheris

sys.path += [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

with atheris.instrument_imports(include=["secagg"]):
    from hostile_targets import TARGETS

ONLY = os.environ.get("FUZZ_TARGET")
CHOICES = [TARGETS[ONLY]] if ONLY else list(TARGETS.values())


def one_input(data: bytes) -> None:
    """Feed one input to the target that its first byte names."""
    if data:
        CHOICES[data[0] % len(CHOICES)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
