"""A job's folder as NVFlare takes it: configuration alone, no code. Its two components are the installed library's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.messages import KINDS
from analytic_secagg.trial import new_folder

SERVER_CONFIG = "app/config/config_fed_server.json"

FETCH_SECONDS = 0.2
"""Delay before a client asks for its next task again; it is about the overhead of an exchange."""

CONTROLLER, EXECUTOR = (
    "analytic_secagg.nvflare.controller.SumController",
    "analytic_secagg.nvflare.executor.SumExecutor",
)


def write_job(folder: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the folder of a job.

    Args:
        folder: a new one.
        runs: the settings of each run of the job by name; one follows the other.

    Raises:
        SiteFileError: something is there already, or the system refused.
        RunSettingsError: settings that no run can have.
    """
    checked = [RunSettings.of(settings) for settings in runs.values()]
    controllers = [
        {"id": name, "path": CONTROLLER, "args": {"settings": dict(settings)}} for name, settings in runs.items()
    ]
    parts = {
        # Fewer connected clients than a total needs leave the job in its queue.
        "meta.json": {
            "name": "secure-sum",
            "resource_spec": {},
            "min_clients": min(one.min_survivors for one in checked),
            "deploy_map": {"app": ["@ALL"]},
        },
        SERVER_CONFIG: {
            "format_version": 2,
            "server": {"task_request_interval": FETCH_SECONDS},
            "workflows": controllers,
        },
        "app/config/config_fed_client.json": {
            "format_version": 2,
            "default_task_fetch_interval": FETCH_SECONDS,
            "executors": [{"tasks": list(KINDS), "executor": {"path": EXECUTOR, "args": {}}}],
        },
    }
    with new_folder(folder):
        (folder / "app" / "config").mkdir(parents=True)
        for name, content in parts.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_job(folder: Path) -> dict[str, Any]:
    """Return the settings of a job's first run.

    Raises:
        SiteFileError: there is no such job.
    """
    path = folder / SERVER_CONFIG
    try:
        return dict(json.loads(path.read_text(encoding="utf-8"))["workflows"][0]["args"]["settings"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SiteFileError(
            f"{path} must be of a job that the command job or trial wrote; name another folder"
        ) from error
