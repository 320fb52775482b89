"""The command ``health``: whether a site could take part now, for a service manager or a monitor to ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from analytic.errors import AnalyticError
from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import FederationError
from analytic_secagg.inspect_command import receipts_of
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_commands import agreed_in_words, spent_in_words
from secagg.errors import SecureSumError


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """Of the command ``health``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")


def _journal(site: SiteFile) -> str:
    looked = Site(site).look(check=True)
    return "none yet" if looked is None else f"{len(looked[0])} totals, {looked[1]} sessions under way"


def _rows(site: SiteFile) -> str:
    if site.client is None:
        return "none, this site only helps"
    rows = site.client.rows()
    return f"{len(rows)} of {rows.features.shape[1]} features"


def _configurations(site: SiteFile) -> str:
    return "none, this site only helps" if site.client is None else agreed_in_words(site)


def _budget(site: SiteFile) -> str:
    if (ledger := site.ledger) is None:
        return "none is demanded"
    spent = ledger.spent()
    if spent is not None and spent.epsilon >= ledger.budget.epsilon:
        raise SiteFileError(f"nothing is left: {spent_in_words(ledger)}; this site declines every sum with its rows")
    return spent_in_words(ledger)


def _receipts(site: SiteFile) -> str:
    if bad := [name for name, (survivors, _) in receipts_of(site).items() if not survivors]:
        raise SiteFileError(f"{len(bad)} do not hold, see inspect: {', '.join(bad)}")
    return "all that are kept hold"


CHECKS: dict[str, Callable[[SiteFile], str]] = {
    "journal": _journal,
    "rows": _rows,
    "configurations": _configurations,
    "budget": _budget,
    "receipts": _receipts,
}
"""What is looked at once the site's file, its roster and its keys read and fit."""


def _health(options: HealthOptions) -> int:
    is_well, site = True, SiteFile.read(options.site)
    print(f"ok file: roster {site.roster.fingerprint}, its keys fit")
    for name, check in CHECKS.items():
        try:
            print(f"ok {name}: {check(site)}")
        except (FederationError, AnalyticError, SecureSumError, OSError) as error:
            is_well = False
            print(f"WRONG {name}: {error}")
    return 0 if is_well else 1


COMMAND = Command(
    name="health",
    summary="check that a site could take part now: file, journal, rows, what is agreed on, budget; changes nothing",
    examples="""example:
  python -m analytic_secagg health site.toml
      for a monitor: its exit code says it; it waits up to 20 seconds for a sum that is being added up
""",
    options=HealthOptions,
    run=_health,
    finding="something is wrong, and the line that begins with WRONG says what",
)
