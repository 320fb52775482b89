"""The command ``health``: whether a site could take part now, for a service manager or a monitor to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analytic.errors import AnalyticError
from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.findings import Finding, fail, ok, print_report
from analytic_secagg.errors import FederationError
from analytic_secagg.inspect_command import receipts_of
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_commands import agreed_in_words, spent_in_words
from secagg.errors import SecureSumError


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """Options of the command ``health``."""

    site: Path = option("the site's own file", file, positional=True, metavar="SITE")


def _query_log(site: SiteFile) -> Finding:
    looked = Site(site).look(check=True)
    return ok("none yet" if looked is None else f"{len(looked[0])} totals, {looked[1]} sessions under way")


def _rows(site: SiteFile) -> Finding:
    if site.client is None:
        return ok("none, this site only helps")
    rows = site.client.rows()
    return ok(f"{len(rows)} of {rows.features.shape[1]} features")


def _configurations(site: SiteFile) -> Finding:
    return ok("none, this site only helps" if site.client is None else agreed_in_words(site))


def _budget(site: SiteFile) -> Finding:
    if (ledger := site.ledger) is None:
        return ok("none is demanded")
    spent = ledger.spent()
    if spent is not None and spent.epsilon >= ledger.budget.epsilon:
        return fail(f"nothing is left: {spent_in_words(ledger)}", "this site declines every sum with its rows")
    return ok(spent_in_words(ledger))


def _receipts(site: SiteFile) -> Finding:
    if bad := [name for name, (survivors, _) in receipts_of(site).items() if not survivors]:
        return fail(f"{len(bad)} do not hold: {', '.join(bad)}", "the command inspect says why")
    return ok("all that are kept hold")


CHECKS: dict[str, Callable[[SiteFile], Finding]] = {
    "query log": _query_log,
    "rows": _rows,
    "configurations": _configurations,
    "budget": _budget,
    "receipts": _receipts,
}
"""Checks that follow once the site's file, its roster and its keys are read and fit."""


def _health(options: HealthOptions) -> int:
    return print_report(_findings(SiteFile.read(options.site)))


def _findings(site: SiteFile) -> Iterator[tuple[str, Finding]]:
    yield "file", ok(f"roster {site.roster.fingerprint}, its keys fit")
    for name, check in CHECKS.items():
        try:
            yield name, check(site)
        except (FederationError, AnalyticError, SecureSumError, OSError) as error:
            yield name, fail(str(error))


COMMAND = Command(
    name="health",
    summary="check that a site could take part now: file, query log, rows, what is agreed on, budget; changes nothing",
    examples="""example:
  python -m analytic_secagg health site.toml
      for a monitor: its exit code says it; it waits up to 20 seconds for a sum that is being added up
""",
    options=HealthOptions,
    run=_health,
    finding="a line begins with FAIL and says what is wrong",
)
