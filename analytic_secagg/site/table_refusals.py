"""Texts of refusals: what a file looks like, then what its site can state, then, last, what all sites can change.

They count rows and name lines, columns and kinds of spelling. They hold no value of the table but public codes for a
missing one (``MISSING_TEXTS``).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import HERE, Reading, section_of
from analytic_secagg.site.table_files import DELIMITED, WORKBOOKS, lines_of, text_of
from analytic_secagg.site.table_look import MISSING_TEXTS, MOST_LINES, TOTALS, TRUTHS, is_number, layout, toml
from analytic_secagg.spelling import loose, tidy


def check_names(
    source: str, reading: Reading, head: Sequence[str], wanted: Iterable[str], schema: Iterable[str]
) -> None:
    """Refuse a table whose columns are not each there once.

    Args:
        source: the file, or where a frame comes from.
        reading: how it was read.
        head: the names that it has.
        wanted: the names that it must have, one for each of
        schema: the schema's.

    Raises:
        DataError: what the file looks like and what to state.
    """
    wanted = [*wanted]
    pairs = list(zip(wanted, schema, strict=True))
    missing = [(name, own) for name, own in pairs if head.count(name) != 1]
    if not missing:
        return
    named = ", ".join(name for name, _ in missing)
    needs = f"{source} needs each column of the schema once, and {named} {'is' if len(missing) == 1 else 'are'} not"
    if source.lower().endswith(DELIMITED) and (looks := layout(Path(source), reading, head, [n for n, _ in missing])):
        raise DataError(f"{source} {looks}. ({needs})")
    if not head:
        raise DataError(f"{source} is empty: give the table with its rows")
    if twice := [name for name, _ in missing if head.count(name) > 1]:
        here = f", in the file, or by skip_lines = {reading.skip_lines + 1} and names = [...] in {HERE}"
        raise DataError(
            f"{needs}: {', '.join(twice)} occurs several times. Give these columns names of their own"
            + (here if source.lower().endswith((*DELIMITED, *WORKBOOKS)) else "")
        )
    if source.lower().endswith(WORKBOOKS) and (line := _line_of_names(Path(source), reading, wanted)):
        raise DataError(f"{needs}: line {line} has them: state skip_lines = {line - 1} in {HERE}")
    for name, own in missing:
        if near := [one for one in head if loose(_UNIT.sub("", one.lstrip("#% "))) == loose(name)]:
            unit = "" if loose(near[0]) == loose(name) else ", and factor where its unit is not the schema's"
            which = toml(near[0]) if len(near) == 1 else f"... (one of {', '.join(near)})"
            raise DataError(
                f"{needs}: this file has it in another spelling. State name = {which}{unit} in "
                f"{section_of(own)} of this site's own file"
            )
    raise DataError(
        f"{needs}: it has {len(head)} columns of other names. Where this file names {missing[0][1]} otherwise, state "
        f'name = "..." in {section_of(missing[0][1])} of this site\'s own file; only if no site can have '
        "it, change the schema of all sites"
    )


_UNIT = re.compile(r"\s*[\[(][^\[\]()]*[\])]$")


def _line_of_names(path: Path, reading: Reading, wanted: Iterable[str]) -> int:
    """Return the line of a workbook that has the names of all columns; 0 where none has."""
    lines = lines_of(path, reading.model_copy(update={"skip_lines": 0}))
    return next((at for at, row in islice(lines, MOST_LINES) if {*wanted} <= {tidy(str(cell)) for cell in row}), 0)


# --- values -----------------------------------------------------------------------------------------------------------

_DIGITS = r"[+-]?\d+"
_MONTH = "(jan|feb|mar|mär|apr|ma[iy]|ju[nl]|aug|sep|o[ck]t|nov|de[cz])[a-zä]*"
_GROUPS = r"[+-]?[1-9]\d{0,2}"
_KINDS = {
    "digits": r"[+-]?\d{16,}([.,]\d*)?",
    "percent": r"[-+]?[\d.,]+\s?%",
    "pairs": r"\d+([.,]\d+)?\s?/\s?\d+([.,]\d+)?",
    "exponents": r"[+-]?\d+([.,]\d*)?d[+-]?\d+",
    "zoned": r"\d+[{}]",
    "equals": r"['=]\s?[-+\d.,]+",
    "ranges": r"\d[\d.,]*\s?(-|–|to|bis)\s?\d[\d.,]*",
    "underscores": r"[-+\d.,]*\d_\d[\d_.,]*",
    "bounds": r"[<>≤≥]\s?=?\s?[-+\d.,]+.*",
    "dates": r"\d{4}-\d{1,2}-\d{1,2}.*|\d{1,2}([./-])\d{1,2}\1\d{2,4}.*|\d{1,2}:\d{2}.*"
    r"|\d{1,2}[- ]?[A-Za-z]{3}[- ]?\d{2,4}.*|-?\d+ days?.*"
    rf"|\d{{1,2}}\.\d{{1,2}}\.|\d{{1,2}}[-. ]+{_MONTH}|{_MONTH}[-. ]+\d{{1,4}}",
    "blanks": rf"{_GROUPS}( \d{{3}})+(\.\d+)?",
    "blanks, comma last": rf"{_GROUPS}( \d{{3}})+,\d+",
    "apostrophes": rf"{_GROUPS}(['\u2019]\d{{3}})+(\.\d+)?",
    "apostrophes, comma last": rf"{_GROUPS}(['\u2019]\d{{3}})+,\d+",
    "both marks, comma last": rf"{_GROUPS}(\.\d{{3}})+,\d+",
    "both marks, point last": rf"{_GROUPS}(,\d{{3}})+\.\d+",
    "many commas": rf"{_GROUPS}(,\d{{3}}){{2,}}",
    "many points": rf"{_GROUPS}(\.\d{{3}}){{2,}}",
    "comma before three": rf"{_GROUPS},\d{{3}}",
    "point before three": rf"{_GROUPS}\.\d{{3}}",
    "comma": rf"{_DIGITS}?,\d+([eE][+-]?\d+)?",
    "point": rf"{_DIGITS}?\.\d+([eE][+-]?\d+)?",
    "infinite": r"[+-]?(inf(inity)?|∞)|[+-]?\d[\d.]*e\+?\d{3,}",
    "trailing sign": r"[\d.,]+-|\([\d.,]+\)|[–—]\s?[\d.,]+|[-+]\s+[\d.,]+",
    "marks": r"[-+]?[\d.,]*[.,][\d.,]*",
    "units": r"[-+]?[\d.,]+\s?[^\d\s].*|([$€£¥~≈]\s?|([A-Z]{3}|[HL]|ca\.?)\s)[-+\d.,]*\d",
}
_PATTERNS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in _KINDS.items()}

_ZONED = re.compile(r"\d+[{}A-R]")
"""Numbers of a mainframe, whose last sign is a digit and the number's sign."""

