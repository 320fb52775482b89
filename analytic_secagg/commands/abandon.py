"""Declaration of the command ``abandon``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonOptions:
    """Options of the command ``abandon``."""

    folder: Path = option("of the run, next to the server's other models", file, positional=True, metavar="RUN")


COMMAND = Command(
    name="abandon",
    summary="give up a run that waits for parties: its sites forget it, and it can release no total",
    examples="""example:
  analytic-secagg abandon server/models/run-7
      on the server's host; the sites are told when the next run begins
""",
    options=AbandonOptions,
    run="analytic_secagg.abandon_command:run",
)
