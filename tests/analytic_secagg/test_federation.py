"""A learner over a mode: the pooled model's bytes, and honest accounts of who sent what."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.extras import INSTALLED, modes

from analytic.afl import AFL
from analytic.deepafl import DeepAFL
from analytic.errors import RowsOutsideFormatError
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Step
from analytic_secagg.in_process import run_federation
from analytic_secagg.modes import MODES, Mode
from secagg import Layout
from simulations.compare.dropouts import Dropouts

FORMAT = RowFormat.parse("Q3.5")


EITHER = pytest.mark.parametrize("mode", modes(["plain", "masked"]))


WITHOUT_ENCRYPTION = [mode for mode in MODES.values() if not mode.requires]
"""Under encryption the sums of a series are as alone (`test_modes.py`), and DeepAFL's take long."""


def learner(max_rows: int = 60, max_clients: int = 9) -> AFL:
    return AFL(
        n_features=3, n_targets=2, feature_format=FORMAT, max_rows=max_rows, max_clients=max_clients, ri_gamma=2.0
    )


def dealt(n_clients: int, seed: int, n_rows: int = 60) -> dict[int, ClientRows]:
    rng = np.random.default_rng(seed)
    features, labels = rng.uniform(-7, 7, size=(n_rows, 3)), rng.integers(0, 2, n_rows)
    holders = rng.integers(0, n_clients, n_rows)
    return {party + 1: ClientRows(features[holders == party], labels[holders == party]) for party in range(n_clients)}


@given(n_clients=st.integers(2, 9), seed=st.integers(0, 2**32), mode=st.sampled_from(INSTALLED))
@settings(max_examples=20)
def test_a_federation_has_its_survivors_pooled_bytes(n_clients: int, seed: int, mode: Mode) -> None:
    clients = dealt(n_clients, seed)
    room = n_clients - mode.guarantee(tuple(clients)).min_survivors
    rng = np.random.default_rng(seed)
    gone = {
        int(party): int(rng.integers(0, mode.guarantee(tuple(clients)).messages_before_vector + 1))
        for party in rng.permutation(n_clients)[: min(room, n_clients - 2)] + 1
    }
    ticks = []
    federation = run_federation(learner(), clients, mode, dropouts=lambda number: gone, tick=lambda: ticks.append(1))
    survivors = tuple(party for party in clients if party not in gone)
    pooled = fit_pooled(learner(), ClientRows.pool([clients[party] for party in survivors]))
    assert federation.survivors == (survivors,)
    assert learner().weights_bytes(federation.model) == learner().weights_bytes(pooled)
    assert len(ticks) == len(survivors)


def test_costs_are_those_of_the_messages() -> None:
    clients = dealt(4, 0)
    plain, masked = (run_federation(learner(), clients, MODES[name]) for name in ("plain", "masked"))
    vector_bytes = Layout.of(learner().spec.segments).wire_bytes
    for federation, n_messages in ((plain, 1), (masked, 4)):
        assert set(federation.costs) == set(clients)
        assert {cost.messages_up for cost in federation.costs.values()} == {n_messages}
        assert {cost.vector_messages for cost in federation.costs.values()} == {1}
        assert {tuple(cost.messages_by_sum) for cost in federation.costs.values()} == {(n_messages,)}
        assert all(cost.seconds >= cost.statistics_seconds > 0 for cost in federation.costs.values())
        assert federation.server_seconds > 0
    header = plain.costs[1].bytes_up - vector_bytes
    assert 0 < header < 200
    assert plain.costs[1].bytes_down == 0
    assert masked.costs[1].bytes_up > plain.costs[1].bytes_up
    assert masked.costs[1].bytes_down > 0


@given(n_clients=st.integers(3, 9), seed=st.integers(0, 2**32), mode=st.sampled_from(WITHOUT_ENCRYPTION))
@settings(max_examples=10)
def test_a_series_of_sums_has_its_survivors_pooled_bytes(n_clients: int, seed: int, mode: Mode) -> None:
    """Lost clients vanish at any stage of the first sum, and one that stays vanishes after its last vector."""
    clients = dealt(n_clients, seed)
    deep = DeepAFL(n_features=3, n_targets=2, feature_bound=8.0, max_rows=60, n_layers=2, d_phi=6, d_f=5, gamma=0.1)
    dropouts = Dropouts(rate=0.3, seed=seed)
    assume(n_clients - dropouts.n_lost(n_clients) >= mode.guarantee(tuple(clients)).min_survivors)
    federation = run_federation(
        deep,
        clients,
        mode,
        in_series=True,
        dropouts=lambda number: dropouts.draw(mode, tuple(clients), number, in_series=True, last=number == 4),
    )
    survivors = tuple(party for party in clients if party not in dropouts.lost(tuple(clients)))
    pooled = fit_pooled(deep, ClientRows.pool([clients[party] for party in survivors]))
    assert federation.survivors == (survivors,) * 5
    assert deep.weights_bytes(federation.model) == deep.weights_bytes(pooled)
    assert {federation.costs[party].vector_messages for party in survivors} == {5}
    assert len(federation.sums) == 5
    assert federation.largest_layout.wire_bytes == max(one.layout.wire_bytes for one in federation.sums)


@EITHER
def test_a_clients_wrong_rows_stop_the_run_by_their_own_error(mode: Mode) -> None:
    clients = dealt(4, 0)
    clients[2] = ClientRows(np.full((1, 3), np.nan), np.zeros(1, int))
    with pytest.raises(RowsOutsideFormatError, match="1 of 1 rows do not fit"):
        run_federation(learner(), clients, mode)


@EITHER
def test_a_refused_message_is_never_passed_over(mode: Mode) -> None:
    class TooNarrow(AFL):
        """Promises bounds for one client that its own statistics do not fit."""

        @property
        def spec(self):  # type: ignore[no-untyped-def]
            return Narrow(super().spec)

    class Narrow:
        def __init__(self, spec) -> None:  # type: ignore[no-untyped-def]
            self._spec = spec

        def client_bounds(self, max_rows: int) -> tuple[int, ...]:
            return (1, 1, 1, max_rows)

        def __getattr__(self, name: str) -> object:
            return getattr(self._spec, name)

    narrow = TooNarrow(n_features=3, n_targets=2, feature_format=FORMAT, max_rows=60)
    with pytest.raises((FederationError, ValueError), match="beyond the bound for one client 1;"):
        run_federation(narrow, dealt(4, 0), mode, max_client_rows=60)


def test_a_vector_is_made_in_five_times_its_bytes() -> None:
    """What a site's ``max_entries`` allows a server to ask for in memory; the larger the vector, the nearer to four."""
    learner = AFL(n_features=3000, n_targets=2, feature_format=RowFormat.parse("Q3.8"), max_rows=1000)
    step = Step.of(learner, learner.init())
    assert step is not None
    rows = ClientRows(np.random.default_rng(0).uniform(-1, 1, (50, 3000)), np.zeros(50, dtype=int))
    tracemalloc.start()
    try:
        vector = step.vector(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 3.5 * vector.nbytes < peak < 5.1 * vector.nbytes
