"""Files as people export them: each is read, with a reading of the site's own, or refused by its cause."""

# ruff: noqa: E501, since the table has a line for each file

from __future__ import annotations

import datetime
import gzip
import importlib.util
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.extras import needs

from analytic_secagg.__main__ import main as main_of_sites
from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import Trial
from simulations.__main__ import main

SCHEMA = """
missing_values = ["", "NA"]

[columns.age]

[columns.chol]
missing = "flag"

[columns.sex]
categories = ["f", "m"]

[columns.outcome]
role = "target"
categories = ["no", "yes"]
"""
BASE = "age,chol,sex,outcome\n61,200.5,f,no\n57,NA,m,yes\n73,1180.25,f,yes\n"
FEATURES = [[61, 200.5, 0, 1, 0], [57, 0, 1, 0, 1], [73, 1180.25, 0, 1, 0]]
TARGETS = [0, 1, 1]
VALUES = ("61", "57", "73", "200", "1180", "1,180", "1.180", "25")


def swap(*pairs: tuple[str, str], of: str = BASE) -> str:
    for was, now in pairs:
        assert was in of
        of = of.replace(was, now)
    return of


@dataclass(frozen=True)
class File:
    """A file that somebody exports.

    Args:
        name: what is awkward.
        text: what is in it.
        refused: the cause that is named without a reading; None where it is read so.
        reading: with which it is read; None where it has to be changed.
        suffix: of its name.
    """

    name: str
    text: str | bytes
    refused: str | None = None
    reading: str | None = None
    suffix: str = ".csv"


SEMICOLONS = swap((",", ";"))
GERMAN = swap(("200.5", "200,5"), ("1180.25", "1.180,25"), of=SEMICOLONS)
WHOLE = swap(("200.5", "0200"), ("1180.25", "1180")).replace("0200", "200.5")

