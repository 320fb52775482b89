"""Sentences about an audit for the person who decides, the same on the terminal and on the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from analytic_secagg.audit_plan import STANDARD_RULE
from simulations.audit.attack import MASKED, Limit, Unit
from simulations.audit.catalogue import NAMES, find_attack
from simulations.audit.decide import ExposureRecord, Outcome, Result, Rule, Verdict
from simulations.audit.exposure import Kind
from simulations.audit.record import Audit
from simulations.audit.two_worlds import Outcome as EpsilonOutcome
from simulations.audit.two_worlds import TwoWorlds
from simulations.report.document import Finding, Mark

MARKS = {Verdict.PASSED: Mark.FINE, Verdict.FAILED: Mark.WRONG, Verdict.NOT_DECIDED: Mark.NOTICE}

DECISIONS = {
    Verdict.PASSED: "Passed: nothing leaked that must be hidden, and no total or model shows more than its limit.",
    Verdict.FAILED: "Failed: something leaks that must be hidden, or a total or a model shows more than its limit.",
    Verdict.NOT_DECIDED: "Not decided: no leak is known, and the lines marked ! or ✗ leave a question open.",
}

BAD = (Outcome.LEAK, Outcome.OVER)

WEAK = 0.9
"""How often an attacker may be right under a claim of noise that is a weak promise."""


def decision(audit: Audit) -> str:
    """Return the decision in words, and what it is not about: attacks that were not chosen."""
    tried = {one.name for one in audit.attacks}
    left_out = [name for name in NAMES if name not in tried]
    words = f" It is about the chosen attacks alone; {', '.join(left_out)} were left out." if left_out else ""
    if audit.decision is Verdict.PASSED and any(map(_is_for_a_person, audit.results)):
        words = f" What has no limit is for you to judge: see the lines marked !.{words}"
    return DECISIONS[audit.decision] + words


def _is_for_a_person(one: Result) -> bool:
    """Whether an attack on the owner's totals or models is mostly right about a row, and has no limit."""
    if one.rule is not Rule.MAY_BE_SEEN or one.limit is not None or one.score is None or one.score.error is not None:
        return False
    return find_attack(one.attack).unit is Unit.ROW and one.score.leaked and one.score.rate > 0.5


def sentences(audit: Audit) -> list[Finding]:
    """Return what is learnt from messages, from the total and from the model, one finding each; then what else is."""
    return [
        *_about_two_sites(audit),
        *_about_messages(audit),
        *_about_seen(audit),
        *_about_noise(audit),
        *_about_failures(audit),
        *_about_controls(audit),
        *_about_what_is_known(audit),
    ]


def _about_two_sites(audit: Audit) -> Iterator[Finding]:
    if audit.settings.clients == 2:
        yield (
            Mark.WRONG,
            "Two sites: each takes its own sums off the total and has the other's, exactly and in every mode. Take "
            "three or more.",
        )


# Messages


def _about_messages(audit: Audit) -> Iterator[Finding]:
    hidden = [one for one in audit.results if one.rule is Rule.MUST_HIDE]
    modes = list(dict.fromkeys(one.exposure for one in hidden))
    names = ", ".join(modes)
    leaks = [one for one in hidden if one.outcome is Outcome.LEAK]
    undecided = [one for one in hidden if one.outcome is Outcome.NOT_DECIDED]
    if leaks:
        what = "; ".join(f"{one.exposure}: {_title(one)} ({_tries(one)})" for one in leaks)
        yield Mark.WRONG, f"Messages: what must be hidden is not: {what}. Do not use this; report it to the authors."
    elif undecided:
        failed = [one for one in undecided if one.score is None]
        what = "; ".join(
            f"{one.exposure}: {_title(one)}{' (could not be tried: see ✗)' * (one in failed)}" for one in undecided
        )
        advice = "" if len(failed) == len(undecided) else " Run more --sessions and --trials."
        yield (
            Mark.NOTICE,
            f"Messages ({names}): no leak was found, but {len(undecided)} of {len(hidden)} attacks could not be tried, "
            f"would have missed one, or do not work on these rows: {what}.{advice}",
        )
    elif hidden:
        weakest = max(one.noticed or 1.0 for one in hidden)
        yield (
            Mark.FINE,
            f"Messages ({names}): whoever sees a client's message learnt nothing about a person or a site in "
            f"{_attacks(len(hidden))}. The weakest attack would have noticed a leak that helps in {_of_100(weakest)} "
            "of 100 tries. Messages need nothing more.",
        )


