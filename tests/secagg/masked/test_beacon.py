"""Who may choose a graph surrounds a client: grinding session ids, tries, cohorts and degrees, against a beacon."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secagg import (
    Assumptions,
    ClientPolicy,
    InMemoryRun,
    Layout,
    MaskedSum,
    PartyId,
    PolicyError,
    new_session_id,
    run_in_memory,
    seed_of_beacon,
)
from secagg.beacon import grinding_bits
from secagg.entropy import InsecureSeededEntropy
from secagg.errors import ConfigurationError
from secagg.masked.graph import harary_neighbours
from secagg.ring import RingVector
from secagg.sums import CoalitionView

LAYOUT = Layout.of([("vector", 3, 10**6)])
CLIENTS = tuple(range(1, 21))
COLLUDERS = frozenset({1, 2, 3, 4})
BEACON = hashlib.sha256(b"what the operator drew").digest()
SLACK = Assumptions(corruption=0.2, dropout=0.1, security_bits=0.01)
"""A fifth of the clients only look on, and the graph keeps their promise by a hundredth of a bit."""


def sparse(seed: bytes, assumptions: Assumptions = SLACK, session: bytes = bytes(16), **public: Any) -> MaskedSum:
    """A sum on the sparsest graph for these assumptions."""
    planned = MaskedSum.planned(
        layout=LAYOUT, clients=CLIENTS, session_id=session, assumptions=assumptions, graph_seed=seed, **public
    )
    assert planned.degree is not None
    return planned


def surrounded(protocol: MaskedSum, colluders: frozenset[PartyId] = COLLUDERS) -> list[PartyId]:
    """The honest clients of whose secrets the colluders hold a threshold of shares."""
    honest = (party for party in protocol.clients if party not in colluders)
    return [p for p in honest if len(colluders.intersection(protocol.neighbours(p))) >= protocol.shares_needed]


def ground(n_seeds: int) -> MaskedSum:
    """What a server proposes that hashes session ids to seeds until its colluders stand around somebody."""
    tries = (bytes([number]) * 16 for number in range(n_seeds))
    sums = (sparse(hashlib.sha256(session).digest(), session=session) for session in tries)
    return next(protocol for protocol in sums if surrounded(protocol))


def opened(protocol: MaskedSum, target: PartyId) -> tuple[InMemoryRun, RingVector | None]:
    """A whole honest run, and what the server and its colluders make of the target's upload afterwards."""
    said, tapes = list[bytes](), {party: bytearray() for party in COLLUDERS}

    class Taped:
        clients, helpers, helper, server = protocol.clients, protocol.helpers, protocol.helper, protocol.server

        def client(self, party: PartyId, client_input: Any, **options: Any) -> Any:
            def draw(n_bytes: int) -> bytes:
                drawn = fresh(n_bytes)
                if party in tapes:
                    tapes[party] += drawn
                return drawn

            fresh = InsecureSeededEntropy(party)
            return protocol.client(party, client_input, entropy=draw)

    vectors = {party: np.array([party, -party, 1000 + party]) for party in protocol.clients}
    run = run_in_memory(Taped(), vectors, record=lambda envelope: said.append(envelope.message))
    pooled = CoalitionView(messages=tuple(said), tapes={p: bytes(tape) for p, tape in tapes.items()}, secrets={})
    return run, protocol.reconstruct_upload(pooled, target)


def test_four_ground_seeds_open_an_honest_client_and_no_policy_accepts_them() -> None:
    """The attack wins; then each of the policy's answers to it alone is enough."""
    protocol = ground(4)
    target = surrounded(protocol)[0]
    run, upload = opened(protocol, target)
    assert run.result.survivors == CLIENTS
    vector = RingVector.encode(LAYOUT, np.array([target, -target, 1000 + target])).to_bytes()
    assert upload is not None
    assert upload.to_bytes() == vector
    elsewhere = sparse(seed_of_beacon(BEACON, CLIENTS))
    assert not surrounded(elsewhere)
    _, closed = opened(elsewhere, target)
    assert closed is not None
    assert closed.to_bytes() != vector
    with pytest.raises(PolicyError, match="knows no beacon"):
        ClientPolicy(min_security_bits=0.01).check(protocol)
    with pytest.raises(PolicyError, match="one of the first 1 of this site's beacon, and is another"):
        ClientPolicy(min_security_bits=0.01, beacon=BEACON).check(protocol)
    with pytest.raises(PolicyError, match=r"asks for 43.17 bits of privacy, the sum's graph is drawn for 0.01"):
        ClientPolicy(beacon=BEACON).check(elsewhere)


