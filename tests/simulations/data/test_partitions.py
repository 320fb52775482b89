"""Dealing rows: every row goes to exactly one client, whatever the labels, the cohort and the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analytic_secagg.errors import UsageError
from simulations.data.partitions import parse_partition

labels = arrays(np.uint8, st.integers(1, 200), elements=st.integers(0, 6))
alphas = st.floats(1e-6, 1e6)


@st.composite
def deals(draw: st.DrawFn) -> tuple[str, np.ndarray, int]:
    own = draw(labels)
    kind = draw(st.sampled_from(["iid", "dirichlet", "shards"]))
    if kind == "shards":
        shards = draw(st.integers(1, len(own)))
        return f"shards:{shards}", own, draw(st.integers(1, len(own) // shards))
    return (kind if kind == "iid" else f"dirichlet:{draw(alphas)}"), own, draw(st.integers(1, 40))


@given(deal=deals(), seed=st.integers(0, 2**32))
def test_every_row_is_dealt_exactly_once(deal: tuple[str, np.ndarray, int], seed: int) -> None:
    way, own, n_clients = deal
    parts = parse_partition(way).deal(own, n_clients, np.random.default_rng(seed))
    assert len(parts) == n_clients
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(own)))
    assert all((np.diff(part) > 0).all() for part in parts)


@given(own=labels, n_clients=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_iid_parts_differ_by_at_most_one_row(own: np.ndarray, n_clients: int, seed: int) -> None:
    sizes = [len(part) for part in parse_partition("iid").deal(own, n_clients, np.random.default_rng(seed))]
    assert max(sizes) - min(sizes) <= 1


def test_dirichlet_runs_from_one_holder_a_class_to_equal_parts() -> None:
    own = np.repeat(np.arange(4), 1000)

    def largest_shares(alpha: float) -> np.ndarray:
        parts = parse_partition(f"dirichlet:{alpha}").deal(own, 10, np.random.default_rng(0))
        return np.max([np.bincount(own[part], minlength=4) for part in parts], axis=0) / 1000

    assert (largest_shares(1e-6) == 1).all()
    assert (largest_shares(1e6) < 0.11).all()
    assert len(parse_partition("dirichlet:1e-6").deal(own, 10, np.random.default_rng(0))) == 10  # empty clients stay


def test_shards_give_each_client_few_classes() -> None:
    own = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 100))
    parts = parse_partition("shards:2").deal(own, 25, np.random.default_rng(0))
    assert {len(part) for part in parts} == {40}
    assert max(len(np.unique(own[part])) for part in parts) <= 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("even", "iid, dirichlet:ALPHA or shards:S"),
        ("iid:3", "iid, dirichlet:ALPHA or shards:S"),
        ("", "iid, dirichlet:ALPHA or shards:S"),
        ("dirichlet", "needs a number after the colon, as in dirichlet:0.1"),
        ("dirichlet:much", "needs a number after the colon"),
        ("dirichlet:0", "ALPHA from 1e-06 to 1e\\+06, not 0"),
        ("dirichlet:-1", "not -1"),
        ("dirichlet:nan", "not nan"),
        ("dirichlet:inf", "not inf"),
        ("shards:0", "S >= 1 of shards for each client, not 0"),
        ("shards:2.5", "needs a whole number after the colon, as in shards:2"),
    ],
)
def test_other_words_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_partition(text)


def test_more_shards_than_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="needs at least 12 training rows, there are 11; use fewer clients or shards"):
        parse_partition("shards:3").deal(np.zeros(11, int), 4, np.random.default_rng(0))
    with pytest.raises(UsageError, match="at least one client"):
        parse_partition("iid").deal(np.zeros(11, int), 0, np.random.default_rng(0))
