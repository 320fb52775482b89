"""What the reference says of commands and reports, written from their declarations: `<!-- options: compare -->`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analytic_secagg.console.declaration import option_lines
from benchmarks.command import COMMAND as BENCH
from benchmarks.command import BenchReport
from simulations.__main__ import EXPERIMENTS
from simulations.audit.record import Audit
from simulations.compare.comparison import Comparison
from simulations.report.document import Record

REPORTS: Mapping[str, type[Record]] = {"compare": Comparison, "audit": Audit, "bench": BenchReport}

_PLACE = re.compile(r"^<!-- (?P<what>options|report|schema): (?P<name>\w+) -->$", flags=re.MULTILINE)


def fill(text: str) -> str:
    """Put tables and schemas where a page names them."""
    makers: dict[str, Callable[[str], str]] = {"options": options, "report": report, "schema": schema}
    return _PLACE.sub(lambda place: makers[place["what"]](place["name"]), text)


def options(name: str) -> str:
    """Return the table of a command's options."""
    (command,) = (command for command in (*(listed.load() for listed in EXPERIMENTS), BENCH) if command.name == name)
    rows = (
        (f"`{line.flag} {line.metavar}`".replace(" `", "`"), line.default, line.help)
        for line in option_lines(command.options)
    )
    return _table(("option", "default", "meaning"), rows)


def report(name: str) -> str:
    """Return a table for a report and for each of its parts, below headings of their names."""
    found = REPORTS[name].schema_of_report()
    parts = {"": found, **{key: part for key, part in found["$defs"].items() if "properties" in part}}
    titles = {key: part["title"] for key, part in parts.items()}
    tables = []
    for key, part in parts.items():
        rows = (
            (f"`{field}`", _type(entry, titles), entry["description"].replace("\n", " "))
            for field, entry in part["properties"].items()
        )
        heading = f"### `{titles[key]}`\n\n" if key else ""
        tables.append(heading + _table(("name", "type", "meaning"), rows))
    return "\n\n".join(tables)


def schema(name: str) -> str:
    """Return a report's JSON Schema."""
    return f"```json\n{json.dumps(REPORTS[name].schema_of_report(), indent=2)}\n```"


def _type(entry: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    if "$ref" in entry:
        title = titles.get(entry["$ref"].rpartition("/")[2])
        return f"[{title}](#{title})" if title else "string"
    if "const" in entry:
        return f"`{json.dumps(entry['const'])}`"
    if "anyOf" in entry:
        return " or ".join(_type(one, titles) for one in entry["anyOf"])
    if entry["type"] == "array":
        return f"array of {_type(entry['items'], titles)}"
    return str(entry["type"])


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    cells = (tuple(cell.replace("|", "\\|") for cell in row) for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *cells))
