"""The server's side of a job: one run over the clients that NVFlare gave it."""

from __future__ import annotations

import re
import time
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from analytic_secagg.nvflare.wire import TaskTransport
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import folder_of, train
from analytic_secagg.site.errors import RunSettingsError, UnreachableError


class SumController(Controller):  # type: ignore[misc]
    """Trains once and leaves the model in the server's own folder, under the names of the workflow and the job.

    A run that has not ended, because its job's process died or parties were away, is gone on with in its own folder by
    the next job of the same settings.

    Args:
        settings: the run's public ones (``analytic_secagg.server.run_settings.RunSettings``), names with hyphens.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self._settings = settings

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: what a run needs is read when it begins."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Drive the run's dialogue; its errors end the job, with their text in the server's log.

        Raises:
            RunSettingsError: a workflow whose name is no name of a folder.
            DeploymentError, SecureSumError, AnalyticError: as ``analytic_secagg.server.training.train``.
        """

        def sleep(seconds: float) -> None:
            time.sleep(seconds)
            if abort_signal.triggered:
                raise UnreachableError("the job was aborted; its sites forget its sessions by themselves")

        name = f"{fl_ctx.get_prop(FLContextKey.WORKFLOW)}-{fl_ctx.get_job_id()}"
        if not re.fullmatch("[A-Za-z0-9_-]{1,128}", name):  # whoever submits a job chooses it, and it names a folder
            raise RunSettingsError(f"a run is called by letters, digits, _ and -, not {name!r}; rename the workflow")
        server = ServerFile.of_host()
        folder = folder_of(self._settings, server, name)
        train(self._settings, server, TaskTransport(self, fl_ctx), folder, log=self.logger, sleep=sleep)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: the sites were told in the last exchange."""

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Take nothing that came after its deadline."""
