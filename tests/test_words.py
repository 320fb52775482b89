"""Retired words stay out of code, messages and pages: those of the last table of docs/reference/glossary.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
RETIRED = re.findall(r"(?m)^\| (`?)(.+?)`? \|", GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2])[
    2:
]
NAMES = [word for quoted, word in RETIRED if quoted]
WORDS = [word for quoted, word in RETIRED if not quoted]
CODE = [
    path for name in ("secagg", "analytic", "analytic_secagg", "simulations") for path in (ROOT / name).rglob("*.py")
]
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY)]


PLAIN = ("secagg",)
"""Packages whose docstrings are rewritten: none begins with a bare clause."""
CLAUSE = re.compile(r"(What|Who|Whom|Whose|Of|Where|Which|How|The same)\b")


def found(words: list[str], text: str) -> list[str]:
    return re.findall(rf"(?i)\b(?:{'|'.join(words)})s?\b", text)


def prose(page: str) -> str:
    """A page without its code: a released format may have an old key."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^```.*?^```", "", page))


def messages(source: str) -> str:
    """The texts of a module: what it prints and raises, and its docstrings."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return "\n".join(value for value in constants if isinstance(value, str))


def test_the_table_is_read() -> None:
    assert ("carrier" in WORDS, "make_room" in NAMES, len(RETIRED) > 20) == (True, True, True)
    assert found(WORDS, prose("the Carriers of `carrier`")) == ["Carriers"]
    assert found(WORDS, messages("raise ValueError(f'no carrier of {x}')")) == ["carrier"]


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_has_a_retired_word(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(rf"\b(?:{'|'.join(NAMES)})\b", text), "docs/reference/glossary.md has the name to use"
    assert not found(WORDS, messages(text)), "docs/reference/glossary.md has the word to use"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_has_a_retired_word(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.findall(rf"`[^`\n]*\b(?:{'|'.join(NAMES)})\b[^`\n]*`", text), "glossary.md has the name to use"
    assert not found(WORDS, prose(text)), "glossary.md has the word to use"


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_installs_a_name_that_anybody_could_register(path: Path) -> None:
    told = re.findall(r"pip install ['\"]?analytic[-_]secagg(?!-\w)", path.read_text(encoding="utf-8"))
    assert not told, "say pip install . in a checkout, with extras pip install '.[he]'"


@pytest.mark.parametrize(
    "path",
    [path for path in CODE if path.relative_to(ROOT).parts[0] in PLAIN],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_docstring_begins_with_a_verb_or_a_noun(path: Path) -> None:
    strings = [
        node.value.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert not [string.splitlines()[0] for string in strings if CLAUSE.match(string)], "say what it is or does"
