"""The server's own file: its roster, its key and where models go. The run's submitter cannot change it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from federation.site.errors import SiteFileError
from federation.site.key_files import read_secret
from federation.site.roster import Roster
from federation.site.toml_files import Table
from secagg.primitives.identity import IdentityKey

SERVER_VARIABLE = "ANALYTIC_SECAGG_SERVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """What the server believes.

    Args:
        roster: its copy of the operator's roster.
        identity: its signing key.
        output: where each run leaves its model, in a folder of its own.
    """

    roster: Roster
    identity: IdentityKey = field(repr=False)
    output: Path

    @classmethod
    def read(cls, path: Path) -> ServerFile:
        """The server of a TOML file.

        Raises:
            SiteFileError: what the file must say, what it says, what to do.
        """
        table = Table.read(path)
        roster, identity = Roster.read(table.place("roster")), IdentityKey(read_secret(table.place("identity")))
        output = table.place("output")
        table.end()
        if identity.public != roster.server:
            raise SiteFileError(f"{path}: the roster lists another server identity than this key's; one of them is old")
        return cls(roster=roster, identity=identity, output=output)

    @classmethod
    def of_host(cls) -> ServerFile:
        """The file that this host's environment names.

        Raises:
            SiteFileError: it names none.
        """
        path = os.environ.get(SERVER_VARIABLE)
        if path is None:
            raise SiteFileError(f"start the SuperLink with {SERVER_VARIABLE}=/path/to/server.toml in its environment")
        return cls.read(Path(path))