def _about_failures(audit: Audit) -> Iterator[Finding]:
    for one in audit.failures:
        yield Mark.WRONG, f"Could not be tried: {one}. Nothing is known about it: do not use it before this is mended."


# Totals and models


def _about_seen(audit: Audit) -> Iterator[Finding]:
    for exposure in audit.exposures:
        if exposure.kind == Kind.MESSAGE:
            continue
        results = [one for one in audit.results if one.exposure == exposure.name and one.rule is Rule.MAY_BE_SEEN]
        if results:
            yield _of_exposure(audit, exposure, results)


def _of_exposure(audit: Audit, exposure: ExposureRecord, results: Sequence[Result]) -> Finding:
    """Say first whether it is within its limits and what to do, then a line for each thing that is learnt."""
    name, size = exposure.name, f"{exposure.rows} rows"
    if exposure.clients < audit.settings.clients:
        size += f", if all other clients drop out of {audit.settings.clients}"
    over = [one for one in results if one.outcome is Outcome.OVER]
    undecided = [one for one in results if one.outcome is Outcome.NOT_DECIDED]
    lines = [*_person(results), *_cohort(results)]
    lines = lines or [f"{_attacks(len(results))} tried, none about a person or a group."]
    if over:
        mark, words = Mark.WRONG, f"over the limit: {'; '.join(f'{_title(one)} ({_beside(one)})' for one in over)}."
        words += " Do not release it: take more clients and rows, fewer columns, or noise."
    elif undecided:
        mark, words = Mark.NOTICE, f"not decided: {'; '.join(f'{_title(one)} ({_beside(one)})' for one in undecided)}."
        words += " Audit with more rows, or state other limits."
    else:
        rebuilt = any(one.hits for one in results if one.limit_name == Limit.REBUILT_ROWS)
        mark, words = Mark.NOTICE if rebuilt else Mark.FINE, f"within the {_whose_limits(audit)}."
        limited = [one for one in results if one.limit and one.value is not None]
        if limited:
            nearest = max(limited, key=lambda one: (one.value or 0.0) / (one.limit or 1.0))
            words += f" Nearest to its limit: {_lower(_title(nearest))} ({_beside(nearest)})."
    if judged := [one for one in results if _is_for_a_person(one)]:
        mark = Mark.NOTICE if mark is Mark.FINE else mark
        what = "; ".join(f"{_lower(_title(one))} ({_tries(one)})" for one in judged)
        words += f" No limit is stated for what you must judge yourself: {what}."
    for check in audit.checks:
        if check.exposure == name and check.refused:
            mark = Mark.NOTICE if mark is Mark.FINE else mark
            words += f" A server with the standard disclosure checks does not release it: {'; '.join(check.findings)}."
    return mark, "\n".join([f"{name[0].upper()}{name[1:]} ({size}): {words}", *lines])


def _person(results: Sequence[Result]) -> Iterator[str]:
    """Yield what is learnt about one person, the worst number of each kind."""
    rebuilt = [one for one in results if one.limit_name == Limit.REBUILT_ROWS and one.score is not None]
    if rebuilt:
        worst = max(rebuilt, key=lambda one: (one.hits or 0, one.value or 0.0))
        yield (
            f"{worst.hits} of {worst.trials} rows come out exactly, a person each (attack: {_title(worst)}): leave out "
            "columns that few rows fill, or join columns and classes, until none does."
            if worst.hits
            else "No row comes out."
        )
    members = [one for one in results if one.limit_name == Limit.MEMBERSHIP and one.value is not None]
    if members:
        worst = max(members, key=lambda one: one.value or 0.0)
        yield (
            f"Whoever has one person's row tells whether it was used {_of_100(worst.value or 0.0)} of 100 times, for "
            f"the tenth of the people who stand out most (a coin: 50{_limit(worst)})."
        )
    for one in results:
        if one.attack == "dictionary" and one.trials:
            yield (
                "Whoever has a list of all rows that may have been used, labels included, tells a used row from "
                f"another {_of_100((one.hits or 0) / one.trials)} of 100 times (a coin: 50; no limit)."
            )
        if one.limit_name == Limit.ATTRIBUTE and one.score is not None:
            right, blind = _of_100(one.score.rate), _of_100(one.score.chance)
            yield (
                "Whoever knows a person's row but for one value "
                + (
                    f"guesses its quarter right {right} of 100 times ({blind} without the total"
                    if one.score.rate > one.score.chance
                    else f"does not guess its quarter better than without the total ({right} and {blind} of 100"
                )
                + f"{_limit(one, ' more')}).{_told_best(one)}"
            )


