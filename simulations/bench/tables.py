"""The benchmark's results as Markdown tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from simulations.bench.measure import Spread
from simulations.bench.rows import Figure, Row, Section, spaced
from simulations.bench.settings import Settings

SCHEMA = "analytic-secagg/bench/1"
VERDICTS = {True: "met", False: "NOT met", None: ""}


def machine_table(machine: Mapping[str, str]) -> str:
    """The machine's facts, one a line."""
    return "\n".join(["| machine | |", "| --- | --- |", *(f"| {name} | {fact} |" for name, fact in machine.items())])


def section_table(section: Section, rows: Sequence[Row]) -> str:
    """One section's heading, method and table."""
    columns = list(dict.fromkeys(name for row in rows for name in row.figures))
    header = ["case", *columns]
    if any(row.ratio is not None for row in rows):
        header += ["ratio", "goal", ""]
    lines = [f"### {section.letter}. {section.title}", "", section.method, ""]
    lines += [f"| {' | '.join(header)} |", "| --- |" + " ---: |" * (len(header) - 1)]
    for row in rows:
        cells = [row.case, *(_text(row.figures.get(name, "")) for name in columns)]
        cells += ["" if row.ratio is None else _text(row.ratio), str(row.goal or ""), VERDICTS[row.meets_goal]]
        lines.append(f"| {' | '.join(cells[: len(header)])} |")
    return "\n".join(lines)


def as_json(settings: Settings, machine: Mapping[str, str], results: Sequence[tuple[Section, Sequence[Row]]]) -> str:
    """Everything that was measured."""
    document = {
        "schema": SCHEMA,
        "settings": asdict(settings),
        "machine": dict(machine),
        "sections": [
            {
                "section": section.letter,
                "title": section.title,
                "method": section.method,
                "rows": [_row(row) for row in rows],
            }
            for section, rows in results
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _row(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "figures": {name: _value(figure) for name, figure in row.figures.items()},
        "ratio": None if row.ratio is None else asdict(row.ratio),
        "goal": None if row.goal is None else str(row.goal),
        "met": row.meets_goal,
    }


def _value(figure: Figure) -> Any:
    return asdict(figure) if isinstance(figure, Spread) else figure


def _text(figure: Figure) -> str:
    if isinstance(figure, Spread):
        if figure.runs == 1:
            return f"{figure.median:.3g}"
        return f"{figure.median:.3g} ({figure.low:.3g} to {figure.high:.3g})"
    if isinstance(figure, int):
        return spaced(figure)
    return f"{figure:.3g}" if isinstance(figure, float) else figure
