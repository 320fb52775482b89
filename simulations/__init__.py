"""Experiments in one process: comparisons, the audit, measurements. Nothing that a deployment runs."""

import importlib


def __getattr__(name: str) -> str:
    """Look the version up when it is asked for."""
    if name == "__version__":
        version: str = importlib.import_module("importlib.metadata").version("analytic-secagg")
        return version
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
