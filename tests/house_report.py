"""Print the sizes of the house: files, lines, functions, arrows and floors of each package (`make sizes`).

Sizes are a smell and not a law, so nothing fails here: a reader looks at the table, and at what stands out in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from statistics import quantiles

from test_architecture import IMPORTS, MODULES, PACKAGES, TREES, graph_of, top

N_LONGEST = 5


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield qualified names and lengths, docstring not counted: it is what the reader wants to be long."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from walk(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{prefix}{child.name}", _length(child)
                yield from walk(child, f"{prefix}{child.name}.")

    yield from walk(tree, "")


def floors(graph: dict[str, set[str]]) -> int:
    """Return how many modules the longest way down has; the graph has no circle."""
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            heights[node] = 1 + max((height(below) for below in graph[node]), default=0)
        return heights[node]

    return max((height(node) for node in graph), default=0)


def report() -> str:
    """Return the table of packages, then the longest modules and functions."""
    lines_of = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    lengths = {f"{name}.{function}": size for name, tree in TREES.items() for function, size in functions(tree)}
    running = graph_of([arrow for arrow in IMPORTS if not arrow.for_types_only])
    table = [("package", "files", "lines", "a file: median, 90 %, max", "functions", "a function", "arrows", "floors")]
    for package in PACKAGES:
        names = [name for name in MODULES if top(name) == package]
        sizes = [size for name, size in lengths.items() if top(name) == package]
        own = {name: {below for below in running[name] if top(below) == package} for name in names}
        table.append(
            (
                package,
                str(len(names)),
                str(sum(lines_of[name] for name in names)),
                _spread([lines_of[name] for name in names]),
                str(len(sizes)),
                _spread(sizes),
                str(sum(map(len, own.values()))),
                str(floors(own)),
            )
        )
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join([*rows, *_longest("modules", lines_of), *_longest("functions", lengths)])


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def _spread(sizes: list[int]) -> str:
    deciles = quantiles(sizes, n=10) if len(sizes) > 1 else [float(sizes[0])] * 9
    return f"{deciles[4]:.0f}, {deciles[8]:.0f}, {max(sizes)}"


def _longest(what: str, sizes: dict[str, int]) -> list[str]:
    found = sorted(sizes.items(), key=lambda item: -item[1])[:N_LONGEST]
    return ["", f"longest {what}:", *(f"{size:6} {name}" for name, size in found)]


if __name__ == "__main__":
    print(report())
