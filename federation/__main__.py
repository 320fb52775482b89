"""Commands for who has a run's results: ``python -m federation COMMAND``."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic.model_files import load_model
from federation.change_command import COMMAND as CHANGE
from federation.console.arguments import file
from federation.console.command_parser import CommandParser, run_one_of
from federation.console.declaration import Command, option
from federation.console.process import run_as_process
from federation.totals import differences, read_totals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code: 0, 1 where a model is not its totals', 2 an error, or how it was stopped."""
    return run_as_process(lambda: _run(argv), alone=argv is None)


def _run(argv: Sequence[str] | None) -> int:
    parser = CommandParser(
        prog="python -m federation",
        description="Check what a federation left behind, and go on from it.",
        epilog="Deployments with Flower: python -m federation.flower --help.",
    )
    return run_one_of(COMMANDS, parser, argv, example="verify model.safetensors totals.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Of the command ``verify``."""

    model: Path = option("a model's file", file, positional=True, metavar="MODEL")
    totals: Path = option("the file of the totals it was made of", file, positional=True, metavar="TOTALS")


def _verify(options: VerifyOptions) -> int:
    """Compute the model once more and compare every bit."""
    saved = load_model(options.model)
    totals = read_totals(options.totals)
    weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
    for number, one in enumerate(totals, start=1):
        print(f"sum {number}: {len(one.total)} numbers of {len(one.survivors)} clients")
    learner: Any = saved.learner
    if uncertified := learner.take_apart(saved.model).uncertified:
        print(f"not certified, the bits are those of the machine that solved: {', '.join(uncertified)}")
    found = differences(saved, totals)
    for line in found:
        print(line)
    if found:
        print(f"NOT EQUAL: the totals give another model than the one with weights {weights}")
        return 1
    print(f"equal, bit for bit: the totals give the model with weights {weights}")
    return 0


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="verify",
        summary="compute a model once more from the totals of its run, and compare every bit",
        examples="""example:
  python -m federation verify model.safetensors totals.safetensors
      both lie in the folder of a run; whoever has a run's totals can do this, on any machine
""",
        options=VerifyOptions,
        run=_verify,
        finding="the totals give another model",
    ),
    CHANGE,
)


if __name__ == "__main__":
    sys.exit(main())
