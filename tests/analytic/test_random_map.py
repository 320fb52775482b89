"""Random features: inside their proven bounds, on their lattice, and what they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.errors import SpecificationError
from analytic.features import PROJECTIONS
from analytic.integer_maps import ACTIVATIONS
from analytic.random_map import RandomMap

D, BOUND = 6, 3.0
MAP = RandomMap(n_features=D, n_columns=11, feature_bound=BOUND, fraction_bits=11, seed=4)


@given(
    seed=st.integers(0, 2**32),
    activation=st.sampled_from(sorted(ACTIVATIONS)),
    projection=st.sampled_from(PROJECTIONS),
    limit=st.sampled_from([None, 0.5, 2.0]),
)
def test_no_row_leaves_the_proven_format(seed: int, activation: str, projection: Any, limit: float | None) -> None:
    """Corners of the cube are the hardest rows: of each column's largest pre-activation, and of the smallest."""
    lifted = replace(MAP, seed=seed, activation=activation, projection=projection, limit=limit)
    inside = np.random.default_rng(seed).uniform(-BOUND, BOUND, (5, D))
    corners = BOUND * np.sign(lifted.matrix.values.T)
    rows = np.concatenate([corners, -corners, inside])
    units = lifted.row_format.quantise(lifted.apply(rows).values)  # refuses what does not fit
    assert (np.ldexp(units, -11) == lifted.apply(rows).values).all()  # and truncates nothing
    linear = replace(lifted, activation="none", limit=None)
    reached = np.abs(linear.apply(rows).values).max(axis=0)
    assert (reached <= linear.reach + 2.0**-12).all()
    assert (reached >= linear.reach - 2.0**-10).all()


def test_sines_with_a_random_phase_are_those_of_a_gaussian_kernel() -> None:
    """2 / M phi(x) . phi(y) has mean exp(-v |x - y|^2 / (2 d)) and a standard error below 1.5 / sqrt(M)."""
    n_columns, variance = 4096, 0.5
    wave = replace(MAP, n_columns=n_columns, activation="sine", projection="fourier", variance=variance)
    rows = np.random.default_rng(2).uniform(-BOUND, BOUND, (20, D))
    features = wave.apply(rows).values
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    error = 2 / n_columns * features @ features.T - np.exp(-variance * distances / (2 * D))
    assert np.abs(error).max() < 5 * 1.5 / np.sqrt(n_columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feature_bound": np.inf}, "feature_bound must be"),
        ({"feature_bound": 2.0**31, "projection": "affine"}, "leave no unit for biases"),
        ({"limit": 0.3}, r"positive multiple of their unit, 2\^-11, not 0\.3"),
        ({"version": "analytic/projection/v1"}, "this program draws analytic/projection/v2"),
        ({"activation": "swish"}, "an activation is one of"),
        ({"projection": "haar"}, "a projection is one of"),
        ({"variance": 0.0}, r"above 0 and below 24, not 0\.0"),
        ({"variance": 24.0}, r"above 0 and below 24, not 24\.0"),
        ({"variance": np.nan}, "above 0 and below 24, not nan"),
    ],
)
def test_what_no_features_can_be_drawn_from_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        replace(MAP, **change)


@pytest.mark.parametrize(("n_features", "bound"), [(512, 0.05), (64, 0.1), (4, 0.3)])
def test_small_bounds_leave_all_bits_to_fractions(n_features: int, bound: float) -> None:
    """Embeddings of unit norm have such bounds: their random features have no bits before the point."""
    made = RandomMap(n_features=n_features, n_columns=8, feature_bound=bound).with_bits(16)
    assert made.fraction_bits + made.row_format.integer_bits == 16
    assert float(made.reach.max()) <= 2.0**made.row_format.integer_bits
