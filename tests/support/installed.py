"""Distributions of other people that are really installed, in a folder of their own: metadata and modules."""

from __future__ import annotations

import importlib
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

STRANGER = Path(__file__).parent / "stranger"
"""A package with one learner, mode, attack and engine, one file each."""


def install(
    folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], modules: Iterable[tuple[str, str]]
) -> None:
    """Write a distribution's modules, and what an installer writes of it (PyPA's core metadata and entry points)."""
    for module, source in modules:
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n", encoding="utf-8")
    lines = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items()) for group, own in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def install_stranger(folder: Path) -> None:
    """Install the package in ``STRANGER`` as its own ``pyproject.toml`` says."""
    project = tomllib.loads((STRANGER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = [(path.stem, path.read_text(encoding="utf-8")) for path in sorted(STRANGER.glob("*.py"))]
    install(folder, project["name"], project["entry-points"], modules)


@contextmanager
def importable(folder: Path) -> Iterator[Path]:
    """Have this process find what is installed in a folder; afterwards nothing of it is left."""
    folder.mkdir()
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[module]
        importlib.invalidate_caches()
        shutil.rmtree(folder)
