"""The command ``abandon``: give up a run that waits for parties which do not come back."""

from __future__ import annotations

from analytic_secagg.commands.abandon import AbandonOptions
from analytic_secagg.errors import UsageError
from analytic_secagg.server.run_store import RunStore


def run(options: AbandonOptions) -> int:
    """Give the run up; the exit code."""
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
