"""The command ``profile``: what a site's own people should see of its rows before any sum."""

from __future__ import annotations

from analytic_secagg.commands.site import SiteOptions
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.profile import columns_of, profile
from analytic_secagg.site.site_file import SiteFile


def run(options: SiteOptions) -> int:
    """Print what is odd about the site's columns; the exit code."""
    site = SiteFile.read(options.file)
    if site.client is None:
        raise SiteFileError(f"{options.file} has no [client]: a site that only helps has no rows")
    print("for this site alone, since it shows values")
    for line in profile(columns_of(site.client)):
        print(line)
    return 0
