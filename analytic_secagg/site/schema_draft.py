"""A draft of a table's schema and reading, from one file, for a person to read, correct and agree on with others."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from analytic_secagg.errors import DataError
from analytic_secagg.site.odd_values import codes_apart, odd_values
from analytic_secagg.site.offsets import proposed_offset
from analytic_secagg.site.profile import FEW_ROWS
from analytic_secagg.site.reading import Reading, key_of, section_of
from analytic_secagg.site.table_files import (
    DELIMITED,
    WORKBOOKS,
    is_number_cell,
    lines_of,
    read_cells,
    sheets_of,
    text_of,
)
from analytic_secagg.site.table_look import (
    COMMENTS,
    ENCODINGS,
    MISSING_TEXTS,
    MOST_LINES,
    TRUTHS,
    first_bytes,
    is_comment,
    is_number,
    look_at,
    mark_of_names,
    opened,
    separator_of,
    split,
    toml,
)
from analytic_secagg.site.table_refusals import NUMBERS, kind_of, marks_of, of_categories, of_numbers
from analytic_secagg.spelling import loose, nearest, tidy

MOST_CATEGORIES = 20
"""Most categories of a column of texts; one with more is no feature."""

IDENTIFIER = re.compile(
    r"(.*[\W_])?(id|mrn|pid|uuid|ssn|(patient|pat|person|record|case|fall|subject|study)[\W_]*(id|no|nr|number)\.?)"
)
"""Names of columns that number people, in small letters; a draft leaves them out."""

PEOPLE = frozenset({"individual", "person", "patient", "subject", "participant", "proband", "pseudonym"})
"""Names of columns of whole numbers that number people, where there are many of these."""

SITES = re.compile(
    r"((study|trial|treating|recruiting)[\W_]*)?"
    r"(site|hospital|clinic|klinik|krankenhaus|standort|cent(er|re)|institution|facility|h[oô]pital|ziekenhuis"
    r"|branch|filiale?|agenc(y|e|ia)|sucursal|ward|practice|praxis|station|store|office|campus)"
    r"([\W_]*(id|no|nr|name|number|code))?"
)
"""Names of columns that say from which site a row comes, in small letters. As a category such a column would put the
sums of each site's rows into the total's Gram, one line for each site, so a draft leaves them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A proposal for a table's schema and reading.

    Args:
        schema: the text of the schema's file, which all sites would share.
        reading: the text of the section ``[client.reading]``, this site's own.
        notes: what a person should look at, for this site alone: some name values.
        facts: those of the notes that name no value but public codes and numbers, which a report may have.
    """

    schema: str
    reading: str
    notes: tuple[str, ...]
    facts: tuple[str, ...]


def draft(path: Path, target: str, *, leave_out: Collection[str] = ()) -> Draft:
    """Return a draft for a file whose column ``target`` is to be learned, without the columns to ``leave_out``.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    reading = _layout(path, target)
    try:
        cells = read_cells(path, reading)
    except DataError:
        if not path.name.lower().endswith(DELIMITED) or b'\\"' not in first_bytes(path):
            raise
        reading = _layout(path, target, escape="\\")
        cells = read_cells(path, reading)
    near = [name for name in cells.head if loose(name) == loose(tidy(target))]
    if len(near) != 1:
        others = "them, and no line names them" if reading.names else ", ".join(cells.head[:MOST_CATEGORIES])
        many = f"{len(near)} columns" if near else "no column"
        raise DataError(f"{path} has {many} {target}, and the target is one of {others}")
    if absent := [name for name in leave_out if tidy(name) not in cells.head]:
        raise DataError(f"{path} has no column {absent[0]}{nearest(absent[0], cells.head)}")
    texts = {
        name: [float(cell) if is_number_cell(cell) else tidy(text_of(cell)) for cell in cells.column(place)]
        for place, name in enumerate(cells.head)
        if cells.head.count(name) == 1 and name and name not in {*map(tidy, leave_out)} - {near[0]}
    }
    kinds = {name: Counter(map(kind_of, _numbers_in(found))) for name, found in texts.items()}
    drafted = {
        name: _Drafted(name, found, _with_marks(reading, kinds[name]), is_target=name == near[0])
        for name, found in texts.items()
    }
    used = {name: kinds[name] for name, column in drafted.items() if column.kind != "none"}
    torn = _contradicting(used)
    reading = _with_marks(reading, Counter() if torn else sum(used.values(), Counter()))
    columns = [_Drafted(name, found, reading, is_target=name == near[0]) for name, found in texts.items()]
    shared = [column for column in columns if column.kind != "none"]
    if not len(cells.lines):
        raise DataError(f"{path} has names of columns and no row: give the table with its rows")
    if not any(column.is_target for column in shared):
        wanted = next(column for column in columns if column.is_target)
        raise DataError(f"{path} needs a target from which something is learned, and {target} is none: {wanted.why}")
    if len(shared) < 2:
        raise DataError(f"{path} has no column beside {target} that can be a feature: {'; '.join(_notes(columns))}")
    _tell_apart(shared)
    return Draft(
        schema="\n".join(
            [
                "# Drafted from one file. Read it before you share it: categories are texts of that file, and what is",
                "# never missing in it may be elsewhere. State range = [low, high] where you know what is possible at",
                "# all, from a textbook and not from rows.",
                *(line for column in shared for line in column.schema()),
                "",
            ]
        ),
        reading="\n".join([*_of_file(path, reading), *(line for column in shared for line in column.reading()), ""]),
        notes=(
            *[f"line {reading.skip_lines}, below the names, holds units or kinds, and is skipped"]
            * (bool(reading.names) and reading.names[0] != "column_1" and reading.skip_lines > 1),
            *[
                f"{', '.join(torn)}: commas and points contradict one another, and no marks are proposed: see in the "
                "file what they stand for, and state decimal and thousands, or correct the export"
            ]
            * bool(torn),
            *(
                f"{name}: left out, several columns have this name"
                for name in sorted({*cells.head} - texts.keys() - {"", *map(tidy, leave_out)})
            ),
            *[f"letters are read as {reading.encoding}: see whether they come out right ({ENCODINGS})"]
            * (reading.encoding not in ("utf-8", "utf-16", "utf-32")),
            *_notes(columns),
            *_beside(columns),
        ),
        facts=tuple(fact for column in columns for fact in column.facts()),
    )


