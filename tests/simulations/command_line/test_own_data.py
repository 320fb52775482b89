"""Own data on the command line: a table with its target alone, read by a guessed schema, and every guess is said."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets
from sklearn.linear_model import LinearRegression

from simulations.__main__ import main
from simulations.audit.settings import AuditSettings
from simulations.command_line.shared_arguments import guessed

LOADED = ("load_iris", "load_wine", "load_breast_cancer", "load_diabetes", "load_linnerud", "load_digits")


def table(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


@pytest.mark.parametrize("name", LOADED)
def test_public_tables_become_a_federation_in_one_command(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = getattr(datasets, name)()
    targets = data.target[:, 0] if data.target.ndim == 2 else data.target
    names = getattr(data, "target_names", ())
    is_classes = targets.dtype.kind == "i" and len(names) > 1
    written = [str(names[label]) for label in targets] if is_classes else targets.tolist()
    columns = [str(column).replace(" ", "_") for column in data.feature_names]
    rows = [[*own, target] for own, target in zip(data.data.tolist(), written, strict=True)]
    path = table(tmp_path / "own.csv", [*columns, "wanted"], rows)
    asked = ["compare", "--data", str(path), "--target", "wanted", "--clients", "3", "--partition", "iid"]
    assert main([*asked, "--modes", "plain", "--format", "agreed", "--json", str(tmp_path / "o.json")]) == 0
    said, document = " ".join(capsys.readouterr().out.split()), json.loads((tmp_path / "o.json").read_text())
    tested = round(len(rows) / 5)
    assert f"{tested} of {len(rows)} rows are kept for testing, drawn with seed 0" in said
    assert ("wanted is taken for classes: " if is_classes else "wanted is taken for a real target") in said
    assert any(note.startswith("features are ") for note in document["notes"])
    own = guessed(path, "wanted")
    assert own.n_features == document["dataset"]["features"]
    if not is_classes:
        theirs = LinearRegression(fit_intercept=True).fit(own.x_train, own.y_train).score(own.x_test, own.y_test)
        assert document["runs"][0]["test_r2"] == pytest.approx(theirs, abs=1e-3)


def test_a_table_that_a_person_must_decide_on_says_what_and_how(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    rows = [[f"{value:.3f}", "yes" if value > 0 else "no", f"c{n}"] for n, value in enumerate(rng.normal(size=40))]
    path = table(tmp_path / "own.csv", ["marker", "outcome", "case"], [*rows, ["1.5", "no", "Total"]])
    assert main(["compare", "--data", str(path), "--target", "outcome"]) == 2
    said = capsys.readouterr().err
    assert "the last row says that it is a total" in said
    assert "analytic-secagg schema draft writes both down" in said
    wrong = {
        ("--target", "outcome", "--columns", "schema.toml"): "a schema names its target",
        ("--target", "nothing"): "has no column nothing, and the target is one of marker, outcome, case",
        (): "needs --target COLUMN, what is predicted",
    }
    for words, why in wrong.items():
        assert main(["compare", "--data", str(path), *words]) == 2
        assert why in capsys.readouterr().err


def test_an_offset_that_is_proposed_makes_large_numbers_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1e9 + {0, 1, 2} decides the class: two thirds are right without an offset, and all with the one offered."""
    values = np.arange(600) % 3
    np.savez(tmp_path / "own.npz", X=(1e9 + values).reshape(-1, 1), y=(values == 2).astype(int))
    asked = ["compare", "--data", str(tmp_path / "own.npz"), "--modes", "plain", "--clients", "5"]
    asked += ["--partition", "iid", "--format", "standardised", "--json", str(tmp_path / "o.json")]

    def accuracy(*more: str) -> float:
        assert main([*asked, *more]) == 0
        return float(json.loads((tmp_path / "o.json").read_text())["runs"][0]["test_accuracy"])

    assert accuracy() < 0.8
    said = " ".join(capsys.readouterr().out.split())
    (offered,) = (word for word in said.split() if word.startswith("0="))
    assert f"take an offset off: --offset {offered}" in said
    assert accuracy("--offset", offered) == 1.0
    assert "1000000000 is taken off column 0" in capsys.readouterr().out
    assert main([*asked, "--offset", "1=5"]) == 2
    assert "--offset names the column '1'" in capsys.readouterr().err
    rows = [[str(1_000_000_000 + value), "yes" if value == 2 else "no"] for value in values]
    path = table(tmp_path / "own.csv", ["marker", "wanted"], rows)
    own = guessed(path, "wanted")
    assert sorted({*own.x_train.ravel().tolist()}) == [0.0, 1.0, 2.0]
    assert any("marker: values differ by little beside their size, and 1000000000 is taken off" in n for n in own.notes)


