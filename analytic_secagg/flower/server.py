"""The ServerApp: one run over Flower's nodes."""

from __future__ import annotations

import logging
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from analytic.errors import AnalyticError
from analytic_secagg.errors import FederationError
from analytic_secagg.flower.wire import GridTransport
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import folder_of, train
from secagg.errors import SecureSumError

LOG = logging.getLogger("flwr")
"""Flower shows this log to whoever follows the run."""

app = ServerApp()


class RunFailedError(Exception):
    """A documented reason why a run ends without a model.

    Flower logs whatever an app raises with its traceback, and ends the run as failed. This has none, so that the log
    says the reason alone; ``progress.jsonl`` has its kind too.
    """

    __traceback__: Any = property(lambda self: None, lambda self, found: None)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train once and leave the model in the server's own folder.

    A run whose ServerApp died is gone on with by the next run of the same settings.

    Raises:
        RunFailedError: says why there is none.
    """
    try:
        server = ServerFile.of_host()
        folder = folder_of(context.run_config, server, f"run-{context.run_id}")
        train(context.run_config, server, GridTransport(grid), folder, log=LOG)
    except (FederationError, AnalyticError, SecureSumError) as error:
        raise RunFailedError(f"{type(error).__name__}: {error}") from None