FILES = [
    File("as it should be", BASE),
    # read as they are
    File("byte order mark", "\ufeff" + BASE),
    File("lines of Windows", BASE.replace("\n", "\r\n")),
    File("lines of old Macs", BASE.replace("\n", "\r")),
    File("no line end at the end", BASE.rstrip()),
    File("blank lines", BASE.replace("\n", "\n\n")),
    File("rows of nothing below, as spreadsheets leave them", BASE + ",,,\n , ,,\n"),
    File("blanks around values", BASE.replace(",", " , ")),
    File("no-break spaces", swap(("f,", "f\u00a0,"), ("61", "\u202f61"))),
    File("a zero-width space", swap(("57", "\u200b57"))),
    File("capital letters", swap((",f,", ",F,"), ("yes", "Yes"))),
    File("all in quotation marks", re.sub(r"[^,\n]+", r'"\g<0>"', BASE)),
    File("quotation marks behind a blank", swap(("f,", ' "f",'))),
    File("a line sep=", "sep=;\n" + SEMICOLONS),
    File("a line sep= for tabs", "sep=\t\r\n" + BASE.replace(",", "\t").replace("\n", "\r\n")),
    File("other columns, one with all that a text may hold", swap(("61", '"Ada, ""A""\nB;",61'), ("age", "name,age"), ("57", "Bo,57"), ("73", ",73"))),
    File("another column twice", swap(("age", "x,x,age"), ("61", "1,2,61"), ("57", "1,2,57"), ("73", "1,2,73"))),
    File("names of rows, as R's write.csv gives them", swap(("age", '"",age'), ("61", '"1",61'), ("57", '"2",57'), ("73", '"3",73'))),
    File("a separator at the end of all lines", BASE.replace("\n", ",\n")),
    File("columns in another order", "outcome,sex,chol,age\nno,f,200.5,61\nyes,m,NA,57\nyes,f,1180.25,73\n"),
    File("texts as formulas", swap(("61", '="61"'), ("f,no", '="f",no'))),
    File("full-width digits", swap(("61", "６１"))),
    File("Arabic digits", swap(("57", "٥٧"))),
    File("whole numbers as reals", swap(("61", "61.0"), ("57", "5.7e1"), ("73", "+73."))),
    File("zeros in front", swap(("61", "061"))),
    File("packed", gzip.compress(BASE.encode()), suffix=".csv.gz"),
    File("capital ending", BASE, suffix=".CSV"),
    File("tabs in .tsv", BASE.replace(",", "\t"), suffix=".tsv"),
    File("commas in .txt", BASE, suffix=".txt"),
    # laid out otherwise
    File("semicolons", SEMICOLONS, "looks separated by semicolons", 'separator = ";"'),
    File("semicolons, decimal commas", GERMAN, "looks separated by semicolons", 'separator = ";"\ndecimal = ","\nthousands = "."'),
    File("tabs in .csv", BASE.replace(",", "\t"), "looks separated by tabs", 'separator = "\\t"'),
    File("bars", BASE.replace(",", "|"), "looks separated by vertical bars", 'separator = "|"'),
    File("columns of blanks", BASE.replace(",", "   "), "looks separated by blanks", 'separator = " "'),
    File("commas in .tsv", BASE, "looks separated by commas", 'separator = ","', suffix=".tsv"),
    File("UTF-16 with its mark", BASE.encode("utf-16"), r"look like utf-16\.", 'encoding = "utf-16"'),
    File("UTF-16 without", BASE.encode("utf-16-le"), "looks like utf-16-le", 'encoding = "utf-16-le"'),
    File("Windows letters", swap(("age", "größe,age"), ("61", "1,61"), ("57", "1,57"), ("73", "1,73")).encode("cp1252"), "look like cp1252", 'encoding = "cp1252"'),
    File("letters of Windows in values", swap(("age", "ort,age"), ("61", "Köln,61"), ("57", ",57"), ("73", ",73")).encode("latin-1"), "look like cp1252", 'encoding = "latin-1"'),
    File("titles above", "Report of today\n\n" + BASE, "looks as if its table began in line 3: state skip_lines = 2", "skip_lines = 2"),
    File("comments", "# made by a device\n" + BASE + "# end\n", "begins with a comment", 'comment = "#"'),
    File("no names", BASE.partition("\n")[2], "no line of it names columns", 'names = ["age", "chol", "sex", "outcome"]'),
    File("a second line of units", swap(("outcome\n", "outcome\nyears,mg/dl,,\n")), "column age needs a finite number, and 1 of 4 rows", 'skip_lines = 2\nnames = ["age", "chol", "sex", "outcome"]'),
    File("R's write.table", '"age" "chol" "sex" "outcome"\n"1" 61 200.5 "f" "no"\n"2" 57 NA "m" "yes"\n"3" 73 1180.25 "f" "yes"\n', "looks separated by blanks", 'separator = " "\nskip_lines = 1\nnames = ["row", "age", "chol", "sex", "outcome"]'),
    File("a separator behind rows alone", swap((",no\n", ",no,\n"), (",yes\n", ",yes,\n")), "one value more than there are names, at their end, empty", 'skip_lines = 1\nnames = ["age", "chol", "sex", "outcome", "nothing"]'),
    File("rows of different length", swap(("200.5", "200,5")), "1 of 3 rows have another number"),
    File("a total below", BASE + "Total,,,3\n", "column age needs a finite number, and 1 of 4 rows have another text: they are texts"),
    File("each line in quotation marks", "".join(f'"{line}"\n' for line in BASE.splitlines()), "each line in quotation marks as a whole"),
    File("other quotation marks", swap(("f,", "'f',"), ("m,", "'m',")), "column sex needs one of f, m", "quote = \"'\""),
    File("a quotation mark that is a text", swap(("age", "note,age"), ("61", '"tube,61'), ("57", ",57"), ("73", ",73")), "line 2: it must be CSV in UTF-8", 'quote = ""'),
    File("cut off", gzip.compress(BASE.encode())[:-12], "cut off", suffix=".csv.gz"),
    File("nothing", "", "needs each column of the schema once"),
    # named otherwise
    File("names in capitals", swap(("age", "AGE")), 'another spelling. State name = "AGE"', '[columns.age]\nname = "AGE"'),
    File("names with blanks", swap(("age", " age "))),
    File("another language", swap(("age", "Alter (Jahre)")), r'state name = "\.\.\." in \[client\.reading\.columns\.age\]', '[columns.age]\nname = "Alter (Jahre)"'),
    File("a used column twice", swap(("age", "age,age"), ("61", "61,0"), ("57", "57,0"), ("73", "73,0")), "age occurs several times", 'skip_lines = 1\nnames = ["age", "age2", "chol", "sex", "outcome"]'),
    # numbers written otherwise
    File("decimal commas in quotation marks", swap(("200.5", '"200,5"'), ("1180.25", '"1180,25"')), "2 of 3 rows have another text: they have a decimal comma: state decimal", 'decimal = ","'),
    File("decimal commas alone", swap(("200.5", "200,5"), ("1180.25", "1180,25"), of=SEMICOLONS), "semicolons", 'separator = ";"\ndecimal = ","'),
    File("thousands of America", swap(("1180.25", '"1,180.25"')), 'commas between thousands: state thousands = ","', 'thousands = ","'),
    File("thousands of Germany", swap(("200.5", '"200,5"'), ("1180.25", '"1.180,25"')), 'state decimal = "," and thousands = "."', 'decimal = ","\nthousands = "."'),
    File("thousands of Sweden", swap(("1180.25", "1\u00a0180.25")), "blanks between thousands", 'thousands = " "'),
    File("thousands of France", swap(("1180.25", '"1\u202f180,25"'), ("200.5", '"200,5"')), 'state decimal = "," and thousands = " "', 'decimal = ","\nthousands = " "'),
    File("thousands of Switzerland", swap(("1180.25", "1'180.25")), "apostrophes between thousands", "thousands = \"'\""),
    File("thousands of Swiss printers", swap(("1180.25", "1’180.25")), "apostrophes between thousands", "thousands = \"'\""),
    File("three digits behind a comma", swap(("200.5", '"200,500"')), "may mark thousands or decimals", None),
    File("underscores", swap(("1180.25", "1_180.25")), "underscores between digits"),
    File("a bound", swap(("200.5", "<300")), "bounds as laboratories write them", '[columns.chol]\nrecode = { "<300" = "200.5" }'),
    File("a unit behind the number", swap(("200.5", "200.5 mg/dl")), "a unit or a remark behind the number"),
    File("percent", swap(("61", "61%")), "a unit or a remark behind the number"),
    File("dates", swap(("61", "1961-03-02")), "they are dates or times"),
    File("dates of Europe", swap(("61", "02.03.1961")), "they are dates or times"),
    File("times", swap(("61", "12:30")), "they are dates or times"),
    File("infinity", swap(("200.5", "inf")), "infinite"),
    File("a sign behind", swap(("200.5", "200.5-")), "sign behind them"),
    File("an accountant's minus", swap(("200.5", "(200.5)")), "sign behind them, or brackets"),
    File("another unit", swap(("200.5", "100.25"), ("1180.25", "590.125")), None, "[columns.chol]\nfactor = 2.0"),
    File("another unit and zero", swap(("200.5", "433"), ("1180.25", "2392.5")), None, "[columns.chol]\nfactor = 0.5\nadd = -16.0"),
    # missing otherwise
    *(
        File(f"{code} for missing", swap(("NA", code)), re.escape(f"they are {code}, as people write what is missing"), f"[columns.chol]\nmissing = ['{code}']")
        for code in ("?", ".", "n/a", "NaN", "NULL", "None", "#N/A", "#DIV/0!", "unknown", "k.A.", "\\N", "-")
    ),
    File("na for NA", swap(("NA", "na"))),
    File("-9 for missing", swap(("NA", "-9")), None, '[columns.chol]\nmissing = ["-9"]'),
    File("-9 as a real", swap(("NA", "-9.00")), None, '[columns.chol]\nmissing = ["-9"]'),
    File("0 for missing in one column", swap(("NA", "0")), None, '[columns.chol]\nmissing = ["0"]'),
    File("a code in all columns", swap(("NA", "999")), None, 'missing = ["999"]'),
    File("a missing target", swap(("f,no", "f,")), r"it is missing in 1 of 3 rows\. Repair the table or leave these rows out of it$"),
    # classes written otherwise
    File("codes for classes", swap((",f,", ",2,"), (",m,", ",1,")), "they are numbers, codes perhaps: state recode", '[columns.sex]\nrecode = { "1" = "m", "2" = "f" }'),
    File("codes as reals", swap((",f,", ",2.0,"), (",m,", ",1.0,")), "they are numbers, codes perhaps", '[columns.sex]\nrecode = { "1" = "m", "2" = "f" }'),
    File("words for classes", swap((",f,", ",Frau,"), (",m,", ",Mann,")), "they are other texts: state recode", '[columns.sex]\nrecode = { Frau = "f", mann = "m" }'),
    File("truths for classes", swap((",no", ",FALSE"), (",yes", ",TRUE")), "column outcome needs one of no, yes", '[columns.outcome]\nrecode = { "false" = "no", "true" = "yes" }'),
]  # fmt: skip


