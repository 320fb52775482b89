"""Drafts of a schema and a reading read the file that they were made of, and name what a person must decide."""

from __future__ import annotations

import random
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from support.awkward_tables import BASE, FILES, File
from support.extras import needs

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from analytic_secagg.__main__ import main
from analytic_secagg.errors import DataError
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.schema_draft import draft
from analytic_secagg.site.table import Column, TableSchema

BY_HAND = {
    "a second line of units",
    "R's write.table",
    "a separator behind rows alone",
    "other quotation marks",
    "a quotation mark that is a text",
    "a used column twice",
    "a bound",
}
"""Files for which a person must say more than a draft can see."""


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if (file.reading or not file.refused) and file.name not in BY_HAND],
    ids=lambda file: file.name,
)
def test_a_draft_reads_its_file(file: File, tmp_path: Path) -> None:
    path = tmp_path / f"rows{file.suffix}"
    path.write_bytes(file.text if isinstance(file.text, bytes) else file.text.encode())
    names = ["column_1", "column_2", "column_3", "column_4"] if file.name == "no names" else None
    found = draft(path, names[3] if names else "outcome")
    (tmp_path / "columns.toml").write_text(found.schema, encoding="utf-8")
    (tmp_path / "reading.toml").write_text(found.reading, encoding="utf-8")
    schema = TableSchema.read(tmp_path / "columns.toml")
    rows = schema.rows(path, Reading.read(tmp_path / "reading.toml"))
    known = {"age", "chol", "sex", "outcome"} if names is None else set(names)
    renamed = ("another language", "names in capitals", "two spellings of one name")
    lacking = known - schema.columns.keys()
    assert lacking - {"sex", "column_3"} == ({"age"} if file.name in renamed else set())
    assert not any(column.categories for column in schema.columns.values() if column.role == "feature")
    assert len(rows) == 3
    if names is None and "chol" in schema.columns:
        column = schema.columns["chol"]
        assert not column.categories, "numbers are numbers, whatever their marks"


@pytest.mark.parametrize(
    ("numbers", "is_left_out"),
    [
        ([4711 + place for place in range(30)], True),  # in order
        ([(place * 7) % 30 + 100 for place in range(30)], True),  # close to one another
        ([1_000_003 + 299_999 * ((place * 7) % 30) for place in range(30)], True),  # seven digits each
        ([9_000 + 4_111 * ((place * 7) % 30) for place in range(30)], False),  # incomes
    ],
)
def test_whole_numbers_that_all_differ_are_left_out_where_they_count_rows(
    numbers: list[int], is_left_out: bool, tmp_path: Path
) -> None:
    rows = "".join(f"{number},{place * 1.5},{place % 2}\n" for place, number in enumerate(numbers))
    (tmp_path / "rows.csv").write_text("number,crp,target\n" + rows)
    assert ("[columns.number]" not in draft(tmp_path / "rows.csv", "target").schema) == is_left_out


def test_categories_are_those_of_five_rows_and_more(tmp_path: Path) -> None:
    names, rows = BASE.split("\n", 1)
    (tmp_path / "rows.csv").write_text(names + "\n" + rows * 2)
    assert "[columns.sex]" not in draft(tmp_path / "rows.csv", "outcome").schema
    (tmp_path / "rows.csv").write_text(names + "\n" + rows * 5)
    assert '[columns.sex]\ncategories = ["f", "m"]' in draft(tmp_path / "rows.csv", "outcome").schema


def test_neither_names_nor_numbers_of_a_few_people_are_shared(tmp_path: Path) -> None:
    people = ["Anna Berg", "Bela Cohn", "Carl Dorn", "Dora Eck", "Emil Funk", "Fritz Gall", "Gerd Haas"]
    rows = [f"{name},{place * 1.5},{4711 + place},{place % 2}\n" for place, name in enumerate(people)]
    (tmp_path / "rows.csv").write_text("name,crp,nr,target\n" + "".join(rows))
    found = draft(tmp_path / "rows.csv", "target")
    assert not any(name in found.schema + found.reading for name in people)
    assert "[columns.crp]" in found.schema
    assert "name: left out, each of its texts is in fewer than 5 rows and may show somebody" in found.notes
    assert "nr: left out, whole numbers that all differ, a number of patients perhaps" in found.notes