def _told_best(one: Result) -> str:
    """Name the columns that were hidden, the one first whose value the total tells most about."""
    gained = sorted(one.columns.items(), key=lambda column: -column[1])
    if not gained:
        return ""
    name, most = gained[0]
    others = ", ".join(name for name, _ in gained[1:])
    also = f"; also tried: {others}" if others else ""
    return f" Told best: {name} ({_of_100(max(0.0, most))} of 100 times more than without{also})."


def _cohort(results: Sequence[Result]) -> Iterator[str]:
    for one in results:
        if one.limit_name == Limit.GROUP_SHARE and one.score is not None:
            yield (
                f"Of the cohort: a group's part of all rows is estimated with a mean error of "
                f"{_percent(one.score.error or 0.0)} ({_percent(one.score.blind_error or 0.0)} without the total); "
                "more clients do not change that."
            )


def _limit(one: Result, more: str = "") -> str:
    return "" if one.limit is None else f"; limit: {_of_100(one.limit)}{more}"


def _beside(one: Result) -> str:
    """Return a number beside its limit."""
    value = "nothing to look for" if one.value is None else _percent(one.value)
    return value if one.limit is None else f"{value}, limit {_percent(one.limit)}"


# Noise and controls


def _about_noise(audit: Audit) -> Iterator[Finding]:
    for one in audit.two_worlds:
        told = (
            f"Noise for epsilon {one.epsilon:g}: in {one.runs} small runs of {one.learner} with and without one person "
            f"the best attack shows epsilon to be at least {one.lower_bound:.2f}; the claim is at most "
            f"{one.epsilon:g}. {_percent(one.noise_ratio)} of the claimed noise was found "
            f"({' to '.join(map(_percent, one.noise_interval))})."
        )
        if one.outcome is EpsilonOutcome.REFUTED:
            yield Mark.WRONG, f"{told} THE CLAIM IS REFUTED. Do not release it; report it to the authors."
        elif one.outcome is EpsilonOutcome.NOT_DECIDED:
            yield (
                Mark.NOTICE,
                f"{told} The attack came to less than half of the claim, which decides nothing: run more "
                f"--two-world-runs.\n{promise(one, audit.settings.clients)}.",
            )
        else:
            mark = Mark.NOTICE if most_right(one) >= WEAK else Mark.FINE
            yield mark, f"{told}\n{promise(one, audit.settings.clients)}."


def _about_controls(audit: Audit) -> Iterator[Finding]:
    """Say which attacks found nothing where nothing protects: what they find elsewhere counts for nothing."""
    lost = [one.title for one in audit.attacks if one.works is False]
    if lost:
        yield Mark.NOTICE, f"These attacks did not win where they must, so they decide nothing: {'; '.join(lost)}."
    elif tried := [one for one in audit.attacks if one.works]:
        yield Mark.FINE, f"The attacks work: all {len(tried)} that decide something win where nothing protects."


def _about_what_is_known(audit: Audit) -> Iterator[Finding]:
    won = [one for one in audit.results if one.rule is Rule.CONTROL and one.outcome is Outcome.WON]
    if won:
        rows = ", up to every row of a client" if any(one.attack == "lattice_rows" for one in won) else ""
        yield (
            Mark.NOTICE,
            f"Messages without protection ({won[0].exposure}): {_attacks(len(won))} won{rows}, as they must. "
            "It is here to show that the attacks work; do not use it with people's data.",
        )
    open_ = [one for one in audit.results if one.rule is Rule.KNOWN and one.score and one.score.leaked]
    for one in open_:
        if words := find_attack(one.attack).if_open:
            yield Mark.NOTICE, f"Messages ({one.exposure}): {words}."


def most_right(one: TwoWorlds) -> float:
    """Return how often an attacker is right at most under a claim."""
    return (math.exp(one.epsilon) + one.delta) / (math.exp(one.epsilon) + 1)


