"""The documents name tests, files and commands that exist."""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from support.extras import needs

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import save_model
from analytic.row_format import RowFormat
from analytic_secagg.learners import LEARNERS, LearnerSettings

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
HOUSES = {"secagg", "analytic", "analytic_secagg"}
SOURCES = (*HOUSES, "simulations", "benchmarks", "tests")
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


@functools.cache
def names_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_named_test_exists(page: Path) -> None:
    for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8")):
        path = ROOT / "tests" / file
        assert path.exists(), f"{page.name} names {file}, which does not exist"
        assert name in names_in(path), f"{page.name} names {file}::{name}, which does not exist"


NAMES_OF_THE_PAST = {"CHANGELOG.md", "glossary.md", "peers.md"}
"""Pages that name what was renamed, or what other projects have."""


def test_every_named_class_exists() -> None:
    """`NoReply` was `Lost` before it was renamed everywhere but in the page on engines."""
    source = "\n".join(file.read_text(encoding="utf-8") for house in SOURCES for file in (ROOT / house).rglob("*.py"))
    known = set(re.findall(r"\b([A-Z]\w+)(?:\(|:|,$|:? = | import|\[)", source))
    known |= {word for line in re.findall(r"^\s*(?:from|import) .*", source, re.M) for word in re.findall(r"\w+", line)}
    for page in PAGES:
        text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
        spans = re.findall(r"`([\w.]+)(?:\([^`\n]*\))?`", "" if page.name in NAMES_OF_THE_PAST else text)
        named = {word for span in spans for word in span.split(".") if re.fullmatch(r"(?:[A-Z][a-z]+)+", word)}
        assert named <= known, f"{page.name} names what does not exist: {sorted(named - known)}"


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_local_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("subject", ["sums", "deployments"])
def test_every_claim_has_a_test(subject: str) -> None:
    claims = (ROOT / "docs" / "reference" / f"claims-of-{subject}.md").read_text(encoding="utf-8")
    rows = [line for line in claims.splitlines() if line.startswith("| ") and not line.startswith(("| claim", "| ---"))]
    assert rows
    assert all("::" in row for row in rows)


LONG = {"wire-format.md", "performance.md", "reliability.md", "CHANGELOG.md"}
"""A specification, and pages that commands write."""


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in LONG], ids=lambda page: page.name)
def test_a_page_has_at_most_1500_words(page: Path) -> None:
    """Of text and tables; split a longer one by task, or cut it."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    assert sum(any(map(str.isalnum, word)) for word in text.split()) <= 1500


def test_no_page_names_this_machine() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert "/root/" not in text
        assert "/work/" not in text


def test_the_page_of_model_files_names_all_that_is_in_them(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "model-files.md").read_text(encoding="utf-8")
    described, arrays = page.split("## The arrays")
    rng, row_format = np.random.default_rng(0), RowFormat.parse("Q5.11")
    rows = ClientRows(rng.random((60, 4)), rng.integers(0, 3, 60))
    sizes: dict[str, Any] = {"n_features": 4, "n_classes": 3, "max_rows": 60, "max_clients": 1}
    for name, entry in LEARNERS.items():
        narrow = {"n_layers": 1, "d_phi": 8, "d_f": 8} if name == "deepafl" else {}
        learner = entry.build(LearnerSettings(**sizes, feature_format=row_format, options=narrow))
        save_model(tmp_path / name, learner, fit_pooled(learner, rows), features=list("abcd"), with_totals=True)
        with safe_open(tmp_path / name, framework="numpy") as file:
            saved, held = json.loads(file.metadata()["analytic-model"]), list(file.keys())
        assert list(saved) == re.findall(r"^\| `(\w+)` \|", described, flags=re.MULTILINE)
        lines = [line for line in arrays.splitlines() if line.startswith("|") and f"`{name}`" in line]
        named = {word for line in lines for word in re.findall(r"`([\w.]+)`", line.split("|")[2])}
        assert {re.sub(r"\.\d+$", ".0", array) for array in held} == named - {"classifier.1", "transform.1"}


EXTRAS = {"encrypted-sums.md": "tenseal", "wire-format.md": "tenseal", "average-with-flower.md": "flwr"}
"""The optional module of each page whose snippets cannot do without one."""


def _snippets(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if _snippets(page)], ids=lambda page: page.name)
def test_every_python_snippet_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snippets of a page in their order, as a reader would run them."""
    if page.name in EXTRAS:
        needs(EXTRAS[page.name])
    monkeypatch.chdir(tmp_path)
    _write_features(tmp_path / "features.npz")
    names: dict[str, object] = {"__name__": "__snippet__"}
    for snippet in _snippets(page):
        if "import torch" in snippet and find_spec("torch") is None:
            continue
        exec(compile(snippet, page.name, "exec"), names)


