"""Declaration of the command ``profile``."""

from __future__ import annotations

from analytic_secagg.commands.site import SiteOptions
from analytic_secagg.console.declaration import Command

COMMAND = Command(
    name="profile",
    summary="show a site's own people what its rows look like: missing, odd and repeated values; without network",
    examples="""example:
  analytic-secagg profile site.toml
      it shows values, also of rows that are refused: for this site alone
""",
    options=SiteOptions,
    run="analytic_secagg.profile_command:run",
)