def test_no_session_id_layout_context_or_aborted_try_changes_the_graph() -> None:
    """A thousand tries and every promise that a server may make: one permutation."""
    site = ClientPolicy(beacon=BEACON, min_security_bits=1.0)
    planned = replace(SLACK, corruption=0.2, security_bits=1.0).against_grinding(len(CLIENTS))
    protocol = sparse(seed_of_beacon(BEACON, CLIENTS), planned)
    around = {party: protocol.neighbours(party) for party in CLIENTS}
    for number in range(1000):
        other = Layout.of([("vector", 3, 10**6 + number)])
        retried = replace(protocol, session_id=new_session_id(), context=bytes([number % 256]), layout=other)
        site.check(retried)
        assert {party: retried.neighbours(party) for party in CLIENTS} == around
    for session in range(256):
        with pytest.raises(PolicyError, match="and is another"):
            site.check(replace(protocol, graph_seed=hashlib.sha256(bytes([session])).digest()))


def test_each_further_graph_costs_its_stated_bits() -> None:
    """A site that accepts g graphs asks for log2(g) bits more, to the last of them."""
    for graphs in (1, 2, 4, 8):
        site = ClientPolicy(beacon=BEACON, min_security_bits=1.0, graphs=graphs)
        planned = replace(SLACK, security_bits=1.0).against_grinding(len(CLIENTS), graphs=graphs)
        assert planned.security_bits == 1.0 + np.log2(graphs * 9)
        for number in range(graphs):
            site.check(sparse(seed_of_beacon(BEACON, CLIENTS, number=number), planned))
        with pytest.raises(PolicyError, match=f"one of the first {graphs} of this site"):
            site.check(sparse(seed_of_beacon(BEACON, CLIENTS, number=graphs), planned))
        short = replace(planned, security_bits=planned.security_bits - 0.01)
        with pytest.raises(PolicyError, match="bits of privacy"):
            site.check(sparse(seed_of_beacon(BEACON, CLIENTS), short))


def test_the_stated_bits_pay_for_the_best_of_all_degrees_and_graphs() -> None:
    """Measured over beacons: the best of four graphs at the best degree wins more than is stated, unless it is paid."""
    clients, colluders, graphs = tuple(range(1, 31)), frozenset(range(1, 7)), 4
    beacons = [hashlib.sha256(bytes([number])).digest() for number in range(120)]
    stated = Assumptions(corruption=0.2, dropout=0.0, security_bits=3.0)

    def surrounds(seed: bytes, degree: int, threshold: int) -> bool:
        honest = (party for party in clients if party not in colluders)
        near = (colluders.intersection(harary_neighbours(clients, degree, seed, party)) for party in honest)
        return any(len(corrupt) >= threshold for corrupt in near)

    def wins(assumptions: Assumptions) -> float:
        plans = [assumptions.plan_for(len(clients), degree) for degree in range(2, len(clients) - 1, 2)]
        choices = [(found, number) for found in plans if found is not None for number in range(graphs)]
        won = [
            any(
                surrounds(seed_of_beacon(beacon, clients, number=number), found.degree, found.threshold)
                for found, number in choices
            )
            for beacon in beacons
        ]
        return float(np.mean(won))

    assert wins(stated) > 2.0**-3
    assert wins(stated.against_grinding(len(clients), graphs=graphs)) <= 2.0**-3
    assert grinding_bits(len(clients), graphs=graphs) == np.log2(4 * 14)


def test_a_server_chooses_no_cohort_on_a_drawn_graph() -> None:
    """Each part of a roster would be another graph."""
    identities = {party: bytes([party]) * 32 for party in (*CLIENTS, 21)}
    planned = Assumptions(corruption=0.05, dropout=0.0, malicious_server=True, security_bits=1.0).against_grinding(20)
    protocol = sparse(
        seed_of_beacon(BEACON, CLIENTS),
        planned,
        identities=tuple(identities[party] for party in CLIENTS),
        server_identity=b"s" * 32,
    )
    site = ClientPolicy(beacon=BEACON, min_security_bits=1.0, min_corruption=0.05, identities=identities)
    with pytest.raises(PolicyError, match="drawn over all 21 clients of this site's roster, and this one is over 20"):
        site.check(protocol)
    replace(site, identities={party: identities[party] for party in CLIENTS}).check(protocol)


@pytest.mark.parametrize(
    "make",
    [
        lambda: seed_of_beacon(b"short", CLIENTS),
        lambda: seed_of_beacon(BEACON, CLIENTS, number=-1),
        lambda: ClientPolicy(beacon=b"short"),
        lambda: ClientPolicy(beacon=BEACON, graphs=0),
        lambda: grinding_bits(20, graphs=0),
    ],
)
def test_a_beacon_is_32_bytes_and_graphs_are_counted(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()
