"""A private mean costs no more than was asked for, has the noise that it states, and no client moves it further."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.examples import examples

from secagg import InvalidVectorError, MaskedSum, new_session_id, run_in_memory
from secagg.dp import MeanPrivacy, NoisySum, PrivacyError, PrivateMeanSpec


def spec_of(size: int, n_clients: int = 100, **options: Any) -> PrivateMeanSpec:
    privacy = MeanPrivacy(**{"norm": 1.0, "epsilon": 8.0, "delta": 1e-5, "rounds": 50, **options})
    return PrivateMeanSpec(shapes=(("w", (size,)),), n_clients=n_clients, privacy=privacy)


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (5_000, {}),
        (5_000, {"epsilon": 1.0}),
        (5_000, {"adjacency": "replace-one", "colluders": 10}),
        (11_000_000, {}),
    ],
)
def test_all_rounds_together_cost_no_more_than_was_asked_for(size: int, options: dict[str, Any]) -> None:
    spec = spec_of(size, **options)
    assert 0.9 * spec.privacy.epsilon < spec.guarantee.epsilon <= spec.privacy.epsilon
    assert (spec.guarantee.releases, spec.guarantee.delta) == (50, 1e-5)
    assert spec.masked_layout.wire_bytes == 4 * size


@examples(4)
@given(update=arrays(np.float64, 9, elements=st.floats(-1e300, 1e300)), scale=st.floats(1e-300, 1))
def test_no_vector_is_longer_than_the_norm_that_the_noise_hides(update: Any, scale: float) -> None:
    spec = spec_of(9, n_clients=5)
    vector = spec.vector({"w": update * scale})
    most = spec.layout.segments[0].client_bound
    assert most is not None
    assert sum(int(x) ** 2 for x in vector) <= most**2
    spec.layout.check(vector, 5)


def test_the_mean_is_that_of_the_clipped_updates_and_its_noise_is_what_was_stated() -> None:
    """Eight clients and 20 000 numbers: the sample variance is that of eight shares to five standard errors."""
    n, size, rng = 8, 20_000, np.random.default_rng(3)
    spec = spec_of(size, n_clients=n)
    updates = {p: rng.normal(size=size) for p in range(1, n + 1)}
    masked = MaskedSum(layout=spec.masked_layout, clients=tuple(updates), session_id=new_session_id())
    noisy = NoisySum(protocol=masked, layout=spec.layout, noise=spec.noise)
    vectors = {p: spec.vector({"w": update}) for p, update in updates.items()}
    mean = spec.mean(run_in_memory(noisy, vectors).result)
    clipped = sum(update / np.linalg.norm(update) for update in updates.values()) / n
    noise = mean.arrays["w"] - clipped
    shares = spec.noise.honest
    stated = spec.noise_norm() ** 2 / size  # of the shares that count
    measured = float(np.mean(noise**2))
    assert stated < measured
    assert abs(measured / (stated * n / shares) - 1) < 5 * math.sqrt(2 / size)
    assert np.abs(noise).max() <= mean.error_bound["w"]
    assert (mean.weight, mean.clipped, mean.metrics) == (n, {}, {})


def test_what_no_private_mean_may_hold_is_refused() -> None:
    spec = spec_of(2, n_clients=5)
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidVectorError, match="'w': numbers are NaN or infinite"):
            spec.vector({"w": np.array([bad, 1.0])})
    with pytest.raises(InvalidVectorError, match="missing"):
        spec.vector({})
    for options in ({"norm": 0.0}, {"norm": math.inf}, {"epsilon": 0.0}, {"rounds": 0}, {"adjacency": "none"}):
        with pytest.raises(PrivacyError):
            spec_of(2, **options)