def schema(folder: Path, text: str = SCHEMA) -> TableSchema:
    (folder / "schema.toml").write_text(text, encoding="utf-8")
    return TableSchema.read(folder / "schema.toml")


def reading(folder: Path, text: str | None) -> Reading:
    """The reading of a site's file, whose tables are given without ``client.reading.`` in front."""
    said = "[client.reading]\n" + (text or "").replace("[columns.", "[client.reading.columns.")
    (folder / "site.toml").write_text(said, encoding="utf-8")
    return Reading.read(folder / "site.toml")


def read(folder: Path, path: Path, own: str | None = None, of: str = SCHEMA) -> tuple[list[Any], list[Any]]:
    rows = schema(folder, of).rows(path, reading(folder, own))
    return rows.features.tolist(), rows.targets.tolist()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_awkward_file_is_read_or_refused_by_its_cause(file: File, tmp_path: Path) -> None:
    path = tmp_path / f"rows{file.suffix}"
    path.write_bytes(file.text if isinstance(file.text, bytes) else file.text.encode())
    if file.refused is not None:
        with pytest.raises(DataError, match=file.refused) as refused:
            read(tmp_path, path)
        said = str(refused.value).replace(str(path), "")
        assert not any(re.search(rf"(?<!line )\b{re.escape(value)}\b", said) for value in VALUES), said
        assert said.index("schema of all") > said.index("client.reading") if "schema of all" in said else said
    elif file.reading is None:
        assert read(tmp_path, path) == (FEATURES, TARGETS)
    if file.reading is not None:
        assert read(tmp_path, path, file.reading) == (FEATURES, TARGETS)


