"""What `explain` says of masked sums is what a run does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.parties import SERVER_KEY, identified, signing

from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, run_in_memory
from secagg.config import SERVER
from secagg.masked.explain import later_cost
from secagg.masked.series import MaskedSeries
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.primitives.identity import IdentityKey
from secagg.sums import CLIENT_ROLE

CLIENTS = tuple(range(1, 31))
LAYOUT = Layout.of([("gram", 300, 2**40), ("count", 1, 1000)])
KEYS = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}


def signed_by(n_clients: int) -> dict[str, Any]:
    """Identities of the first clients and of the server."""
    return {
        "identities": tuple(KEYS[party].public for party in CLIENTS[:n_clients]),
        "server_identity": SERVER_KEY.public,
    }


@pytest.mark.parametrize("malicious", [False, True])
def test_the_stated_cost_is_the_measured_one_on_a_sparse_graph(malicious: bool) -> None:
    """On the complete graph the contract of sums says so."""
    roster = signed_by(len(CLIENTS)) if malicious else {}
    config = MaskedSum.planned(
        layout=LAYOUT,
        clients=CLIENTS,
        session_id=bytes(16),
        assumptions=Assumptions(corruption=0.1, dropout=0.1, malicious_server=malicious),
        graph_seed=bytes(16),
        **roster,
    )
    assert config.degree is not None
    protocol = identified(config, KEYS) if malicious else config
    run = run_in_memory(protocol, {party: np.zeros(LAYOUT.size, dtype=np.int64) for party in CLIENTS})
    cost = config.costs[CLIENT_ROLE]
    for traffic in run.traffic.values():
        assert (traffic.messages_up, traffic.bytes_up, traffic.bytes_down) == (
            cost.messages_up,
            cost.bytes_up,
            cost.bytes_down,
        )
    text = config.explain()
    assert f"{cost.bytes_up} bytes" in text
    assert f"{config.shares_needed} of them reconstruct it" in text
    assert ("SEMI-HONEST" in text) is not malicious


@pytest.mark.parametrize("signed", [False, True])
def test_the_stated_cost_of_a_series_is_the_measured_one(signed: bool) -> None:
    roster = signed_by(len(CLIENTS)) if signed else {}
    series = MaskedSeries(clients=CLIENTS, series_id=bytes(16), threshold=20, **roster)
    simulated = SeriesInOneProcess(series, secrets=signing({SERVER: SERVER_KEY, **KEYS}) if signed else None)
    cost = later_cost(series.sum(0, LAYOUT, b""))
    for index in range(3):
        protocol = simulated.next_sum(LAYOUT)
        run = run_in_memory(protocol, {party: np.zeros(LAYOUT.size, dtype=np.int64) for party in CLIENTS})
        measured = {(one.messages_up, one.bytes_up, one.bytes_down) for one in run.traffic.values()}
        stated = (cost.messages_up, cost.bytes_up, cost.bytes_down)
        assert (measured == {stated}) is (index > 0)
        text = series.explain(LAYOUT)
        assert f"in each sum after it a client sends {cost.messages_up} messages, {cost.bytes_up} bytes" in text
        assert f"in the first sum a client sends {5 if signed else 4} messages" in text
        assert "20 of them reconstruct it" in text
        assert ("SEMI-HONEST" in text) is not signed


def test_the_wire_keeps_its_promise() -> None:
    """At most 1.02 times the vector plus 2 KiB a neighbour."""
    layout = Layout.of([("gram", 512 * 513 // 2, 2**50), ("cross", 5120, 2**34), ("count", 1, 60_000)])
    config = MaskedSum(layout=layout, clients=tuple(range(1, 102)), session_id=bytes(16))
    cost = config.costs[CLIENT_ROLE]
    assert cost.bytes_up <= 1.02 * cost.vector_bytes + 2048 * 100


@pytest.mark.parametrize(
    ("n_clients", "signed", "stated"), [(2, False, 0), (3, False, 1), (3, True, 1), (10, False, 5), (10, True, 3)]
)
def test_the_stated_collusion_leaves_two_others_in_every_total(n_clients: int, signed: bool, stated: int) -> None:
    """Not only must no secret open: from a total of as few as are needed, colluders take their own vectors off."""
    clients = CLIENTS[:n_clients]
    roster = signed_by(n_clients) if signed else {}
    config = MaskedSum(layout=LAYOUT, clients=clients, session_id=bytes(16), **roster)
    assert config.survivors_needed - stated >= 2
    assert stated <= config.corrupt
    assert f"private while at most {stated} of the {n_clients} clients collude" in config.explain()
    run = MaskedSeries(clients=clients, series_id=bytes(16), **roster)
    assert f"private while at most {stated} of the" in run.explain(LAYOUT)


def test_one_colluder_more_than_stated_can_be_left_with_one_vector() -> None:
    """Three honest clients of ten vanish; six colluders take their own vectors off the total of seven."""
    config = MaskedSum(layout=Layout.of([("counts", 2, 1000)]), clients=CLIENTS[:10], session_id=bytes(16))
    assert (config.corrupt, config.max_colluding_clients) == (6, 5)
    vectors = {party: np.array([party, -party], dtype=np.int64) for party in config.clients}
    run = run_in_memory(config, vectors, dropouts={8: 0, 9: 0, 10: 0})
    left = run.result.total - sum(vectors[party] for party in range(2, 8))
    assert left.tolist() == vectors[1].tolist()


@pytest.mark.parametrize("n_clients", [2, 3, 4])
def test_two_clients_are_told_that_each_computes_the_other_s_vector(n_clients: int) -> None:
    """The attack, and the sentence in every mode where a total of as few as are needed allows it."""
    cohort: dict[str, Any] = {
        "layout": Layout.of([("counts", 2, 1000)]),
        "clients": CLIENTS[:n_clients],
        "session_id": bytes(16),
    }
    vectors = {party: np.array([party, -7], dtype=np.int64) for party in CLIENTS[:n_clients]}
    masked = MaskedSum(**cohort)
    gone = dict.fromkeys(masked.clients[masked.survivors_needed :], 0)
    total = run_in_memory(masked, vectors, dropouts=gone).result.total
    works = bool(((total - vectors[1]) == vectors[2]).all())
    protocols = (masked, CommitteeSum.generate(**cohort, n_helpers=2).protocol)
    for protocol in protocols:
        assert protocol.survivors_needed == masked.survivors_needed
        assert ("each can compute the other's vector" in protocol.explain()) is works is (n_clients == 2)


def test_what_is_said_of_a_committee_that_bears_a_helper_s_absence() -> None:
    cohort = {"layout": LAYOUT, "clients": CLIENTS[:4], "session_id": bytes(16)}
    text = CommitteeSum.generate(**cohort, n_helpers=4, corrupt_helpers=1).protocol.explain()  # type: ignore[arg-type]
    assert "colludes with 2 of the 4 helpers" in text
    assert "1 of the 4 helpers may drop out or be malicious, and the total is exact" in text
    assert "a wrong total takes 2 colluding malicious helpers" in text
