"""Look of delimited text, from its beginning: for refusals, and for a draft of a reading."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import HERE, Reading
from analytic_secagg.spelling import loose, tidy

SEPARATORS = {
    ",": "commas",
    ";": "semicolons",
    "\t": "tabs",
    "|": "vertical bars",
    "^": "carets",
    "~": "tildes",
    " ": "blanks",
}

UNLIKELY = " \"'.-+_()[]<>/%&=*?!\ufeff"
"""Signs that no program separates values with; all others may be."""

_DRAWN = re.compile(r"[-+=|: ]*[-=]{3}[-+=|: ]*[+|][-+=|: ]*|\+[-+=]{3,}")
"""A line of dashes that parts a table for the eye."""

MISSING_TEXTS = frozenset(
    {"na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "#null!", "none", "nil", ".", "-", "--", "?", "\\n", "unknown"}
    | {"missing", "unbekannt", "k.a.", "nd", "n.d.", "#value!", "#div/0!", "#ref!", "#name?", "#num!", "–", "—"}
    | {"n.a.", "k. a.", "(null)", "[null]", "(blank)", "(leer)", "(empty)", "-nan", "1.#ind", "1.#qnan", "*", "***"}
    | {"unk", "ni", "nask", "asku", "navu", "nk", "not known", "not recorded", "not available", "not done"}  # HL7's
    | {"keine angabe", "inconnu", "desconocido", "sconosciuto", "onbekend"}
    | {f".{letter}" for letter in "_abcdefghijklmnopqrstuvwxyz"}  # of SAS and Stata
)
"""Public: what programs and people write in place of a missing value, loosely spelt."""

MISSING_NUMBERS = frozenset(
    {-1, *(sign * int(digit * times) for sign in (-1, 1) for digit in "789" for times in range(2, 7))}
    | {sign * (10**digits - less) for sign in (-1, 1) for digits in range(2, 7) for less in (2, 3, 4)}
    | {-int(digit) for digit in "789"}
)
"""Public: numbers that people write in place of a missing value, where they lie beyond all others of a column."""

FIELD_MARKS = "\x01\x1c\x1d\x1e\x1f"
"""Control characters with which databases separate fields."""

TRUTHS = frozenset(
    ["yes", "no", "y", "n", "true", "false", "t", "f", "ja", "nein", "j", "oui", "non", "si", "sí", "0", "1"]
)
"""Public: words for yes and no, loosely spelt."""

TOTALS = frozenset(
    {"total", "totals", "grand total", "subtotal", "summe", "gesamt", "gesamtsumme", "insgesamt", "somme", "totale"}
    | {"mean", "average", "mittelwert", "durchschnitt", "moyenne", "median"}
)
"""Public: words with which people begin a row that is no record, loosely spelt."""

MOST_LINES = 100
"""Lines in which the names of columns are looked for."""

COMMENTS = ("#", "%", "//")
"""Marks with which programs begin lines that are no rows."""


_PACKED = "packed: unpack it, and give the table in it"
_OBJECTS = "a file of a programming language: write the table as CSV or Parquet, or a function that gives a data frame"
SIGNATURES = {
    b"PK\3\4": "a ZIP archive: unpack it, and give the table in it",
    b"\x1f\x8b": "packed: let its name end in .csv.gz, or unpack it",
    **dict.fromkeys((b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"7z\xbc\xaf", b"Rar!"), _PACKED),
    b"\xd0\xcf\x11\xe0": "a workbook of an old spreadsheet (.xls), or one with a password: save it as .xlsx, without "
    "one, or as CSV",
    b"PAR1": "Parquet: let its name end in .parquet",
    b"ARROW1": "Feather: let its name end in .feather",
    **dict.fromkeys((b"ORC", b"Obj\x01"), "ORC or Avro: save the table as Parquet or CSV"),
    b"$FL2": "a file of SPSS: let its name end in .sav",
    b"$FL3": "a file of SPSS: let its name end in .zsav",
    b"<stata_dta>": "a file of Stata: let its name end in .dta",
    b"HEADER RECORD": "a transport file of SAS: let its name end in .xpt",
    bytes(12) + b"\xc2\xea\x81\x60": "a file of SAS: let its name end in .sas7bdat",
    **dict.fromkeys((b"SQLite format", b"\x89HDF"), "a database: export the table itself as CSV or Parquet"),
    **dict.fromkeys((b"\x93NUMPY", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"RDX", b"RDA"), _OBJECTS),
    b"%PDF": "a PDF: export the table itself",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*"), "a picture: give the table itself"),
    b"{\\rtf": "a text of a word processor: export the table itself",
}
BEGINNINGS = {
    r"<(!doctype|html|table|\?xml)": "a web page or XML: open it in a spreadsheet, and save it as CSV or .xlsx",
    r"(create|drop) table|insert into|-- .*dump": "a dump of SQL: export the table itself as CSV",
    r"@relation": "ARFF: export it as CSV",
    r"\[?\s*\{\s*\"": "JSON: export it as CSV, or write a function that returns a data frame",
}
"""What files begin with that are no delimited text, whatever their name; and what to do."""


def other_format(path: Path) -> str:
    """Return what a file is that is no delimited text, and what to do; empty where it may be."""
    start = first_bytes(path)
    for signature, what in SIGNATURES.items():
        if start.startswith(signature):
            return _archive(path) or what
    text = start[:200].decode("latin-1").lstrip("\ufeffï»¿ \t\r\n").lower()
    if found := next((what for pattern, what in BEGINNINGS.items() if re.match(pattern, text)), ""):
        return found
    encoding = encoding_of(start)
    signs = start.decode(encoding, errors="replace")
    if encoding == MAINFRAME and "\n" not in signs:
        return "a file of a mainframe (EBCDIC) without ends of lines: have it converted to text where it is sent from"
    n_controls = sum(sign < " " and not sign.isspace() and sign not in FIELD_MARKS for sign in signs)
    return "no text, whatever its name says: export the table itself as CSV" if 10 * n_controls > len(signs) else ""


def _archive(path: Path) -> str:
    """Return what is in a ZIP archive, and what to do; empty where it is none, or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return ""
    if "xl/workbook.xml" in names:
        return "a workbook: let its name end in .xlsx"
    if "content.xml" in names:
        return "a spreadsheet of LibreOffice (.ods): save it as .xlsx or CSV"
    return f"a ZIP archive of {len(names)} files, {', '.join(names[:3])}: unpack it, and give the table in it"


