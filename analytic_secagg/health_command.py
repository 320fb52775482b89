"""The command ``health``: whether a site could take part now, for a service manager or a monitor to ask."""

from __future__ import annotations

from analytic_secagg.commands.health import HealthOptions
from analytic_secagg.console.findings import print_report
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_checks import findings_of


def run(options: HealthOptions) -> int:
    """Check whether the site could take part; the exit code."""
    return print_report(findings_of(SiteFile.read(options.site)))
