"""Disk space, looked at before it is needed: a probe that is written and flushed, and free space against what comes."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from analytic.errors import AnalyticError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.store import FILE
from secagg import SumProtocol
from secagg.sums import CLIENT_ROLE

MARGIN_BYTES = 1 << 18
"""Of the probe, and what must be free beside the vector: entries of the query log, receipts, a database's own pages."""

COPIES = 4
"""How often a message may be on the disk while a session is stored: old and new record, and the database's journal."""

_NAMES = {errno.EROFS: "read-only", errno.EACCES: "read-only", errno.EPERM: "read-only"} | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT), "disk full"
)


def disk_problem(folder: Path, n_bytes: int = 0) -> str:
    """Return, by name, why so many bytes cannot be stored in a folder; empty if they can. Nothing is left there.

    Quotas of a user count only as far as the probe meets them.

    Args:
        folder: need not exist yet.
        n_bytes: what is going to be stored.
    """
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    needed = n_bytes + MARGIN_BYTES
    try:
        if (free := shutil.disk_usage(there).free) < needed:
            return f"disk full: {needed} bytes must be free in {folder}, and {free} are; free space"
        with tempfile.TemporaryFile(dir=there, buffering=0) as probe:
            if probe.write(bytes(MARGIN_BYTES)) != MARGIN_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(probe.fileno())
    except OSError as error:
        what = _NAMES.get(error.errno or 0, "not writable")
        return f"{what}: nothing can be stored in {folder}: {error.strerror or error}; free space, or give it rights"
    return ""


def check_state(file: SiteFile, protocol: SumProtocol) -> None:
    """Refuse to begin a sum whose messages a site could not store.

    Args:
        file: the site.
        protocol: the sum.

    Raises:
        SiteFileError: says what is wrong by name.
    """
    roles = [CLIENT_ROLE] * (file.client is not None) + [own.role.name for own in file.helpers]
    costs = [protocol.costs[role] for role in roles if role in protocol.costs]
    if problem := disk_problem(file.state, COPIES * sum(one.bytes_up + one.bytes_down for one in costs)):
        raise SiteFileError(problem)


def site_problems(file: SiteFile) -> Iterator[str]:
    """Yield what keeps a site from storing its part in the next sum, each thing by name.

    Args:
        file: the site. Its next vector is taken to have the Gram matrix of its columns, and what comes with it.
    """
    places = {file.state: COPIES * _vector_bytes(file), file.kept.folder: _vector_bytes(file)}
    for place in (file.journal.head, None if file.privacy is None else file.privacy.ledger):
        if place is not None:
            places.setdefault(place.parent, 0)
    for folder, n_bytes in places.items():
        if problem := disk_problem(folder, n_bytes):
            yield problem
    for path in (file.state / FILE, None if file.privacy is None else file.privacy.ledger):
        if path is not None and path.exists() and not os.access(path, os.W_OK):
            yield f"read-only: {path} must be writable by this site's user and is not; give it rights"


def log_problem(file: SiteFile) -> str:
    """Return why lines of the site's own log are lost; empty if they are not. It keeps the site from nothing."""
    if file.log is None:
        return ""
    if file.log.exists() and not os.access(file.log, os.W_OK):
        return f"read-only: {file.log} must be writable by this site's user and is not; give it rights"
    return disk_problem(file.log.parent)


def _vector_bytes(file: SiteFile) -> int:
    """Of the Gram matrix of a site's columns, and as much again for what a learner puts beside it."""
    if file.client is None:
        return 0
    if (schema := file.client.columns) is not None:
        return 16 * (len(schema.features) + 1) ** 2
    try:
        return 16 * (int(file.client.rows().features.shape[1]) + 1) ** 2
    except (SiteFileError, AnalyticError):
        return 0  # rows that do not read are looked at elsewhere, and make no vector
