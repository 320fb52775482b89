"""The ServerApp: one run over Flower's nodes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federation.flower.wire import GridTransport
from federation.server.server_file import ServerFile
from federation.server.training import train
from federation.site.errors import SiteFileError

SERVER_VARIABLE = "ANALYTIC_SECAGG_SERVER"

LOG = logging.getLogger("flwr")
"""Flower shows this log to whoever follows the run."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train once and leave the model in the server's own folder."""
    server = server_of_host()
    train(context.run_config, server, GridTransport(grid), server.output / f"run-{context.run_id}", log=LOG)


def server_of_host() -> ServerFile:
    """Return the server's file that this host's environment names.

    Raises:
        SiteFileError: it names none.
    """
    path = os.environ.get(SERVER_VARIABLE)
    if path is None:
        raise SiteFileError(f"start the SuperLink with {SERVER_VARIABLE}=/path/to/server.toml in its environment")
    return ServerFile.read(Path(path))
