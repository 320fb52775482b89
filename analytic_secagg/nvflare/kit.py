"""Hardened start-up kit: its owner lets jobs on this host do nothing but the sums, whoever submits them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analytic_secagg.nvflare.job import CONTROLLER, EXECUTOR
from analytic_secagg.site.errors import SiteFileError

ROLES = ("project_admin", "org_admin", "lead")
"""NVFlare's, of people who may do more than look; the first and the last may submit jobs."""

RIGHTS = ("clone_job", "manage_job", "download_job", "operate", "shell_commands", "byoc", "server-predeployed-flwr")
"""Rights that NVFlare checks against a host's own policy, except submitting and viewing."""

GUARD = {"id": "jobs_alone", "path": "analytic_secagg.nvflare.guard.JobsAlone", "args": {}}
"""Component of a site's kit, which every client of it builds before it connects, whatever script starts it."""

_NEEDED = ("resource_manager", "resource_consumer", "process_launcher", "job_scheduler", "job_manager", "job_store")
"""The components of a kit that jobs are run by. What sends a site's log to the server is none of them."""


def close_kit(kit: Path) -> None:
    """Write the host's own policies into a provisioned kit, over NVFlare's defaults; a second time changes nothing.

    A job may name this library's component and no other class; it may bring no code and must be signed; logs stay on
    the host; no administrator runs commands on a site's host. A site's client does nothing for its server beside jobs,
    whatever the server's message says of who asks (``analytic_secagg.nvflare.guard``). On the server's host an
    administrator may manage jobs and stop the system.

    Args:
        kit: of a site, or of the server.

    Raises:
        SiteFileError: there is no such kit, it takes unsigned jobs, or its owner edited what this would write.
    """
    local, is_server = kit / "local", (kit / "startup" / "fed_server.json").exists()
    try:
        resources, contents = _read(local / "resources.json.default"), {}
        startup = _read(kit / "startup" / f"fed_{'server' if is_server else 'client'}.json")
        components = [one for one in resources["components"] if one["id"] in _NEEDED]
        resources |= {
            "class_list_enforcement_mode": "enforce",
            "class_allow_list": [CONTROLLER if is_server else EXECUTOR],
            "allow_log_streaming": False,
            "components": components if is_server else [*components, GUARD],
        }
        if is_server:
            _keep_storage_here(resources, kit.resolve())
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise SiteFileError(
            f"{kit} must be a start-up kit of a site or the server as `nvflare provision` of version 2.9 writes it, "
            f"and its local/resources.json.default or startup is not ({type(error).__name__}: {error})"
        ) from error
    if startup.get("require_signed_jobs", True) is not True or not (kit / "startup" / "rootCA.pem").exists():
        raise SiteFileError(
            f"{kit} must take signed jobs alone, with rootCA.pem in startup and no require_signed_jobs there that is "
            "not true; provision it again"
        )
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
        contents[local / name] = json.dumps(content, indent=2) + "\n"
    if edited := [path for path, text in contents.items() if path.exists() and path.read_text("utf-8") != text]:
        raise SiteFileError(
            f"{edited[0]} is not what this command writes: its owner edited it, or an earlier version wrote it; move "
            "it away, run this again, and put back what you changed"
        )
    for path, text in contents.items():
        path.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _keep_storage_here(resources: dict[str, Any], kit: Path) -> None:
    """Jobs and snapshots lie in the kit's own folder, where NVFlare's defaults lie in one of /tmp for all."""
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(kit / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(kit / "jobs")
