"""Files as people export them: each is read, with a reading of the site's own, or refused by its cause."""

from __future__ import annotations

import csv
import datetime
import functools
import importlib.util
import json
import math
import re
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.awkward_tables import BASE, FEATURES, FILES, GERMAN, SCHEMA, TARGETS, VALUES, File, swap
from support.extras import needs

from analytic_secagg.__main__ import main as main_of_sites
from analytic_secagg.errors import DataError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.schema_draft import draft
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import Trial
from simulations.__main__ import main


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


@pytest.mark.parametrize(
    ("own", "text", "said"),
    [
        (
            'separator = " "',
            "age chol sex outcome\n61 200.5 f no\n57       m yes\n",
            "blanks do not show which",
        ),
        ('names = ["age", "chol", "sex"]', BASE.partition("\n")[2], "not 4, in any line: state a name for each"),
        ('names = ["age", "chol", "sex", "outcome"]', BASE, "line 1, has the names .*: state skip_lines = 1 too"),
        ('comment = "6"', BASE, "comment is a sign that begins no row"),
        ('comment = "-"', BASE, "comment is a sign that begins no row"),
    ],
)
def test_a_reading_that_does_not_fit_is_refused_by_its_cause(own: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises((DataError, SiteFileError), match=said):
        read(tmp_path, tmp_path / "rows.csv", own)


@pytest.mark.parametrize("name", ["chol (mg/dl)", "chol.total", 'the "chol"'])
def test_a_refusal_names_a_section_that_its_file_can_have(name: str, tmp_path: Path) -> None:
    quoted = SCHEMA.replace("columns.chol", f"columns.{json.dumps(name)}")
    (tmp_path / "rows.csv").write_text(BASE)
    with pytest.raises(DataError, match=r"in (\[client\.reading\.columns\..*\]) of this site") as refused:
        read(tmp_path, tmp_path / "rows.csv", of=quoted)
    section = re.search(r"in (\[client\.reading\.columns\..*\]) of this site", str(refused.value))[1]
    own = f'[client.reading]\n{section}\nname = "chol"'
    (tmp_path / "site.toml").write_text(own)
    rows = schema(tmp_path, quoted).rows(tmp_path / "rows.csv", Reading.read(tmp_path / "site.toml"))
    assert rows.features.tolist() == FEATURES


@pytest.mark.parametrize(
    ("number", "own"),
    [
        ("1,20", 'thousands = ","'),
        ("12,345.6", 'decimal = ","'),
        ("1.234", 'decimal = ","'),
        ("0 123", 'thousands = " "'),
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


@pytest.mark.parametrize("number", ["0.123", "-0.250", "01.234", "1.234e5"])
def test_a_mark_between_thousands_swallows_no_decimals(number: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        Reading(decimal=",", thousands=".").number(number)


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


NUMBER = '[columns.a]\nmissing = "flag"\n[columns.y]\nrole = "target"\n'
COUNTRY = NUMBER.replace("[columns.y]", 'categories = ["EU", "NA"]\n[columns.y]')


@pytest.mark.parametrize(
    ("of", "own", "why"),
    [
        (COUNTRY, 'missing = ["NA"]', "NA is a category of the schema and stands for missing too"),
        ('missing_values = ["", "NA"]\n' + COUNTRY, "", "NA is a category of the schema and stands for missing too"),
        (COUNTRY, '[columns.a]\nrecode = { "w" = "EU", "w " = "NA" }', "several spellings of one text"),
        (COUNTRY, '[columns.a]\nrecode = { "w" = "EU", "W" = "NA" }', "several spellings of one text"),
        (NUMBER, '[columns.a]\nrecode = { "1" = "5", "1.0" = "6" }', "several spellings of one text"),
        (NUMBER, '[columns.a]\nname = "y"', "several columns of the schema read y"),
        (NUMBER, "[columns.a]\nfactor = 1e10", "column a needs a finite number, and 1 of 2"),
        (NUMBER.replace("[columns.y]", "scale = -60\n[columns.y]"), "", "finite"),
        (NUMBER.replace('"flag"', "nan"), "", "or a finite number"),
        (NUMBER.replace('"flag"', "-inf"), "", "or a finite number"),
    ],
)
def test_what_would_mean_two_things_or_nothing_is_refused(of: str, own: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,y\n1e300,1e300\n2,3\n" if "categories" not in of else "a,y\nEU,1\nNA,2\n")
    with pytest.raises(ValueError, match=why):
        read(tmp_path, tmp_path / "rows.csv", own, of)


@pytest.mark.parametrize(
    ("of", "own", "cell", "meant"),
    [
        (NUMBER, 'missing = ["0"]\nrecode = { none = "0" }', "none", [0.0, 0.0]),
        (NUMBER, 'missing = ["0"]\nrecode = { none = "0" }', "0", [0.0, 1.0]),
        (NUMBER, 'recode = { none = "" }', "none", [0.0, 1.0]),
        (COUNTRY, 'missing = ["NA"]\nrecode = { NA = "NA" }', "NA", [0.0, 1.0]),
        (COUNTRY, 'recode = { w = "EU", "w " = "EU" }', "w", [1.0, 0.0]),
    ],
)
def test_a_recode_leads_to_what_the_schema_means(
    of: str, own: str, cell: str, meant: list[float], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text(f"a,y\n{cell},1\n")
    assert read(tmp_path, tmp_path / "rows.csv", f"[columns.a]\n{own}", of)[0] == [meant]


def test_codes_of_the_schema_are_in_its_own_marks(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a;y\n-9,50;1\n2,5;2\n")
    of = 'missing_values = ["", "-9.5"]\n' + NUMBER
    assert read(tmp_path, tmp_path / "rows.csv", 'separator = ";"\ndecimal = ","', of)[0] == [[0, 1], [2.5, 0]]


@pytest.mark.parametrize("library", ["pyarrow", "pandas"])
def test_a_code_is_one_in_columns_of_32_bits_too(library: str, tmp_path: Path) -> None:
    module = needs(library)
    columns = {"a": np.array([-9.9, 1.5, 1e8], np.float32), "y": [1, 2, 3]}
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    rows = schema(tmp_path, NUMBER).rows_of_frame(frame, reading=Reading(missing=frozenset({"-9.9", "99999999"})))
    assert rows.features.tolist() == [[0, 1], [1.5, 0], [1e8, 0]]


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


def workbook(folder: Path, **other: Any) -> tuple[Any, Path]:
    """A workbook of one sheet, and the file where it was saved."""
    book, path = needs("openpyxl").Workbook(), folder / "rows.xlsx"
    sheet(book, **other)
    book.save(path)
    return book, path


def test_workbooks(tmp_path: Path) -> None:
    book, path = workbook(tmp_path)
    assert read(tmp_path, path, CODES) == (FEATURES, TARGETS)
    sheet(book, ["Export"], ["of", "today"], title="Data")
    book.save(path)
    with pytest.raises(DataError, match="2 sheets that hold something, Sheet, Data: state"):
        read(tmp_path, path, CODES)
    assert read(tmp_path, path, f'sheet = "Data"\nskip_lines = 2\n{CODES}') == (FEATURES, TARGETS)
    sheet(book, title="Dates", age=[datetime.date(1961, 1, 2)] * 3)
    book.save(path)
    with pytest.raises(DataError, match="3 of 3 rows have another text: they are dates or times"):
        read(tmp_path, path, f'sheet = "Dates"\n{CODES}')
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="as a workbook"):
        read(tmp_path, path)


def rewritten(path: Path, part: str, was: bytes, now: bytes) -> None:
    """Change a file within a workbook, as other programs write it."""
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    assert was in parts[part]
    parts[part] = parts[part].replace(was, now)
    with zipfile.ZipFile(path, "w") as book:
        for name, content in parts.items():
            book.writestr(name, content)


def test_a_workbook_that_states_a_wrong_size_loses_no_rows(tmp_path: Path) -> None:
    _, path = workbook(tmp_path)
    rewritten(path, "xl/worksheets/sheet1.xml", b'<dimension ref="A1:D4"', b'<dimension ref="A1:D3"')
    assert read(tmp_path, path, CODES) == (FEATURES, TARGETS)


def test_a_sheet_of_a_chart_is_no_table(tmp_path: Path) -> None:
    openpyxl = needs("openpyxl")
    book, path = workbook(tmp_path)
    chart = openpyxl.chart.BarChart()
    chart.add_data(openpyxl.chart.Reference(book.active, min_col=1, min_row=1, max_row=4))
    book.create_chartsheet("chart").add_chart(chart)
    book.save(path)
    assert read(tmp_path, path, CODES) == (FEATURES, TARGETS)
    with pytest.raises(DataError, match="state the one with the table"):
        read(tmp_path, path, f'sheet = "chart"\n{CODES}')


def test_formulas_without_results_are_not_taken_for_missing(tmp_path: Path) -> None:
    _, path = workbook(tmp_path, chol=["=A2*2", "=A3*2", None])
    with pytest.raises(DataError, match="none of its 2 formulas has one"):
        read(tmp_path, path, CODES)
    rewritten(path, "xl/worksheets/sheet1.xml", b"<f>A2*2</f><v />", b"<f>A2*2</f><v>200.5</v>")
    assert read(tmp_path, path, CODES)[0][0] == FEATURES[0]


BROKEN = {
    "no XML": ("xl/worksheets/sheet1.xml", b"<sheetData>", b"<sheetData"),
    "no sheet of its name": ("xl/_rels/workbook.xml.rels", b"sheet1.xml", b"sheet7.xml"),
    "a number that is none": ("xl/worksheets/sheet1.xml", b"<v>61</v>", b"<v>6x</v>"),
    "a style that is not there": ("xl/worksheets/sheet1.xml", b'<c r="A2"', b'<c r="A2" s="x"'),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_workbook_is_refused(broken: str, tmp_path: Path) -> None:
    _, path = workbook(tmp_path)
    rewritten(path, *BROKEN[broken])
    with pytest.raises(DataError, match=r"as a workbook|is a workbook of 0 sheets"):
        read(tmp_path, path, CODES)


def test_a_damaged_file_of_arrow_ends_no_process(tmp_path: Path) -> None:
    needs("pyarrow")
    import pyarrow
    from pyarrow import feather

    path = tmp_path / "rows.feather"
    offsets = np.array([0, 1, 2, 3], dtype=np.int32)
    sex = pyarrow.Array.from_buffers(
        pyarrow.string(), 3, [None, pyarrow.py_buffer(offsets.tobytes()), pyarrow.py_buffer(b"fmf")]
    )
    columns = {"age": [61, 57, 73], "chol": [200.5, None, 1180.25], "sex": sex, "outcome": ["no", "yes", "yes"]}
    feather.write_feather(pyarrow.table(columns), str(path), compression="uncompressed")
    assert read(tmp_path, path) == (FEATURES, TARGETS)
    raw = path.read_bytes()
    assert raw.count(offsets.tobytes()) == 1
    path.write_bytes(raw.replace(offsets.tobytes(), np.array([0, 1 << 30, 2, 1 << 30], dtype=np.int32).tobytes()))
    with pytest.raises(DataError, match="ArrowInvalid"):
        read(tmp_path, path)


@pytest.mark.parametrize("missing", [np.float32("nan"), Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT")])
def test_whatever_is_not_a_number_is_missing_in_a_frame(missing: Any, tmp_path: Path) -> None:
    pandas = needs("pandas")
    columns = CODED | {"sex": ["f", "m", "f"], "outcome": ["no", "yes", "yes"], "chol": [200.5, missing, 1180.25]}
    frame = pandas.DataFrame({name: pandas.Series(cells, dtype=object) for name, cells in columns.items()})
    assert schema(tmp_path).rows_of_frame(frame).features.tolist() == FEATURES


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
    with pytest.raises(DataError, match=rf"\.\[{extra}\]"):
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


def test_other_files_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.json is no table: its name must end in one of \.csv"):
        read(tmp_path, tmp_path / "rows.json")
    with pytest.raises(DataError, match="No such file"):
        read(tmp_path, tmp_path / "rows.csv.gz")


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**9), 10**9).map(float), st.just(float("nan"))
)
ROWS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.sampled_from("fm"), st.sampled_from(["no", "yes"])), min_size=1, max_size=9
)
LAID_OUT = st.builds(
    dict,
    separator=st.sampled_from(",;\t|"),
    decimal=st.sampled_from(".,"),
    thousands=st.sampled_from([",", ".", " ", "'", None]),
    encoding=st.sampled_from(["utf-8", "cp1252", "utf-16", "utf-16-le", "latin-1"]),
    quote=st.sampled_from("\"'"),
).filter(lambda how: how["decimal"] != how["thousands"] and how["quote"] != how["thousands"])


def written(number: float, how: dict[str, Any]) -> str:
    """The number as a spreadsheet of that country writes it: no exponent, groups of three."""
    if math.isnan(number):
        return ""
    whole, _, rest = format(Decimal(repr(number)), "f").partition(".")
    sign, digits = whole[: whole[0] == "-"], whole.lstrip("-")
    grouped = format(int(digits), ",").replace(",", how["thousands"] or "")
    return sign + grouped + (how["decimal"] + rest if rest else "")


ANY = f"range = [{-sys.float_info.max!r}, {sys.float_info.max!r}]"


@given(rows=ROWS, how=LAID_OUT)
@example(
    rows=[(sys.float_info.max, math.nan, "f", label) for label in ("no", "yes", "no", "no")],
    how={"separator": ";", "decimal": ",", "thousands": None, "encoding": "utf-8", "quote": '"'},
)
def test_a_table_means_the_same_however_it_is_written(rows: list[tuple[Any, ...]], how: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        with path.open("w", encoding=how["encoding"], newline="") as file:
            out = csv.writer(file, delimiter=how["separator"], quotechar=how["quote"])
            out.writerow(["age", "chol", "sex", "outcome"])
            out.writerows([written(age, how), written(chol, how), sex, label] for age, chol, sex, label in rows)
        text = SCHEMA.replace("[columns.age]", f'[columns.age]\nmissing = "flag"\n{ANY}')
        text = text.replace("[columns.chol]", f"[columns.chol]\n{ANY}")
        found = schema(Path(folder), text).rows(path, Reading.model_validate(how))
    expected = [
        [*(n for one in (age, chol) for n in ((0.0, 1.0) if math.isnan(one) else (one, 0.0))), sex == "f", sex == "m"]
        for age, chol, sex, _ in rows
    ]
    assert found.features.tolist() == expected
    assert found.targets.tolist() == [label == "yes" for *_, label in rows]


@functools.cache
def binary_file(suffix: str) -> bytes:
    """A file of that kind, whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        if suffix == ".xlsx":
            workbook(Path(folder))
        else:
            needs("pyarrow")
            import pyarrow
            from pyarrow import feather, parquet

            columns = {"age": [61, 57, 73], "chol": [200.5, None, 1180.25], "sex": list("fmf"), "outcome": list("nyy")}
            if suffix == ".feather":
                feather.write_feather(pyarrow.table(columns), str(path), compression="uncompressed")
            else:
                parquet.write_table(pyarrow.table(columns), path)
        return path.read_bytes()


@pytest.mark.parametrize("suffix", [".xlsx", ".feather", ".parquet"])
@given(edits=st.lists(st.tuples(st.integers(0, 10**4), st.binary(min_size=1, max_size=3)), min_size=1, max_size=4))
def test_a_damaged_binary_file_is_read_or_refused_and_nothing_else(suffix: str, edits: list[Any]) -> None:
    raw = bytearray(binary_file(suffix))
    for place, new in edits:
        at = place % len(raw)
        raw[at : at + len(new)] = new
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{suffix}"
        path.write_bytes(raw)
        for attempt in (lambda: schema(Path(folder)).rows(path), lambda: draft(path, "outcome")):
            with suppress(DataError):
                attempt()


@given(
    file=st.sampled_from(FILES),
    edits=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 12), st.binary(max_size=3)), min_size=1, max_size=4),
    own=st.one_of(st.just(Reading()), LAID_OUT.map(Reading.model_validate)),
)
def test_a_damaged_file_is_read_or_refused_and_nothing_else(file: File, edits: list[Any], own: Reading) -> None:
    raw = file.text if isinstance(file.text, bytes) else file.text.encode()
    for place, length, new in edits:
        raw = raw[: place % (len(raw) + 1)] + new + raw[place % (len(raw) + 1) + length :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{file.suffix}"
        path.write_bytes(raw)
        for attempt in (lambda: schema(Path(folder)).rows(path, own), lambda: draft(path, "outcome")):
            with suppress(DataError):
                attempt()
