"""Reading of a table by its own site: the section ``[client.reading]`` of the site's file.

The shared schema says what columns mean, and all sites have the same. The reading says how this one file writes them,
is the site's own business, and is no part of the schema's fingerprint.
"""

from __future__ import annotations

import functools
import json
import math
import re
from decimal import Decimal
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.strict_models import StrictModel, Texts, read_toml, validated

HERE = "[client.reading] of this site's own file"
"""Place of the section, for texts of errors."""

Names = Annotated[tuple[str, ...], Field(strict=False)]


def key_of(name: str) -> str:
    """Return a column's name as TOML writes it as a key."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def section_of(name: str) -> str:
    """Return the section of a reading that is of one column, as its file writes it."""
    return f"[client.reading.columns.{key_of(name)}]"


class ColumnReading(StrictModel):
    """Spelling of one column in this file (``[client.reading.columns.NAME]``).

    Args:
        name: its name in this file; None where it is the schema's.
        missing: texts that stand for no value in this column alone.
        recode: the file's text -> the schema's text, a category or a number.
        factor: what numbers are multiplied by, to come in the schema's unit.
        add: what is added to them after that.
    """

    name: str | None = None
    missing: Texts = frozenset()
    recode: dict[str, str] = Field(default_factory=dict)
    factor: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    add: Annotated[float, Field(allow_inf_nan=False)] = 0.0


class Reading(StrictModel):
    """Spelling of a table in this file; the defaults are CSV as most programs write it.

    Args:
        separator: between values; None for a comma, in ``.tsv`` files a tab. ``" "`` is any number of blanks.
        quote: what encloses texts; empty where nothing does.
        escape: what stands before a quotation mark within a text, a backslash; empty where the mark is doubled.
        decimal: the decimal mark.
        thousands: the mark between groups of three digits; None where there is none.
        encoding: of letters, by Python's name.
        skip_lines: lines before the names of columns.
        comment: how lines begin that are left out; empty where there are none.
        names: of all columns in the file's order, where no line of it has them.
        sheet: of a workbook; None for its only one.
        missing: texts that stand for no value, beside the schema's.
        columns: what differs by column, by the schema's names.

    Example:
        >>> Reading(decimal=",", thousands=".").number("1.234,5")
        1234.5
    """

    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    quote: Annotated[str, Field(max_length=1)] = '"'
    escape: Literal["", "\\"] = ""
    decimal: Literal[".", ","] = "."
    thousands: Literal[",", ".", " ", "'"] | None = None
    encoding: str = "utf-8"
    skip_lines: Annotated[int, Field(ge=0)] = 0
    comment: str = ""
    names: Names = ()
    sheet: str | None = None
    missing: Texts = frozenset()
    columns: dict[str, ColumnReading] = Field(default_factory=dict)

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str) -> str:
        try:
            "".encode(encoding)
        except LookupError:
            raise ValueError(
                f"encoding is one that Python knows, such as utf-8, cp1252 or utf-16, not {encoding!r}: correct it"
            ) from None
        return encoding

    @field_validator("comment")
    @classmethod
    def _check_comment(cls, comment: str) -> str:
        if comment and (comment[0].isalnum() or comment[0].isspace() or comment in ("+", "-", ".", '"', "'")):
            raise ValueError(
                f"comment is a sign that begins no row, such as #, and {comment} may begin one: correct it"
            )
        return comment

    @model_validator(mode="after")
    def _check_marks(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands are two marks; correct one of them")
        return self

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Return the section ``[client.reading]`` of a file, which may hold nothing else.

        Raises:
            SiteFileError: there is none, or it says what it cannot.
        """
        client = read_toml(Path(path)).get("client")
        found = client.get("reading") if isinstance(client, dict) else None
        if not isinstance(found, dict):
            raise SiteFileError(f"{path} needs a table [client.reading]; the command schema proposes one")
        return validated(cls, found, SiteFileError, prefix=f"{path}: ", whole="[client.reading]")

    def to_toml(self) -> str:
        """Return what it states as an inline table, the value of ``reading`` in [client]."""
        return _inline(self.model_dump(exclude_defaults=True))

    def number(self, text: str) -> float:
        """Return the number that a tidy text writes with this file's marks.

        Raises:
            ValueError: none. A thousands mark stands between groups of three digits only: 1,20 is not 120,
                and with points between thousands 0.123 is not 123. Nor is a whole number of more digits than float64
                keeps.
        """
        if self.thousands == "'":
            text = text.replace("\u2019", "'")
        text = text.replace("\u066b", self.decimal)  # Arabic's own mark, which is never another one
        if not _number_pattern(self.decimal, self.thousands).fullmatch(text):
            raise ValueError
        if self.thousands is not None:
            text = text.replace(self.thousands, "")
        text = text.replace(self.decimal, ".")
        if not math.isfinite(number := float(text)):
            raise ValueError
        return as_float(Decimal(text)) if abs(number) >= _LARGEST_WHOLE else number


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key_of(name)} = {_inline(own)}' for name, own in value.items())} }}"
    return json.dumps(sorted(value) if isinstance(value, frozenset) else value, ensure_ascii=False)


_LARGEST_WHOLE = 2.0**53
"""Below it float64 holds every whole number."""


def as_float(number: Any) -> float:
    """Return a number of any type as float64.

    Raises:
        ValueError: a whole number of more digits than float64 keeps.
        OverflowError: it is beyond float64.
    """
    found = float(number)
    if not isinstance(number, Integral | Decimal) or abs(found) < _LARGEST_WHOLE or not math.isfinite(found):
        return found
    if int(found) != number and Decimal(repr(found)) != number:  # what it is, or is written as
        raise ValueError
    return found


@functools.cache
def _number_pattern(decimal: str, thousands: str | None) -> re.Pattern[str]:
    mark = re.escape(decimal)
    number = rf"(?:\d+(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?"
    if thousands is not None:
        number = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+(?:{mark}\d*)?|{number}"
    return re.compile(rf"[+-]?(?:{number})")
