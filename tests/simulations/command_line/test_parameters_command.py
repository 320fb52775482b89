"""The table of parameters is what the command prints, and the command takes wrong input as a person would hope."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulations.__main__ import main

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "parameters.md"


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
        (["--clients", "ten"], "--clients: needs a whole number from 2 to 1048576, not 'ten'"),
        (["--clients", "10", "--corruption", "0.6", "--dropout", "0.6"], "cannot be summed safely"),
        (["--corruption", "2"], "--corruption: needs a number from 0 to below 1, such as 0.1, not '2'"),
        (["--clients", "1"], "--clients: needs a whole number from 2 to"),
        (["--clients", "5,"], "without empty places"),
        (["--security-bits", "inf"], "needs a number above 0, such as 40, not 'inf'"),
        (["--features", "0"], "needs a whole number from 1 to"),
    ],
)
def test_wrong_input(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", *arguments]) == 2
    output = capsys.readouterr()
    assert re.search(complaint, output.err)
    assert output.out == ""