def _tell_apart(columns: Sequence[_Drafted]) -> None:
    """Number the names that another column has, small and capital letters alike; a name from the file stays."""
    taken = {loose(column.key) for column in columns if column.key == column.name}
    for column in columns:
        if column.key != column.name:
            numbered = (f"{column.key}_{number}" for number in count(2))
            column.key = next(name for name in chain([column.key], numbered) if loose(name) not in taken)
            taken.add(loose(column.key))


def _name_of(stem: str) -> str:
    """Return a column's name in a schema: its letters, marks and numbers as they are, and _ for other signs.

    Example:
        >>> _name_of("Größe"), _name_of("SBP-1"), _name_of("Chol."), _name_of("Fall-Nr. 2")
        ('Größe', 'SBP-1', 'Chol', 'Fall_Nr_2')
    """
    kept = {sign for sign in stem if sign == "_" or unicodedata.category(sign)[0] in "LMN"}
    if {*stem} <= kept | {"-"}:
        return stem
    return "_".join("".join(sign if sign in kept else " " for sign in stem).split()).strip("_") or "column"


def _notes(columns: Iterable[_Drafted]) -> Iterator[str]:
    return (note for column in columns for note in column.notes())


def _beside(columns: Sequence[_Drafted]) -> Iterator[str]:
    """Yield what columns say of one another: copies of the target, and people with several rows."""
    target = next(column for column in columns if column.is_target)
    spelt = [loose(str(cell)) for cell in target.cells]
    for column in columns:
        if not column.is_target and column.kind != "none" and [loose(str(cell)) for cell in column.cells] == spelt:
            yield f"{column.name}: the same as {target.name} in all rows, so that nothing is learned; leave it out"
        if column.numbers_people:
            counted = Counter(column.cells)
            if several := sum(often > 1 for cell, often in counted.items() if cell != ""):
                yield (
                    f"{column.name}: {several} of its {len(counted)} values are in several rows, visits or measures "
                    "perhaps; each row counts as a person"
                )


def _with_marks(reading: Reading, kinds: Counter[str]) -> Reading:
    """Return the reading with the marks that these kinds of spelling show, else with a decimal point alone."""
    decimal, thousands, _ = marks_of(kinds) or (".", None, "")
    return reading.model_copy(update={"decimal": decimal, "thousands": thousands})


