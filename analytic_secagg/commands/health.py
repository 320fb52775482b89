"""Declaration of the command ``health``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """Options of the command ``health``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")


COMMAND = Command(
    name="health",
    summary="check that a site could take part now: file, query log, disk, rows, what is agreed on, budget",
    examples="""example:
  analytic-secagg health site.toml
      for a monitor: it exits with 1 if something would keep the site from taking part, and changes nothing;
      it waits up to 20 seconds for a sum that is being added up
""",
    options=HealthOptions,
    run="analytic_secagg.health_command:run",
    finding="a line begins with FAIL and says what is wrong",
)