def test_there_are_sixty_of_them() -> None:
    assert len({file.name for file in FILES}) == len(FILES) >= 60


@pytest.mark.parametrize(
    ("number", "own"),
    [
        ("1,20", 'thousands = ","'),
        ("12,345.6", 'decimal = ","'),
        ("1.234", 'decimal = ","'),
        ("1,2345", 'thousands = ","'),
        ("1e999", None),
        ("0x10", None),
        ("1 000", None),
        ("٣²", None),
    ],
)
def test_no_number_is_guessed(number: str, own: str | None, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(swap(("200.5", f'"{number}"')), encoding="utf-8")
    with pytest.raises(DataError, match="column chol needs a finite number"):
        read(tmp_path, path, own)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ('decimal = ","\nthousands = ","', "two marks"),
        ('encoding = "windows"', "encoding is one that Python knows"),
        ("header = true", r"\[client.reading\] has no place for header"),
        ("[columns.age]\nfactor = 0.0", "needs factor above 0"),
        ('[columns.wight]\nname = "x"', "has wight, and the schema has not"),
        ("[columns.sex]\nfactor = 2.0", "texts have no unit"),
        ('[columns.sex]\nrecode = { x = "d" }', "recode to one of f, m"),
        ('[columns.age]\nrecode = { x = "old" }', "with a decimal point"),
    ],
)
def test_readings_that_cannot_be(own: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(BASE)
    with pytest.raises(ValueError, match=why):
        read(tmp_path, tmp_path / "rows.csv", own)


def test_white_space_and_composed_letters_make_no_class(tmp_path: Path) -> None:
    text = SCHEMA.replace('"f", "m"', '"männlich ", " not  known"')
    path = tmp_path / "rows.csv"
    path.write_text(swap((",f,", f",{unicodedata.normalize('NFD', 'männlich')},"), (",m,", ",not known ,")))
    assert read(tmp_path, path, of=text)[0] == FEATURES
    path.write_text(swap((",f,", f",{'männlich'.encode().decode('latin-1')},"), (",m,", ",not known,")))
    with pytest.raises(DataError, match="their letters are broken, so the file has another encoding"):
        read(tmp_path, path, of=text)
    with pytest.raises(ValueError, match="at least two different texts"):
        schema(tmp_path, SCHEMA.replace('"f", "m"', '"f", "f "'))
    both = SCHEMA.replace('"f", "m"', '"f", "F"')
    path.write_text(swap((",m,", ",F,")))
    assert read(tmp_path, path, of=both)[0] == FEATURES  # the schema tells them apart, so the file does


def test_a_reading_is_no_part_of_what_all_sites_agree_on(tmp_path: Path) -> None:
    published = "7ebe876720431ed365c5839b5bab7f0ca1168c4440d49ef030f3ccfcdac7652d"
    assert schema(tmp_path).fingerprint == published  # of before there were readings; rosters pin it


ARROW: dict[str, Callable[[Any], dict[str, Any]]] = {
    "dictionaries": lambda arrow: {"sex": arrow.array(["f", "m", "f"]).dictionary_encode()},
    "decimals": lambda arrow: {"age": arrow.array([61, 57, 73], arrow.decimal128(10, 2))},
    "half floats": lambda arrow: {"age": arrow.array(np.array([61, 57, 73], np.float16))},
    "bytes": lambda arrow: {"sex": arrow.array([b"f", b"m ", b"f"])},
    "texts": lambda arrow: {"chol": arrow.array(["200.5", "NA", " 1180.25"])},
    "blanks": lambda arrow: {"outcome": arrow.array(["no ", "Yes", "yes"])},
}


@pytest.mark.parametrize("kind", ARROW)
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_files_of_arrow(kind: str, suffix: str, tmp_path: Path) -> None:
    needs("pyarrow")
    import pyarrow
    from pyarrow import feather, parquet

    columns = {
        "age": [61, 57, 73],
        "chol": [200.5, None, 1180.25],
        "sex": ["f", "m", "f"],
        "outcome": ["no", "yes", "yes"],
    } | ARROW[kind](pyarrow)
    path = tmp_path / f"rows{suffix}"
    if suffix == ".feather" and kind == "half floats":
        columns["age"] = columns["age"].cast(pyarrow.float32())
    table = pyarrow.table(columns)
    if suffix == ".feather":
        feather.write_feather(table, str(path))
    else:
        parquet.write_table(table, path)
    assert read(tmp_path, path) == (FEATURES, TARGETS)


def test_marks_are_for_texts_and_no_number_has_them(tmp_path: Path) -> None:
    needs("pyarrow")
    import pyarrow

    text = {
        "age": [61.0, 57.0, 73.0],
        "chol": ["200,5", "-9,0", "1.180,25"],
        "sex": ["f", "m", "f"],
        "outcome": ["no", "yes", "yes"],
    }
    own = reading(tmp_path, 'decimal = ","\nthousands = "."\n[columns.chol]\nmissing = ["-9"]')
    rows = schema(tmp_path).rows_of_frame(pyarrow.table(text), reading=own)
    assert (rows.features.tolist(), rows.targets.tolist()) == (FEATURES, TARGETS)


CODED = {"age": [61.0, 57.0, 73.0], "chol": [200.5, None, 1180.25], "sex": [2, 1, 2], "outcome": [0.0, 1.0, 1.0]}
CODES = '[columns.sex]\nrecode = { 1 = "m", 2 = "f" }\n[columns.outcome]\nrecode = { 0 = "no", 1 = "yes" }'


def sheet(book: Any, *above: list[str], title: str | None = None, **other: Any) -> None:
    page = book.active if title is None else book.create_sheet(title)
    columns = CODED | other
    for row in (*above, list(columns), *map(list, zip(*columns.values(), strict=True))):
        page.append(row)


def test_workbooks(tmp_path: Path) -> None:
    openpyxl = needs("openpyxl")
    path = tmp_path / "rows.xlsx"
    book = openpyxl.Workbook()
    sheet(book)
    book.save(path)
    assert read(tmp_path, path, CODES) == (FEATURES, TARGETS)
    sheet(book, ["Export"], ["of", "today"], title="Data")
    book.save(path)
    with pytest.raises(DataError, match="a workbook of 2 sheets, Sheet, Data: state"):
        read(tmp_path, path, CODES)
    assert read(tmp_path, path, f'sheet = "Data"\nskip_lines = 2\n{CODES}') == (FEATURES, TARGETS)
    sheet(book, title="Dates", age=[datetime.date(1961, 1, 2)] * 3)
    book.save(path)
    with pytest.raises(DataError, match="3 of 3 rows have another text: they are dates or times"):
        read(tmp_path, path, f'sheet = "Dates"\n{CODES}')
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="as a workbook"):
        read(tmp_path, path)