def promise(one: TwoWorlds, clients: int) -> str:
    """Return what epsilon and delta come to for one person: Kairouz, Oh and Viswanath, 2015, at even odds.

    Args:
        one: the claim.
        clients: of the owner's cohort.
    """
    least = MASKED.guarantee(tuple(range(1, clients + 1))).min_survivors
    most = most_right(one)
    times = math.ceil(1e3 * most) / 10 if most < 0.995 else math.ceil(1e4 * most) / 100  # a bound is rounded up
    worth = (
        "little more than guessing" if most < 0.6
        else "a real limit" if most < WEAK
        else "a weak promise: ask what else protects them" if most < 0.995
        else "next to no promise for one person"
    )  # fmt: skip
    what = "a row" if one.unit == "record" else "a client's rows"
    hidden = (
        f"whether {what} went in" if one.adjacency == "add-remove" else f"which of two candidates for {what} went in"
    )
    return (
        f"Epsilon {one.epsilon:g}, delta {one.delta:g}, for one {one.unit} ({one.adjacency}): whoever sees the total "
        f"and knows everything but {hidden} is right at most {times:g} times of 100, a coin 50 times: {worth}. "
        f"It holds while at least {least} of {clients} clients are in the total, of whom {one.colluders} may tell "
        "their noise; who has several rows is promised less, unless clients are protected"
    )


# Words


def _attacks(number: int) -> str:
    return f"{number} attack{'s' * (number != 1)}"


def _whose_limits(audit: Audit) -> str:
    is_own = dict(audit.rule.limits) != STANDARD_RULE["limits"]
    return "limits that its owner stated" if is_own else "limits of this program, since nobody stated others"


def _lower(title: str) -> str:
    return title[:1].lower() + title[1:]


def _title(one: Result) -> str:
    return find_attack(one.attack).title


def _tries(one: Result) -> str:
    return f"right in {one.hits} of {one.trials} tries, by guessing {_percent(one.chance or 0.0)}"


def _of_100(part: float) -> str:
    """Return a part as so many of a hundred."""
    if 0 < part < 0.01 or 0.99 < part < 1:
        return "fewer than 1" if part < 0.5 else "more than 99"
    return f"{100 * part:.0f}"


def _percent(part: float) -> str:
    """Return a part of 1 in as few digits as say something."""
    if part in (0.0, 1.0):
        return f"{part:.0%}"
    if part < 1e-5:
        return "under 0.001 %"
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.1f} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellWords:
    """A cell of the table, in words.

    Args:
        outcome: what it comes to.
        learnt: the number.
        seen: the limit, or what would have been noticed; empty where neither says anything.
    """

    outcome: str
    learnt: str
    seen: str


def cell_words(one: Result) -> CellWords:
    """Return a result as a cell says it: learnt, limit, would have noticed."""
    if one.score is None:
        return CellWords(outcome=one.outcome.value, learnt=one.reason, seen="")
    if one.score.error is not None:
        learnt = f"mean error {_percent(one.score.error)}, without it {_percent(one.score.blind_error or 0.0)}"
    elif not one.trials:
        learnt = "these rows have none, so none comes out"
    elif one.limit_name == Limit.MEMBERSHIP and one.value is not None:
        interval = " to ".join(map(_percent, one.interval or ()))
        learnt = f"{_percent(one.value)} for the tenth that stands out most ({interval})"
    else:
        learnt = f"{one.hits} of {one.trials}, guessing {_percent(one.chance or 0.0)}"
    if one.limit is not None:
        seen = f"limit {_percent(one.limit)}{' above guessing' * (one.limit_name == Limit.ATTRIBUTE)}"
    elif one.rule is Rule.KNOWN and one.score.leaked:
        seen = "known: no mode prevents it, see what is taken for granted"
    else:
        seen = f"would have noticed {_percent(one.noticed)}" if one.rule is Rule.MUST_HIDE and one.noticed else ""
    return CellWords(outcome=one.outcome.value, learnt=learnt, seen=seen)


def print_audit(audit: Audit, console: Console) -> None:
    """Print the decision and the sentences, then what each attack learnt."""
    console.print(decision(audit), style="bold")
    for mark, sentence in sentences(audit):
        first, *more = sentence.splitlines()
        console.print(f"{'✓' if mark is Mark.FINE else '✗' if mark is Mark.WRONG else '!'} {first}", markup=False)
        for line in more:
            console.print(f"  - {line}", markup=False)
    table = Table(show_edge=False, pad_edge=False, box=None)
    for column in ("exposure", "attack", "learnt", "limit, or would have noticed", "outcome"):
        table.add_column(column, overflow="fold")
    for one in audit.results:
        words = cell_words(one)
        table.add_row(one.exposure, one.attack, words.learnt, words.seen, words.outcome)
    console.print(table)
