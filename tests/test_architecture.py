"""Which module may import which, read from the sources."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations", "benchmarks")
FOUNDATIONS = ("errors", "entropy", "layout", "ring", "sessions", "config", "wire")
PROTOCOLS = ("masked", "plain", "in_memory", "committee", "encryption", "dp")

FORBIDDEN = [
    *(("secagg", package) for package in PACKAGES[1:]),
    *(("analytic", package) for package in PACKAGES if package != "analytic"),
    *(("analytic_secagg", package) for package in ("simulations", "benchmarks")),
    ("simulations", "benchmarks"),
    *((f"secagg.{low}", f"secagg.{protocol}") for low in (*FOUNDATIONS, "primitives") for protocol in PROTOCOLS),
    *((f"secagg.{one}", f"secagg.{other}") for one in ("masked", "committee", "plain")
      for other in ("masked", "committee", "plain") if one != other),
]  # fmt: skip
"""(from, to): sums know no learning, learning knows no cryptography, and neither knows who puts them together; what a
deployment runs knows no experiments; foundations know no protocol, and protocols do not know each other."""

HEAVY = {"torch", "torchvision", "tenseal", "opacus", "dp_accounting", "flwr", "nvflare", "openpyxl", "pyreadstat"}
"""Optional dependencies: whoever needs one imports it where it is used, so that all else runs without them."""

WRITTEN_IN_AN_EXTRA = ("analytic_secagg.flower", "analytic_secagg.nvflare", "benchmarks.secaggplus")
DRAWING = {"rich", "matplotlib", "PIL"}
"""Tables for terminals and plots come with the extra ``simulations``."""


@dataclass(frozen=True)
class Import:
    """One arrow of the graph."""

    source: str
    target: str
    line: int
    at_module_level: bool
    for_types_only: bool


def module_paths() -> dict[str, Path]:
    """Every module of the packages by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = module_paths()


def _nodes(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Every node with whether it is in a function, and whether only a type checker sees it."""
    yield node, in_function, for_types
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        for statement in node.body:
            yield from _nodes(statement, in_function, True)
        for statement in node.orelse:
            yield from _nodes(statement, in_function, for_types)
        return
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, inside, for_types)


def imports_of(name: str, tree: ast.Module, modules: set[str], is_package: bool = False) -> list[Import]:
    """What a module imports; `from package import name` points at the submodule where `name` is one."""
    found = []
    for node, in_function, for_types in _nodes(tree, False, False):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = name.split(".") if is_package else name.split(".")[:-1]
                parts = parts[: len(parts) - (node.level - 1)]
                base = ".".join([*parts, base] if base else parts)
            submodules = [f"{base}.{alias.name}" for alias in node.names if f"{base}.{alias.name}" in modules]
            targets = submodules if len(submodules) == len(node.names) else [base, *submodules]
        else:
            continue
        found += [Import(name, target, node.lineno, not in_function, for_types) for target in targets]
    return found


IMPORTS = [
    arrow
    for name, path in MODULES.items()
    for arrow in imports_of(name, ast.parse(path.read_text("utf-8")), set(MODULES), path.name == "__init__.py")
]


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def shown(arrows: list[Import]) -> list[str]:
    """Arrows as a person reads them."""
    return [f"{a.source} line {a.line} imports {a.target}" for a in arrows]


@pytest.mark.parametrize(("source", "target"), FORBIDDEN, ids=lambda x: x)
def test_no_arrow_points_up_or_across(source: str, target: str) -> None:
    crossing = [a for a in IMPORTS if is_in(a.source, source) and is_in(a.target, target)]
    assert not crossing, shown(crossing)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_has_a_cycle(package: str) -> None:
    """An import inside a function is an arrow too: it only moves the moment at which two ideas need each other."""
    graph: dict[str, set[str]] = {}
    for a in IMPORTS:
        if is_in(a.source, package) and a.target in MODULES and not a.for_types_only:
            graph.setdefault(a.source, set()).add(a.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize("package", PACKAGES)
def test_heavy_packages_are_loaded_where_they_are_used(package: str) -> None:
    """All but the engines' own parts and a peer's, which cannot be written without them."""
    loading = [a for a in IMPORTS if is_in(a.source, package) and a.at_module_level and not a.for_types_only]
    heavy = [a for a in loading if a.target.split(".")[0] in HEAVY and not a.source.startswith(WRITTEN_IN_AN_EXTRA)]
    assert not heavy, shown(heavy)


def test_what_a_site_runs_draws_nothing() -> None:
    drawn = [a for a in IMPORTS if a.target.split(".")[0] in DRAWING]
    arrows = [a for a in drawn if not a.source.startswith(("simulations", "benchmarks"))]
    assert not arrows, shown(arrows)


WITHOUT_POSIX = """
import os, sys
from importlib import import_module
from pathlib import Path

for name in ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_DIRECTORY", "fchmod", "fork", "geteuid", "getuid", "killpg", "setsid"):
    delattr(os, name)
open_file = os.open
def open_no_folder(path, *rest, **named):
    if Path(path).is_dir():
        raise PermissionError(13, "Permission denied", path)
    return open_file(path, *rest, **named)
os.open = open_no_folder

for name in sys.argv[1:]:
    import_module(name)
import numpy as np
from analytic_secagg import FederatedModel, federate
from secagg import FileStore, secure_sum
from simulations.__main__ import main

assert secure_sum({party: {"n": np.array([party, -party])} for party in (1, 2, 3)})["n"].tolist() == [6, -6]
rng = np.random.default_rng(0)
sites = {site: (rng.normal(size=(20, 2)), rng.integers(0, 2, 20)) for site in "ABC"}
model, rows = federate(sites, mode="masked", intercept=True), sites["A"][0]
model.save("model.safetensors")
assert FederatedModel.load("model.safetensors").predict(rows).tolist() == model.predict(rows).tolist()
assert main("compare --dataset iris --clients 3 --modes masked --html out.html --json out.json".split()) == 0
try:
    FileStore(Path("session")).save(b"")
except OSError as error:
    assert "only POSIX systems have" in str(error)
else:
    raise AssertionError("stored without a lock")
"""


def test_the_library_and_compare_run_without_posix(tmp_path: Path) -> None:
    """As on Windows, which has none of these and opens no folder; what locks files says that it needs POSIX."""
    names = [name for name in sorted(MODULES) if name.split(".")[0] in ("secagg", "analytic")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_imports_are_found_in_every_form() -> None:
    def arrows(source: str, name: str = "p.a", is_package: bool = False) -> set[tuple[str, bool, bool]]:
        found = imports_of(name, ast.parse(source), {"p", "p.a", "p.b", "q"}, is_package)
        return {(a.target, a.at_module_level, a.for_types_only) for a in found}

    assert len(MODULES) > 30
    assert arrows("import q") == {("q", True, False)}
    assert arrows("from p import b") == {("p.b", True, False)}
    assert arrows("from p import b, thing") == {("p", True, False), ("p.b", True, False)}
    assert arrows("from p.b import thing") == {("p.b", True, False)}
    assert arrows("from . import b") == {("p.b", True, False)}
    assert arrows("from .b import thing") == {("p.b", True, False)}
    assert arrows("from .b import thing", "p", is_package=True) == {("p.b", True, False)}
    assert arrows("def f():\n    import q") == {("q", False, False)}
    assert arrows("class C:\n    def f(self):\n        from p.b import x") == {("p.b", False, False)}
    only_types = "if TYPE_CHECKING:\n    import q\nelse:\n    import p.b"
    assert arrows(only_types) == {("q", True, True), ("p.b", True, False)}
