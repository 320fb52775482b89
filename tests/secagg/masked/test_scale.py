"""Large cohorts on the sparse graph: clients vanish at random rounds, and some reveal wrong shares."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

from secagg import Assumptions, Layout, MaskedSum, PartyId, new_session_id, run_in_memory
from secagg.config import SERVER
from secagg.masked.messages import UnmaskShares
from secagg.sessions import ClientSession, ServerSession
from secagg.wire import HEADER_BYTES, MessageType, Reader, message_type, seal_frame

LAYOUT = Layout.of([("gram", 300, 2**45), ("count", 1, 2**20)])


def planned(clients: tuple[PartyId, ...]) -> MaskedSum:
    """A sum on the sparsest graph for a tenth of corrupt clients and three tenths of dropouts."""
    return MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=new_session_id(),
        assumptions=Assumptions(corruption=0.1, dropout=0.3),
        graph_seed=b"public and fixed beforehand",
    )


@pytest.mark.parametrize("n", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_three_tenths_may_vanish_at_any_round(n: int) -> None:
    clients = tuple(range(1, n + 1))
    protocol = planned(clients)
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


@dataclass
class WithLiars:
    """A sum some of whose clients reveal wrong shares of everything, and how long its server took to unmask."""

    protocol: MaskedSum
    liars: frozenset[PartyId]
    unmasking: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.protocol, name)

    def client(self, party: PartyId, contribution: Any, **arguments: Any) -> ClientSession:
        session = self.protocol.client(party, contribution, **arguments)
        if party in self.liars:
            honest = session.receive
            session.receive = lambda message: self.lie(party, honest(message))  # type: ignore[method-assign]
        return session

    def lie(self, party: PartyId, message: bytes | None) -> bytes | None:
        """Change a bit of every share that is revealed."""
        if message is None or message_type(message) is not MessageType.UNMASK_SHARES:
            return message
        shares = UnmaskShares.read(Reader(message[HEADER_BYTES:], peer=party, max_entries=len(self.protocol.clients)))
        for held in (shares.mask_key_shares, shares.self_mask_shares):
            held |= {owner: bytes([0, *share[1:-1], share[-1] ^ 1]) for owner, share in held.items()}
        payload = shares.to_payload()
        return seal_frame(
            MessageType.UNMASK_SHARES, payload, digest=self.protocol.digest, sender=party, recipient=SERVER
        )

    def server(self, **arguments: Any) -> ServerSession:
        session = self.protocol.server(**arguments)
        close_round = session.close_round

        def timed() -> Any:
            started = time.process_time()
            try:
                return close_round()
            finally:
                self.unmasking.append(time.process_time() - started)

        session.close_round = timed  # type: ignore[method-assign]
        return session


@pytest.mark.parametrize("n", [120, pytest.param(1000, marks=pytest.mark.slow)])
def test_liars_are_named_at_once_and_cost_less_than_the_unmasking(n: int) -> None:
    """Each of five liars stands in the way of many secrets; it is found with the first of them."""
    clients = tuple(range(1, n + 1))
    contributions = {party: partial(np.full, LAYOUT.size, party, dtype=np.int64) for party in clients}
    liars = (1, 2, 3, 4, 5)  # asked before others with higher numbers, and so in the way
    last: dict[bool, float] = {}
    for lying in (False, True):
        watched = WithLiars(planned(clients), frozenset(liars if lying else ()))
        run = run_in_memory(watched, contributions, dropouts={n: 3})
        assert run.result.total.tolist() == [sum(clients)] * LAYOUT.size
        assert {holder for _, holder in run.result.disputes} == (set(liars) if lying else set())
        assert run.result.liars(corrupt=n // 10) == (liars if lying else ())
        last[lying] = watched.unmasking[-1]
    assert last[True] <= 2 * last[False] + 1
