"""A site's side of a job: hands each task to the site's message handler."""

from __future__ import annotations

import os
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from analytic_secagg.nvflare.wire import pack, unpack
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.site_file import SiteFile

SITE_VARIABLE = "ANALYTIC_SECAGG_SITE"
"""The environment variable of a site's NVFlare client that names the site's own file."""


class SumExecutor(Executor):  # type: ignore[misc]
    """Answers for the site of this host. A job gives it nothing to go by: it takes no arguments."""

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Return the site's answer to one message, or a code of ours and nothing of what happened."""
        name = str(fl_ctx.get_identity_name())
        return pack(handle_message(lambda: site_of_client(name), task_name, lambda: unpack(shareable)))


def site_of_client(name: str) -> SiteFile:
    """Return the site of an NVFlare client: the file that its environment names.

    A simulated client's file lies in the folder of simulated sites, under its name.

    Raises:
        SiteFileError: the environment names no file.
    """
    named = os.environ.get(SITE_VARIABLE)
    if named is not None:
        return SiteFile.read(Path(named))
    return SiteFile.simulated(name, real=f"start the NVFlare client with {SITE_VARIABLE}=/path/to/site.toml")
