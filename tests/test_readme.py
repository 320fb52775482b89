"""The README shows what the commands print and draw."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.extras import needs

from simulations.__main__ import main

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")

needs("tenseal")  # the README shows every mode


def block(name: str) -> str:
    """The fenced text between ``<!-- name -->`` and ``<!-- /name -->``."""
    (found,) = re.findall(rf"<!-- {name} -->.*?```\n(.*?)```\n<!-- /{name} -->", TEXT, re.DOTALL)
    return str(found)


def portable(line: str) -> str:
    """A line without seconds; the hash of weights is the same on every machine."""
    return re.sub(r"( +[0-9.]+){2}$", "", line.rstrip())


def label(picture: Path) -> str:
    """What a picture says to whoever cannot see it: every number drawn, but gradient descent's, which bits may turn."""
    (found,) = re.findall(r'<svg [^>]*aria-label="([^"]+)"', picture.read_text(encoding="utf-8"))
    return re.sub(r"fedavg, 7 rounds: .*?%\. ", "", found)


def test_the_table_is_what_compare_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["compare"]) == 0
    printed = [portable(line) for line in capsys.readouterr().out.splitlines()]
    shown = [portable(line) for line in block("compare").splitlines()]
    assert len(shown) > 10
    assert printed[: len(shown)] == shown


def test_the_picture_is_what_its_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(block("plot").replace("\\\n", " "))
    assert words[:3] == [".venv/bin/python", "-m", "simulations"]
    assert main(words[3:]) == 0
    assert label(Path("compare.svg")) == label(ROOT / "docs" / "images" / "compare.svg")
