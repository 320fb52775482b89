"""The README is short and its program runs; the page of results shows what the commands print and draw."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.extras import needs

from simulations.__main__ import EXPERIMENTS, main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")


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


def test_the_readme_is_short_and_its_program_too() -> None:
    """``test_documentation.py`` runs the program."""
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(README.split()) <= 700
    assert len([line for line in program.splitlines() if line]) <= 10


def test_the_readme_s_table_is_that_of_the_page() -> None:
    table = README.split("## Compare the privacy modes")[1].split("## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (\w+) \| (\d) \| (\S+) kB \|$", table, re.MULTILINE)
    assert len(rows) == 3
    for mode, *cells in rows:
        (line,) = re.findall(rf"^{mode} .*$", block("compare"), re.MULTILINE)
        assert re.search(" .*".join(map(re.escape, cells)), line), line


def test_every_command_of_the_readme_is_one() -> None:
    """Its options are known; its files are the reader's own."""
    named = re.findall(r"^(?:.*`)?analytic-secagg (\w+)([^`\n]*)", README, re.MULTILINE)
    assert {name for name, _ in named} == {"compare", "audit"}
    for name, options in named:
        (listed,) = (one for one in EXPERIMENTS if one.name == name)
        flags = {flag for one in listed.load().params for flag in one.opts}
        assert set(re.findall(r"--[a-z-]+", options)) <= flags
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert f"\n{target}:" in made


def test_the_table_is_what_compare_prints(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    needs("tenseal")  # the page shows every mode
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["compare"]) == 0
    printed = [portable(line) for line in capsys.readouterr().out.splitlines()]
    shown = [portable(line) for line in block("compare").splitlines()]
    assert len(shown) > 10
    assert printed[: len(shown)] == shown


def test_the_picture_is_what_its_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(block("plot").replace("\\\n", " "))
    assert words[0] == "analytic-secagg"
    assert main(words[1:]) == 0
    assert label(Path("compare.svg")) == label(ROOT / "docs" / "images" / "compare.svg")
