"""Readers of the files that tables come in, as the cells that are in them: nothing is guessed or converted.

Delimited text is read by Python's own ``csv``, Parquet and Feather by pyarrow, workbooks by openpyxl, and the files
of Stata, SAS and SPSS by pyreadstat. Data frames of pandas, polars and pyarrow give cells alike.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import HERE, Reading
from analytic_secagg.site.table_look import (
    ENCODINGS,
    MISSING_TEXTS,
    actual_format,
    encoding_of,
    first_bytes,
    has_another_alphabet,
    is_comment,
    is_number,
    layout,
    opened,
    other_format,
    separator_of,
)
from analytic_secagg.spelling import loose, tidy

DELIMITED = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt")
ARROW = (".parquet", ".feather")
WORKBOOKS = (".xlsx", ".xlsm")
STATISTICS = (".dta", ".sas7bdat", ".xpt", ".sav", ".zsav", ".por")
TABLES = (*DELIMITED, *ARROW, *WORKBOOKS, *STATISTICS)
"""Endings of the names of tables, in small or capital letters."""


def is_table(place: str) -> bool:
    """Return whether a name is that of a table's file."""
    return place.lower().endswith(TABLES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A table's cells: texts as they are written, or values of the types that its file has.

    Args:
        head: the names of columns, tidy.
        column: the cells of the column at a place.
        lines: the line of the file that each row begins in; rows of what has no lines count from 2.
    """

    head: Sequence[str]
    column: Callable[[int], Sequence[Any]]
    lines: Sequence[int]


def read_cells(path: Path, reading: Reading) -> Cells:
    """Return the cells of a file.

    Raises:
        DataError: it cannot be read so; the text says what it looks like, and holds no value.
    """
    name = path.name.lower()
    if not is_table(name):
        raise DataError(
            f"{path} is no table: its name must end in one of {', '.join(TABLES)}; save it as one of these"
            + actual_format(path)
        )
    try:
        if name.endswith((*DELIMITED, *WORKBOOKS)):
            return _of_lines(path, reading, lines_of(path, reading))
        return cells_of_frame(_arrow(path)) if name.endswith(ARROW) else _statistics(path, reading)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; name a table's file") from error


def lines_of(path: Path, reading: Reading) -> Iterator[tuple[int, list[Any]]]:
    """Return the rows of delimited text or of a workbook's sheet, each with the line that it begins in."""
    return _sheet(path, reading) if path.name.lower().endswith(WORKBOOKS) else _delimited(path, reading)


def cells_of_frame(frame: Any, source: str = "the data frame") -> Cells:
    """Return the cells of a data frame of pandas, polars or pyarrow.

    Raises:
        DataError: it is none.
    """
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    if names is None or not hasattr(frame, "__len__"):
        raise DataError(
            f"{source} needs to be a data frame of pandas, polars or pyarrow where there is a schema, not a "
            f"{type(frame).__name__}: give one, or leave the schema out"
        )
    names = list(names)

    def column(place: int) -> list[Any]:
        one = frame[names[place]]
        values = one.to_pylist() if hasattr(one, "to_pylist") else one.to_list()
        return ["" if is_missing(value) else value for value in values]

    return Cells(head=[tidy(str(name)) for name in names], column=column, lines=range(2, len(frame) + 2))


def is_number_cell(cell: Any) -> bool:
    """Return whether a cell is a number by its type, and not a text of one."""
    kind: type = type(cell)
    return kind is not bool and issubclass(kind, Real | Decimal)


def text_of(cell: Any) -> str:
    """Return a cell as text."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, NaN of any type, and pandas' NA and NaT."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):  # a signaling one compares with nothing
        return value.is_nan()
    return isinstance(value, float | np.generic) and bool(value != value)


def _of_lines(path: Path, reading: Reading, lines: Iterator[tuple[int, list[Any]]]) -> Cells:
    """Put rows of cells under names: those of the reading, else of the first row. A row without any text is none."""
    filled = ((line, row) for line, row in lines if any(str(cell).strip(_NOTHING) for cell in row))
    head = list(reading.names) or next(filled, (0, []))[1]
    places: list[int] = []
    rows: list[list[Any]] = []
    names = {*head}
    for line, row in filled:
        if row[0] in names and {*row} == names:
            if path.name.lower().endswith(DELIMITED) and (looks := layout(path, reading, head)):
                raise DataError(f"{path} {looks}")
            raise DataError(
                f"{path}, line {line}, has the names of the columns, which {HERE} states: state skip_lines = {line} too"
                if reading.names and not rows
                else f"{path}, line {line}, repeats the names of the columns, as where several files became one: take "
                "such lines away"
            )
        places.append(line)
        rows.append(row)
    while head and not tidy(str(head[-1])) and rows and all(len(row) < len(head) for row in rows):
        head = head[:-1]  # a separator behind the names alone
    if wrong := [place for place, row in enumerate(rows) if len(row) != len(head)]:
        if path.name.lower().endswith(DELIMITED) and (looks := layout(path, reading, head)):
            raise DataError(f"{path} {looks}")
        raise DataError(_of_other_length(path, reading, head, rows, places, wrong))
    return Cells(
        head=[tidy(str(name)) for name in head], column=lambda place: [row[place] for row in rows], lines=places
    )


def _of_other_length(
    path: Path, reading: Reading, head: list[Any], rows: list[list[Any]], lines: list[int], wrong: list[int]
) -> str:
    first, needed = wrong[0], "in the names of [client.reading]" if reading.names else "in its first line"
    text = f"{path}, line {lines[first]}: {len(head)} values are needed, as {needed}, not {len(rows[first])}"
    if reading.names and len({len(row) for row in rows}) == 1:
        return f"{text}, in any line: state a name for each of them"
    is_longer = len(wrong) == len(rows) and {len(row) for row in rows} == {len(head) + 1}
    is_empty = is_longer and not any(str(row[-1]).strip() for row in rows)
    if is_longer and not is_empty and len({str(row[0]) for row in rows}) < len(rows):
        return (
            f"{text}: all lines have one value more than there are names, as where numbers have a decimal comma and "
            "nothing encloses them: export it with another separator, or with quotation marks"
        )
    if is_longer:
        where = "at their end, empty" if is_empty else "before or behind the others"
        return (
            f"{text}: all lines have one value more than there are names, {where} (R's write.table writes numbers of "
            f"rows so): state skip_lines = {reading.skip_lines + 1} and names = [...] for all columns in {HERE}"
        )
    if reading.separator == " ":
        return (
            f"{text}: blanks do not show which value is empty, as in columns of a fixed width: export it with another "
            "separator"
        )
    return (
        f"{text}, and {len(wrong)} of {len(rows)} rows have another number: a separator, decimal comma or line end in "
        "a text without quotes, a title or a total: correct these lines, or state separator, skip_lines or comment in "
        f"{HERE}"
    )


csv.field_size_limit(2**30)
"""A text of any length is one cell; Python's own limit would refuse 128 KiB, by another cause."""

_NOTHING = " \t\r\n\f\v\u00a0\x1a"
"""White space, and the sign with which DOS ends files."""

_MISSING = MISSING_TEXTS | {""}

_ESCAPED = re.compile(r'\\(["\\])')
"""A quotation mark, or a backslash, behind a backslash: other letters behind one, as in \\N, stay as they are."""


# --- delimited text ---------------------------------------------------------------------------------------------------


def _delimited(path: Path, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of delimited text, each with the line that it begins in."""
    if what := other_format(path):
        raise DataError(f"{path} is named as delimited text, and is {what}")
    separator, at, begin = separator_of(path, reading), 0, 0

    def kept(file: Any) -> Iterator[str]:
        nonlocal at, begin, separator
        for at, line in enumerate(file, start=1):
            line = line.removeprefix("\ufeff")  # a mark where an encoding leaves it, or where files were joined
            if at > reading.skip_lines and not is_comment(line, reading, separator):
                begin = begin or at
                line = _ESCAPED.sub(lambda found: found[1].replace('"', '""'), line) if reading.escape else line
                yield line.strip(" \r\n") + "\n" if separator == " " else line

    try:
        with opened(path, reading.encoding) as file:
            lines = kept(file)
            first = next(lines, "")
            if declared := re.fullmatch(r'"?sep=(.)"?\s*', first):  # a spreadsheet's own line
                separator, first, begin = reading.separator or declared[1], "", 0
            for row in csv.reader(
                chain([first] if first else [], lines),
                delimiter=separator,
                quotechar=reading.quote or None,
                quoting=csv.QUOTE_MINIMAL if reading.quote else csv.QUOTE_NONE,
                skipinitialspace=True,
                strict=True,
            ):
                if at > begin and any(_holds_rows(row, place, separator) for place in range(len(row))):
                    raise DataError(
                        f"{path}, line {begin}: a quotation mark opens there, and whole rows lie in one text before "
                        f'another one closes it, which would be lost. Correct it; or state quote = "" in {HERE}, if '
                        "quotation marks are part of texts"
                    )
                yield begin, row
                begin = 0
    except UnicodeError as error:
        raise DataError(_not_in(path, reading)) from error
    except csv.Error as error:
        if looks := layout(path, reading, [""]):
            raise DataError(f"{path} {looks}") from error
        if not reading.escape and b'\\"' in first_bytes(path):
            raise DataError(
                f"{path} has backslashes before quotation marks within texts, as exports of databases do: state "
                f"escape = '\\' in {HERE}"
            ) from error
        raise DataError(
            f"{path}, line {begin}: it must be CSV in UTF-8, or what {HERE} says, and a quotation mark opens there "
            'that nothing closes. Correct it; or state quote = "" there, if quotation marks are part of texts'
        ) from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is compressed, and damaged or cut off; bring it here again") from error


def _holds_rows(row: Sequence[str], place: int, separator: str) -> bool:
    """Test whether a cell of several lines is the rest of a row, whole rows and the beginning of one.

    It then has as many separators as these, and numbers where the row itself has some.
    """
    lines = row[place].splitlines()
    if len(lines) < 2 or row[place].count(separator) != (len(lines) - 1) * (len(row) - 1):
        return False
    theirs, own = (lines[-1].split(separator), row[:place]) if place else (lines[0].split(separator)[1:], row[1:])
    pairs = [pair for pair in zip(own, theirs, strict=False) if not any(loose(tidy(one)) in _MISSING for one in pair)]
    kinds = [(is_number(one), is_number(other)) for one, other in pairs]
    return (True, True) in kinds and all(one == other for one, other in kinds)


def _not_in(path: Path, reading: Reading) -> str:
    start, was = first_bytes(path), reading.encoding.upper()
    fits = encoding_of(start)
    if fits == "utf-8" and was == "UTF-8":
        fits = "cp1252"
    looks, stated = f"its bytes look like {fits}", f'encoding = "{fits}"'
    if not fits.startswith("utf") and has_another_alphabet(start):
        looks, stated = "its letters are of another alphabet than Latin", "its encoding"
    return (
        f"{path} must be CSV in {was} and is not: {looks}. State {stated} in {HERE} ({ENCODINGS}), or save it as "
        "UTF-8, and see in the profile of the site whether letters come out right"
    )


# --- other files ------------------------------------------------------------------------------------------------------


def _needs(path: Path, module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise DataError(f"{path} needs {module}: pip install '.[{extra}]', or save the table as CSV")


def _arrow(path: Path) -> Any:
    _needs(path, "pyarrow", "parquet")
    from pyarrow import ArrowException
    from pyarrow.feather import read_table as read_feather
    from pyarrow.parquet import ParquetFile

    try:
        table = read_feather(path) if path.name.lower().endswith(".feather") else ParquetFile(path).read()
        table.validate(full=True)  # damaged offsets would end the process where cells are read
        return table
    except (OSError, ValueError, ArrowException, MemoryError, NotImplementedError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise DataError(
            f"cannot read {path} as Parquet ({type(error).__name__}); save it again, or as CSV{actual_format(path)}"
        ) from error


def _sheet(path: Path, reading: Reading) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows of a workbook's sheet with their numbers: numbers, dates and texts as its cells hold them."""
    _needs(path, "openpyxl", "tables")
    try:
        rows = _rows_of_sheet(path, reading, data_only=True)
        if any(None in row for row in rows):
            written = _rows_of_sheet(path, reading, data_only=False)
            results = [
                cell
                for row, formulas in zip(rows, written, strict=True)
                for cell, formula in zip(row, formulas, strict=True)
                if isinstance(formula, str) and formula.startswith("=")
            ]
            if results and not any(cell is not None for cell in results):
                raise DataError(
                    f"{path} needs the results of its formulas, and none of its {len(results)} formulas has one: a "
                    "program wrote it that does not calculate. Open it in a spreadsheet and save it, or save it as CSV"
                )
    except (OSError, DataError):
        raise
    except Exception as error:  # whatever a damaged file makes of its reader
        raise DataError(
            f"cannot read {path} as a workbook ({type(error).__name__}); save it again, or as CSV{actual_format(path)}"
        ) from error
    width = max(map(len, rows), default=0)
    for number, row in islice(enumerate(rows, start=1), reading.skip_lines, None):
        yield number, ["" if cell is None else cell for cell in (*row, *(None,) * (width - len(row)))]


def _rows_of_sheet(path: Path, reading: Reading, *, data_only: bool) -> list[tuple[Any, ...]]:
    """Return the rows of the table's sheet, whatever size it states; with ``data_only`` the results of formulas."""
    from openpyxl import load_workbook

    book = load_workbook(path, read_only=True, data_only=data_only)
    try:
        sheets = {str(sheet.title): sheet for sheet in book.worksheets}
        for sheet in sheets.values():
            sheet.reset_dimensions()
        filled = [
            name
            for name, sheet in sheets.items()
            if any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row)
        ]
        name = filled[0] if reading.sheet is None and len(filled) == 1 else reading.sheet
        if name not in sheets:
            hidden = {title for title, sheet in sheets.items() if sheet.sheet_state != "visible"}
            named = ", ".join(f"{title} (hidden)" if title in hidden else title for title in filled)
            raise DataError(
                f"{path} is a workbook of {len(filled)} sheets that hold something, {named}: state the one with the "
                f"table as sheet in {HERE}; rows that lie in several sheets are put into one first"
            )
        return list(sheets[name].iter_rows(values_only=True))
    finally:
        book.close()


def sheets_of(path: Path) -> list[str]:
    """Return the names of a workbook's sheets; none of a file that is no workbook or does not open."""
    if not path.name.lower().endswith(WORKBOOKS) or importlib.util.find_spec("openpyxl") is None:
        return []
    from openpyxl import load_workbook

    with suppress(Exception):  # whatever a damaged file makes of its reader
        book = load_workbook(path, read_only=True)
        try:
            return [str(sheet.title) for sheet in book.worksheets]
        finally:
            book.close()
    return []


def _statistics(path: Path, reading: Reading) -> Cells:
    """Return the cells of a file of Stata, SAS or SPSS, with codes in the place of their labels."""
    _needs(path, "pyreadstat", "tables")
    import pyreadstat

    read: Any = {
        ".dta": pyreadstat.read_dta,
        ".sav": pyreadstat.read_sav,
        ".zsav": pyreadstat.read_sav,
        ".por": pyreadstat.read_por,
        ".xpt": pyreadstat.read_xport,
        ".sas7bdat": pyreadstat.read_sas7bdat,
    }[path.suffix.lower()]
    encoding = None if reading.encoding == "utf-8" else reading.encoding  # else the file itself says it
    try:
        found, _ = read(path, encoding=encoding, output_format="dict")
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, ValueError) as error:
        raise DataError(
            f"cannot read {path} as a file of Stata, SAS or SPSS ({type(error).__name__}); state encoding in {HERE} if "
            f"it has letters of another, else save it again, or as CSV{actual_format(path)}"
        ) from error
    columns = [["" if is_missing(value) else value for value in one] for one in found.values()]
    lines = range(2, len(columns[0]) + 2 if columns else 2)
    return Cells(head=[tidy(name) for name in found], column=columns.__getitem__, lines=lines)
