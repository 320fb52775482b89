"""A comparison as JSON, in the form that ``compare.schema.json`` describes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata, resources
from typing import Any

from simulations.compare import private_report
from simulations.compare.comparison import Comparison

SCHEMA_VERSION = 3
PACKAGES = ("analytic-secagg", "numpy", "scipy", "cryptography", "scikit-learn")


def to_json(comparison: Comparison) -> str:
    """The report as text, with a line break at its end."""
    return json.dumps(to_document(comparison), indent=2, allow_nan=False) + "\n"


def to_document(comparison: Comparison) -> dict[str, Any]:
    """The report as plain dicts, lists, strings and numbers."""
    settings, data = comparison.settings, comparison.dataset
    document = {
        "schema": "analytic-secagg/compare",
        "schema_version": SCHEMA_VERSION,
        "versions": versions(),
        "dataset": {
            "name": data.name,
            "sha256": data.sha256,
            "train_rows": len(data.x_train),
            "test_rows": len(data.x_test),
            "features": data.n_features,
            "classes": data.n_classes,
        },
        "learner_options": {learner.name: learner.options for learner in settings.learners},
        "format": str(comparison.feature_format),
        "format_chosen_from_rows": settings.feature_format is None,
        "ridge": settings.ridge,
        "ri_gamma": settings.ri_gamma,
        "dropout_rate": settings.dropouts.rate,
        "dropout_anew": settings.dropouts.anew,
        "seed": settings.seed,
        "all_bitwise_equal_to_pooled": comparison.all_bitwise_equal,
        "runs": [asdict(run) for run in comparison.runs],
        "baselines": [asdict(baseline) for baseline in comparison.baselines],
        "private": [private_report.document(one) for one in comparison.private],
    }
    plain: dict[str, Any] = _plain(document)
    return plain


def load_schema() -> dict[str, Any]:
    """The JSON Schema of ``to_document``, as shipped with this package."""
    text = resources.files("simulations.report").joinpath("compare.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def versions() -> dict[str, str]:
    """What ran: Python and the packages that decide the numbers, by name."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a source tree that was never installed
            found[package] = "not installed"
    return found


def _plain(value: Any) -> Any:
    """The value with lists in place of tuples and dicts in place of other mappings."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
