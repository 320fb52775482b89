"""The command: speed and size beside floors and peers, as Markdown tables and as JSON."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from analytic_secagg.console.arguments import file, items
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import UsageError
from benchmarks import learning
from benchmarks.commands import COMMANDS
from benchmarks.liars import BY_LIARS
from benchmarks.masked_client import MASKING, WHOLE_CLIENT, WIRE_BYTES
from benchmarks.means import MEANS
from benchmarks.measure import Figure, Row, Section, Settings, Spread, describe_machine, one_thread, spaced
from benchmarks.sessions import BY_COHORT_SIZE, BY_MODE
from simulations.command_line.progress import SILENT_SECONDS
from simulations.report.document import Record

SECTIONS: Mapping[str, Section] = {
    section.letter: section
    for section in (
        MASKING,
        WHOLE_CLIENT,
        WIRE_BYTES,
        *learning.SECTIONS,
        BY_COHORT_SIZE,
        BY_MODE,
        BY_LIARS,
        MEANS,
        COMMANDS,
    )
}
"""Every section by its letter."""

RESULTS = "## Results"
"""The line of a page below which the tables are."""

VERDICTS = {True: "met", False: "NOT met", None: ""}


class SettingsRecord(Record, title="settings"):
    """The settings of a benchmark."""

    runs: int
    """Rounds of each comparison."""
    quick: bool
    """Whether sizes were small ones, for which no goal is stated."""


class SectionRecord(Record, title="section"):
    """What a section found."""

    section: str
    """Its letter."""
    title: str
    """The question."""
    method: str
    """What exactly is compared with what."""
    rows: tuple[Row, ...]
    """A row for each case."""

    @classmethod
    def of(cls, section: Section, rows: Iterable[Row]) -> SectionRecord:
        """Put what was measured below its question."""
        return cls(section=section.letter, title=section.title, method=section.method, rows=tuple(rows))


class BenchReport(Record, title="Report of python -m benchmarks"):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/bench/1"] = Field(default="analytic-secagg/bench/1", serialization_alias="schema")
    """Says what kind of document this is; the number rises when a name changes its meaning or goes away."""
    settings: SettingsRecord
    """How much was measured."""
    machine: Mapping[str, str]
    """Processor, cores, load before and after, system, versions, BLAS and threads: texts by name."""
    sections: tuple[SectionRecord, ...]
    """What was measured, a section for each letter."""


def _sections(text: str) -> tuple[Section, ...]:
    letters = items(text)
    if not SECTIONS.keys() >= set(letters):
        raise UsageError(f"needs letters out of {','.join(SECTIONS)} with commas between, not {text!r}")
    return tuple(SECTIONS[letter] for letter in dict.fromkeys(letters))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """All that the command understands."""

    sections: tuple[Section, ...] = option(
        "which", _sections, default=tuple(SECTIONS.values()), metavar="a,b,...", shown="all"
    )
    settings: Settings = part(Settings)
    json: Path | None = option("write everything that was measured there", file, default=None, metavar="FILE")
    page: Path | None = option(
        f"a Markdown page; what is below its line '{RESULTS}' is replaced by the tables",
        file,
        default=None,
        metavar="FILE",
    )


def run(options: BenchOptions) -> int:
    """Measure and print, one section after the other.

    Raises:
        OutputError: the JSON file cannot be written.
        FederationError: a session did not come to its end.
    """
    output = None if options.json is None else OutputFile(options.json)
    page = None if options.page is None else (OutputFile(options.page), _above_results(options.page))
    machine = describe_machine()
    facts = "\n".join(f"| {name} | {fact} |" for name, fact in machine.items())
    tables = [f"| machine | |\n| --- | --- |\n{facts}"]
    print(tables[0], flush=True)
    found: list[SectionRecord] = []
    with one_thread():
        for section in options.sections:
            found.append(SectionRecord.of(section, _told(section, options.settings)))
            tables.append(section_table(found[-1]))
            print(f"\n{tables[-1]}", flush=True)
    load = f"{os.getloadavg()[0]:.2f}"
    verdicts = [row.met for one in found for row in one.rows if row.met is not None]
    tables.append(f"{sum(verdicts)} of {len(verdicts)} goals met; load at the end {load}")
    print(f"\n{tables[-1]}")
    if output is not None:
        report = BenchReport(
            settings=SettingsRecord.model_validate(options.settings),
            machine={**machine, "load after": load},
            sections=tuple(found),
        )
        output.write(report.to_json())
    if page is not None:
        file, above = page
        file.write("\n\n".join([f"{above}\n{RESULTS}", _made_by(options), *tables]) + "\n")
    return 0


def _above_results(path: Path) -> str:
    """Return what a page says above its results.

    Raises:
        UsageError: it has no such line.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    above, line, _ = text.partition(f"\n{RESULTS}\n")
    if not line:
        raise UsageError(f"--page: needs a page with a line '{RESULTS}', below which it is replaced; {path} has none")
    return above


