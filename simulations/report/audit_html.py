"""An audit as one self-contained page, for a person who is no cryptographer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from analytic.row_format import RowFormat
from simulations.audit.audit import PRIVATE_TOTAL, TOTAL, Audit, Cell, CurvePoint
from simulations.audit.catalogue import ATTACKS
from simulations.audit.evaluate import ALPHA, FALSE_POSITIVE_RATES, Score, Verdict, roc_curve
from simulations.audit.noisy_totals import NoiseEvidence
from simulations.report.audit_findings import findings
from simulations.report.page import render, row_picture
from simulations.report.plots import Line, LineChart

COLUMN_TITLES = {
    "plain": "no protection (plain)",
    "masked": "masked",
    "committee": "committee",
    "ckks": "encrypted (CKKS)",
    "bfv": "encrypted (BFV)",
    "masked+ckks": "masked, then encrypted (CKKS)",
    "masked+bfv": "masked, then encrypted (BFV)",
    "total": "the total alone",
    "private total": "the total with noise",
}

FEW = 30
"""Trials below which a cell says that they are few."""

CSS_CLASSES = {
    Verdict.RECOVERED: "recovered",
    Verdict.LEAKS: "leaks",
    Verdict.NO_EVIDENCE: "none",
    Verdict.TOO_FEW: "few",
    Verdict.NOT_TRIED: "few",
    Verdict.DOES_NOT_APPLY: "empty",
}


def to_html(audit: Audit, *, pictures: bool = True) -> str:
    """The page as text. It needs no network, no script and no other file.

    Args:
        audit: what to report.
        pictures: whether rows of the data are shown; a page with them must be kept like the data.
    """
    return render(
        "audit.html",
        filters={"percent": percent},
        title=f"Privacy audit: {audit.settings.learner} on {audit.dataset.name}",
        audit=audit,
        settings=audit.settings,
        findings=list(findings(audit)),
        folded=list(folded(audit)),
        folded_columns=list(FOLDED),
        promises=[promise(one) for one in audit.noise if not one.fault],
        columns=[(name, column_title(name)) for name in audit.columns],
        cell=audit.cell,
        css=CSS_CLASSES,
        outcome=outcome,
        attack_title=partial(_title, audit),
        galleries=list(_galleries(audit)) if pictures else [],
        pictures=pictures,
        charts=[(chart.title, Markup(chart.to_svg())) for chart in charts(audit)],  # noqa: S704 - our own SVG
        roc_rows=list(_roc_rows(audit)),
        found_at=[f"Found at {percent(rate)} false alarms" for rate in FALSE_POSITIVE_RATES],
        alpha=ALPHA,
        document=audit.to_json(),
    )


def column_title(name: str) -> str:
    """What a column is called on the page."""
    return COLUMN_TITLES.get(name) or name.replace("private total", COLUMN_TITLES["private total"])


def _title(audit: Audit, name: str) -> str:
    """What an attack is called on the page, by its name today or in reports."""
    own = next((one.title for one in ATTACKS.values() if name in (one.name, one.json_name)), name)
    return next((one.title for one in audit.attacks if one.name == name), own)


def percent(part: float) -> str:
    """A part of 1 in as few digits as say something."""
    if part in (0.0, 1.0):
        return f"{part:.0%}"
    return f"{100 * part:.2g} %" if part < 0.1 else f"{100 * part:.1f} %"


def outcome(cell: Cell) -> str:
    """The numbers below a verdict."""
    if cell.score is None or not cell.score.trials:
        return cell.too_large
    score, (low, high) = cell.score, cell.score.interval
    words = (
        f"{score.hits} of {score.trials}; guessing: {percent(score.chance)}; "
        f"95 % interval {percent(low)} to {percent(high)}"
    )
    if score.verdict is Verdict.NO_EVIDENCE and score.smallest_noticed is not None:
        words += f"; would have noticed {percent(score.smallest_noticed)}"
    return words if score.trials >= FEW else f"{words}; few trials"


FOLDED: dict[str, Callable[[str], bool]] = {
    "without protection": lambda name: name == "plain",
    "with protection": lambda name: name not in ("plain", TOTAL) and not name.startswith(PRIVATE_TOTAL),
    "the total alone": lambda name: name == TOTAL,
    "the total with noise": lambda name: name.startswith(PRIVATE_TOTAL),
}
"""Columns of the table for whoever checks, and which of the matrix they fold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Cells that say the same.

    Args:
        verdict: theirs.
        fine: whether it is as promised.
        where: which columns, where others of this kind say something else; else empty.
        words: the numbers of all of them together, as of a hundred people.
    """

    verdict: Verdict
    fine: bool
    where: str
    words: str


def folded(audit: Audit) -> Iterator[tuple[str, list[list[Fold]]]]:
    """Each attack's title, with what its cells come to in each column of ``FOLDED``."""
    for attack in audit.attacks:
        found = []
        for belongs in FOLDED.values():
            cells = [audit.cell(attack.name, name) for name in audit.columns if belongs(name)]
            alike: dict[tuple[Verdict, bool], list[Cell]] = {}
            for cell in cells:
                if cell.verdict is not Verdict.DOES_NOT_APPLY:
                    alike.setdefault((cell.verdict, cell.as_expected), []).append(cell)
            found.append(
                [
                    Fold(
                        verdict=verdict,
                        fine=fine,
                        where="" if len(alike) == 1 else ", ".join(column_title(one.mode) for one in own) + ": ",
                        words=of_people([one.score for one in own if one.score is not None]),
                    )
                    for (verdict, fine), own in alike.items()
                ]
            )
        yield attack.title, found


