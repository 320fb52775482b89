"""What is published is said again, byte for byte, and a library that says or takes something else is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federation.datasets import bundled
from federation.modes import MODES
from federation.privacy import PrivacyPlan
from secagg.dp.discrete_gaussian import DiscreteGaussian
from simulations.audit.noisy_totals import _Setting
from simulations.audit.population import Population
from simulations.audit.published import published_are_here, wrong_draws, wrong_vectors


def test_the_library_says_what_is_published() -> None:
    assert published_are_here()
    assert wrong_vectors() == ()
    assert wrong_draws() == ()


@pytest.mark.parametrize(
    ("where", "other", "named"),
    [
        ("masked.client.pairwise_seed", lambda own, peer, digest: own.agree(peer, "mask")[:2] * 16, "series_of_two"),
        ("masked.client.keys_are_signed", lambda *said: True, "bad/forged_key_signature"),
        ("masked.client.verifies", lambda *said: True, "bad/forged_survivor_proof"),
        ("masked.server.verifies", lambda *said: True, "bad/forged_survivor_signature"),
        ("committee.client.seed_commitment", lambda digest, client, place, seed: seed, "committee_dropout"),
        ("committee.helper.mask_seed", lambda digest, client, place, seed: seed, "committee_signed"),
        ("committee.client.number", lambda party: bytes(4), "committee_signed"),
    ],
)
def test_what_says_or_takes_something_else_is_named(
    where: str, other: Any, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"secagg.{where}", other)
    assert named in wrong_vectors.__wrapped__()


def test_another_sampler_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = DiscreteGaussian._proposals
    monkeypatch.setattr(
        DiscreteGaussian, "_proposals", lambda own, n, entropy: honest(own, n, lambda size: entropy(size // 2) * 2)
    )
    assert len(wrong_draws()) == 3


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
