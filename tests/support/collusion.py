"""Who must work together to open one client's message: coalitions against the protocol's own statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from secagg import InOneProcess, InsecureSeededEntropy, IntVector, PartyId, SumProtocol
from secagg.config import SERVER
from secagg.ring import RingVector
from simulations.audit.view import Overlooked, RecordedSum, Taped, record_sum

Seat = frozenset[PartyId]
"""Parties of one coalition, the server among them where it takes part."""


def opens(recorded: RecordedSum, seat: Seat, target: PartyId, sent: IntVector | None = None) -> bool:
    """Return whether a coalition takes a message apart: what was sent, which is the input unless it is given."""
    knowledge = recorded.seen_by(seat - {SERVER}).knowledge
    if SERVER not in seat:
        own = tuple(one.message for one in recorded.envelopes if {one.sender, one.recipient} & seat)
        knowledge = replace(knowledge, messages=own)
    found = recorded.protocol.reconstruct_upload(knowledge, target)
    vector = recorded.inputs[target] if sent is None else sent
    return found is not None and found.to_bytes() == RingVector.encode(found.layout, vector).to_bytes()


def coalitions(protocol: SumProtocol) -> Iterator[tuple[Seat, bool]]:
    """Coalitions of ever more clients and helpers, and whether the protocol states that they open the first's message.

    The first client is in none of them.
    """
    clients, helpers = protocol.clients, protocol.helpers
    for n in range(len(clients)):
        for some in ((), helpers[:1], helpers):
            stated = protocol.guarantee.exposes_uploads_to(server=True, n_clients=n, helpers=frozenset(some))
            yield frozenset({SERVER, *clients[len(clients) - n :], *some}), stated
    if helpers:
        yield frozenset(helpers), False


def wrongly_stated(
    parties: InOneProcess, vectors: Mapping[PartyId, IntVector], sent: IntVector | None = None
) -> list[Seat]:
    """Return the coalitions that open the first client's message, or do not, against what the protocol states.

    Of two sums: in the second one the server calls that client lost once it has its vector.
    """
    first, entropy = parties.clients[0], InsecureSeededEntropy(1, "collusion")
    whole = record_sum(Taped.of(parties), vectors, entropy=entropy)
    late = record_sum(Taped.of(parties), vectors, entropy=entropy, network=Overlooked(first))
    found = [seat for seat, stated in coalitions(parties.protocol) if opens(whole, seat, first, sent) != stated]
    if opens(late, frozenset({SERVER}), first, sent) != parties.protocol.guarantee.plaintext_upload:
        found.append(frozenset({SERVER}))
    return found
