"""Partial sums: a running sum in parts, so that a client with invalid seeds can be excluded later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Self

from secagg.encoder import RunningSum
from secagg.layout import Layout
from secagg.sessions import PartyId
from secagg.wire import Reader

MOST_PARTS, FEWEST_PARTS = 32, 3
"""Number of partial sums, each the size of one vector. In larger cohorts, excluding a client also excludes those in the
same part: one in so many of all clients."""
MEMORY_BYTES = 1 << 28
"""Bytes of all partial sums, as far as the fewest fit: up to 8 MiB a vector there are ``MOST_PARTS``."""


class PartialSums:
    """Partial sums of a cohort's vectors; the vectors are not stored."""

    def __init__(self, layout: Layout, clients: tuple[PartyId, ...]) -> None:
        self._layout, self._clients = layout, clients
        vector_bytes = sum(segment.size * segment.word.itemsize for segment in layout.segments)
        self.n_parts = max(FEWEST_PARTS, min(MOST_PARTS, MEMORY_BYTES // vector_bytes))
        self._place = {party: place % self.n_parts for place, party in enumerate(clients)}
        self._parts: dict[int, RunningSum] = {}

    def add(self, party: PartyId, payload: bytes | memoryview) -> None:
        """Add a client's vector."""
        self._parts.setdefault(self._place[party], RunningSum(self._layout)).add(payload, peer=party)

    def sharing(self, parties: Iterable[PartyId]) -> frozenset[PartyId]:
        """Return these clients and all clients in the same parts."""
        places = {self._place[party] for party in parties}
        return frozenset(party for party in self._clients if self._place[party] in places)

    def leave_out(self, parties: Iterable[PartyId]) -> None:
        """Discard the parts of these clients."""
        for party in parties:
            self._parts.pop(self._place[party], None)

    def merged(self) -> RunningSum:
        """Return the sum of all parts, which becomes one part."""
        parts = self._parts
        whole = parts.popitem()[1] if parts else RunningSum(self._layout)
        while parts:
            whole.words.add(parts.popitem()[1].words)
        parts[0] = whole
        return whole

    def subtract(self, vector: bytes | memoryview) -> None:
        """Subtract a vector from the whole sum, which becomes one part."""
        self.merged().words.subtract_bytes(vector)

    def to_snapshot(self) -> Iterator[bytes | memoryview]:
        """Yield the parts as bytes."""
        yield len(self._parts).to_bytes(1, "big")
        for place, part in self._parts.items():
            yield bytes([place])
            yield from part.to_snapshot()

    def read_snapshot(self, reader: Reader) -> Self:
        """Read the parts of the same cohort; inverse of ``to_snapshot``."""
        stored = type(self)(self._layout, self._clients)
        for _ in range(reader.take(1)[0]):
            (place,) = reader.take(1)
            stored._parts[place] = RunningSum(self._layout).read_snapshot(reader)
        return stored
