"""The server's own file: its roster, its key and where models go. The run's submitter cannot change it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site_file import IdentityFile, RosterFile
from analytic_secagg.site.strict_models import Place, StrictModel

SERVER_VARIABLE = "ANALYTIC_SECAGG_SERVER"
"""The environment variable that names the file to an engine's server."""


class ServerFile(StrictModel):
    """Configuration of the server.

    Args:
        roster: its copy of the operator's roster.
        identity: its signing key.
        output: where each run leaves its model, in a folder of its own.
        keep_runs: how many runs that have ended stay in ``output``, the newest; None for all.
        plan: what ``audit-plan`` signed: the first session of each run is then bound to it. It is read when a run
            begins.
    """

    roster: RosterFile
    identity: IdentityFile
    output: Place
    keep_runs: Annotated[int, Field(ge=1)] | None = None
    plan: Place | None = None

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        if self.identity.public != self.roster.server:
            raise ValueError("the roster lists another server identity than this key's; one of them is old")
        return self

    @classmethod
    def of_host(cls) -> Self:
        """Return the server's file that this host's environment names.

        Raises:
            SiteFileError: it names none.
        """
        path = os.environ.get(SERVER_VARIABLE)
        if path is None:
            raise SiteFileError(f"start the server with {SERVER_VARIABLE}=/path/to/server.toml in its environment")
        return cls.read(Path(path))