def actual_format(path: Path) -> str:
    """Return what a file is whose name promises something else, for the end of a refusal; empty where nobody knows."""
    try:
        what = other_format(path) or ("delimited text: let its name end in .csv" if b"\n" in first_bytes(path) else "")
    except (OSError, DataError):
        return ""
    return what and f"; it is {what}"


def separator_of(path: Path, reading: Reading) -> str:
    """Return the separator that a file is read with."""
    return reading.separator or ("\t" if ".tsv" in path.name.lower()[-7:] else ",")


def opened(path: Path, encoding: str) -> Any:
    """Return a text file, without its byte order mark, and unpacked where its name ends in ``.gz``."""
    encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding=encoding, newline="")
    return path.open(encoding=encoding, newline="")


def encoding_of(start: bytes) -> str:
    """Return an encoding that fits the first bytes of a file; of Western letters that are no UTF-8, that of Windows."""
    for mark, encoding in ((b"\xff\xfe\0\0", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if start.startswith(mark):
            return encoding
    if start[1::2].count(0) > len(start) // 4:
        return "utf-16-le"
    if start[::2].count(0) > len(start) // 4:
        return "utf-16-be"
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:  # else the piece ends within a letter
            return _of_letters(start)
    return "utf-8"


WESTERN = frozenset("äöüßéèêëàâáãçñóôòõíîïìúûùåæøÄÖÜÉÈÀÇÑÅÆØ°µ")
EASTERN = frozenset("áäčďéěíňóôöřšťúůüýžąćęłńśźżőűăâîşţđßÁÄČĎÉÍÓÖŘŠŤÚÜÝŽĄĆĘŁŃŚŹŻŐŰĂÂÎŞŢĐ°µ")
TURKISH = frozenset("çğıöşüâîÇĞİÖŞÜÂÎ°µ")
"""Letters of the West and the East of Europe and of Turkey, by which encodings are told apart."""

ENCODINGS = (
    "an export from Windows is cp1252 in the West of Europe, cp1250 in its East, cp1251 in Cyrillic, cp1253 in Greek, "
    "cp1254 in Turkish letters, gb18030 in China, big5 in Taiwan, shift_jis in Japan, cp949 in Korea; of DOS it is "
    "cp850, of an old Mac mac_roman, of a mainframe cp500"
)
"""Encodings by where a file comes from."""

MAINFRAME = "cp500"
"""Letters of mainframes, EBCDIC."""


def _of_letters(start: bytes) -> str:
    """Return the encoding of one byte a letter in which most letters are Western: of Windows, DOS, an old Mac."""
    plain = sum(byte < 128 and (chr(byte).isalnum() or byte in b" ,;\t\r\n.") for byte in start)
    if 2 * plain < len(start) and sum(
        sign.isalnum() or sign in " ,;\t\n." for sign in start.decode(MAINFRAME)
    ) > 0.8 * len(start):
        return MAINFRAME
    windows = "cp1252" if not {*start} & {0x81, 0x8D, 0x8F, 0x90, 0x9D} else "latin-1"
    letters = bytes(byte for byte in start if byte > 127)
    known = {windows: WESTERN, "cp850": WESTERN, "mac_roman": WESTERN, "cp1254": TURKISH, "cp1250": EASTERN}
    return max(known, key=lambda one: sum(sign in known[one] for sign in letters.decode(one, errors="replace")))


def has_another_alphabet(start: bytes) -> bool:
    """Test whether letters are not Latin: in words without ASCII, or East Asian ones of two bytes."""
    others = bytes(byte for byte in start if byte > 127)
    words = re.findall(rb"(?<![A-Za-z\x80-\xff])[\x80-\xff]{2,}(?![A-Za-z\x80-\xff])", start)
    if 2 * sum(map(len, words)) > len(others):
        return True
    latin = WESTERN | EASTERN | TURKISH
    if 4 * sum(sign in latin for sign in others.decode(_of_letters(start), errors="replace")) > 3 * len(others):
        return False
    for encoding in ("shift_jis", "gb18030", "cp949", "big5"):
        with suppress(UnicodeDecodeError):
            return all(sign.isascii() or sign > "\u3000" for sign in start.decode(encoding))
    return False


def first_bytes(path: Path) -> bytes:
    """Return the beginning of a file, unpacked.

    Raises:
        DataError: it is packed, and damaged or cut off.
    """
    try:
        with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
            return file.read(2**16)
    except gzip.BadGzipFile as error:  # whose text holds the first bytes
        raise DataError(f"{path} is named as packed, and is not: let its name end without .gz") from error
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is compressed, and damaged or cut off; bring it here again") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Look of delimited text.

    Args:
        encoding: of its letters.
        separator: between values.
        width: how many values most lines have.
        skip_lines: lines before the first of a table's.
        has_names: whether that line holds names, and not values.
    """

    encoding: str
    separator: str
    width: int
    skip_lines: int
    has_names: bool


def look_at(path: Path) -> Look:
    """Return what the beginning of delimited text looks like."""
    start = first_bytes(path)
    encoding = encoding_of(start)
    lines = lines_in(start, encoding)
    if len(start) == 2**16:
        del lines[-1:]
    if lines and (declared := re.fullmatch(r'"?sep=(.)"?\s*', lines[0])):
        return _looked(encoding, declared[1], lines[1:], 0)
    others = {sign for line in lines[:20] for sign in line if not (sign.isalnum() or sign in UNLIKELY)}
    counted = {mark: _width(lines, mark) for mark in (*SEPARATORS, *sorted(others - SEPARATORS.keys()))}
    separator = max(counted, key=lambda mark: (counted[mark][0], mark in SEPARATORS, mark != " ", counted[mark][1]))
    width = counted[separator][1]
    skip = next((place for place, line in enumerate(lines) if len(split(line, separator)) >= max(2, width - 1)), 0)
    return _looked(encoding, separator, lines[skip:], skip)


def lines_in(start: bytes, encoding: str) -> list[str]:
    """Return the lines of a file's first bytes, at line ends alone: other signs may separate values."""
    return re.split(r"\r\n|\r|\n", start.decode(encoding, errors="replace").lstrip("\ufeff").rstrip("\r\n"))


def _looked(encoding: str, separator: str, lines: list[str], skip: int) -> Look:
    first, others = (split(lines[0], separator), lines[1:]) if lines else ([], [])
    below = [cell for line in others[:20] for cell in split(line, separator)]
    has_names = not any(is_number(cell) for cell in first) or not any(is_number(cell) for cell in below)
    width = _width(lines, separator)[1]
    return Look(encoding=encoding, separator=separator, width=width, skip_lines=skip, has_names=has_names)


def _width(lines: list[str], mark: str) -> tuple[float, int]:
    """Return the fraction of the first lines that are split into one number of values, and that number."""
    counts = Counter(len(split(line, mark)) for line in lines[:100] if line.strip())
    width, often = max(counts.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
    return (0.0, 1) if width == 1 else (often / counts.total(), width)


def split(line: str, mark: str) -> list[str]:
    """Return the cells of a line; none of one that is no row."""
    try:
        return next(csv.reader([line.strip(" ") if mark == " " else line], delimiter=mark, skipinitialspace=True), [])
    except csv.Error:
        return []


def is_comment(line: str, reading: Reading, separator: str) -> bool:
    """Return whether a line is left out; a row whose first value is missing, #N/A say, is none."""
    if not reading.comment or not line.startswith(reading.comment):
        return False
    cells = split(line, separator)
    return len(cells) < 2 or loose(tidy(cells[0])) not in MISSING_TEXTS | {*map(loose, reading.missing)}


def is_number(text: str) -> bool:
    """Return whether a text is a number with whatever marks."""
    return bool(re.fullmatch(r"[-+\d.,]*\d[-+\d.,eE]*", text.strip()))


def layout(path: Path, reading: Reading, head: Sequence[str], missing: Iterable[str] = ()) -> str:
    """Return what a file looks like where it is laid out otherwise than it was read; empty where it is not.

    Args:
        path: the file.
        reading: how it was read.
        head: the names of columns that were found so.
        missing: names that were not found, where that is known.
    """
    look, used = look_at(path), separator_of(path, reading)
    if look.encoding.startswith("utf-16") and not reading.encoding.startswith("utf-16"):
        return f'looks like {look.encoding}: state encoding = "{look.encoding}" in {HERE}'
    if reading.names:
        return ""
    lines = lines_in(first_bytes(path), reading.encoding)
    if any(_DRAWN.fullmatch(line) for line in lines[:5]):
        return "is drawn with lines, for people to look at: export the table as CSV"
    if not reading.comment and lines and lines[0].startswith(COMMENTS) and len(head) < look.width:
        for place, line in enumerate(lines[:MOST_LINES]):
            if line.startswith(COMMENTS) and len(split(line, used)) == look.width:
                return f"begins with comments, and line {place + 1} names columns: state skip_lines = {place} in {HERE}"
        return f'begins with a comment: state comment = "{lines[0][0]}" in {HERE}'
    first = lines[reading.skip_lines] if len(lines) > reading.skip_lines else ""
    if mark := mark_of_names(first, look):
        return (
            f"has names separated by {SEPARATORS[mark]}, and rows by "
            f"{SEPARATORS.get(look.separator, 'another sign')}: state separator = {toml(look.separator)}, "
            f"skip_lines = {reading.skip_lines + 1} and names = [...] in {HERE}"
        )
    has_short_head = look.skip_lines > reading.skip_lines and len(head) < look.width
    if has_short_head and not look.has_names and len(head) > 1:
        return ""  # names, and rows that are longer
    if has_short_head:
        return (
            f"looks as if its table began in line {look.skip_lines + 1}: state skip_lines = {look.skip_lines} in {HERE}"
        )
    if look.separator != used and len(head) < 2:
        looks, known = (SEPARATORS.get(mark, f"the sign {toml(mark)}") for mark in (look.separator, used))
        return f"looks separated by {looks}, and {known} are read: state separator = {toml(look.separator)} in {HERE}"
    if len(head) == 1 and any(mark in str(head[0]) for mark in ",;\t"):
        return "has each line in quotation marks as a whole: export it again without, or take these away"
    for place, line in enumerate(lines[:MOST_LINES]):
        found = [tidy(cell) for cell in split(line, used)]
        if place > reading.skip_lines and missing and all(name in found for name in missing):
            return f"has the names of its columns in line {place + 1}: state skip_lines = {place} in {HERE}"
    if not look.has_names:
        return (
            f"looks as if no line of it names columns, since its first line holds numbers: state names = [...] in "
            f"{HERE}, one for each of its {len(head)} columns in their order"
        )
    return ""


def mark_of_names(line: str, look: Look) -> str:
    """Return the mark that separates a line of names where another one separates the rows; empty where none does."""
    marks = [mark for mark in SEPARATORS if len(split(line, mark)) == look.width > 1]
    return marks[0] if marks and len(split(line, look.separator)) == 1 else ""


def toml(value: str | list[str] | int) -> str:
    """Return a text, a list of texts or a whole number as TOML writes it."""
    return json.dumps(value, ensure_ascii=False)