@pytest.mark.parametrize("suffix", [".dta", ".sav", ".xpt"])
def test_files_of_stata_spss_and_sas(suffix: str, tmp_path: Path) -> None:
    pyreadstat, pandas = needs("pyreadstat"), needs("pandas")
    path = tmp_path / f"rows{suffix}"
    how = {".dta": (pyreadstat.write_dta, {}), ".sav": (pyreadstat.write_sav, {})}
    write, settings = how.get(suffix, (pyreadstat.write_xport, {"file_format_version": 5}))
    write(pandas.DataFrame(CODED), path, **settings)
    assert read(tmp_path, path, CODES) == (FEATURES, TARGETS)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="as a file of Stata, SAS or SPSS"):
        read(tmp_path, path)


@pytest.mark.parametrize(("suffix", "extra"), [(".xlsx", "tables"), (".sas7bdat", "tables"), (".feather", "parquet")])
def test_without_its_library_a_file_says_what_to_do(
    suffix: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=rf"analytic-secagg\[{extra}\]"):
        read(tmp_path, tmp_path / f"rows{suffix}")


def test_a_site_and_a_comparison_read_so(tmp_path: Path, trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial.folder / "site-2"
    site, table = folder / "site.toml", folder / "rows.csv"
    said = site.read_text().replace('"rows.npz"', '"rows.csv"\ncolumns = "schema.toml"')
    site.write_text(said + '\n[client.reading]\nseparator = ";"\ndecimal = ","\nthousands = "."\n')
    schema(folder)
    table.write_text(GERMAN + "".join(GERMAN.splitlines(keepends=True)[1:]) * 40, encoding="utf-8")
    assert main_of_sites(["check-site", str(site)]) == 0
    assert "123 rows of 5 features" in capsys.readouterr().out
    words = [
        "compare",
        "--data",
        str(table),
        "--columns",
        str(folder / "schema.toml"),
        "--clients",
        "4",
        "--modes",
        "plain",
    ]
    assert main([*words, "--reading", str(site)]) == 0
    assert "98 training and 25 test rows, 5 features, 2 classes" in " ".join(capsys.readouterr().out.split())
    assert main(words) == 2
    assert "looks separated by semicolons" in capsys.readouterr().err
    assert main(["compare", "--reading", str(site)]) == 2
    assert "--reading is of a table with a schema" in capsys.readouterr().err
    (folder / "none.toml").write_text("[client]")
    assert main([*words, "--reading", str(folder / "none.toml")]) == 2
    assert "needs a table [client.reading]" in capsys.readouterr().err
