"""The ServerApp: one run over Flower's nodes."""

from __future__ import annotations

import logging

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from federation.flower.wire import GridTransport
from federation.server.server_file import ServerFile
from federation.server.training import train

LOG = logging.getLogger("flwr")
"""Flower shows this log to whoever follows the run."""

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train once and leave the model in the server's own folder."""
    server = ServerFile.of_host()
    train(context.run_config, server, GridTransport(grid), server.output / f"run-{context.run_id}", log=LOG)
