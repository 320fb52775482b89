"""Large cohorts on the sparse graph, clients vanishing at random rounds."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from secagg import Assumptions, Layout, MaskedSum, new_session_id, run_in_memory

LAYOUT = Layout.of([("gram", 300, 2**45), ("count", 1, 2**20)])


@pytest.mark.parametrize("n", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_three_tenths_may_vanish_at_any_round(n: int) -> None:
    clients = tuple(range(1, n + 1))
    protocol = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=new_session_id(),
        assumptions=Assumptions(corruption=0.1, dropout=0.3),
        graph_seed=b"public and fixed beforehand",
    )
    assert protocol.degree is not None
    rng = np.random.default_rng(n)
    vanishing = rng.choice(clients, int(0.3 * n), replace=False)
    dropouts = {int(party): int(rng.integers(0, 4)) for party in vanishing}
    contributions = {party: partial(np.full, LAYOUT.size, party, dtype=np.int64) for party in clients}
    run = run_in_memory(protocol, contributions, dropouts=dropouts)
    expected = {party for party in clients if dropouts.get(party, 9) >= 3}
    assert set(run.result.survivors) == expected
    assert run.result.total.tolist() == [sum(expected)] * LAYOUT.size
    assert not run.refused