NUMBERS = frozenset({"blanks", "apostrophes", *(kind for kind in _KINDS if "comma" in kind or "point" in kind)})
"""The kinds that are numbers with marks of their own."""


def kind_of(text: str) -> str:
    """Return how a tidy text is spelt that is no number: a kind of ``_KINDS``, ``missing code``, else ``texts``."""
    if loose(text) in MISSING_TEXTS:
        return "missing code"
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(text)), "texts")


def of_numbers(name: str, texts: Sequence[str], reading: Reading, *, has_marks: bool = False) -> str:
    """Return what texts look like that are no numbers, and what a site can do.

    Args:
        name: the column's.
        texts: tidy.
        reading: how the file was read.
        has_marks: whether numbers of other rows have its decimal mark.
    """
    kinds = Counter(map(kind_of, texts))
    here = f"in {HERE}"
    column = f"in {section_of(name)} of this site's own file"
    if marks := marks_of(kinds):
        decimal, thousands, looks = marks
        if has_marks and decimal != reading.decimal:
            return (
                f"{looks}, and other rows a decimal {'point' if decimal == ',' else 'comma'}, as where rows of two "
                "exports became one: write all of them alike in the table"
            )
        stated = [f'decimal = "{decimal}"'] * (decimal != reading.decimal)
        stated += [f'thousands = "{thousands}"'] * (thousands not in (None, reading.thousands))
        return f"{looks}: state {' and '.join(stated) or 'other marks'} {here}"
    kind = "truths" if {*map(loose, texts)} <= TRUTHS else kinds.most_common(1)[0][0]
    kind = "zoned" if kinds["zoned"] and all(map(_ZONED.fullmatch, texts)) else kind
    if kind in ("comma before three", "point before three"):
        mark, word = (",", "comma") if kind.startswith("comma") else (".", "point")
        return (
            f'they have a {word} before three digits, which may mark thousands or decimals: state thousands = "{mark}" '
            f'or decimal = "{mark}" {here}, as whoever exported the file knows'
        )
    codes = sorted({text for text in texts if kind_of(text) == "missing code"})
    units = {re.sub(r"[-+\d.,\s]", "", text).casefold() for text in texts if kind_of(text) == "units"}
    kind = "several units" if kind == "units" and len(units) > 1 else kind
    return {
        "missing code": f"they are {', '.join(codes)}, as people write what is missing: state missing = [...] {column}",
        "percent": f"they have percent signs: take these away in the table; where the schema means fractions, state "
        f"factor = 0.01 {column}",
        "ranges": f"they are ranges from one number to another: agree with all sites what one counts as, and state "
        f"recode = {{...}} {column}",
        "pairs": "they are two numbers with a stroke between (a blood pressure, a fraction): export each number as a "
        "column of its own",
        "exponents": "they have exponents of Fortran (1.5D+03): write E in the place of D",
        "zoned": "they end in a sign of a mainframe (zoned decimals): have the export write plain numbers",
        "equals": "they begin with an equals sign or an apostrophe: take it away in the table",
        "marks": "they have several decimal marks: correct the export",
        "truths": f'they are words for yes and no: state recode = {{ ... = "1", ... = "0" }} {column}',
        "underscores": "they have underscores between digits: correct them in the table",
        "bounds": f"they are bounds as laboratories write them (less than, more than): agree with all sites what one "
        f'counts as, and state recode = {{ "<0.1" = "0.05" }} {column}',
        "dates": "they are dates or times: turn them into numbers that all sites mean alike (days since a visit, say); "
        "where a spreadsheet made dates of numbers, correct the export",
        "infinite": "they are infinite or beyond what a number holds: correct them, or state them among missing "
        f"{column}",
        "digits": "they are whole numbers of more digits than float64 holds, of patients perhaps: leave the column out",
        "trailing sign": "they have their sign behind them, or brackets or a dash for it: correct the export",
        "several units": "they have several units or remarks beside the numbers: bring all values to one unit, and "
        "take these away in the table",
        "units": "they have a unit or a remark beside the number: take it away in the table; a unit of its own is "
        f"stated as factor {column}",
    }.get(kind, f"they are texts: correct them, or state recode = {{...}} or missing = [...] {column}")


