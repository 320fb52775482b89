"""The command ``profile``: what a site's own people should see of its rows before any sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from analytic.learner import ClientRows
from analytic_secagg.console.declaration import Command
from analytic_secagg.errors import DataError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.profile import Profiled, profile
from analytic_secagg.site.site_file import ClientRole, SiteFile
from analytic_secagg.site.table_files import is_table, read_cells
from analytic_secagg.site_commands import SiteOptions


def _profile(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    if site.client is None:
        raise SiteFileError(f"{options.file} has no [client]: a site that only helps has no rows")
    print("for this site alone, since it shows values")
    for line in profile(_columns(site.client)):
        print(line)
    return 0


def _columns(client: ClientRole) -> dict[str, Profiled]:
    """The columns of a table as they are, plausible or not; of other data those of the rows."""
    if client.columns is None or not is_table(client.data):
        return _of_rows(client.rows())
    try:
        cells = read_cells(Path(client.data), client.reading)
        meant = client.columns.meant(client.data, cells, client.reading)
    except DataError as error:
        raise SiteFileError(str(error)) from None
    return {
        name: Profiled(values=one.values, column=client.columns.columns[name], unknown=one.texts)
        for name, one in meant.items()
    }


def _of_rows(rows: ClientRows) -> dict[str, Profiled]:
    targets = rows.targets.reshape(len(rows), -1)
    named = {f"feature {place}": column for place, column in enumerate(rows.features.T)}
    named |= {f"target {place}": column for place, column in enumerate(targets.T)}
    return {name: Profiled(values=np.asarray(column, dtype=np.float64)) for name, column in named.items()}


COMMAND = Command(
    name="profile",
    summary="show a site's own people what its rows look like: missing, odd and repeated values; it talks to nobody",
    examples="""example:
  analytic-secagg profile site.toml
      it shows values, also of rows that are refused: for this site alone
""",
    options=SiteOptions,
    run=_profile,
)
