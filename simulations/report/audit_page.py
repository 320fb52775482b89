"""An audit as one self-contained page, for the person who decides and is no cryptographer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from simulations.audit.attack import Limit
from simulations.audit.catalogue import find_attack
from simulations.audit.decide import ExposureRecord, Outcome, Rule
from simulations.audit.exposure import Kind
from simulations.audit.record import Audit
from simulations.report.audit_findings import MARKS, cell_words, decision, sentences
from simulations.report.page import render
from simulations.report.plots import Line, LineChart

CSS_CLASSES = {
    Outcome.NOTHING_FOUND: "none",
    Outcome.LEAK: "leak",
    Outcome.WITHIN: "none",
    Outcome.OVER: "leak",
    Outcome.NOT_DECIDED: "undecided",
    Outcome.WON: "control",
    Outcome.LOST: "undecided",
    Outcome.SEEN: "seen",
}


def to_html(audit: Audit) -> str:
    """Return the page as text, without a row of the data. It needs no network, no script and no other file."""
    return render(
        "audit.html",
        filters={},
        title=f"Privacy audit: {audit.settings.learner} on {audit.dataset.name}"
        + (", a finished run" * bool(audit.run)),
        audit=audit,
        settings=audit.settings,
        decision=decision(audit),
        decision_css=MARKS[audit.decision].css,
        sentences=[(mark.css, sentence) for mark, sentence in sentences(audit)],
        columns=[(one.name, _column_title(one)) for one in audit.exposures],
        rows=list(_rows(audit)),
        chart=_chart(audit),
        assumptions=list(assumptions(audit)),
        attacks=[find_attack(one.name) for one in audit.attacks],
        document=audit.to_json(),
    )


def _column_title(exposure: ExposureRecord) -> str:
    if exposure.kind == Kind.MESSAGE:
        return f"one client's message, {exposure.name}"
    return f"{exposure.name} ({exposure.rows} rows)"


def _rows(audit: Audit) -> Iterator[dict[str, Any]]:
    """Yield the table's lines: each attack with a cell for each exposure."""
    for attack in audit.attacks:
        cells = []
        for exposure in audit.exposures:
            one = audit.result(attack.name, exposure.name)
            words = None if one is None else cell_words(one)
            cells.append((exposure.name, words, "empty" if one is None else CSS_CLASSES[one.outcome]))
        if any(words is not None for _, words, _ in cells):
            yield {"attack": attack, "cells": cells}


def _chart(audit: Audit) -> tuple[str, Markup] | None:
    """Return how much totals show by the size of the cohort, with the owner's own size marked."""
    sizes = {one.name: one.clients for one in audit.exposures if one.kind in (Kind.TOTAL, Kind.MODEL)}
    series = dict[str, dict[int, float]]()
    for one in audit.results:
        if one.exposure in sizes and one.value is not None and one.limit_name in (Limit.REBUILT_ROWS, Limit.MEMBERSHIP):
            series.setdefault(find_attack(one.attack).title, {})[sizes[one.exposure]] = one.value
    series = {name: points for name, points in series.items() if len(points) > 1}
    if not series:
        return None
    lines = {name: Line(x=sorted(points), y=[points[at] for at in sorted(points)]) for name, points in series.items()}
    own = audit.settings.clients
    ticks = {float(size): f"{size} (yours)" if size == own else str(size) for size in sorted({*sizes.values()})}
    words = " ".join(
        f"{name}: " + ", ".join(f"{at:g} clients {value:.2f}" for at, value in zip(line.x, line.y, strict=True)) + "."
        for name, line in lines.items()
    )
    title = "What totals and models show, by the number of clients"
    chart = LineChart(title=title, x_label="clients in the total", series=lines, words=words, ticks=ticks)
    return title, Markup(chart.to_svg())  # noqa: S704 - our own SVG


def assumptions(audit: Audit) -> Iterator[str]:
    """Yield what the decision takes for granted, and what it is worth where an attack shows that."""
    crafted = next((one for one in audit.results if one.attack == "crafted_features" and one.score), None)
    words = "The feature map is the one that all sites agreed on."
    if crafted is not None and crafted.score is not None:
        words += f" If it were crafted, {crafted.hits} of {crafted.trials} rows would come out of the total."
    yield words
    second = next((one for one in audit.results if one.attack == "differencing" and one.rule is Rule.KNOWN), None)
    words = "Sites keep query logs, and refuse a second total from which one site could be computed."
    if second is not None and second.trials:
        words += f" Without them two or three totals show a site ({second.hits} of {second.trials} tries)."
    yield words
    hiding = {one.exposure for one in audit.results if one.rule is Rule.MUST_HIDE}
    for one in audit.exposures:
        if one.name in hiding:
            words = f"{one.name}: together these could open a client's message, and do not collude: {one.exposed_by}."
            tried = audit.result("collusion", one.name)
            if tried is not None and tried.trials:
                words += f" Fewer were tried, of five clients: they opened {tried.hits} of {tried.trials} messages."
            yield words
    yield "Sites are honest about their rows: whoever owns other rows of a cohort knows more than the lines above say."
    yield (
        f"Attackers know what their line says: at most a list of {min(audit.dataset.train_rows, 2000)} candidate rows "
        "with labels, and further rows of the same kind."
    )