def check_last(line: str, lines: Sequence[int], others: Iterable[Any], numbers: Sequence[NDArray[np.float64]]) -> None:
    """Refuse a table whose last row is no record: it says that it is a total, or holds the sums of all other rows.

    Args:
        line: the beginning of the refusal.
        lines: the line that each row begins in.
        others: the last row's cells in columns that the schema leaves alone.
        numbers: the columns of numbers, NaN where a value is missing.

    Raises:
        DataError: it is none.
    """
    says = any(loose(tidy(text_of(cell)).rstrip(":")) in TOTALS for cell in others)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum that leaves float64 is no row's value
        sums = [(float(np.nansum(own[:-1])), float(np.nan_to_num(own[-1])), own[:-1]) for own in numbers]
    is_sum = len(lines) > 9 and all(math.isclose(total, last, rel_tol=1e-9) for total, last, _ in sums)
    if says or (is_sum and sum(len({*above[~np.isnan(above)].tolist()}) > 1 for *_, above in sums) > 1):
        what = "says that it is a total" if says else "holds the sums of all others"
        raise DataError(f"{line} {lines[-1]}: the last row {what}, and would count as a record: take it away")


def of_place(places: Sequence[int], no_records: Set[int], lines: Sequence[int]) -> str:
    """Return what to do where rows without a value are no records; empty where one is.

    Args:
        places: of rows that have no value in a column.
        no_records: places of rows that have none in most columns.
        lines: the line that each row of the table begins in.
    """
    if not {*places} <= no_records or 2 * len(places) >= len(lines):
        return ""
    if [*places] == [0]:
        return (
            f"it is the first row: if it holds units, a mean or a second line of names, state skip_lines = {lines[0]} "
            f"and names = [...] in {HERE}"
        )
    if [*places] == [len(lines) - 1]:
        return "it is the last row: if it holds a total or a remark, take it away"
    return "these rows have no value in most columns, as totals, remarks or lines between pages: take them away"


def marks_of(kinds: Counter[str]) -> tuple[str, str | None, str] | None:
    """Return decimal mark, thousands mark and words for what these kinds of spelling show; None where they do not."""
    if kinds["both marks, comma last"] or kinds["many points"]:
        return ",", ".", "they have a decimal comma and points between thousands"
    if kinds["both marks, point last"] or kinds["many commas"]:
        return ".", ",", "they have commas between thousands"
    if kinds["comma"] and kinds["point before three"] and not kinds["point"]:
        return ",", ".", "they have a decimal comma and points between thousands"
    if kinds["point"] and kinds["comma before three"] and not kinds["comma"]:
        return ".", ",", "they have commas between thousands"
    for sign, word in ((" ", "blanks"), ("'", "apostrophes")):
        has_comma = bool(kinds["comma"] or kinds[f"{word}, comma last"])
        if kinds[word] or kinds[f"{word}, comma last"]:
            more = " and a decimal comma" if has_comma else ""
            return "," if has_comma else ".", sign, f"they have {word} between thousands{more}"
    if kinds["comma"]:
        return ",", None, "they have a decimal comma"
    return (".", None, "they have a decimal point") if kinds["point"] else None


_BROKEN = re.compile(
    "[\ufffd\u0080-\u009f]|[ÃÂÐ][\u0080-\u00bf]|[√├][^\\s\\w]|[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]"
)
"""What letters look like in another encoding: of UTF-8 read as one byte a letter, or of Windows read as Cyrillic."""


def of_categories(name: str, texts: Sequence[str]) -> str:
    """Return what texts look like that are no category, and what a site can do."""
    column = f"in {section_of(name)} of this site's own file"
    if any(map(_BROKEN.search, texts)):
        return f"their letters are broken, so the file has another encoding: state encoding in {HERE}"
    if all(kind_of(text) == "missing code" for text in texts):
        codes = ", ".join(sorted(set(texts)))
        return f"they are {codes}, as people write what is missing: state missing = [...] {column}"
    looks = "numbers, codes perhaps" if all(map(is_number, texts)) else "other texts"
    looks = "words for yes and no" if {*map(loose, texts)} <= TRUTHS - {"0", "1"} else looks
    return (
        f"they are {looks}: state recode = {{...}} {column}, or missing = [...] there; only a category that is "
        "new to everybody is added to the schema of all sites"
    )