def _contradicting(kinds: Mapping[str, Counter[str]]) -> list[str]:
    """Return the columns whose marks are not those of all columns together."""
    decimal, thousands, _ = marks_of(sum(kinds.values(), Counter())) or (".", None, "")
    found = []
    for name, its in kinds.items():
        own = marks_of(its)
        if own and (own[0] != decimal or own[1] not in (None, thousands) or (its["comma"] and its["point"])):
            found.append(name)
    return found


def _layout(path: Path, target: str, *, escape: Literal["", "\\"] = "") -> Reading:
    if not path.name.lower().endswith(DELIMITED):
        if not path.name.lower().endswith(WORKBOOKS):
            return Reading()
        sheets = sheets_of(path)
        found = [one for name in sheets if (one := _with_names(path, Reading(sheet=name), target))]
        if len(found) > 1:
            raise DataError(
                f"{path} has the column {target} in the sheets {', '.join(str(one.sheet) for one in found)}: put the "
                "rows of one table into one sheet, or leave one sheet alone in a copy to draft from"
            )
        only = {"sheet": None} if len(sheets) == 1 else {}
        return found[0].model_copy(update=only) if found else Reading()
    try:
        look = look_at(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; name a table's file") from error
    first = first_bytes(path).decode(look.encoding, errors="replace").lstrip("\ufeff")
    cells = [cell for line in first.splitlines()[look.skip_lines :][:1] for cell in line.split(look.separator)]
    reading = Reading(
        separator=None if look.separator == separator_of(path, Reading()) else look.separator,
        encoding=look.encoding,
        skip_lines=look.skip_lines,
        quote="'" if cells and all(re.fullmatch("'[^']*'", cell.strip()) for cell in cells) else '"',
        escape=escape,
    )
    names = re.split(r"\r\n|\r|\n", first)[0]
    if mark := mark_of_names(names, look):
        return reading.model_copy(update={"skip_lines": 1, "names": tuple(map(tidy, split(names, mark)))})
    if first.startswith(COMMENTS):
        commented = reading.model_copy(update={"skip_lines": 0, "comment": first[0]})
        above, below = _comments(path, commented, look.separator)
        reading = commented if below else reading.model_copy(update={"skip_lines": max(above, look.skip_lines)})
    placed = None if reading.comment else _with_names(path, reading, target)
    if placed is not None or look.has_names:
        return placed or reading
    with suppress(DataError):
        lines = list(islice(lines_of(path, reading), MOST_LINES))
        if len(lines) > FEW_ROWS and _is_apart([row for _, row in lines]):
            reading = reading.model_copy(update={"skip_lines": lines[0][0]})
    width = len(read_cells(path, reading).head)
    return reading.model_copy(update={"names": tuple(f"column_{place}" for place in range(1, width + 1))})


def _with_names(path: Path, reading: Reading, target: str) -> Reading | None:
    """Return the reading that finds the target among the names of columns, in whatever line they are; else None.

    A line of units or kinds below the names is skipped.
    """
    lines = []
    with suppress(DataError):  # what reads the cells says so
        lines = list(islice(lines_of(path, reading.model_copy(update={"skip_lines": 0})), MOST_LINES))
    for place, (at, head) in enumerate(lines):
        if [loose(tidy(str(name))) for name in head].count(loose(tidy(target))) == 1 and len(head) > 1:
            below = [(line, row) for line, row in lines[place + 1 :] if len(row) == len(head)]
            if not below:
                continue
            if _is_of_units([row for _, row in below]):
                update = {"skip_lines": below[0][0], "names": tuple(tidy(str(name)) for name in head)}
                return reading.model_copy(update=update)
            return reading.model_copy(update={"skip_lines": at - 1})
    return None


def _is_apart(rows: Sequence[Sequence[Any]]) -> bool:
    """Test whether the first row has a text where all others have numbers, as lines of sizes and classes have."""
    columns = zip(*(map(tidy, row) for row in rows if len(row) == len(rows[0])), strict=True)
    return any(first and not is_number(first) and all(map(is_number, others)) for first, *others in columns if others)


def _is_of_units(rows: Sequence[Sequence[Any]]) -> bool:
    """Test whether the first row has texts, where all others have numbers, and no cell of it is in another row."""
    if len(rows) < FEW_ROWS:
        return False
    has_units = False
    for first, *others in zip(*([tidy(text_of(cell)) for cell in row] for row in rows), strict=True):
        if is_number(first) or (first and first in others):
            return False
        is_text = bool(first) and loose(first) not in MISSING_TEXTS
        has_units |= is_text and sum(map(is_number, others)) >= 0.8 * len(others)
    return has_units


def _comments(path: Path, reading: Reading, separator: str) -> tuple[int, int]:
    """Return how many comments stand above a table, and how many among its rows or below."""
    try:
        with opened(path, reading.encoding) as file:
            found = [is_comment(line.removeprefix("\ufeff"), reading, separator) for line in file]
    except (UnicodeError, EOFError, zlib.error):
        return 0, 1  # what reads the cells says so
    above = found.index(False) if False in found else len(found)
    return above, sum(found[above:])


def _numbers_in(cells: Sequence[str | float]) -> list[str]:
    """The texts of a column that may be numbers, in whatever spelling; none where most are other texts."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell and loose(cell) not in MISSING_TEXTS]
    found = [text for text in texts if kind_of(text) in NUMBERS or is_number(text)]
    return found if 5 * len(found) >= 4 * len(texts) else []


def _of_file(path: Path, reading: Reading) -> Iterator[str]:
    yield "[client.reading]"
    plain = Reading()
    for name in ("sheet", "separator", "quote", "escape", "decimal", "thousands", "encoding", "skip_lines", "comment"):
        value = getattr(reading, name)
        if value != getattr(plain, name):
            yield f"{name} = {toml(value)}"
    if reading.names:
        yield f"names = {toml(list(reading.names))} # give them their own, here and in the schema"


@dataclass(slots=True)
class _Drafted:
    """A column with its likely kind, and the proposal for it."""

    name: str
    cells: Sequence[str | float]
    own: Reading
    is_target: bool
    key: str = field(init=False)
    unit: str = field(init=False)
    missing: list[str] = field(init=False)
    numbers: list[float] = field(init=False)
    texts: Counter[str] = field(init=False)
    answers: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        named = re.fullmatch(r"(.*\S)\s*[\[(]([^\[\]()]*)[\])]", self.name)
        stem, self.unit = (named[1], named[2]) if named else (self.name, "")
        self.key = _name_of(stem)
        codes = Counter(cell for cell in self.cells if isinstance(cell, str) and loose(cell) in MISSING_TEXTS)
        self.missing, self.numbers, self.texts = sorted(codes), [], Counter()
        for cell in self.cells:
            if cell == "" or cell in codes:
                continue
            try:
                self.numbers.append(cell if isinstance(cell, float) else self.own.number(cell))
            except ValueError:
                self.texts[str(cell)] += 1
        if self.texts and not self.numbers:  # among words, as of diseases, "none" is an answer
            self.answers = [cell for cell in codes if loose(cell) == "none"]
            self.missing = [code for code in self.missing if code not in self.answers]
            self.texts.update({cell: codes[cell] for cell in self.answers})
        is_coded = len({*self.numbers}) <= MOST_CATEGORIES
        found = codes_apart(np.array(self.numbers))
        beyond = {value for value, _ in found if value < -1 or value > 99 or (is_coded and 0 not in self.numbers)}
        self.missing += [f"{number:.0f}" for number in sorted(beyond)]
        self.numbers = [number for number in self.numbers if number not in beyond]

    @property
    def lacks(self) -> bool:
        """Test whether a value is missing."""
        return len(self.numbers) + self.texts.total() < len(self.cells)

    @property
    def categories(self) -> list[str]:
        """The texts that differ by more than their spelling, each in its most frequent one."""
        found: dict[str, str] = {}
        texts = self.texts + Counter(f"{number:.15g}" for number in self.numbers)
        for text, _ in texts.most_common():
            found.setdefault(loose(text), text)
        return sorted(found.values())

    @property
    def offset(self) -> float | None:
        """An offset without which formats would hardly tell the values of a feature apart; None where they do."""
        return proposed_offset(np.array(self.numbers)) if self.kind == "number" and not self.is_target else None

    @property
    def kind(self) -> str:
        """``number``, ``categories``, or ``none`` where it is no feature."""
        if self._says_where:
            return "none"
        if self.texts:
            if (self._are_few and not self.is_target) or self._are_numbers or not self._words:
                return "none"
            return "categories" if 2 <= len(self.categories) <= MOST_CATEGORIES else "none"
        values = {*self.numbers}
        is_coded = 2 <= len(values) <= MOST_CATEGORIES and all(one.is_integer() for one in values)
        if self.is_target and is_coded and (len(values) == 2 or len(self.numbers) >= 2 * len(values)):
            return "categories"
        is_key = len(values) == len(self.cells) and all(one.is_integer() for one in values) and self._are_counted
        is_key = is_key or self.numbers_people or self._are_days
        return "none" if len(values) < 2 or (is_key and not self.is_target) else "number"

    @property
    def numbers_people(self) -> bool:
        """Test whether it numbers people, by its name."""
        name, many = self.name.lower(), len({*self.cells}) > MOST_CATEGORIES
        return bool(IDENTIFIER.fullmatch(name)) or (name in PEOPLE and many)

    @property
    def _says_where(self) -> bool:
        """Test whether it says from which site a row comes, by its name."""
        return not self.is_target and bool(SITES.fullmatch(self.name.lower()))

    @property
    def _words(self) -> bool:
        """Test whether texts can be categories: no dates, and beside numbers no bounds and units."""
        others = {"bounds", "units"} if self.numbers else set()
        return not {*map(kind_of, self.texts)} & (others | {"dates"})

    @property
    def _are_numbers(self) -> bool:
        """Test whether a column is one of numbers, but for a few of its rows."""
        return (
            not self.is_target
            and len({*self.numbers}) > MOST_CATEGORIES // 2
            and 4 * self.texts.total() < len(self.numbers)
        )

    @property
    def _are_days(self) -> bool:
        """Test whether all numbers are dates written together, 20240229 say."""
        texts = {f"{one:.0f}" for one in self.numbers}
        return bool(texts) and all(map(_DAY.fullmatch, texts))

    @property
    def _are_serials(self) -> bool:
        """Test whether all numbers can be a spreadsheet's days of 1980 to 2035, and there are many."""
        values = {*self.numbers}
        return len(values) > MOST_CATEGORIES and all(one.is_integer() and 29221 <= one <= 49309 for one in values)

    @property
    def _are_counted(self) -> bool:
        """Test whether numbers that all differ count rows: in order, close to one another, or of many equal digits."""
        rising, many = sorted(self.numbers), len(self.numbers) > MOST_CATEGORIES
        is_dense = many and rising[-1] - rising[0] < MOST_CATEGORIES * len(rising)
        n_digits = {len(f"{abs(one):.0f}") for one in rising}
        return self.numbers in (rising, rising[::-1]) or is_dense or (many and len(n_digits) == 1 and min(n_digits) > 5)

    @property
    def _are_few(self) -> bool:
        """Test whether no text has rows enough to show nobody: names of people, say, whatever their number."""
        return max(self._spelt.values()) < FEW_ROWS

    @property
    def _spelt(self) -> Counter[str]:
        """How many rows have each value, whatever its spelling."""
        return Counter(map(loose, self.texts.elements())) + Counter(loose(f"{one:.15g}") for one in self.numbers)

    def schema(self) -> Iterator[str]:
        """Yield the lines of the schema."""
        yield f"\n[columns.{key_of(self.key)}]"
        if self.is_target:
            yield 'role = "target"'
        if self.unit and self.kind == "number":
            yield f"unit = {toml(self.unit)}"
        if self.offset is not None:
            yield f"offset = {self.offset!r}"
        if self.kind == "categories":
            yield f"categories = {toml(self.categories)}"
        if self.lacks:
            yield f'missing = "{"leave out" if self.is_target else "flag"}"'

    def reading(self) -> Iterator[str]:
        """Yield the lines of the reading, where this file differs from the schema."""
        said = [f"name = {toml(self.name)}"] * (self.key != self.name)
        said += [f"missing = {toml(self.missing)}"] * bool(self.missing)
        if said:
            yield from (f"\n{section_of(self.key)}", *said)

    def facts(self) -> Iterator[str]:
        """Yield what becomes of the column."""
        if self.kind == "none":
            yield f"{self.name}: left out, {self.why}"
            return
        if self.missing:
            yield f"{self.name}: {', '.join(self.missing)} taken for missing"
        if self.answers and self.kind == "categories":
            yield f"{self.name}: {', '.join(map(repr, self.answers))} taken for an answer, not for missing"
        if self.offset is not None:
            yield f"{self.name}: values differ by little beside their size, and {self.offset:.12g} is taken off"

    def notes(self) -> Iterator[str]:
        """Yield what a person should look at."""
        yield from self.facts()
        if self.kind == "none":
            return
        are_numbers = self.texts and all(map(is_number, self.categories))
        if self.kind == "categories" and are_numbers and not any(map(_RANGE.search, self.categories)):
            yield f"{self.name}: numbers in several spellings, taken for categories; correct the marks, or the file"
        if self.kind == "categories" and not self.texts and len({*self.numbers}) > 2:
            yield f"{self.name}: whole numbers, taken for classes; if they are amounts, take its categories away"
        if self.kind == "categories" and len(self.categories) > 2 and {*map(loose, self.categories)} <= TRUTHS:
            yield f"{self.name}: several words for yes and no, taken for a category each; recode all of them to two"
        if self.kind == "categories" and "broken" in of_categories(self.name, self.categories):
            yield f"{self.name}: letters of some categories are broken; state encoding, or correct the file"
        if not self.texts:
            yield from (f"{self.name}: {odd}" for odd in odd_values(np.array(self.numbers)))
        if self.kind == "number" and any(_ZEROS.match(cell) for cell in self.cells if isinstance(cell, str)):
            yield f"{self.name}: numbers with zeros in front, codes perhaps; if so, take the column out"
        spelt = self._spelt
        few = [text for text in self.categories if 0 < spelt[loose(text)] < FEW_ROWS]
        if self.kind == "categories" and few:
            yield f"{self.name}: fewer than {FEW_ROWS} rows each have {', '.join(few)}; recode them, or leave them out"
        scarce = [text for text in self.categories if FEW_ROWS <= spelt[loose(text)] < 2 * FEW_ROWS]
        if self.is_target and self.kind == "categories" and scarce:
            yield (
                f"{self.name}: fewer than {2 * FEW_ROWS} rows each have {', '.join(scarce)}, and a total of fewer than "
                f"{FEW_ROWS} is refused, as where some are kept for judging; join classes, if so"
            )
        if self.is_target and self.lacks:
            n_missing = len(self.cells) - len(self.numbers) - self.texts.total()
            yield f"{self.name}: missing in {n_missing} of {len(self.cells)} rows, which are left out; ask why it is"
        if self.kind == "categories" and self.texts and self.numbers:
            yield f"{self.name}: numbers and words, two codings of one thing perhaps; if so, recode one of them"
        if self.kind == "categories" and _UNITS.fullmatch(self.name.lower()):
            yield f"{self.name}: several units; bring the values that they are of to one, and take the column out"
        if self.kind == "number" and self._are_serials:
            yield (
                f"{self.name}: a spreadsheet's numbers of days perhaps, such as 45000 for 2023-03-15; if they are "
                "dates, turn them into numbers that all sites mean alike"
            )

    @property
    def why(self) -> str:
        """Why it is no feature, or no target."""
        if self._says_where:
            return "by its name it says from which site a row comes, and the total would show each site's own sums"
        if not self.texts and self._are_days:
            return "dates written as numbers: turn them into numbers that all sites mean alike"
        if not self.texts and self.numbers_people:
            return "by its name it numbers people"
        if not self.texts and len({*self.numbers}) > 1:
            return "whole numbers that all differ, a number of patients perhaps"
        if not self.texts:
            return "one value in all rows" if self.numbers else "it is empty"
        spelt = Counter(kind_of(text) != "texts" for text in self.texts)
        if self._are_numbers or (self.numbers and not self._words) or spelt[True] > spelt[False]:
            looks = of_numbers(self.key, list(self.texts.elements()), self.own)
            return f"{self.texts.total()} of its {len(self.cells)} rows have no number: {looks}"
        if len(self.texts) == 1 and not self.numbers:
            if self.lacks:
                return (
                    "one text or none; if nothing stands for another category, state both in categories and "
                    f'recode = {{ "" = ... }} in {section_of(self.key)}'
                )
            return "one text in all rows"
        if self._are_few:
            return f"each of its texts is in fewer than {FEW_ROWS} rows and may show somebody"
        return f"{len(self.texts)} different texts"


_RANGE = re.compile(r"\d\s*[-\u2013]\s*\d|\d\+$")
"""A range, such as 18-29 or 75+."""
_DAY = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_ZEROS = re.compile(r"0\d")
_UNITS = re.compile(r"(.*[\W_])?(units?|uom|valueuom|einheit|unité)([\W_].*)?")
