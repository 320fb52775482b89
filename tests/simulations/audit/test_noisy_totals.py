"""Rehearsed noise: a plan is checked against the noise that is drawn, and rows reach beyond every bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analytic_secagg.datasets import bundled
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import PrivacyPlan
from simulations.audit.noisy_totals import _Setting
from simulations.audit.population import Population


def test_noise_for_another_promise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that prices whoever is replaced like whoever comes."""
    rng = np.random.default_rng(0)
    setting = _Setting.of(Population.of(bundled("digits"), rng), 8.0, MODES["masked"], rng)
    assert 7 < setting.promise_epsilon() <= 8
    honest = PrivacyPlan._priced

    def as_if_added(plan: PrivacyPlan, bounded: Any, total: Any) -> Any:
        class Added:
            with_noise = bounded.with_noise

            def bounded_sums(self, unit: Any, adjacency: Any) -> Any:
                return bounded.bounded_sums(unit, "add-remove")

        return honest(plan, Added(), total)

    monkeypatch.setattr(PrivacyPlan, "_priced", as_if_added)
    assert setting.promise_epsilon() > 8


def test_rows_in_half_precision_are_stretched_beyond_every_bound() -> None:
    rng, data = np.random.default_rng(0), bundled("digits")
    half = replace(data, x_train=data.x_train.astype(np.float16))
    setting = _Setting.of(Population.of(half, rng), 8.0, MODES["masked"], rng)
    stretched = np.concatenate([rows.features for rows in setting._extreme(1)])
    assert np.isfinite(stretched).all()
    assert stretched.max() > 1e6
