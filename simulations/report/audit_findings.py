"""What an audit found, in sentences: the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from simulations.audit.attack import Expectation
from simulations.audit.audit import TOTAL, Audit, Cell
from simulations.audit.catalogue import find_attack
from simulations.audit.evaluate import Score, Verdict
from simulations.report.document import Finding, Mark

SHORT = {
    Verdict.RECOVERED: "recovered",
    Verdict.LEAKS: "leaks",
    Verdict.NO_EVIDENCE: "no evidence",
    Verdict.TOO_FEW: "too few trials",
    Verdict.NOT_TRIED: "not tried",
    Verdict.DOES_NOT_APPLY: "-",
}
"""Short forms for a terminal, which says below the table what "no evidence" stands for."""


def findings(audit: Audit) -> Iterator[Finding]:
    """What turned out as the protocols promise, and what did not."""
    yield from _about_modes(audit)
    yield from _about_total(audit)
    yield from _about_coalitions(audit)
    missed = [control.title for control in audit.controls if not control.caught]
    if missed:
        yield Mark.WRONG, f"{len(missed)} planted faults went unnoticed ({'; '.join(missed)}): do not trust this report"
    elif audit.controls:
        yield Mark.FINE, f"all {len(audit.controls)} planted faults were caught"
    yield from _about_noise(audit)


def _about_modes(audit: Audit) -> Iterator[Finding]:
    for mode in audit.settings.modes:
        cells = [cell for cell in audit.cells if cell.mode == mode and cell.score is not None]
        hidden = [cell for cell in cells if cell.expectation is Expectation.HIDDEN]
        broken = [cell for cell in hidden if not cell.as_expected]
        toothless = [cell for cell in cells if cell.expectation is Expectation.LEAKS and not cell.as_expected]
        if toothless:
            yield (
                Mark.WRONG,
                f"{mode}: {_titles(toothless)}: not won where it must be; this data set is too hard for that",
            )
        if broken:
            yield Mark.WRONG, f"{mode}: LEAKS what it must hide: {_titles(broken)}"
        elif mode == "plain":
            yield Mark.NOTICE, "plain: a message in the clear gives its client away, as it must: the attacks work"
        else:
            yield (
                Mark.FINE,
                f"{mode}: no evidence of leakage from a client's message in {len(hidden)} attacks, at this power",
            )
        for cell in cells:
            words = find_attack(cell.attack).if_open
            if words and cell.expectation is Expectation.OPEN and cell.leaked:
                yield Mark.NOTICE, f"{mode}: {words}"


def _about_total(audit: Audit) -> Iterator[Finding]:
    for cell in audit.cells:
        if cell.verdict is Verdict.NOT_TRIED:
            yield Mark.NOTICE, f"{cell.mode}: {cell.verdict.value}: {cell.too_large}"
    leaking = [cell for cell in audit.cells if cell.mode == TOTAL and cell.leaked]
    if leaking:
        yield (
            Mark.NOTICE,
            f"the total itself still says, in every mode: {_titles(leaking)}. Only larger cohorts or noise change that",
        )


def _titles(cells: list[Cell]) -> str:
    """What was attacked, in words; titles have commas of their own."""
    return "; ".join(find_attack(cell.attack).title for cell in cells)


def _about_coalitions(audit: Audit) -> Iterator[Finding]:
    wrong = [f"{one.mode}: {one.coalition}" for one in audit.coalitions if not one.as_stated]
    if wrong:
        yield Mark.WRONG, f"{len(wrong)} coalitions did not behave as their protocol states: {'; '.join(wrong)}"
    elif audit.coalitions:
        yield (
            Mark.FINE,
            f"all {len(audit.coalitions)} coalitions broke a message exactly where the protocol says, and not before",
        )


def _about_noise(audit: Audit) -> Iterator[Finding]:
    for one in audit.noise:
        if not one.as_expected:
            yield Mark.WRONG, f"{one.title}: {one.words}"
        elif not one.fault:
            yield (
                Mark.FINE,
                f"{one.title}: an attack shows epsilon to be at least {one.lower_bound:.2f}, the claim is at most "
                f"{one.epsilon:g} (for the row that moves totals most {one.canary_epsilon:.3g}); noise found over "
                f"{one.mode} is {one.noise_ratio:.3f} of what was claimed",
            )
    planted = [one for one in audit.noise if one.fault]
    if planted and all(one.as_expected for one in planted):
        yield Mark.FINE, f"all {len(planted)} planted faults of noise were caught"


def print_audit(audit: Audit, console: Console) -> None:
    """Print the verdict matrix, then the findings as sentences."""
    table = Table(show_edge=False, pad_edge=False, box=None)
    table.add_column("attack")
    for column in audit.columns:
        table.add_column(column)
    for attack in audit.attacks:
        cells = [audit.cell(attack.name, column) for column in audit.columns]
        table.add_row(attack.name, *(f"{SHORT[cell.verdict]}{_numbers(cell.score)}" for cell in cells))
    console.print(table)
    console.print(f"no evidence: {Verdict.NO_EVIDENCE.value}; numbers are successes of trials")
    for mark, sentence in findings(audit):
        if mark is not Mark.WRONG:
            console.print(f"{'! ' if mark is Mark.NOTICE else ''}{sentence}")


def _numbers(score: Score | None) -> str:
    return "" if score is None or not score.trials else f" {score.hits}/{score.trials}"
