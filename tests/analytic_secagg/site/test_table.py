"""Tables as people have them become the same columns at every site, and errors hold no value of a table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from analytic import ClientRows
from analytic_secagg import federate
from analytic_secagg.__main__ import main as main_of_sites
from analytic_secagg.errors import DataError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.source import read_rows
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import Trial
from simulations.__main__ import main

SCHEMA = """
missing_values = ["", "NA"]

[columns.age]
scale = 7
missing = 50.0

[columns.sex]
categories = ["f", "m"]
missing = "flag"

[columns.marker]
missing = "flag"

[columns.outcome]
role = "target"
categories = ["no", "yes"]
"""
TABLE = """\
name,outcome,marker,sex,age
Ada,yes,1.5,f,32
"Bo, Jr.",no,NA,m,
Cy,no,-2e-1,, 64
"""


EXTRAS = {
    library: f"needs the extra: pip install '.[{extra}]'"
    for library, extra in {"pyarrow": "parquet", "pandas": "dev", "polars": "dev"}.items()
}


def rows_of(site: SiteFile) -> ClientRows:
    assert site.client is not None
    return site.client.rows()


def schema(folder: Path, text: str = SCHEMA) -> TableSchema:
    (folder / "schema.toml").write_text(text, encoding="utf-8")
    return TableSchema.read(folder / "schema.toml")


def table(folder: Path, text: str | bytes = TABLE) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_table_becomes_rows_by_the_schema_alone(tmp_path: Path) -> None:
    read = schema(tmp_path)
    rows = read.rows(table(tmp_path))
    assert read.features == ("age", "sex=f", "sex=m", "marker", "marker is missing")
    assert (read.classes, read.n_targets) == (("no", "yes"), 2)
    assert rows.features.tolist() == [[0.25, 1, 0, 1.5, 0], [50 / 128, 0, 1, 0, 1], [0.5, 0, 0, -0.2, 0]]
    assert rows.targets.tolist() == [1, 0, 0]
    assert rows.targets.dtype.kind == "i"
    other = re.sub("marker]\nmissing", "marker]\nscale = 1\nmissing", SCHEMA)
    assert schema(tmp_path).fingerprint == read.fingerprint != schema(tmp_path, other).fingerprint


def test_a_site_takes_tables(tmp_path: Path, trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial.folder / "site-3"
    site_file = folder / "site.toml"
    site_file.write_text(site_file.read_text().replace('"rows.npz"', '"rows.csv"\ncolumns = "schema.toml"'))
    schema(folder, SCHEMA.replace("scale = 7", "scale = -9"))
    table(folder)
    assert main_of_sites(["check-site", str(site_file)]) == 0
    said = capsys.readouterr().out
    assert "beside values up to 2^16 a format of 16 bits is coarse for marker (below 2^1): state scale in" in said
    before = site_file.read_text()
    site_file.write_text(before.replace("[client]", '[client]\nunverified_models = ["agreed-afl"]'))
    assert main_of_sites(["check-site", str(site_file)]) == 0
    assert "state scale in" not in capsys.readouterr().out, "the file expects columns that are agreed on"
    site_file.write_text(before)
    read, rows = schema(folder), "".join(TABLE.splitlines(keepends=True)[1:]) * 40
    table(folder, TABLE + rows)
    assert main_of_sites(["check-site", str(site_file)]) == 0
    said = capsys.readouterr().out
    assert "123 rows of 5 features" in said
    assert read.fingerprint in said
    table(folder, TABLE + "x,yes\n")
    with pytest.raises(SiteFileError, match="line 5: 5 values are needed, as in its first line, not 2"):
        rows_of(SiteFile.read(site_file))


def test_a_table_of_no_rows_has_the_columns_all_the_same(tmp_path: Path) -> None:
    rows = schema(tmp_path).rows(table(tmp_path, TABLE.splitlines()[0]))
    assert (rows.features.shape, rows.targets.shape) == ((0, 5), (0,))


def test_real_targets_are_a_matrix(tmp_path: Path) -> None:
    read = schema(tmp_path, '[columns.age]\n[columns.dose]\nrole = "target"\n[columns.days]\nrole = "target"\n')
    rows = read.rows(table(tmp_path, "\ufeffdays,dose,age\n3,0.5,40\n7,1,41\n"))  # as Excel writes it
    assert rows.targets.tolist() == [[0.5, 3], [1, 7]]
    assert (read.classes, read.n_targets) == ((), 2)


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        ("1.5", "abc", r"line 2: column marker needs a finite number"),
        ("1.5", "inf", r"line 2: column marker needs a finite number"),
        ("yes", "perhaps", r"line 2: column outcome needs one of no, yes"),
        ("yes", "", r"line 2: column outcome needs a value: it is missing"),
        ("Ada,", "Ada,7,", r"line 2: 5 values are needed, as in its first line, not 6"),
        ("marker", "Marker", r"needs each column of the schema once, and marker is not"),
        ("name", "age", r"needs each column of the schema once, and age is not"),
        ("Ada", '"Ada', r"must be CSV in UTF-8"),
    ],
)
def test_what_a_table_lacks_is_named_and_no_value_of_it(tmp_path: Path, was: str, now: str, why: str) -> None:
    with pytest.raises(DataError, match=why) as refused:
        schema(tmp_path).rows(table(tmp_path, TABLE.replace(was, now, 1)))
    assert "abc" not in str(refused.value)
    assert "perhaps" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[columns.a]\n", "at least one feature and one column with role"),
        ('[columns.a]\nrole = "target"\n', "at least one feature"),
        ('[columns.a]\n[columns.b]\nrole = "target"\nmissing = 0.0\n', "teaches nothing"),
        ('[columns.a]\ncategories = ["x"]\n[columns.b]\nrole = "target"\n', "at least two different texts"),
        ('[columns.a]\ncategories = ["x", "y"]\nscale = 2\n[columns.b]\nrole = "target"\n', "have no scale"),
        ('[columns.a]\nscale = 99\n[columns.b]\nrole = "target"\n', "at most 60"),
        (
            '[columns.a]\n[columns.b]\nrole = "target"\n[columns.c]\nrole = "weight"\nscale = 2\n',
            "a weight is a whole number as it is",
        ),
        (
            '[columns.a]\n[columns.b]\nrole = "target"\n[columns.c]\nrole = "weight"\n[columns.d]\nrole = "weight"\n',
            "a row has one weight",
        ),
        ('[columns.a]\nkind = "number"\n[columns.b]\nrole = "target"\n', "no place for kind"),
        (
            '[columns.a]\n[columns.b]\nrole = "target"\n[columns.c]\nrole = "target"\ncategories = ["x", "y"]\n',
            "classes are one column",
        ),
    ],
)
def test_schemas_that_cannot_be(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(SiteFileError, match=why):
        schema(tmp_path, text)


FRAME = {
    "age": [32.0, None, 64.0],
    "sex": ["f", "m", None],
    "marker": [1.5, None, -0.2],
    "outcome": ["yes", "no", "no"],
    "weight": [2, 1, 3],
    "name": ["Ada", "Bo", "Cy"],
}
WEIGHTED = (
    SCHEMA
    + """
