"""Rows, totals and models print shapes: what is printed goes into logs and notebooks."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
from typing import Any

import numpy as np
import pytest

import analytic
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic.shape_repr import shape_repr
from analytic_secagg.datasets import bundled
from analytic_secagg.learners import LEARNERS, LearnerSettings

ARRAY = re.compile(r"^(NDArray|FloatMatrix|FloatVector|IntMatrix|IntVector|FixedRows)\b")
PARAMETERS = {"BoundedSum", "Inverse"}
"""Public numbers or those of a solve under way, which nobody prints."""


@pytest.mark.parametrize("module", [one.name for one in pkgutil.walk_packages(analytic.__path__, "analytic.")])
def test_every_dataclass_with_arrays_prints_shapes(module: str) -> None:
    for name, kind in vars(importlib.import_module(module)).items():
        if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module:
            arrays = [one.name for one in dataclasses.fields(kind) if one.repr and ARRAY.match(str(one.type))]
            assert not arrays or name in PARAMETERS or kind.__repr__ is shape_repr, f"{name}: {arrays}"


@pytest.mark.parametrize("name", LEARNERS)
def test_no_number_of_a_row_total_or_model_is_printed(name: str) -> None:
    rng = np.random.default_rng(0)
    rows = ClientRows(np.clip(rng.normal(size=(50, 3)), -8, 8), rng.integers(0, 3, 50))
    options = {"n_layers": 1, "d_phi": 8, "d_f": 8} if name == "deepafl" else {}
    settings = LearnerSettings(
        n_features=3, n_classes=3, max_rows=60, max_clients=1, feature_format=RowFormat.parse("Q4.11"), options=options
    )
    things: tuple[Any, ...] = (rows, fit_pooled(LEARNERS[name].build(settings), rows), bundled("iris"))
    for printed in (*map(repr, things), *(thing._repr_html_() for thing in things)):
        assert "array(" not in printed
        assert "\n" not in printed
