"""A running sum in parts, so that a client whose seeds turn out wrong comes off it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from secagg.encoder import RunningSum
from secagg.layout import Layout
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.wire import Reader

PARTS = 32
"""What a server holds at most, in vectors. Up to so many clients each have a part of their own; of larger cohorts a
client that is left out takes those along who share its part, at most one in ``PARTS`` of all."""


class PartialSums:
    """Partial sums of a cohort's vectors: the vectors themselves are not kept."""

    def __init__(self, layout: Layout, clients: tuple[PartyId, ...]) -> None:
        self._layout, self._clients = layout, clients
        self._place = {party: place % PARTS for place, party in enumerate(clients)}
        self._parts: dict[int, RunningSum] = {}

    def add(self, party: PartyId, payload: bytes) -> None:
        """Add a client's vector."""
        self._parts.setdefault(self._place[party], RunningSum(self._layout)).add(payload, peer=party)

    def sharing(self, parties: Iterable[PartyId]) -> frozenset[PartyId]:
        """These clients and all whose vectors are in the same parts."""
        places = {self._place[party] for party in parties}
        return frozenset(party for party in self._clients if self._place[party] in places)

    def leave_out(self, parties: Iterable[PartyId]) -> None:
        """Forget the parts of these clients."""
        for party in parties:
            self._parts.pop(self._place[party], None)

    def merged(self) -> RunningSum:
        """The sum of all parts."""
        whole = RunningSum(self._layout)
        for part in self._parts.values():
            whole.words.add(part.words)
        return whole

    def subtract(self, vector: bytes) -> None:
        """Take a vector off the whole, which is one part from then on."""
        whole = self.merged() if len(self._parts) > 1 else next(iter(self._parts.values()))
        whole.words.subtract(RingVector.from_bytes(self._layout, vector))
        self._parts = {0: whole}

    def to_snapshot(self) -> bytes:
        """The parts that there are."""
        return len(self._parts).to_bytes(1, "big") + b"".join(
            bytes([place]) + part.to_snapshot() for place, part in self._parts.items()
        )

    def read_snapshot(self, reader: Reader) -> Self:
        """Return the sum of the same cohort with these parts."""
        stored = type(self)(self._layout, self._clients)
        for _ in range(reader.take(1)[0]):
            (place,) = reader.take(1)
            stored._parts[place] = RunningSum(self._layout).read_snapshot(reader)
        return stored
