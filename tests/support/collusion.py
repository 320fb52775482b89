"""Who must work together to open one client's message: every coalition against the protocol's own statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analytic_secagg.modes import Mode
from secagg import Guarantee, PartyId, SumProtocol
from secagg.config import SERVER
from simulations.audit.view import RecordedSum, read_integers
from simulations.audit.workbench import Bench, who_spoke

MOST_SEATS = 7
"""Parties of whom each is tried as the one that colludes."""

Seat = frozenset[PartyId]
"""Parties of one coalition, the server among them where it takes part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a coalition achieved.

    Args:
        coalition: who pooled secrets, in words.
        should_break: whether the protocol states that this coalition is too large.
        opened: messages that it opened, of clients outside it.
        tried: messages that it tried.
    """

    coalition: str
    should_break: bool
    opened: int
    tried: int

    @property
    def as_stated(self) -> bool:
        """Whether it opened all messages or none, as stated."""
        return self.opened == (self.tried if self.should_break else 0)


def opens(recorded: RecordedSum, seat: Seat, target: PartyId) -> bool:
    """Return whether a coalition takes a message apart, every number exact."""
    knowledge = recorded.seen_by(seat - {SERVER}).knowledge
    if SERVER not in seat:
        own = tuple(one.message for one in recorded.envelopes if {one.sender, one.recipient} & seat)
        knowledge = replace(knowledge, messages=own)
    found = recorded.protocol.reconstruct_upload(knowledge, target)
    layout = recorded.protocol.layout
    return found is not None and np.array_equal(read_integers(layout, found.to_bytes()), recorded.inputs[target])


def by_coalition(bench: Bench, mode: Mode, n_clients: int) -> Iterator[Opened]:
    """What each coalition makes of the messages of the clients outside it, wherever in the cohort its members sit.

    Of two sums, in one of which clients are lost. The server alone also attacks a sum for each client in which that
    one comes late: its masks with others are revealed, and its own one must hold.
    """
    bench = replace(bench, taping=True)
    cohort = bench.cohort(n_clients)
    vectors = bench.vectors(cohort)
    sums = [bench.run(mode, vectors), *(bench.run_with_dropouts(mode, vectors, late) for late in cohort)]
    every = [who_spoke(cohort, recorded) for recorded in sums]
    for name, should_break, seats in _coalitions(sums[0].protocol, bench.rng):
        found = [
            opens(recorded, seat, party)
            for there, recorded in (every if seats == [frozenset({SERVER})] else every[:2])
            for seat in seats
            for party in there.keys() - seat
        ]
        yield Opened(coalition=name, should_break=should_break, opened=sum(found), tried=len(found))


def _coalitions(protocol: SumProtocol, rng: np.random.Generator) -> Iterator[tuple[str, bool, list[Seat]]]:
    """Coalitions in several seats with what the protocol states of them: ever more clients, then ever more helpers."""
    guarantee, clients, helpers = protocol.guarantee, protocol.clients, protocol.helpers
    n, everybody = len(clients), frozenset(helpers)
    if guarantee.client_reconstruction_threshold:
        for size in range(n):
            name, seats = f"server and {size} of {n} clients", _seats(clients, size, rng)
            yield _stated(guarantee, name, seats, [frozenset()] * len(seats))
            if helpers:
                yield _stated(guarantee, f"{name} and the key holder", seats, [everybody] * len(seats))
        return
    yield "server", guarantee.plaintext_upload, [frozenset({SERVER})]
    for size in range(1, len(helpers) + 1):
        seats = _seats(helpers, size, rng)
        yield f"{size} of {len(helpers)} helpers, without the server", False, seats
        yield _stated(guarantee, f"server and {size} of {len(helpers)} helpers", [frozenset()] * len(seats), seats)


def _seats(parties: tuple[PartyId, ...], size: int, rng: np.random.Generator) -> list[Seat]:
    """So many at the end, at the beginning and anywhere; of few parties each of them alone."""
    if size == 1 and len(parties) <= MOST_SEATS:
        return [frozenset({party}) for party in parties]
    anywhere = (int(party) for party in rng.permutation(parties)[:size])
    return list(dict.fromkeys(map(frozenset, (parties[len(parties) - size :], parties[:size], anywhere))))


def _stated(guarantee: Guarantee, name: str, clients: list[Seat], helpers: list[Seat]) -> tuple[str, bool, list[Seat]]:
    """The server with these parties in each seat, and whether the protocol says that they open uploads."""
    broken = guarantee.exposes_uploads_to(server=True, n_clients=len(clients[0]), helpers=helpers[0])
    return name, broken, [of_c | of_h | {SERVER} for of_c, of_h in zip(clients, helpers, strict=True)]