def _made_by(options: BenchOptions) -> str:
    """Say which command made the tables."""
    letters = ",".join(section.letter for section in options.sections)
    asked = [f"--sections {letters}"] if len(options.sections) < len(SECTIONS) else []
    if options.settings.quick:
        asked.append("--quick")
    asked.append(f"--runs {options.settings.runs}")
    return (
        f"All tables are of one run of `python -m benchmarks {' '.join(asked)}`. Brackets hold the smallest and the "
        "largest of the rounds."
    )


def _told(section: Section, settings: Settings) -> Iterator[Row]:
    """Say on standard error what a long section has found, since its table is printed whole and may take hours."""
    started = time.monotonic()
    for row in section.run(settings):
        if (passed := time.monotonic() - started) > SILENT_SECONDS:
            ratio = "" if row.ratio is None else f", ratio {_text(row.ratio)}"
            print(f"{section.letter}, after {passed:.0f} s: {row.case}{ratio}", file=sys.stderr, flush=True)
        yield row


def section_table(found: SectionRecord) -> str:
    """Return one section's heading, method and table."""
    columns = list(dict.fromkeys(name for row in found.rows for name in row.figures))
    header = ["case", *columns]
    if any(row.ratio is not None for row in found.rows):
        header += ["ratio", "goal", ""]
    lines = [f"### {found.section}. {found.title}", "", found.method, ""]
    lines += [f"| {' | '.join(header)} |", "| --- |" + " ---: |" * (len(header) - 1)]
    for row in found.rows:
        cells = [row.case, *(_text(row.figures.get(name, "")) for name in columns)]
        cells += ["" if row.ratio is None else _text(row.ratio), str(row.goal or ""), VERDICTS[row.met]]
        lines.append(f"| {' | '.join(cells[: len(header)])} |")
    return "\n".join(lines)


def _text(figure: Figure) -> str:
    if isinstance(figure, Spread):
        spread = f" ({figure.low:.3g} to {figure.high:.3g})" if figure.runs > 1 else ""
        return f"{figure.median:.3g}{spread}"
    if isinstance(figure, int):
        return spaced(figure)
    return f"{figure:.3g}" if isinstance(figure, float) else figure


def _examples() -> str:
    sections = "\n".join(f"  {section.letter}  {section.title}" for section in SECTIONS.values())
    return f"""sections:
{sections}

examples:
  python -m benchmarks --json bench.json --page docs/explanation/performance.md
      everything, into the documentation; an hour or two on two cores, most of it the sessions of 10 000 clients
  python -m benchmarks --sections a,c,d
      some of it
  python -m benchmarks --quick --sections c,e
      small sizes, seconds; the goals are stated for the full ones

The tables are Markdown, so that they can stand in a document as they are. A ratio is the median of the rounds' own
ratios, with the smallest and the largest. A goal that is not met is no error.
"""


COMMAND = Command(
    name="bench",
    summary="measure speed and size beside floors and peers in the same run",
    examples=_examples(),
    options=BenchOptions,
    run=run,
    fine="everything could be measured",
)
