"""Retired words stay out of code, messages and pages: those of the last table of docs/reference/glossary.md."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
TABLE = GLOSSARY.read_text(encoding="utf-8").partition("## Retired words")[2]
RETIRED = re.findall(r"(?m)^\| (`?)(.+?)`? \|", TABLE)[2:]
NAMES = "|".join(word for quoted, word in RETIRED if quoted)
WORDS = "|".join(word for quoted, word in RETIRED if not quoted)
PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations")
CODE = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if page != GLOSSARY)]


def found_in_page(text: str) -> list[str]:
    """Retired names within backticks, and words outside; a fenced block may show an old file."""
    text = re.sub(r"(?ms)^```.*?^```", "", text)
    names = re.findall(rf"`[^`\n]*\b(?:{NAMES})\b[^`\n]*`", text)
    return names + re.findall(rf"(?i)\b(?:{WORDS})s?\b", re.sub(r"`[^`\n]*`", "", text))


def found_in_code(text: str) -> list[str]:
    """Retired names anywhere, and words in what a module prints, raises and documents."""
    constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    strings = "\n".join(value for value in constants if isinstance(value, str))
    return re.findall(rf"\b(?:{NAMES})\b", text) + re.findall(rf"(?i)\b(?:{WORDS})s?\b", strings)


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_retired_word_and_no_name_that_anybody_could_register(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = found_in_code(text) if path.suffix == ".py" else found_in_page(text)
    assert not found, "docs/reference/glossary.md has the word to use"
    told = re.findall(r"pip install ['\"]?analytic[-_]secagg(?!-\w)", text)
    assert not told, "say pip install . in a checkout, with extras pip install '.[he]'"


def test_the_table_is_read_and_its_words_are_found() -> None:
    assert len(RETIRED) > 20
    assert found_in_page("the Carriers of `carrier` and `make_room`") == ["`make_room`", "Carriers"]
    assert found_in_code("raise ValueError(f'no carrier of {x}')") == ["carrier"]