def of_people(scores: list[Score]) -> str:
    """What attacks came to together, as of a hundred people; empty where nothing was tried."""
    trials = sum(one.trials for one in scores)
    if not trials:
        return ""
    hits, guessed = sum(one.hits for one in scores), sum(one.chance * one.trials for one in scores)
    return (
        f"right for {_of_a_hundred(hits / trials)} of 100, by guessing alone for {_of_a_hundred(guessed / trials)} "
        f"({hits} of {trials} tries)"
    )


def _of_a_hundred(part: float) -> str:
    if 0 < part < 0.01 or 0.99 < part < 1:
        return "fewer than 1" if part < 0.5 else "more than 99"
    return f"{100 * part:.0f}" if part else "none"


def promise(one: NoiseEvidence) -> str:
    """What epsilon and delta come to for one person: Kairouz, Oh and Viswanath, 2015, at even odds."""
    most = (math.exp(one.epsilon) + one.delta) / (math.exp(one.epsilon) + 1)
    times = math.ceil(1e3 * most) / 10 if most < 0.995 else math.ceil(1e4 * most) / 100  # a bound is rounded up
    worth = (
        "little more than guessing" if most < 0.6
        else "a real limit" if most < 0.9
        else "a weak promise: ask what else protects them" if most < 0.995
        else "next to no promise for one person"
    )  # fmt: skip
    what = "a row" if one.unit == "record" else "a client's rows"
    hidden = (
        f"whether {what} went in" if one.adjacency == "add-remove" else f"which of two candidates for {what} went in"
    )
    return (
        f"epsilon {one.epsilon:g}, delta {one.delta:g}, for one {one.unit} ({one.adjacency}): whoever sees the total "
        f"and knows everything but {hidden} is right at most {times:g} times of 100, a coin 50 times: {worth}. "
        f"It holds while at least {one.promised_survivors} clients are in the total, of whom {one.colluders} may tell "
        "their noise; who has several rows is promised less, unless clients are protected"
    )


def charts(audit: Audit) -> Iterator[LineChart]:
    """Leakage against cohort size and rows per client, membership ROC curves."""
    if audit.row_curve:
        yield _curve(
            audit.row_curve,
            lambda point: point.rows,
            "Without protection: rows of one client rebuilt exactly, by how many it holds",
            "rows of a client, on average",
        )
    if audit.cohort_curve:
        yield _curve(
            audit.cohort_curve,
            lambda point: point.clients,
            "In the total that everybody may see: what stays, by the size of the cohort",
            "clients in the sum",
        )
    if rocs := dict(_rocs(audit)):
        yield LineChart(
            title="Membership: rows found against false alarms",
            x_label="false alarms (part of the rows that were not used)",
            series={name: _visible(score) for name, score in rocs.items()},
            words=" ".join(f"{name}: area under the curve {score.auc:.3f}." for name, score in rocs.items()),
            guessing=True,
        )


def _curve(points: list[CurvePoint], x: Callable[[CurvePoint], int], title: str, x_label: str) -> LineChart:
    names = list(dict.fromkeys(point.attack for point in points))
    series = {
        name: Line(x=[x(p) for p in points if p.attack == name], y=[p.score.rate for p in points if p.attack == name])
        for name in names
    }
    words = " ".join(
        f"{name}: " + ", ".join(f"{at:g}: {percent(rate)}" for at, rate in zip(line.x, line.y, strict=True)) + "."
        for name, line in series.items()
    )
    return LineChart(title=title, x_label=x_label, series=series, words=words)


def _rocs(audit: Audit) -> Iterator[tuple[str, Score]]:
    for cell in audit.cells:
        shown = cell.mode in ("plain", "masked", "total", "private total")
        if cell.score is not None and cell.score.has_curve and shown:
            yield f"{cell.attack}, {column_title(cell.mode)}", cell.score


def _visible(score: Score) -> Line:
    """A ROC curve from 1e-4 on, which a logarithmic axis can show."""
    false, true = roc_curve(score.members, score.others)
    step = max(1, len(false) // 400)
    kept = [place for place in range(len(false)) if place % step == 0 or false[place] < 0.02 or place == len(false) - 1]
    return Line(x=[max(1e-4, float(false[place])) for place in kept], y=[float(true[place]) for place in kept])


def _roc_rows(audit: Audit) -> Iterator[tuple[str, str, Score]]:
    for cell in audit.cells:
        if cell.score is not None and cell.score.has_curve:
            yield cell.attack, column_title(cell.mode), cell.score


def _galleries(audit: Audit) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    largest = RowFormat.parse(audit.settings.format).magnitude
    top = max((int(p.true.max()) for c in audit.cells if c.score for p in c.score.pictures), default=largest)
    for mode in ("plain", "masked"):
        for name in ("lone_rows", "lattice_rows"):
            cell = audit.cell(name, mode)
            if cell.score is not None and cell.score.pictures:
                title = f"{ATTACKS[name].title}, {COLUMN_TITLES[mode]}"
                yield (
                    title,
                    [
                        {
                            "true": row_picture(picture.true, top),
                            "rebuilt": None if picture.rebuilt is None else row_picture(picture.rebuilt, top),
                            "exact": picture.exact,
                        }
                        for picture in cell.score.pictures[:8]
                    ],
                )
