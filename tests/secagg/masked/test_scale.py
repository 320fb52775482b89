"""Large cohorts on the sparse graph: clients vanish at random rounds, and some reveal wrong shares."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from benchmarks import liars
from secagg import MaskedSum, run_in_memory


@pytest.mark.parametrize("malicious_server", [False, True])
@pytest.mark.parametrize("n", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_three_tenths_may_vanish_at_any_round(n: int, malicious_server: bool) -> None:
    clients = tuple(range(1, n + 1))
    parties = liars.planned(clients, malicious_server=malicious_server)
    protocol = parties.protocol
    assert isinstance(protocol, MaskedSum)
    assert protocol.degree is not None
    rng = np.random.default_rng(n)
    vanishing = rng.choice(clients, int(0.3 * n), replace=False)
    dropouts = {int(party): int(rng.integers(0, 4)) for party in vanishing}
    contributions = {party: partial(np.full, liars.LAYOUT.size, party, dtype=np.int64) for party in clients}
    run = run_in_memory(parties, contributions, dropouts=dropouts)
    expected = {party for party in clients if dropouts.get(party, 9) >= 3}
    assert set(run.result.survivors) == expected
    assert run.result.total.tolist() == [sum(expected)] * liars.LAYOUT.size
    assert not run.refused


@pytest.mark.parametrize(
    ("n", "malicious_server"),
    [(120, False), *(pytest.param(1000, lies, marks=pytest.mark.slow) for lies in (False, True))],
)
def test_liars_are_named_at_once_and_cost_less_than_the_unmasking(n: int, malicious_server: bool) -> None:
    """Each of five liars stands in the way of many secrets; it is found with the first of them."""
    clients = tuple(range(1, n + 1))
    parties = liars.planned(clients, malicious_server=malicious_server)
    _, honest = liars.unmasked(parties, frozenset())
    lying = frozenset(clients[: liars.N_LIARS])
    run, seconds = liars.unmasked(parties, lying)
    if liars.N_LIARS < n // 10 < parties.protocol.guarantee.threshold:  # more neighbours than may be corrupt
        assert set(run.result.malicious_parties(corrupt=n // 10)) == lying
    assert seconds <= 2 * honest + 1
