"""What keeps a site from taking part: one list of checks, for the commands ``health`` and ``check-site``."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from pathlib import Path

from analytic.errors import AnalyticError
from analytic_secagg.commands.site import HealthOptions
from analytic_secagg.console.findings import Finding, fail, ok, print_report, warn
from analytic_secagg.errors import FederationError
from analytic_secagg.receipts import told_by
from analytic_secagg.site.disk import log_problem, site_problems
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.query_log import totals_in_words
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from secagg import PartyId, Receipt
from secagg.dp import Ledger
from secagg.errors import ReceiptError, SecureSumError


def _query_log(site: SiteFile) -> Finding:
    looked = Site(site).look(check=True)
    if looked is None:
        return ok("none yet, which is right at a site that was in no sum")
    return ok(f"{totals_in_words(len(looked[0]))}, {looked[1]} sessions under way")


def disk_finding(site: SiteFile) -> Finding:
    """Find whether a site can store its part in the next sum."""
    if problems := list(site_problems(site)):
        return fail("; ".join(problems))
    if problem := log_problem(site):
        return warn(f"lines of the site's own log are lost: {problem}")
    return ok("a probe was written and flushed where this site stores things, and the next vector has room")


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
    "disk": disk_finding,
    "rows": _rows,
    "configurations": _configurations,
    "budget": _budget,
    "receipts": _receipts,
}
"""Checks that follow once the site's file, its roster and its keys are read and fit."""


NEEDED_TO_SERVE = frozenset({"file", "query log", "disk", "rows", "configurations"})
"""Without which a site serves nothing; without the others its helpers still help, or only a record is wrong."""


def findings_of(site: SiteFile, *, but: Container[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Find what keeps a site from taking part in the next sum, each with the name of what was looked at.

    Args:
        site: its file.
        but: names of checks that the caller made.
    """
    yield "file", ok(f"roster {site.roster.fingerprint}, its keys fit")
    for name, check in CHECKS.items():
        if name not in but:
            try:
                yield name, check(site)
            except (FederationError, AnalyticError, SecureSumError, OSError) as error:
                yield name, fail(str(error))


def health(options: HealthOptions) -> int:
    """Check whether a site could take part now, for a service manager or a monitor; the exit code."""
    return print_report(findings_of(SiteFile.read(options.site)))


def agreed_in_words(site: SiteFile) -> str:
    """Return what may be computed of a site's rows.

    Raises:
        SiteFileError: nothing may.
    """
    agreed = site.configurations
    if isinstance(agreed, str):
        return "any: the server chooses what is computed, and a crafted choice shows single rows in a total"
    if not agreed:
        raise SiteFileError(
            "the roster, or [client], must name configurations, and none are named: this site takes part in nothing; "
            "the command configuration prints them"
        )
    return ", ".join(digest.hex() for digest in agreed)


def spent_in_words(ledger: Ledger) -> str:
    """Return what a site's rows have cost so far, of what they may."""
    spent, budget = ledger.spent(), ledger.budget
    epsilon, releases = (spent.epsilon, spent.releases) if spent is not None else (0.0, 0)
    return (
        f"{releases} sums have cost epsilon {epsilon:.4g} of {budget.epsilon:g} at delta {budget.delta:g}; "
        f"head {ledger.head}"
    )


def receipts_of(site: SiteFile) -> dict[str, tuple[tuple[PartyId, ...], str]]:
    """Return whom each receipt that it keeps names and what it proves, by the beginning of its sum's digest.

    One that does not read, or does not hold under this roster, names nobody.
    """
    found: dict[str, tuple[tuple[PartyId, ...], str]] = {}
    for path in kept_files(site, "*.receipt"):
        try:
            receipt = Receipt.from_bytes(path.read_bytes())
            found[path.stem] = receipt.statement.survivors, f"receipt of {told_by(receipt, site.roster)}"
        except (OSError, ReceiptError) as error:
            found[path.stem] = (), f"A RECEIPT THAT DOES NOT COUNT: {error}"
    return found


def kept_files(site: SiteFile, pattern: str) -> list[Path]:
    """Return the files of this pattern among the results that a site keeps."""
    return sorted(site.kept.folder.glob(pattern))