def _write_features(path: Path) -> None:
    """A file such as `python -m simulations features` makes, which snippets read."""
    rng = np.random.default_rng(0)
    np.savez(
        path,
        x_train=rng.random((40, 6), dtype=np.float32),
        y_train=rng.integers(0, 2, 40),
        x_test=rng.random((10, 6), dtype=np.float32),
        y_test=rng.integers(0, 2, 10),
        classes=np.array(["cat", "dog"]),
        settings="{}",
    )


API = "\n".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference" / "api").glob("*.rst"))
PUBLIC_MODULES = set(re.findall(r"^\.\. automodule:: (\S+)\n   :members:\n", API, re.MULTILINE))
PUBLIC_NAMES = set(re.findall(r"^\.\. (?:autoclass|autofunction|autoexception|py:data):: (\S+)$", API, re.MULTILINE))
OTHERS = {"analytic_secagg.flower.mean", "analytic_secagg.nvflare.guard", "simulations.__main__", "secagg.ring"}
"""Modules of extras, a command's ``main`` and a type of arrays, which the API pages do not build."""


@pytest.mark.parametrize("page", [page for page in PAGES if _snippets(page)], ids=lambda page: page.name)
def test_snippets_import_public_names_alone(page: Path) -> None:
    """Those of the API pages: names of a package's face, of a module that is listed, or listed themselves."""
    for snippet in _snippets(page):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] in HOUSES | {"simulations"}:
                module = str(node.module)
                if module in OTHERS:
                    continue
                names = {alias.name for alias in node.names}
                face = getattr(import_module(module), "__all__", names if module in PUBLIC_MODULES else ())
                assert all(name in face or f"{module}.{name}" in PUBLIC_NAMES for name in names), (module, names)


@pytest.mark.parametrize("package", sorted(HOUSES))
def test_an_api_page_begins_with_a_program_that_runs(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "reference" / "api" / f"{package}.rst").read_text(encoding="utf-8")
    (program,) = re.findall(r"^\.\. code-block:: python\n\n((?:   .*\n|\n)+)", page.split("All names")[0], re.MULTILINE)
    exec(compile(re.sub(r"^   ", "", program, flags=re.MULTILINE), package, "exec"), {})
    assert capsys.readouterr().out
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^   \* - (.*)$", page, re.MULTILINE)))
    assert 7 <= len(named) <= 14
    assert not set(named) - set(import_module(package).__all__)


@pytest.mark.parametrize("package", sorted(HOUSES))
def test_a_docstring_sends_readers_to_names_that_they_find(package: str) -> None:
    """``See SumConfig`` helps nobody who imports the face, which has no such name."""
    face = import_module(package)
    for name in face.__all__:
        thing = getattr(face, name)
        parts = [(name, thing), *(vars(thing).items() if inspect.isclass(thing) else ())]
        for part, text in [(part, inspect.getdoc(one) or "") for part, one in parts]:
            for seen in re.findall(r"\b[Ss]ee ``([\w.]+)``", text):
                first = seen.split(".")[0]
                assert first in face.__all__ or hasattr(thing, first) or locate(seen), (name, part, seen)


def test_a_how_to_sends_readers_to_names_of_the_api_pages() -> None:
    """Among them what an engine of another package writes or calls."""
    listed = PUBLIC_NAMES | {f"{module}.{name}" for module in PUBLIC_MODULES for name in dir(import_module(module))}
    for page in (ROOT / "docs" / "how-to").glob("*.md"):
        for name in re.findall(rf"`((?:{'|'.join(HOUSES)})\.\w+\.[\w.]+)[`(]", page.read_text(encoding="utf-8")):
            path = ROOT / name.replace(".", "/")
            if path.is_dir() or path.with_suffix(".py").exists() or name.rpartition(".")[0] in OTHERS:
                continue
            assert any(f"{name}.".startswith(f"{one}.") for one in listed), f"{page.name} names {name}"