[columns.weight]
role = "weight"
"""
)


@pytest.mark.parametrize("library", ["pyarrow", "pandas", "polars"])
def test_a_function_may_give_a_data_frame(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = pytest.importorskip(library, reason=EXTRAS[library])
    (tmp_path / "frames.py").write_text(
        f"import {library} as library\nFRAME = {FRAME!r}\n"
        f"def frame():\n    return library.{'table' if library == 'pyarrow' else 'DataFrame'}(FRAME)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "frames", raising=False)
    assert module
    rows = read_rows("frames:frame", columns=schema(tmp_path, WEIGHTED))
    columns = ",".join(FRAME)
    lines = (
        ",".join("" if value is None else str(value) for value in row) for row in zip(*FRAME.values(), strict=True)
    )
    from_file = schema(tmp_path, WEIGHTED).rows(table(tmp_path, "\n".join([columns, *lines]) + "\n"))
    assert rows.features.tobytes() == from_file.features.tobytes()
    assert rows.weights is not None
    assert (rows.targets.tolist(), rows.weights.tolist()) == (from_file.targets.tolist(), [2, 1, 3])
    with pytest.raises(DataError, match="frames:frame, line 2: column name needs a finite number"):
        read_rows("frames:frame", columns=schema(tmp_path, WEIGHTED + "[columns.name]\n"))


@pytest.mark.parametrize("given", ["([[1.0]], [0])", "None", "'rows'"])
def test_with_a_schema_a_function_gives_a_data_frame(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "frames.py").write_text(f"def frame():\n    return {given}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "frames", raising=False)
    with pytest.raises(DataError, match="frames:frame needs to be a data frame of pandas, polars or pyarrow"):
        read_rows("frames:frame", columns=schema(tmp_path))


def test_commands_take_functions_and_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "arrays.py").write_text(
        "import numpy as np\nx = np.random.default_rng(0).normal(size=(60, 3))\n"
        "def arrays():\n    return x, (x[:, 0] > 0).astype(int), np.arange(60) % 3\n"
        "def real():\n    return x, x @ [1.0, 2.0, 3.0]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "arrays", raising=False)
    words = ["compare", "--modes", "plain", "--clients", "5", "--partition", "iid", "--data"]
    assert main([*words, "arrays:arrays", "--option", "max_weight=2"]) == 0
    assert "bit for bit" in capsys.readouterr().out
    assert main([*words, "arrays:real"]) == 0
    assert main([*words, "arrays:none"]) == 2


def test_an_offset_keeps_the_deviation_of_large_numbers(tmp_path: Path) -> None:
    """Field case c15: 1e9 + {0, 1, 2} decides the class, and no format has bits for it without an offset."""
    text = "year,outcome\n" + "".join(f"{1_000_000_000 + i % 3},{('no', 'no', 'yes')[i % 3]}\n" for i in range(600))
    said = '[columns.year]\nmissing = "flag"\noffset = 1e9\nscale = 2\n[columns.outcome]\nrole = "target"\n'
    said += 'categories = ["no", "yes"]\n'
    rows = schema(tmp_path, said).rows(table(tmp_path, text + ",no\n"))
    assert rows.features[:3].tolist() == [[0, 0], [0.25, 0], [0.5, 0]]
    assert rows.features[-1].tolist() == [0, 1]
    run = federate({str(k): (rows.features[k:-1:5], rows.targets[k:-1:5]) for k in range(5)}, format="standardised")
    assert run.score(rows.features[:-1], rows.targets[:-1]) == 1.0
    filled = schema(tmp_path, said.replace('"flag"', "1e9")).rows(table(tmp_path, text + ",no\n"))
    assert filled.features[-1].tolist() == [0]
    assert len({schema(tmp_path, said.replace("1e9", offset)).fingerprint for offset in ("0", "1", "1e9")}) == 3
    for was, now in (("[columns.year]", '[columns.year]\nrole = "weight"'), ('"target"\n', '"target"\noffset = 1.0\n')):
        with pytest.raises(SiteFileError, match="an offset is of features"):
            schema(tmp_path, said.replace(was, now).replace('missing = "flag"', ""))
