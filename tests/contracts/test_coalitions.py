"""Who opens a client's message under masks, at and below the threshold; and what a key holder's noise tells.

Every other mode's coalitions: ``test_sum_protocol.py::test_a_guarantee_says_who_opens_an_upload``.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.benches import small_bench
from support.collusion import opens
from support.confirmation import confirmed

from analytic_secagg.modes import MODES
from secagg import Assumptions, InOneProcess, MaskedSum, PartyId, new_session_id
from secagg.config import SERVER
from simulations.audit.view import RecordedSum, Taped, record_sum
from simulations.audit.workbench import Bench


@pytest.fixture
def bench() -> Bench:
    return small_bench(1)


def masked_sum(protocol: MaskedSum, bench: Bench, rows: int) -> RecordedSum:
    """A sum of this protocol, with tapes."""
    cohort = bench.cohort(len(protocol.clients), rows)
    return record_sum(Taped.of(InOneProcess(protocol=protocol)), bench.vectors(cohort), entropy=bench.entropy)


def by_server_and(recorded: RecordedSum, *members: PartyId) -> Callable[[PartyId], bool]:
    """Whether the server with these clients opens a message."""
    return lambda target: opens(recorded, frozenset({SERVER, *members}), target)


@pytest.mark.parametrize("threshold", [4, 5, 6, 7])
def test_a_masked_sum_opens_at_its_threshold_and_one_share_below_it_does_not(bench: Bench, threshold: int) -> None:
    clients = tuple(range(1, 8))
    protocol = MaskedSum(layout=bench.layout, clients=clients, session_id=new_session_id(), threshold=threshold)
    recorded = masked_sum(protocol, bench, 8)
    for members in range(7):
        assert by_server_and(recorded, *clients[:members])(7) == (members >= threshold or members == 6), members


def test_on_a_sparse_graph_only_neighbours_count(bench: Bench) -> None:
    clients = tuple(range(1, 25))
    protocol = MaskedSum(
        layout=bench.layout,
        clients=clients,
        session_id=new_session_id(),
        threshold=6,
        degree=8,
        graph_seed=bytes(16),
        assumptions=Assumptions(corruption=0.05, dropout=0.0, security_bits=5, correctness_bits=5),
    )
    recorded = masked_sum(protocol, bench, 4)
    near = protocol.neighbours(1)
    far = [party for party in clients[1:] if party not in near]
    for members, opened in ((near[:6], True), ((*near[:5], *far), False), (tuple(far), False)):
        assert by_server_and(recorded, *members)(1) == opened


# A key holder's guess of all that a client sent


@pytest.mark.slow
@pytest.mark.parametrize(("name", "trials"), [("bfv", 4), ("ckks", 8)])
def test_the_noise_of_ckks_confirms_a_guess_and_that_of_bfv_does_not(bench: Bench, name: str, trials: int) -> None:
    """Eight guesses of ten or more are confirmed over CKKS, and five of sixteen are no accident."""
    if not MODES[name].installed:
        pytest.skip("TenSEAL is not installed")
    assert confirmed(bench, MODES[name], trials).leaked == (name == "ckks")
