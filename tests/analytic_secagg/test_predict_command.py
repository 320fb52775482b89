"""The command ``predict``: from tables of three sites to a saved model, and from it to answers for new rows."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from support.extras import needs

from analytic_secagg.__main__ import main
from analytic_secagg.errors import UsageError
from analytic_secagg.federated_model import FederatedModel, federate
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.table import TableSchema

SCHEMA = """
[columns.age]
range = [0, 120]
[columns.sex]
categories = ["f", "m"]
[columns.crp]
missing = "flag"
[columns.ill]
role = "target"
categories = ["yes", "no"]
"""
READING = """
[client.reading]
separator = ";"
decimal = ","
"""
USED = ["--columns", "columns.toml", "--reading", "reading.toml"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tables of three sites, new rows without a target, and a model of the three."""
    monkeypatch.chdir(tmp_path)
    Path("columns.toml").write_text(SCHEMA)
    Path("reading.toml").write_text(READING)
    rng = np.random.default_rng(3)
    for name in ("north", "south", "west", "new"):
        lines = [["crp", "sex", "age", *(["ill"] * (name != "new"))]]
        for _ in range(30):
            age, crp = int(rng.integers(20, 90)), rng.lognormal(2.0, 1.0)
            lines.append(["" if crp < 3 else f"{crp:.1f}".replace(".", ","), rng.choice(["f", "m"]), str(age)])
            if name != "new":
                lines[-1].append("yes" if age + crp > 60 else "no")
        with Path(f"{name}.csv").open("w", newline="") as file:
            csv.writer(file, delimiter=";").writerows(lines)
    schema, reading = TableSchema.read("columns.toml"), Reading.read("reading.toml")
    sites = {name: schema.rows(f"{name}.csv", reading) for name in ("north", "south", "west")}
    federate(sites, "logistic", "plain", schema=schema, intercept=1).save("model.safetensors")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_new_rows_get_the_answers_of_the_saved_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "model.safetensors", "new.csv", *USED]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    model = FederatedModel.load("model.safetensors")
    X = TableSchema.read("columns.toml").features_of("new.csv", Reading.read("reading.toml"))
    assert model.classes == ("yes", "no")
    assert [one["prediction"] for one in table] == model.predict(X).tolist()
    assert {one["prediction"] for one in table} == {"yes", "no"}
    assert [float(one["probability of no"]) for one in table] == model.predict_proba(X)[:, 1].tolist()


@pytest.mark.usefixtures("folder")
def test_a_model_of_numbers_needs_no_schema() -> None:
    """Columns are found by their names, in whatever order a table has them; a frame of another order is refused."""
    pd = needs("pandas")
    frames = {k: pd.DataFrame({"a": [1.0, 2, 3, 4 + k], "b": [2.0, 0, 5, 1]}) for k in (1, 2, 3)}
    model = federate({k: (X, X["a"] - 2 * X["b"]) for k, X in frames.items()}, mode="plain")
    model.save("numbers.safetensors")
    Path("new.csv").write_text("id,b,a\n7,1,3\n8,0,2\n")
    assert main(["predict", "numbers.safetensors", "new.csv", "--output", "answers.csv"]) == 0
    answers = [float(one["prediction"]) for one in csv.DictReader(Path("answers.csv").read_text().splitlines())]
    assert answers == model.predict(np.array([[3.0, 1], [2, 0]])).tolist()
    with pytest.raises(UsageError, match="needs the columns a, b in this order, not b, a"):
        FederatedModel.load("numbers.safetensors").predict(pd.DataFrame({"b": [1.0], "a": [3.0]}))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new.csv", "--reading", "reading.toml"], "the schema that all sites share"),
        (["new.csv", *USED, "--reading", "other.toml"], "--reading is given 2 times"),
        (["new.csv", "--columns", "other.toml", "--reading", "reading.toml"], "take the schema that its sites shared"),
        (["new.csv", *USED, "--output", "columns.toml"], "--columns and --output both name columns.toml"),
        (["strange.csv", *USED], "column sex needs one of f, m"),
        (["old.csv", *USED], "column age needs values from 0 to 120"),
    ],
)
def test_what_the_model_was_not_made_of_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("other.toml").write_text(SCHEMA.replace("columns.crp", "columns.pcr"))
    Path("strange.csv").write_text("crp;sex;age\n1,0;x;44\n")
    Path("old.csv").write_text("crp;sex;age\n1,0;f;444\n")
    assert main(["predict", "model.safetensors", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_missing_numbers_are_named(folder: Path) -> None:
    model = FederatedModel.load(folder / "model.safetensors")
    X = np.zeros((3, 5))
    X[1:, 0] = np.nan
    with pytest.raises(UsageError, match=r"2 of 3 rows do not \(the first is row 1; columns age\)"):
        model.predict(X)