def test_labels_as_floats_are_said_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    iris = datasets.load_iris()
    np.savez(tmp_path / "own.npz", X=iris.data, y=iris.target.astype(float))
    assert main(["compare", "--data", str(tmp_path / "own.npz"), "--modes", "plain", "--clients", "3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "WARNING: y_train holds floats and is taken for a real target, and its 3 different values" in said
    assert "30 of 150 rows are kept for testing" in said


def test_figures_that_mean_nothing_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Of four test rows, and worse than a constant; of enough rows and a model that learned something neither."""
    few = ["compare", "--modes", "plain", "--clients", "2", "--partition", "iid", "--dataset"]
    assert main([*few, "linnerud"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "WARNING: all figures are of 4 test rows, too few to tell learners or settings apart" in said
    assert "WARNING: R2 of afl is below 0: who always says the mean is nearer" in said
    assert main([*few, "diabetes"]) == 0
    assert "R2 of afl" not in (said := capsys.readouterr().out)
    assert "too few to tell" not in said


def test_columns_of_unlike_sizes_need_no_stated_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ages beside incomes: no 16-bit format holds both, so compare has columns agreed on, and audit divides them."""
    rng = np.random.default_rng(0)
    rows = [[int(rng.integers(18, 90)), int(rng.integers(9, 165)) * 1000, "yn"[n % 2]] for n in range(60)]
    path = table(tmp_path / "own.csv", ["age", "income", "repaid"], rows)
    asked = ["compare", "--data", str(path), "--target", "repaid", "--modes", "plain", "--clients", "3"]
    assert main([*asked, "--json", str(tmp_path / "o.json")]) == 0
    assert "--format agreed is taken: no 16-bit format holds the largest value" in " ".join(
        capsys.readouterr().out.split()
    )
    assert json.loads((tmp_path / "o.json").read_text())["runs"][0]["agreement"] == "agreed"
    own, settings = guessed(path, "repaid"), AuditSettings()
    sized = settings.sized(own)
    assert settings.format_for(own).integer_bits == 0
    assert np.array_equal(sized.x_train * [2.0**7, 2.0**18], own.x_train)
    assert sized.notes[-1].startswith("each column is divided by a power of two")
    small = guessed(
        table(tmp_path / "small.csv", ["age", "dose", "repaid"], [[a, i // 10_000 + 2, y] for a, i, y in rows]),
        "repaid",
    )
    assert settings.sized(small) is small


def test_no_report_holds_a_value_that_a_guess_stumbled_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three people's weights in another unit are shown to whoever gave the rows, and stand in no file."""
    rng = np.random.default_rng(0)
    weights = [*rng.uniform(55, 95, 77).round(1), 171.7, 181.9, 193.3]
    path = table(
        tmp_path / "own.csv", ["age", "weight", "ill"], [[20 + n % 60, w, "yn"[n % 2]] for n, w in enumerate(weights)]
    )
    files = [tmp_path / name for name in ("o.json", "o.html", "a.json", "a.html")]
    asked = ["--data", str(path), "--target", "ill", "--clients", "3"]
    assert main(["compare", *asked, "--modes", "plain", "--json", str(files[0]), "--html", str(files[1])]) == 0
    printed = capsys.readouterr()
    assert "171.7" in printed.out
    assert printed.err.endswith("".join(f"written: {file}\n" for file in files[:2]))
    main(
        [
            "audit",
            *asked,
            "--modes",
            "plain",
            "--attacks",
            "class_means",
            "--json",
            str(files[2]),
            "--html",
            str(files[3]),
        ]
    )
    assert "171.7" in capsys.readouterr().out
    assert not [file.name for file in files if "171.7" in file.read_text()]


def test_a_column_that_is_left_out_can_be_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The note's own command writes both files; a bound recoded with a decimal comma is told from a number."""
    rows = [[k % 7, "<5" if k % 9 == 0 else k / 10, "ab"[k % 2]] for k in range(60)]
    path = table(tmp_path / "own rows.csv", ["age", "crp", "ill"], rows)
    (said,) = (note for note in guessed(path, "ill").notes if note.startswith("to take a column that is left out"))
    command = shlex.split(said.partition(" of analytic-secagg ")[2].partition(", and give")[0])
    assert main([*command, "--into", str(tmp_path / "drafts")]) == 0
    schema, reading = tmp_path / "drafts" / "columns.toml", tmp_path / "drafts" / "reading.toml"
    schema.write_text(schema.read_text() + "\n[columns.crp]\n")
    asked = ["compare", "--data", str(path), "--columns", str(schema), "--reading", str(reading), "--modes", "plain"]
    for number, code in ("2,5", 2), ("2.5", 0):
        reading.write_text(f'[client.reading.columns.crp]\nrecode = {{ "<5" = "{number}" }}\n')
        assert main([*asked, "--clients", "3", "--partition", "iid"]) == code
    assert "recodes to '2,5', which the schema does not have; recode to a number" in capsys.readouterr().err


def test_classes_of_many_digits_stay_apart_and_are_told_from_amounts(tmp_path: Path) -> None:
    rows = [[k % 7, 1234567 + k % 3] for k in range(60)]
    data = guessed(table(tmp_path / "own.csv", ["age", "code"], rows), "code")
    assert data.classes == ("1234567", "1234568", "1234569")
    assert any("if they are amounts, take its categories away" in note for note in data.private_notes)
