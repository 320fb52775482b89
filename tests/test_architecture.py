"""The house's shape, read from the sources: which module imports which."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations", "benchmarks")

FORBIDDEN_ARROWS = (
    ("secagg", "analytic"),
    ("analytic", "secagg"),
    ("secagg", "analytic_secagg"),
    ("analytic", "analytic_secagg"),
    ("secagg", "simulations"),
    ("analytic", "simulations"),
    ("analytic_secagg", "simulations"),
    *((package, "benchmarks") for package in PACKAGES if package != "benchmarks"),
)
"""(from, to): sums know no learning, learning knows no cryptography, and neither knows who puts them together; what a
deployment runs knows no experiments. No package imports the benchmarks, which are not installed."""

HEAVY = frozenset(
    {"torch", "torchvision", "tenseal", "opacus", "dp_accounting", "flwr", "nvflare", "openpyxl", "pyreadstat"}
)
"""Optional dependencies: whoever needs one imports it where it is used, so that the core runs without them."""


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
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _nodes(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[tuple[ast.AST, bool, bool]]:
    """Every node with whether it stands in a function, and whether only a type checker sees it."""
    yield node, in_function, for_types
    if isinstance(node, ast.If) and _is_type_checking(node.test):
        for child in node.body:
            yield from _nodes(child, in_function, True)
        for child in node.orelse:
            yield from _nodes(child, in_function, for_types)
        return
    inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _nodes(child, inside, for_types)


def imports_of(name: str, tree: ast.Module, modules: frozenset[str], is_package: bool = False) -> list[Import]:
    """What a module imports; `from package import name` points at the submodule where `name` is one."""
    found = []
    for node, in_function, for_types in _nodes(tree, False, False):
        targets: list[str] = []
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
        found += [Import(name, target, node.lineno, not in_function, for_types) for target in targets]
    return found


KNOWN = frozenset(MODULES)
IMPORTS = [
    arrow
    for name, tree in TREES.items()
    for arrow in imports_of(name, tree, KNOWN, MODULES[name].name == "__init__.py")
]


def top(module: str) -> str:
    """The package a dotted name begins with."""
    return module.split(".")[0]


def shown(arrows: list[Import]) -> list[str]:
    """Arrows as a person reads them."""
    return [f"{a.source} line {a.line} imports {a.target}" for a in arrows]


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of two modules or more, and modules that import themselves (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1 or node in graph.get(node, ()):
                cycles.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return cycles


def graph_of(arrows: list[Import]) -> dict[str, set[str]]:
    """Modules and the modules they import."""
    graph: dict[str, set[str]] = {name: set() for name in KNOWN}
    for arrow in arrows:
        if arrow.target in KNOWN:
            graph[arrow.source].add(arrow.target)
    return graph


def test_the_packages_are_found() -> None:
    assert {top(name) for name in MODULES} == set(PACKAGES)
    assert len(MODULES) > 30


@pytest.mark.parametrize(("source", "target"), FORBIDDEN_ARROWS, ids=lambda x: x)
def test_no_arrow_points_up_or_across(source: str, target: str) -> None:
    crossing = [a for a in IMPORTS if top(a.source) == source and top(a.target) == target]
    assert not crossing, shown(crossing)


def test_no_cycle_when_modules_are_loaded() -> None:
    loading = [a for a in IMPORTS if a.at_module_level and not a.for_types_only]
    assert find_cycles(graph_of(loading)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_cycle_hides_in_a_function(package: str) -> None:
    """An import inside a function is an arrow too: it only moves the moment at which two ideas need each other."""
    running = [a for a in IMPORTS if top(a.source) == package and not a.for_types_only]
    assert find_cycles(graph_of(running)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_do_not_import_the_hallway_of_their_own_package(package: str) -> None:
    """`__init__` hands names on to callers; a module of the package that reads it stands in a hidden cycle."""
    hallway = [a for a in IMPORTS if top(a.source) == package and a.target == package and a.source != package]
    assert not hallway, shown(hallway)


def _asks_in_a_loop(tree: ast.AST) -> list[int]:
    """Lines of loops that ask a learner for one sum after the other."""
    return [
        call.lineno
        for loop in ast.walk(tree)
        if isinstance(loop, ast.While | ast.For)
        for call in ast.walk(loop)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "next_sum"
        if len(call.args) == 1
    ]


def test_nobody_leads_a_learner_through_its_sums_but_the_dialogue_and_its_oracle() -> None:
    """Whoever wrote that loop again could forget the digest, the gate or the record: ``federation.Federation``."""
    loops = {name: lines for name, tree in TREES.items() if (lines := _asks_in_a_loop(tree))}
    assert set(loops) == {"analytic.learner"}, loops


def test_primitives_know_nothing_of_protocols() -> None:
    above = [
        a
        for a in IMPORTS
        if a.source.startswith("secagg.primitives")
        and top(a.target) == "secagg"
        and a.target not in {f"secagg.{name}" for name in ("encoding", "entropy", "errors", "layout", "ring")}
        and not a.target.startswith("secagg.primitives")
    ]
    assert not above, shown(above)


def test_foundations_know_nothing_of_protocols() -> None:
    foundations = {f"secagg.{name}" for name in ("errors", "entropy", "layout", "ring", "sessions", "config", "wire")}
    protocols = (
        "secagg.masked",
        "secagg.plain",
        "secagg.in_memory",
        "secagg.committee",
        "secagg.encryption",
        "secagg.dp",
    )
    upward = [a for a in IMPORTS if a.source in foundations and a.target.startswith(protocols)]
    assert not upward, shown(upward)


def test_protocols_do_not_know_each_other() -> None:
    rooms = ("secagg.masked", "secagg.committee", "secagg.plain")
    crossing = [
        a
        for a in IMPORTS
        for room in rooms
        if a.source.startswith(room) and a.target.startswith(tuple(r for r in rooms if r != room))
    ]
    assert not crossing, shown(crossing)


@pytest.mark.parametrize("package", ["secagg", "analytic"])
def test_heavy_packages_stay_out_of_the_core_at_load(package: str) -> None:
    heavy = [
        a
        for a in IMPORTS
        if top(a.source) == package and top(a.target) in HEAVY and a.at_module_level and not a.for_types_only
    ]
    assert not heavy, shown(heavy)


@pytest.mark.parametrize("package", ["analytic_secagg", "simulations", "benchmarks"])
def test_the_rest_loads_without_heavy_packages(package: str) -> None:
    """All but the engines' own parts and a peer's, which cannot be written without them."""
    heavy = [
        a
        for a in IMPORTS
        if top(a.source) == package
        and not a.source.startswith(("analytic_secagg.flower", "analytic_secagg.nvflare", "benchmarks.secaggplus"))
        and top(a.target) in HEAVY
        and a.at_module_level
        and not a.for_types_only
    ]
    assert not heavy, shown(heavy)


def test_what_a_site_runs_draws_nothing() -> None:
    """Tables for terminals and plots come with the extra ``simulations``."""
    drawn = {"rich", "matplotlib", "PIL"}
    arrows = [a for a in IMPORTS if top(a.source) not in ("simulations", "benchmarks") and top(a.target) in drawn]
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
    names = [name for name in sorted(MODULES) if top(name) in ("secagg", "analytic")]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, *names], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(name for name, path in MODULES.items() if path.name == "__init__.py"))
def test_init_only_hands_names_on(name: str) -> None:
    """At once, or, by ``__getattr__``, when a name is first asked for."""
    allowed = (ast.Import, ast.ImportFrom, ast.Expr, ast.Assign, ast.AnnAssign)
    other = [
        type(node).__name__
        for node in TREES[name].body
        if not isinstance(node, allowed)
        and not (isinstance(node, ast.If) and _is_type_checking(node.test))
        and not (isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__"))
    ]
    assert not other, f"{name} does more than hand names on: {other}"


def test_the_report_of_sizes_prints_every_package() -> None:
    """Sizes are a smell and not a law: they are printed by `make sizes`, and nothing fails on them."""
    script = ROOT / "tests" / "house_report.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True)
    first_words = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
    assert first_words[: 1 + len(PACKAGES)] == ["package", *PACKAGES]
    longest = re.search(r"longest modules:\n +(\d+) (\S+)\n", done.stdout)
    assert longest is not None
    assert len(MODULES[longest[2]].read_text(encoding="utf-8").splitlines()) == int(longest[1])


class TestTheTestItself:
    """Each rule finds what it looks for, in sources made for it."""

    def _arrows(self, source: str, name: str = "p.a", is_package: bool = False) -> set[tuple[str, bool, bool]]:
        found = imports_of(name, ast.parse(source), frozenset({"p", "p.a", "p.b", "q"}), is_package)
        return {(a.target, a.at_module_level, a.for_types_only) for a in found}

    def test_imports_in_every_form(self) -> None:
        assert self._arrows("import q") == {("q", True, False)}
        assert self._arrows("from p import b") == {("p.b", True, False)}
        assert self._arrows("from p import b, thing") == {("p", True, False), ("p.b", True, False)}
        assert self._arrows("from p.b import thing") == {("p.b", True, False)}
        assert self._arrows("from . import b") == {("p.b", True, False)}
        assert self._arrows("from .b import thing") == {("p.b", True, False)}
        assert self._arrows("from .b import thing", "p", is_package=True) == {("p.b", True, False)}
        assert self._arrows("def f():\n    import q") == {("q", False, False)}
        assert self._arrows("class C:\n    def f(self):\n        from p.b import x") == {("p.b", False, False)}
        assert self._arrows("if TYPE_CHECKING:\n    import q\nelse:\n    import p.b") == {
            ("q", True, True),
            ("p.b", True, False),
        }

    def test_cycles_are_found(self) -> None:
        assert find_cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
        assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]
        assert find_cycles({"a": {"a"}}) == [["a"]]

    def test_loops_over_sums_are_found(self) -> None:
        assert _asks_in_a_loop(ast.parse("while (spec := learner.next_sum(model)) is not None:\n    pass")) == [1]
        assert _asks_in_a_loop(ast.parse("spec = learner.next_sum(model)")) == []
        assert _asks_in_a_loop(ast.parse("while step := federation.next_sum:\n    sums.next_sum(a, b)")) == []
