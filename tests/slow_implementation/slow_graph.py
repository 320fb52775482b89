"""Who is whose neighbour: section 6 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slow_bytes import PROTOCOL, number, sha256


def neighbours(clients: Sequence[int], degree: int, seed: bytes, party: int) -> list[int]:
    """Ascending. Degree 0 stands for the complete graph."""
    if degree == 0:
        return [other for other in clients if other != party]
    ring = permuted(clients, seed)
    here = ring.index(party)
    steps = range(1, degree // 2 + 1)
    return sorted([ring[(here + step) % len(ring)] for step in steps] + [ring[here - step] for step in steps])


def permuted(clients: Sequence[int], seed: bytes) -> list[int]:
    """Fisher and Yates, from the last place down to the second."""
    ring, words = list(clients), _words(seed)
    for last in reversed(range(1, len(ring))):
        choices = last + 1
        word = next(words)
        while word >= 2**64 - 2**64 % choices:
            word = next(words)
        chosen = word % choices
        ring[last], ring[chosen] = ring[chosen], ring[last]
    return ring


def _words(seed: bytes) -> Iterator[int]:
    counter = 0
    while True:
        block = sha256(PROTOCOL + b" neighbour graph" + seed + number(counter, 8))
        yield from (int.from_bytes(block[start : start + 8], "big") for start in (0, 8, 16, 24))
        counter += 1
