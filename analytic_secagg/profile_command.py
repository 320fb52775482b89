"""The command ``profile``: what a site's own people should see of its rows before any sum."""

from __future__ import annotations

from analytic_secagg.console.declaration import Command
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.profile import columns_of, profile
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_commands import SiteOptions


def _profile(options: SiteOptions) -> int:
    site = SiteFile.read(options.file)
    if site.client is None:
        raise SiteFileError(f"{options.file} has no [client]: a site that only helps has no rows")
    print("for this site alone, since it shows values")
    for line in profile(columns_of(site.client)):
        print(line)
    return 0


COMMAND = Command(
    name="profile",
    summary="show a site's own people what its rows look like: missing, odd and repeated values; without network",
    examples="""example:
  analytic-secagg profile site.toml
      it shows values, also of rows that are refused: for this site alone
""",
    options=SiteOptions,
    run=_profile,
)
