"""The command ``bench``: speed and size beside floors and peers, as tables and as JSON."""

from __future__ import annotations

import argparse
import os

from federation.console.arguments import checked, file, items, whole
from federation.console.output_files import OutputFile
from federation.console.process import exit_codes
from federation.errors import UsageError
from simulations.bench.machine import describe_machine, one_thread
from simulations.bench.rows import Row, Section
from simulations.bench.sections import SECTIONS
from simulations.bench.settings import LEAST_RUNS, Settings
from simulations.bench.tables import as_json, machine_table, section_table

NAME = "bench"
SUMMARY = "measure speed and size beside floors and peers in the same run"
EXAMPLES = """sections:
{sections}

examples:
  python -m simulations bench --json bench.json
      everything; on two cores about twenty minutes, most of it the session of 10 000 clients
  python -m simulations bench --sections a,c,d
      some of it
  python -m simulations bench --quick --sections c,e
      small sizes, seconds; the goals are stated for the full ones

The tables are Markdown, so that they can stand in a document as they are. A ratio is the median of the rounds' own
ratios, with the smallest and the largest. A goal that is not met is no error.

{exit_codes}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what ``bench`` understands."""
    parser.description = f"{SUMMARY[0].upper()}{SUMMARY[1:]}."
    listed = "\n".join(f"  {section.letter}  {section.title}" for section in SECTIONS.values())
    parser.epilog = EXAMPLES.format(sections=listed, exit_codes=exit_codes("everything could be measured"))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--sections",
        type=checked(_sections),
        default=tuple(SECTIONS.values()),
        metavar="a,b,...",
        help="which (default: all)",
    )
    parser.add_argument(
        "--runs",
        type=checked(lambda text: whole(text, at_least=LEAST_RUNS)),
        default=LEAST_RUNS,
        help="rounds of a comparison (default and least: 5)",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--json", type=checked(file), metavar="FILE", help="write everything that was measured there")


def run(arguments: argparse.Namespace) -> int:
    """Measure and print, one section after the other.

    Raises:
        OutputError: the JSON file cannot be written.
        FederationError: a session did not come to its end.
    """
    settings = Settings(runs=arguments.runs, quick=arguments.quick)
    output = None if arguments.json is None else OutputFile(arguments.json)
    machine = describe_machine()
    print(machine_table(machine), flush=True)
    results: list[tuple[Section, list[Row]]] = []
    with one_thread():
        for section in arguments.sections:
            rows = list(section.run(settings))
            results.append((section, rows))
            print(f"\n{section_table(section, rows)}", flush=True)
    _print_verdict([row for _, rows in results for row in rows])
    if output is not None:
        output.write(as_json(settings, {**machine, "load after": f"{os.getloadavg()[0]:.2f}"}, results))
    return 0


def _print_verdict(rows: list[Row]) -> None:
    verdicts = [row.meets_goal for row in rows if row.meets_goal is not None]
    print(f"\n{sum(verdicts)} of {len(verdicts)} goals met; load at the end {os.getloadavg()[0]:.2f}")


def _sections(text: str) -> tuple[Section, ...]:
    letters = items(text)
    unknown = [letter for letter in letters if letter not in SECTIONS]
    if unknown:
        raise UsageError(f"needs letters out of {','.join(SECTIONS)} with commas between, not {text!r}")
    return tuple(SECTIONS[letter] for letter in dict.fromkeys(letters))
