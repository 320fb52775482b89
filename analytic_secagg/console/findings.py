"""A report of findings: a line each, with a mark that people and monitors look for, what was found and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Mark(StrEnum):
    """First word of a finding's line."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    Args:
        mark: whether something is to be done.
        text: what was found, a sentence.
        remedy: what to do; empty where nothing is, or where the sentence says so.
    """

    mark: Mark
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def ok(text: str) -> Finding:
    """Return a finding that is as it must be."""
    return Finding(Mark.OK, text)


def warn(text: str, remedy: str = "") -> Finding:
    """Return a finding that a person should know of."""
    return Finding(Mark.WARN, text, remedy)


def fail(text: str, remedy: str = "") -> Finding:
    """Return a finding that must be mended."""
    return Finding(Mark.FAIL, text, remedy)


def print_report(findings: Iterable[tuple[str, Finding]]) -> int:
    """Print each finding with the name of what was looked at, as it comes; return the exit code.

    Returns:
        1 where one must be mended, else 0.
    """
    code = 0
    for name, finding in findings:
        print(f"{finding.mark:4} {name}: {finding}", flush=True)
        code |= finding.mark is Mark.FAIL
    return int(code)
