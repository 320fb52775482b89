"""The version of the code that runs: the package's version and a digest of its modules."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from secagg.encoding import length_prefixed

PACKAGES = ("secagg", "analytic", "analytic_secagg", "simulations")


class CodeVersion(NamedTuple):
    """The code of one installation.

    Args:
        version: of the package, as installed.
        sha256: a digest of the Python files of its four packages, each with its path, in the order of the paths. Other
            files and other libraries are not in it.
    """

    version: str
    sha256: str

    def __str__(self) -> str:
        return f"version {self.version}, code {self.sha256[:16]}"


@cache
def code_version() -> CodeVersion:
    """Return which code runs here."""
    root = Path(__file__).resolve().parents[1]
    modules = {
        path.relative_to(root).as_posix(): path for package in PACKAGES for path in (root / package).rglob("*.py")
    }
    parts = (part for name in sorted(modules) for part in (name.encode(), modules[name].read_bytes()))
    try:
        version = metadata.version("analytic-secagg")
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        version = "not installed"
    return CodeVersion(version, hashlib.sha256(length_prefixed(*parts)).hexdigest())