def drafted_rows(path: Path, target: str) -> ClientRows:
    """The rows of a file, read as its draft proposes."""
    found = draft(path, target)
    schema, reading = path.with_name("columns.toml"), path.with_name("reading.toml")
    schema.write_text(found.schema)
    reading.write_text(found.reading)
    return TableSchema.read(schema).rows(path, Reading.read(reading))


def test_marks_are_those_of_columns_that_are_used(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    lines = "".join(f"5.{i:03d}.{100 + i};{i % 7 + 1}.{500 + i % 7};{i % 2}\n" for i in range(30))
    path.write_text("operation;crp;y\n" + lines)
    assert "thousands" not in draft(path, "y").reading
    assert drafted_rows(path, "y").features[:2, 0].tolist() == [1.5, 2.501]


def test_marks_that_contradict_one_another_are_said_and_none_is_proposed(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("dose;crp;y\n" + "".join(f"0,{i % 9 + 1};0.{125 + i};{i % 2}\n" for i in range(30)))
    found = draft(path, "y")
    assert "decimal" not in found.reading + found.schema
    assert any(note.startswith("crp: commas and points contradict one another") for note in found.notes)
    assert drafted_rows(path, "y").features[:2, -1].tolist() == [0.125, 0.126]


@pytest.mark.parametrize("end", ["", "# end\n"])
def test_a_row_that_begins_with_a_missing_value_is_no_comment(end: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("# made by a device\na,b,y\n#N/A,2,1\n#DIV/0!,3,2\n3,4.5,2\n4,5,1\n" + end)
    assert len(drafted_rows(path, "y")) == 4
    assert ("comment" in draft(path, "y").reading) == bool(end)


LINES = """Kardiologie, Auszug vom 3. Februar

Fall-Nr.;Alter;Geschlecht;Chol. (mmol/l);RR systolisch;RR systolisch ;Diagnose;Datum;Größe [cm];Bemerkung;Klinik
"""


def german(folder: Path) -> Path:
    rng = random.Random(1)
    rows = []
    for i in range(60):
        sex, chol = ("w" if i % 2 else " M"), ("-9" if i % 7 == 3 else f"{rng.uniform(3, 8):.2f}".replace(".", ","))
        pressure, ill = ("k.A.", "1.120", "140")[i % 3], ("ja", "Ja", "nein")[i % 3]
        text = "Rückruf" if i % 2 else f"Raum {i}"
        day, cm = f"{i % 28 + 1}.03.2024", 150 + i % 30
        rows.append(f"{7000 + i};{rng.randint(30, 80)};{sex};{chol};{pressure};1;{ill};{day};{cm};{text};Mitte\n")
    path = folder / "heart.csv"
    path.write_text(LINES + "".join(rows), encoding="cp1252")
    return path


def test_the_command_writes_both_files_and_says_what_a_person_decides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["schema", "draft", str(german(tmp_path)), "--target", "diagnose", "--into", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Fall-Nr.: left out, by its name it numbers people" in said
    assert "RR systolisch: left out, several columns have this name" in said
    assert "Datum: left out, 60 of its 60 rows have no number: they are dates or times" in said
    assert "Bemerkung: left out, 31 different texts" in said
    assert "Klinik: left out, by its name it says from which site a row comes" in said
    assert "Chol. (mmol/l): -9 taken for missing" in said
    assert "read so: 60 rows of 6 features" in said
    schema = TableSchema.read(tmp_path / "columns.toml")
    assert schema.features == ("Alter", "Geschlecht=M", "Geschlecht=w", "Chol", "Chol is missing", "Größe")
    reading = Reading.read(tmp_path / "reading.toml")
    assert (reading.separator, reading.decimal, reading.encoding, reading.skip_lines) == (";", ",", "cp1252", 2)
    assert reading.columns["Chol"].missing == {"-9"}
    assert (reading.columns["Größe"].name, reading.columns["Chol"].name) == ("Größe [cm]", "Chol. (mmol/l)")
    assert "7000" not in (tmp_path / "columns.toml").read_text()
    assert main(words) == 2
    assert "columns.toml: File exists; name another folder with --into" in capsys.readouterr().err
    (tmp_path / "columns.toml").unlink()
    assert main(words) == 2
    assert "reading.toml: File exists" in capsys.readouterr().err
    assert not (tmp_path / "columns.toml").exists(), "both files are written, or none"


def test_names_are_those_of_the_file_and_numbered_where_two_would_be_one(tmp_path: Path) -> None:
    """Whatever the script, letters stay as they are; what a file calls so keeps its name, wherever it is."""
    as_they_are = ["x_3", "Größe", "ÂGE", "Age", "SBP-1", "血圧", "वज़न"]
    changed = {"größe (cm)": "größe_2", "Age [y]": "Age_2", "x": "x", "x (cm)": "x_2", "x (m)": "x_4", "a b": "a_b"}
    head = [*changed, *as_they_are, "ill"]
    rows = [",".join(f"{1.5 * (row + place)}" for place in range(len(head) - 1)) + f",{row % 2}" for row in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(head), *rows]) + "\n", encoding="utf-8")
    found = draft(tmp_path / "rows.csv", "ill")
    (tmp_path / "columns.toml").write_text(found.schema, encoding="utf-8")
    (tmp_path / "reading.toml").write_text(found.reading, encoding="utf-8")
    schema, reading = TableSchema.read(tmp_path / "columns.toml"), Reading.read(tmp_path / "reading.toml")
    assert [*schema.columns] == [*changed.values(), *as_they_are, "ill"]
    assert {key: column.name for key, column in reading.columns.items()} == {
        key: name for name, key in changed.items() if key != name
    }
    read = schema.rows(tmp_path / "rows.csv", reading).features
    assert read[:2].tolist() == [[1.5 * (row + place) for place in range(len(head) - 1)] for row in range(2)]


@pytest.mark.parametrize(
    ("target", "why"), [("ill", "no column ill, and the target is one of age"), ("x", "2 columns x")]
)
def test_a_draft_needs_its_target(target: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age,x,x\n1,2,3\n2,3,4\n")
    with pytest.raises(DataError, match=why):
        draft(tmp_path / "rows.csv", target)
    with pytest.raises(DataError, match="No such file"):
        draft(tmp_path / "none.csv", target)


def test_what_a_draft_cannot_read_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(BASE.replace("f,no", "f,"))
    assert main(["schema", "draft", str(tmp_path / "rows.csv"), "--target", "sex", "--into", str(tmp_path)]) == 0
    assert "outcome: left out, one text or none; if nothing stands for another category" in capsys.readouterr().out
    (tmp_path / "columns.toml").unlink()
    (tmp_path / "reading.toml").unlink()
    (tmp_path / "rows.csv").write_text(BASE.replace("73,", "61,").replace("57,", "61,").replace("m,yes", ",yes"))
    assert main(["schema", "draft", str(tmp_path / "rows.csv"), "--target", "outcome", "--into", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "age: left out, one value in all rows" in said
    assert "sex: left out, one text or none" in said


def test_whole_numbers_as_a_target_are_classes_and_reals_are_not(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,y,z\n" + "".join(f"{i / 7},{i % 3},{i * 0.3}\n" for i in range(40)))
    assert 'categories = ["0", "1", "2"]' in draft(path, "y").schema
    assert "categories =" not in draft(path, "z").schema


def test_amounts_of_few_rows_are_no_classes(tmp_path: Path) -> None:
    """Sixteen weights of twenty people, as in scikit-learn's linnerud, are no sixteen classes."""
    weights = [154, 154, 157, 162, 166, 167, 167, 169, 176, 176, 182, 189, 189, 191, 193, 193, 202, 211, 219, 247]
    path = tmp_path / "t.csv"
    path.write_text("pulse,weight\n" + "".join(f"{50 + n % 7},{weight}\n" for n, weight in enumerate(weights)))
    assert "categories =" not in draft(path, "weight").schema
    path.write_text("pulse,stage\n" + "".join(f"{50 + n % 7},{n % 5}\n" for n in range(20)))
    assert 'categories = ["0", "1", "2", "3", "4"]' in draft(path, "stage").schema


ROWS = "".join(f"{20 + n % 9},{n / 7},{'fm'[n % 2]},{'no' if n % 3 else 'yes'}\n" for n in range(30))
NAMES = "age,crp,sex,ill\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Person,,,State\n" + NAMES + ROWS, ""),
        ("Laboratory, all wards\n1,2,3,4\n" + NAMES + ROWS, ""),
        (NAMES + "years,mg/l,,\n" + ROWS, "line 2, below the names, holds units or kinds, and is skipped"),
        (NAMES + "num,num,char,char\n" + ROWS, "line 2, below the names"),
        (re.sub("([a-z]+)", r"'\1'", NAMES).replace(",", "\t") + ROWS.replace(",", "\t"), ""),
    ],
    ids=["a line of groups above", "titles of as many columns", "units", "kinds", "names in apostrophes"],
)  # fmt: skip
def test_names_are_found_where_the_target_is_and_units_below_are_no_row(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    rows = drafted_rows(path, "ill")
    assert rows.features[:, :2].tolist() == [[20 + n % 9, n / 7] for n in range(30)]
    assert any(note.startswith(said) for note in draft(path, "ill").notes) or not said


def test_a_line_of_sizes_and_classes_above_a_table_without_names_is_no_row(tmp_path: Path) -> None:
    """As scikit-learn's iris.csv has one."""
    rows = "".join(f"{n % 7 + 0.5},{n / 3},{n % 2}\n" for n in range(30))
    (tmp_path / "rows.csv").write_text("30,well,ill\n" + rows)
    assert drafted_rows(tmp_path / "rows.csv", "column_3").features[:2, 0].tolist() == [0.5, 1.5]


def test_a_first_row_that_holds_values_is_no_line_of_units(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(NAMES + "pending,pending,f,no\n" + ROWS)
    assert "skip_lines" not in draft(path, "ill").reading
    path.write_text(NAMES + "NA,NA,,yes\n" + ROWS)
    assert len(drafted_rows(path, "ill")) == 31


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (["yes", "1", "ja"], "several words for yes and no, taken for a category each"),
        (["Köln", "Bonn", "KÃ¶ln"], "letters of some categories are broken"),
        (["0123", "0456", "0789", "0999"], "numbers with zeros in front, codes perhaps"),
        ([*map(str, range(24)), "777"], "777 taken for missing"),
        ([*map(str, range(24)), "5000"], "5000 (1 rows) lies apart from all others"),
        (["UNK", "1", "0"], "UNK taken for missing"),
        (["II", "1", "2"], "numbers and words, two codings of one thing perhaps"),
        (["Köln", "Bonn", "K√∂ln"], "letters of some categories are broken"),
        (["Мьnchen", "Bonn"], "letters of some categories are broken"),
        ([str(45000 + n) for n in (*range(25), 3)], "a spreadsheet's numbers of days perhaps"),
        (["20240131", "20231224"], "left out, dates written as numbers"),
        ([*map(str, range(24)), "90+"], "left out, 1 of its 30 rows have no number: they have a unit or a remark"),
        ([f"${n},200.5" for n in range(1, 9)], "left out, 30 of its 30 rows have no number: they have a unit"),
        (["x", ""], "left out, one text or none"),
        ([str(2**60 + n) for n in range(1, 10)], "left out, 30 of its 30 rows have no number: they are whole numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_a_person_should_look_at_is_said(column: list[str], said: str, tmp_path: Path) -> None:
    cells = (column * 30)[:30]
    table = "".join(f'"{cell}",{row}\n' for cell, row in zip(cells, ROWS.splitlines(), strict=True))
    (tmp_path / "rows.csv").write_text("x," + NAMES + table, encoding="utf-8")
    assert any(note.startswith(f"x: {said}") for note in draft(tmp_path / "rows.csv", "ill").notes)


def test_a_value_that_is_known_with_the_target_alone_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A price that only sold items have; days of delay, of which late is made; an age is left in peace."""
    rng = np.random.default_rng(0)
    late, age = rng.integers(-9, 10, 80), rng.integers(20, 90, 80)
    rows = [f"{one},{days},{'' if days < 1 else days * 7},{int(days > 0)}" for one, days in zip(age, late, strict=True)]
    (tmp_path / "rows.csv").write_text("age,days,price,late\n" + "\n".join(rows))
    assert main(["schema", "draft", str(tmp_path / "rows.csv"), "--target", "late", "--into", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "column days by itself tells 100% of the rows' classes" in said
    assert "column price is missing by itself tells 100% of the rows' classes" in said
    assert "column age by itself" not in said


def test_rows_without_a_target_are_left_out_where_all_agreed(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "x,ill\n" + "".join(f"{n % 9}.5,{['yes', 'no', ''][n % 3]}\n" for n in range(30))
    )
    found = draft(tmp_path / "rows.csv", "ill")
    assert 'missing = "leave out"' in found.schema
    assert "ill: missing in 10 of 30 rows, which are left out; ask why it is" in found.notes
    rows = drafted_rows(tmp_path / "rows.csv", "ill")
    assert rows.features.ravel().tolist() == [n % 9 + 0.5 for n in range(30) if n % 3 != 2]
    assert rows.targets.tolist() == [1 - n % 3 for n in range(30) if n % 3 != 2]
    for role in ("feature", "weight"):
        with pytest.raises(ValueError, match="only a target's"):
            Column(role=role, missing="leave out")


def test_a_class_of_few_rows_is_said_before_a_run_refuses_it(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(
        "x,stage\n" + "".join(f"{n}.5,{'rare' if n < 6 else n % 2}\n" for n in range(60))
    )
    assert any(
        "fewer than 10 rows each have rare, and a total" in one for one in draft(tmp_path / "rows.csv", "stage").notes
    )


@pytest.mark.parametrize("name", ["id", "Patient ID", "record_id", "Fall-Nr.", "MRN"])
def test_columns_that_number_people_by_their_name_are_left_out(name: str, tmp_path: Path) -> None:
    repeated = "".join(f"{n // 3},{row}\n" for n, row in enumerate(ROWS.splitlines()))
    (tmp_path / "rows.csv").write_text(f"{name},{NAMES}{repeated}")
    assert f"{name}: left out, by its name it numbers people" in draft(tmp_path / "rows.csv", "ill").notes


def test_copies_of_the_target_and_several_rows_a_person_are_said(tmp_path: Path) -> None:
    """As tables of measurements have them: OMOP's value_source_value, REDCap's events."""
    rows = "".join(f"{n // 2},{n % 4 + 0.5},{n % 4 + 0.5},{n % 7}\n" for n in range(30))
    (tmp_path / "rows.csv").write_text("person_id,value,value_source_value,crp\n" + rows)
    notes = draft(tmp_path / "rows.csv", "value").notes
    assert any(note.startswith("value_source_value: the same as value in all rows") for note in notes)
    assert any(note.startswith("person_id: 15 of its 15 values are in several rows") for note in notes)
    assert not any(note.startswith("crp") for note in notes)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (NAMES, "has names of columns and no row"),
        (
            NAMES + ROWS.replace("yes", "no"),
            "a target from which something is learned, and ill is none: one",
        ),
        (NAMES + re.sub("yes|no", "", ROWS), "ill is none: it is empty"),
        ("ill\n" + "yes\nno\n" * 9, "has no column beside ill"),
        ("1,2,3\n4,5,6\n7,8,9\n", "the target is one of them, and no line names them"),
    ],
)
def test_no_draft_is_made_of_what_teaches_nothing(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=why):
        draft(tmp_path / "rows.csv", "ill")


def test_frames_have_drafts_too(tmp_path: Path) -> None:
    needs("pyarrow")
    import pyarrow
    from pyarrow import parquet

    made = {"age": np.arange(40) * 0.5, "sex": ["f", "m"] * 20, "ill": [True, False] * 20, "n": [None] * 40}
    parquet.write_table(pyarrow.table(made), tmp_path / "rows.parquet")
    assert drafted_rows(tmp_path / "rows.parquet", "ill").features.shape == (40, 3)
    assert "n: left out, it is empty" in draft(tmp_path / "rows.parquet", "ill").notes


def test_a_column_of_sites_would_show_each_site_s_sums_and_is_left_out(tmp_path: Path) -> None:
    """In the total's Gram the line of a site's category holds the sums of that site's rows, and of no other's."""
    path = tmp_path / "pooled.csv"
    lines = [f"{place},{hospital},{place % 2}" for place in range(30) for hospital in ("East", "West")]
    path.write_text("age,hospital,ill\n" + "".join(f"{line}\n" for line in lines))
    open_ = TableSchema(columns={
        "age": Column(), "hospital": Column(categories=("East", "West")), "ill": Column(role="target")
    })  # fmt: skip
    rows = open_.rows(path)
    whole_numbers = RowFormat.parse("Q8.0")
    learner = AFL(n_features=3, n_targets=1, feature_format=whole_numbers, target_format=whole_numbers, max_rows=100)
    is_east = rows.features[:, 1] == 1
    assert learner.own_statistics(rows).gram[1, 0] == rows.features[is_east, 0].sum() == 435
    found = draft(path, "ill")
    assert TableSchema.model_validate(tomllib.loads(found.schema)).features == ("age",)
    assert any("hospital: left out, by its name it says from which site a row comes" in note for note in found.notes)


@pytest.mark.parametrize(
    "name", ["Branch", "Filiale", "agency", "agence_id", "sucursal", "ward no", "Praxis", "station"]
)
def test_columns_of_sites_are_known_by_more_names_than_hospital(name: str, tmp_path: Path) -> None:
    rows = "".join(f"{place * 1.5},{'ab'[place % 2]},{place % 3 % 2}\n" for place in range(30))
    (tmp_path / "rows.csv").write_text(f"crp,{name},ill\n{rows}")
    found = draft(tmp_path / "rows.csv", "ill")
    assert list(tomllib.loads(found.schema)["columns"]) == ["crp", "ill"]


def test_none_among_words_is_an_answer_and_bands_are_no_misspelt_numbers(tmp_path: Path) -> None:
    """558 of 900 patients without a chronic disease were taken for patients of whom nothing is known."""
    rows = [
        f"{('none', 'asthma', 'heart')[n % 3]},{('18-29', '30-44', '75+')[n % 3]},{'yes' if n % 2 else 'no'}"
        for n in range(60)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["disease,age_band,fever", *rows]))
    found = draft(tmp_path / "rows.csv", "fever")
    assert 'categories = ["asthma", "heart", "none"]' in found.schema
    assert "missing" not in found.reading.partition("[client.reading]")[2].replace("missing = []", "")
    assert found.notes == ("disease: 'none' taken for an answer, not for missing",)
    (tmp_path / "numbers.csv").write_text(
        "\n".join(["dose,fever", *(f"{'none' if n % 9 == 0 else n % 7},{'yn'[n % 2]}" for n in range(60))])
    )
    assert "dose: none taken for missing" in draft(tmp_path / "numbers.csv", "fever").notes
