"""The table of parameters is what the command prints, and the command takes wrong input as a person would hope."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulations.__main__ import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "parameters.md"


def test_the_documented_table_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters"]) == 0
    assert capsys.readouterr().out in PAGE.read_text(encoding="utf-8")


def test_other_sizes_and_threat_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", "--clients", "50", "--corruption", "0", "--dropout", "0.4", "--features", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["50", "50"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--clients", "ten"], "--clients needs whole numbers"),
        (["--clients", "10", "--corruption", "0.6", "--dropout", "0.6"], "cannot be summed safely"),
        (["--corruption", "2"], "fractions from 0 to below 1"),
        (["--clients", "1"], "cannot be summed safely|at least 2 clients"),
    ],
)
def test_wrong_input(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", *arguments]) == 2
    assert re.search(complaint, capsys.readouterr().err)
