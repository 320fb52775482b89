"""Columns of tables: how a record's field is headed and written, declared where the field is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simulations.report.document import Record

NONE = "-"
"""Stands where a column says nothing about a record."""

Rows = tuple[list[str], list[list[str]]]
"""Headings of columns, and the cells of each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field in tables.

    Args:
        heading: above the column.
        text: writes a value.
        none: is written in place of null.
        in_brackets: a second field, written in brackets behind the first.
        page_only: whether a terminal has no room for it.
    """

    heading: str
    text: Callable[[Any], str] = str
    none: str = NONE
    in_brackets: str = ""
    page_only: bool = False

    def cell(self, record: Record, name: str) -> str:
        """Write a field of a record."""
        value = getattr(record, name)
        if value is None:
            return self.none
        behind = getattr(record, self.in_brackets) if self.in_brackets else None
        return self.text(value) if behind is None else f"{self.text(value)} ({self.text(behind)})"


def columns_of(kind: type[Record], records: Iterable[Record] | None = None) -> Mapping[str, Column]:
    """Return the columns that a kind of record declares, by field; of some records those that say something of any."""
    declared = {
        name: column
        for name, info in kind.model_fields.items()
        for column in info.metadata
        if isinstance(column, Column)
    }
    if records is None:
        return declared
    known = list(records)
    return {name: own for name, own in declared.items() if any(getattr(one, name) is not None for one in known)}


def rows_of(records: Sequence[Record], columns: Mapping[str, Column]) -> Rows:
    """Return headings and cells of records."""
    headings = [column.heading for column in columns.values()]
    return headings, [[column.cell(one, name) for name, column in columns.items()] for one in records]


def percent(value: float) -> str:
    """``93.1%``, with two digits behind the point."""
    return f"{value:.2%}"


def yes_or_no(fine: bool) -> str:
    """Say it so that the exception is loud."""
    return "yes" if fine else "NO"


def human_bytes(count: float) -> str:
    """``12.3 kB``: bytes in decimal units, three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"


def error_text(value: float | None) -> str:
    """Write ``exactly 0`` or three digits, or that there is no number."""
    return "not linear" if value is None else f"{value:.2e}" if value else "exactly 0"
