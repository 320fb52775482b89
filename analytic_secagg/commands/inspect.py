"""Declaration of the command ``inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """Options of the command ``inspect``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")
    metrics: bool = option("print numbers for Prometheus instead", default=False)


COMMAND = Command(
    name="inspect",
    summary="show what a site's rows have been given to, and to whom, from its own query log and receipts",
    examples="""examples:
  analytic-secagg inspect site.toml
      each total with the clients in it and who signed it; what the site helped with; what its rows have cost
  analytic-secagg inspect site.toml --metrics
      the same as numbers, for the textfile collector of a Prometheus node exporter
""",
    options=InspectOptions,
    run="analytic_secagg.inspect_command:run",
)
