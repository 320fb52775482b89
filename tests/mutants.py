"""Mutation testing with mutmut: draw mutants of each package, judge them by the tests, sum up.

Run it as `make mutants`. docs/reference/mutation-testing.md says what it measures, [tool.mutmut] in pyproject.toml
which files and by which tests. mutmut makes the mutants, finds out which tests reach each function, and runs these,
the quickest first, until one fails. This script adds what mutmut lacks: a seeded sample of each package, without
mutants that change texts only.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from mutmut.__main__ import copy_also_copy_files, copy_src_dir, create_mutants
from mutmut.configuration import config
from mutmut.stats import status_by_exit_code

PACKAGES = {
    "primitives": ("secagg/primitives/*.py",),
    "masked": ("secagg/masked/*.py",),
    "committee": ("secagg/committee/*.py",),
    "dp": ("secagg/dp/*.py",),
    "policy": ("secagg/policy.py", "secagg/layout.py"),
    "journal": ("analytic_secagg/site/query_log.py", "secagg/differencing.py"),
}

MADE = Path("mutants")
"""mutmut's folder: copies of the sources that hold all mutants, a `.meta` file with the results beside each."""

TESTS, ALL_TESTS = MADE / "mutmut-stats.json", MADE / "all-tests.json"
"""Which tests reach which function and how long each takes: as mutmut reads it, and whole."""


class WithoutTexts(ast.NodeTransformer):
    """Blank what people read: strings, and what errors are raised with (but for keywords, such as the peer)."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("")

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc.args = []
        return self.generic_visit(node)


def without_texts(function: ast.AST) -> str:
    function.name = ""  # type: ignore[attr-defined]
    return ast.dump(WithoutTexts().visit(function))


def made(package: str) -> dict[str, int | None]:
    """All mutants of a package by name, with the exit code of their tests; None where they were not judged yet."""
    found = {}
    for pattern in PACKAGES[package]:
        for meta in sorted(MADE.glob(pattern + ".meta")):
            found.update(json.loads(meta.read_text("utf-8"))["exit_code_by_key"])
    return found


def change_texts_only(package: str) -> Iterator[str]:
    """The mutants that differ from their function in texts alone."""
    for path in sorted(path for pattern in PACKAGES[package] for path in MADE.glob(pattern)):
        tree = ast.parse(path.read_text("utf-8"))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        originals = {name: without_texts(node) for name, node in functions.items() if name.endswith("__mutmut_orig")}
        module = ".".join(path.relative_to(MADE).with_suffix("").parts)
        for name, node in functions.items():
            if name not in originals and "__mutmut_" in name:
                original = originals[name.rpartition("__mutmut_")[0] + "__mutmut_orig"]
                if without_texts(node) == original:
                    yield f"{module}.{name}"


def mutmut(*arguments: str, processes: int | None = None) -> None:
    environment = os.environ | {"PYTHONPATH": str(MADE.absolute()), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    options = [] if processes is None else ["--max-children", str(processes)]
    command = [str(Path(sys.executable).with_name("mutmut")), arguments[0], *options, *arguments[1:]]
    subprocess.run(command, check=True, env=environment)


def write_narrow_lists(seconds: float) -> None:
    """Leave each function tests of so many seconds: one case of each test first, the quickest first."""
    known = json.loads(ALL_TESTS.read_text("utf-8"))
    durations = known["duration_by_test"]
    for function, tests in known["tests_by_mangled_function_name"].items():
        cases: Counter[str] = Counter()
        ranked = []
        for test in sorted(tests, key=lambda test: (durations[test], test)):
            name = test.partition("[")[0]
            cases[name] += 1
            ranked.append((cases[name], durations[test], test))
        until = accumulate(duration for _, duration, _ in sorted(ranked))
        kept = [test for (_, _, test), spent in zip(sorted(ranked), until, strict=True) if spent <= seconds]
        known["tests_by_mangled_function_name"][function] = kept or [min(ranked)[2]]
    TESTS.write_text(json.dumps(known), "utf-8")


def judge(names: list[str], *, seconds: float, processes: int) -> None:
    """Run tests of so many seconds for each of these mutants, or for 0 all tests that reach it."""
    if not ALL_TESTS.exists():
        TESTS.unlink(missing_ok=True)
        mutmut("print-time-estimates", names[0])  # finds out which tests reach which function
        shutil.copy(TESTS, ALL_TESTS)
    if seconds:
        write_narrow_lists(seconds)
        mutmut("run", *names, processes=processes)
    else:
        shutil.copy(ALL_TESTS, TESTS)
        mutmut("run", *names, processes=processes)
        shutil.copy(TESTS, ALL_TESTS)  # with the tests that are new


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=PACKAGES, help="may be repeated; default: all")
    parser.add_argument("--sample", type=int, default=60, help="mutants a package, 0 for all (60); more adds to fewer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10, help="of tests that judge a mutant first")
    parser.add_argument("--narrow", action="store_true", help="leave survivors of those to the next run")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()

    known = json.loads(ALL_TESTS.read_text("utf-8")) if ALL_TESTS.exists() else {}
    if known and known["config_fingerprint"] != config().config_fingerprint():
        shutil.rmtree(MADE)  # other tests or limits: nothing that was found holds
    MADE.mkdir(exist_ok=True)
    copy_src_dir()
    copy_also_copy_files()
    create_mutants(asked.processes)

    drawn, n_texts = {}, {}
    for package in asked.package or PACKAGES:
        texts = set(change_texts_only(package))
        names = sorted(made(package).keys() - texts)
        random.Random(asked.seed).shuffle(names)
        drawn[package], n_texts[package] = names[: asked.sample or None], len(texts)

    for statuses, seconds in (({"not checked", "no tests"}, asked.seconds), ({"survived"}, 0.0)):
        if seconds or not asked.narrow:
            results = {name: made(package)[name] for package in drawn for name in drawn[package]}
            if names := [name for name, code in results.items() if status_by_exit_code[code] in statuses]:
                judge(names, seconds=seconds, processes=asked.processes)

    print(f"{'package':12} {'made':>6} {'texts':>6} {'sample':>6}  results")
    for package, sample in drawn.items():
        results = made(package)
        counts = Counter(status_by_exit_code[results[name]] for name in sample)
        said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        print(f"{package:12} {len(results):6} {n_texts[package]:6} {len(sample):6}  {said}")
        for name in sample:
            if status_by_exit_code[results[name]] != "killed":
                print(f"    {status_by_exit_code[results[name]]}: {name}")


if __name__ == "__main__":
    main()
