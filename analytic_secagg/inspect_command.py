"""The command ``inspect``: what a site's rows, and its help, have been given to, and to whom, from its own files."""

from __future__ import annotations

import json
from collections.abc import Iterator

from analytic_secagg.commands.site import InspectOptions
from analytic_secagg.console.findings import Finding, ok, print_report, warn
from analytic_secagg.site.query_log import totals_in_words
from analytic_secagg.site.results import NAME_DIGITS
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site_checks import kept_files, receipts_of, spent_in_words


def run(options: InspectOptions) -> int:
    """Print what the site's rows were used for; the exit code."""
    site = SiteFile.read(options.site)
    if not options.metrics:
        return print_report(_findings(site))
    for line in _metrics(site):
        print(line)
    return 0


def _findings(site: SiteFile) -> Iterator[tuple[str, Finding]]:
    """Find each total; receipts say more of it than the query log, which holds no names."""
    looked, receipts = Site(site).look(), receipts_of(site)
    if looked is None:
        yield "query log", warn(f"there is no query log in {site.state}: no sum came to this site yet, or it was lost")
    totals, _ = looked or ([], 0)
    yield "server", ok(f"{site.roster.server.hex()}, roster {site.roster.fingerprint}")
    if site.client is not None:
        of_rows = [one for one in totals if not one.is_help]
        yield f"client {site.client.party}", ok(f"its rows are in {totals_in_words(len(of_rows))}")
        for one in of_rows:
            if one.is_loss:
                yield "loss", warn(f"its owner accepted that totals of the rows {one.rows.hex()[:8]} were forgotten")
                continue
            name = one.total.hex()[:NAME_DIGITS]
            is_kept, (named, proof) = name in receipts, receipts.pop(name, ((), "no receipt"))
            known = named or one.survivors
            whom = f"clients {', '.join(map(str, known))}" if known else "clients that this site was not shown"
            allowed = "; its owner allowed it beside those that cost nothing" * one.is_allowed
            computed = f"configuration {one.configuration.hex()[:NAME_DIGITS] or 'unnamed'}"
            text = f"{computed}, rows {one.rows.hex()[:8]}, with {whom}; {proof}{allowed}"
            yield f"sum {name}", warn(text) if is_kept and not named else ok(text)
        numbers = {key.hex(): str(number) for number, key in site.roster.clients.items()}
        for line in Site(site).means():
            mean = json.loads(line)
            whom = ", ".join(numbers.get(key, f"of key {key[:NAME_DIGITS]}") for key in mean["clients"])
            yield (
                f"mean {mean['session'][:NAME_DIGITS]}",
                ok(f"model {mean['model'][:NAME_DIGITS]}, with clients {whom}"),
            )
        for name, (named, proof) in receipts.items():
            why = f"its sum is not in the query log, which lies in {site.state}: was that lost?" if named else proof
            yield f"receipt {name}", warn(why)
    for own in site.helpers:
        helped = [str(one.n_vectors) for one in totals if one.is_help]
        of = f", of {', '.join(helped)} clients" if helped else ""
        yield f"{own.role.name} {own.party}", ok(f"it helped to release {totals_in_words(len(helped))}{of}")
    if site.ledger is not None:
        yield "privacy", ok(spent_in_words(site.ledger))
    for path in kept_files(site, "*.safetensors"):
        yield "came back", ok(str(path))


def _metrics(site: SiteFile) -> Iterator[str]:
    """The text format of Prometheus 0.0.4; numbers alone, which say nothing of a row or a key."""
    (totals, sessions), ledger = Site(site).look() or ([], 0), site.ledger
    kept = [named for named, _ in receipts_of(site).values()]
    values = {
        "totals_rows": ("totals that this site's rows are in", sum(not one.is_help for one in totals)),
        "totals_helped": ("totals that this site helped to release", sum(one.is_help for one in totals)),
        "totals_allowed": ("totals that its owner had to allow", sum(one.is_allowed for one in totals)),
        "sessions": ("sessions whose secrets are kept", sessions),
        "receipts": ("receipts that are kept", sum(map(bool, kept))),
        "receipts_bad": ("files that are no receipt, or of other keys than the roster's", kept.count(())),
    }
    for name, (meaning, value) in values.items():
        yield from _metric(name, meaning, value)
    if ledger is not None:
        spent = ledger.spent()
        yield from _metric("epsilon_spent", "what its rows have cost", 0.0 if spent is None else spent.epsilon)
        yield from _metric("epsilon_budget", "what they may cost", ledger.budget.epsilon)


def _metric(name: str, meaning: str, value: float) -> Iterator[str]:
    full = f"analytic_secagg_{name}"
    yield f"# HELP {full} {meaning}"
    yield f"# TYPE {full} gauge"
    yield f"{full} {value:g}"
