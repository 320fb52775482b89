"""The command ``health``: whether a site could take part now, for a service manager or a monitor to ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.findings import print_report
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_checks import findings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """Options of the command ``health``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")


def _health(options: HealthOptions) -> int:
    return print_report(findings_of(SiteFile.read(options.site)))


COMMAND = Command(
    name="health",
    summary="check that a site could take part now: file, query log, disk, rows, what is agreed on, budget",
    examples="""example:
  analytic-secagg health site.toml
      for a monitor: it exits with 1 if something would keep the site from taking part, and changes nothing;
      it waits up to 20 seconds for a sum that is being added up
""",
    options=HealthOptions,
    run=_health,
    finding="a line begins with FAIL and says what is wrong",
)
