"""The command ``abandon``: give up a run that waits for parties which do not come back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError
from analytic_secagg.server.run_store import RunStore


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonOptions:
    """Options of the command ``abandon``."""

    folder: Path = option("of the run, next to the server's other models", file, positional=True, metavar="RUN")


def _abandon(options: AbandonOptions) -> int:
    if options.folder not in RunStore.left(options.folder.parent):
        raise UsageError(
            f"{options.folder} must hold a run that has asked sites for something and has not ended, and no process at "
            "work; there is nothing to give up"
        )
    with RunStore.opened(options.folder) as store:
        store.fail(("AbandonedRun", "its operator gave it up with the command abandon"), store.addresses)
    print(
        f"{options.folder}: given up; when the next run begins its sites are told so, and in a committee helpers are "
        "asked to certify that no total comes of it, which frees the rows. Without that they count as before"
    )
    return 0


COMMAND = Command(
    name="abandon",
    summary="give up a run that waits for parties: its sites forget it, and it can release no total",
    examples="""example:
  analytic-secagg abandon server/models/run-7
      on the server's host; the sites are told when the next run begins
""",
    options=AbandonOptions,
    run=_abandon,
)
