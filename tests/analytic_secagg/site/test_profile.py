"""A profile shows a site what is implausible in its rows, and nobody else; a range refuses it by count."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analytic_secagg.__main__ import main
from analytic_secagg.errors import DataError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.profile import Profiled, profile
from analytic_secagg.site.reading import ColumnReading, Reading
from analytic_secagg.site.table import TableSchema
from analytic_secagg.trial import Trial

SCHEMA = """
[columns.crea]
unit = "umol/l"
range = [0, 3000]
missing = "flag"

[columns.year]

[columns.sex]
categories = ["f", "m", "d"]

[columns.fixed]

[columns.outcome]
role = "target"
categories = ["no", "yes"]
"""
CODES = 10


def table(folder: Path, n: int = 600) -> Path:
    """Creatinine of which ten are -999999, as one site of case c06 writes what is suppressed."""
    rng = np.random.default_rng(0)
    crea = rng.uniform(50, 250, n).round(6)
    crea[3 :: n // CODES] = -999999
    rows = [f"{crea[i]},{1e9 + i % 3},{'d' if i == 7 else 'fm'[i % 2]},5,{('no', 'yes')[i % 2]}" for i in range(n)]
    path = folder / "rows.csv"
    path.write_text("crea,year,sex,fixed,outcome\n" + "\n".join([*rows, rows[0]]) + "\n")
    return path


def schema(folder: Path, text: str = SCHEMA) -> TableSchema:
    (folder / "columns.toml").write_text(text)
    return TableSchema.read(folder / "columns.toml")


def test_values_outside_the_range_are_refused_by_count(tmp_path: Path) -> None:
    read, path = schema(tmp_path), table(tmp_path)
    with pytest.raises(DataError, match=r"line 5: column crea needs values from 0 to 3000.* 10 of 601 rows") as refused:
        read.rows(path)
    assert "999999" not in str(refused.value)
    as_missing = Reading(columns={"crea": ColumnReading(missing=frozenset({"-999999"}))})
    assert read.rows(path, as_missing).features[:, 1].sum() == CODES
    inside = SCHEMA.replace("[0, 3000]", "[-999999, inf]")
    assert len(schema(tmp_path, inside).rows(path)) == 601
    with pytest.raises(DataError, match="its range in the schema, and 591 of 601"):
        read.rows(path, Reading(columns={"crea": ColumnReading(missing=frozenset({"-999999"}), factor=88.42)}))


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        ("[0, 3000]", "[3, 3]", "the least and the largest"),
        ('["f", "m", "d"]', '["f", "m", "d"]\nunit = "sex"', "no unit and no range"),
        ("[0, 3000]", "[0]", "range"),
    ],
)
def test_ranges_that_cannot_be(was: str, now: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(SiteFileError, match=why):
        schema(tmp_path, SCHEMA.replace(was, now))


def test_range_and_unit_are_agreed_on(tmp_path: Path) -> None:
    found = {
        schema(tmp_path, SCHEMA.replace(*change)).fingerprint
        for change in [("", ""), ("3000", "300"), ("umol/l", "mg/dl"), ("range = [0, 3000]\n", "")]
    }
    assert len(found) == 4
    assert schema(tmp_path, SCHEMA.replace("[0, 3000]", "[0.0, 3e3]")).fingerprint in found


def test_the_profile_shows_what_is_odd(tmp_path: Path, trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial.folder / "site-4"
    site = folder / "site.toml"
    site.write_text(site.read_text().replace('"rows.npz"', '"rows.csv"\ncolumns = "columns.toml"'))
    path = table(folder)
    schema(folder)
    path.write_text(path.read_text() + "<5,1e9,x,5,no\n")
    assert main(["check-site", str(site)]) == 2
    assert "<5" not in capsys.readouterr().err
    assert main(["profile", str(site)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "for this site alone, since it shows values",
        "602 rows, of which 10 repeat another one in all columns",  # nine of the codes' rows, and the last,
    ]
    text = "\n".join(said)
    assert "look: -999999 (10 rows) lies apart from all others" in text
    assert "look: 10 values lie outside the schema's range, 0 to 3000" in text
    assert "look: '<5' (1 rows) means nothing under schema and reading" in text
    assert "sex: f 301, m 299, d 1, 0 missing" in text
    assert "fewer than 5 rows each have d" in text
    assert "fixed: 5 (602), 0 missing" in text
    assert "all rows have the same value" in text
    assert "agree on an offset in the schema of all sites, a public round number such as 1000000000" in text
    assert "outcome: no 302, yes 300, 0 missing" in text
    table(folder)
    schema(folder, SCHEMA.replace("range = [0, 3000]\n", ""))
    assert main(["check-site", str(site)]) == 2
    assert 'state missing = ["-999999"] in [client.reading.columns.crea]' in capsys.readouterr().err
    measured = 'reading = { columns = { crea = { recode = { "-999999" = "-999999" } } } }'
    site.write_text(site.read_text().replace('"columns.toml"', f'"columns.toml"\n{measured}'))
    assert main(["check-site", str(site)]) == 0
    said = capsys.readouterr().out
    assert "look at crea, year, sex, fixed in what the command profile shows to this site, before any sum" in said
    assert "999999" not in said
    site.write_text(site.read_text().replace(measured, 'reading = { separator = ";" }'))
    assert main(["profile", str(site)]) == 2
    assert "looks separated by commas" in capsys.readouterr().err


def test_other_data_have_a_profile_too(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", str(trial.folder / "site-5" / "site.toml")]) == 0
    said = capsys.readouterr().out
    assert "feature 63: " in said
    assert "target 0: 0 to 9" in said


def odd(values: np.ndarray, **other: object) -> list[str]:
    return [line for line in profile({"x": Profiled(values=values, **other)}) if line.startswith("  look")]  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [-999999, -9, 0, 999, 99999])
def test_codes_are_seen_beside_measurements(code: float) -> None:
    chol = np.random.default_rng(1).normal(240, 50, 300).clip(100, 560)
    assert odd(chol) == []
    chol[::50] = code
    found = odd(chol)
    assert len(found) == 1
    assert f"{code} (6 rows)" in found[0]


@pytest.mark.parametrize("draw", ["normal", "exponential", "uniform", "lognormal", "poisson"])
@pytest.mark.parametrize("seed", range(5))
def test_ordinary_columns_are_left_in_peace(draw: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assert odd(getattr(rng, draw)(size=500)) == []
    assert odd(rng.integers(0, 4, 500).astype(float)) == []


@pytest.mark.parametrize("values", [[1e200, -1e200, 1.0], [1.7e308, 1.6e308], [1e-320, 0.0, 2e-320], [1e9, np.inf]])
def test_columns_without_a_deviation_have_a_profile(values: list[float]) -> None:
    assert len(list(profile({"x": Profiled(values=np.array(values))}))) >= 2


@pytest.mark.parametrize("codes", [(-8, -9), (-7, -8, -9), (-98, -99), (997, 998, 999), (8888, 9999)])
def test_codes_beside_codes_are_refused(codes: tuple[int, ...], tmp_path: Path) -> None:
    """As surveys have them: -8 for unknown, -9 for refused. None of them is a value that another one is near to."""
    ages = [*np.random.default_rng(0).integers(20, 90, 60), *codes, *codes]
    (tmp_path / "rows.csv").write_text("age,y\n" + "".join(f"{age},{n % 2}\n" for n, age in enumerate(ages)))
    own = schema(tmp_path, '[columns.age]\nmissing = "flag"\n[columns.y]\nrole = "target"\n')
    with pytest.raises(DataError, match=rf"column age holds {min(codes)} in 2 of"):
        own.rows(tmp_path / "rows.csv")
    as_missing = Reading(columns={"age": ColumnReading(missing=frozenset(map(str, codes)))})
    assert own.rows(tmp_path / "rows.csv", as_missing).features[:, 1].sum() == 2 * len(codes)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda own: own * 1.8 + 32, "100 rows from 9"),  # degrees Fahrenheit beside Celsius
        (lambda own: own[:3] * 1.8 + 32, "3 rows from 9"),  # which hide one another
        (lambda own: own[:2] * 10, "2 rows from 3"),  # without their decimal mark
        (lambda own: own * 0 + 300, "300 (100 rows) lies"),
    ],
)
def test_values_of_another_unit_are_seen(other: Callable[[np.ndarray], np.ndarray], said: str) -> None:
    own = np.random.default_rng(0).normal(37, 0.4, 100).round(1)
    (found,) = odd(np.concatenate([own, own + 0.05, other(own)]))
    assert found.startswith(f"  look: {said}"), found


def test_values_of_a_unit_that_is_many_times_another_one_are_seen() -> None:
    """Cholesterol in mmol/l and mg/dl: the gap is smaller than the range, and much larger as a ratio."""
    own = np.random.default_rng(0).normal(5.2, 0.9, 200).clip(3, 9)
    (found,) = odd(np.concatenate([own, own[:90] * 38.67]))
    assert "90 rows from" in found
    assert "another unit perhaps" in found


def test_several_codes_and_missing_values_are_seen() -> None:
    values = np.random.default_rng(0).uniform(50, 250, 100)
    values[:3], values[3:5], values[5] = -9, 9999, np.nan
    assert [line.split(" lies")[0] for line in odd(values)] == ["  look: -9 (3 rows)", "  look: 9999 (2 rows)"]
    grades = np.array([1.0, 2, 3, -9] * 10)
    assert [line.split(" lies")[0] for line in odd(grades)] == ["  look: -9 (10 rows)"]
    assert [line.split(" lies")[0] for line in odd(np.array([1.0, 2, 9] * 10))] == ["  look: 9 (10 rows)"]
    assert odd(np.array([1.0, -1.0] * 10)) == odd(np.array([0.0, 1, 2, 3, 4, 7] * 10)) == []
    assert list(profile({"x": Profiled(values=np.full(3, np.nan))}))[1] == "x: 3 missing"
