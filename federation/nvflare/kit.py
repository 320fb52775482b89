"""What the owner of a start-up kit lets jobs do on this host: nothing but the sums, whoever submits them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from federation.nvflare.job import CONTROLLER, EXECUTOR
from federation.site.errors import SiteFileError

ROLES = ("project_admin", "org_admin", "lead")
"""NVFlare's, of people who may do more than look; the first and the last may submit jobs."""

RIGHTS = ("clone_job", "manage_job", "download_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")
"""What NVFlare asks a host's own policy about, beside submitting and looking."""

_NEEDED = ("resource_manager", "resource_consumer", "process_launcher", "job_scheduler", "job_manager", "job_store")
"""The components of a kit that jobs are run by. What sends a site's log to the server is none of them."""


def close_kit(kit: Path) -> None:
    """Write the host's own policies into a provisioned kit, over NVFlare's defaults.

    A job may name this library's component and no other class; it may bring no code; logs stay on the host; no
    administrator runs commands on a site's host through an honest server. A server that lies is not bound by these
    policies: NVFlare asks them only where the server's message says so, and its client has commands that read files.
    On the server's host an administrator may manage jobs and stop the system.

    Args:
        kit: of a site, or of the server.

    Raises:
        SiteFileError: there is no such kit.
    """
    local, is_server = kit / "local", (kit / "startup" / "fed_server.json").exists()
    try:
        resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SiteFileError(
            f"{kit} must be a start-up kit with local/resources.json.default, as `nvflare provision` writes it"
        ) from error
    resources |= {
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER if is_server else EXECUTOR],
        "allow_log_streaming": False,
        "components": [one for one in resources["components"] if one["id"] in _NEEDED],
    }
    if is_server:
        _keep_storage_here(resources, kit.resolve())
    rights = [right for right in RIGHTS if right in ("manage_job", "download_job", "operate")] if is_server else []
    permissions: dict[str, Any] = {
        role: {
            "submit_job": "none" if role == "org_admin" else "any",
            "view": "any",
            **{right: "any" if right in rights else "none" for right in RIGHTS},
        }
        for role in ROLES
    }
    authorization = {"format_version": "1.0", "permissions": {**permissions, "member": {"view": "any"}}}
    for name, content in {"resources.json": resources, "authorization.json": authorization}.items():
        (local / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _keep_storage_here(resources: dict[str, Any], kit: Path) -> None:
    """Jobs and snapshots lie in the kit's own folder, where NVFlare's defaults lie in one of /tmp for all."""
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit / "jobs")
