"""Who is whose neighbour: a Harary graph over a permutation drawn from a public seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache

from secagg.sessions import PartyId


def harary_neighbours(clients: tuple[PartyId, ...], degree: int, seed: bytes, party: PartyId) -> tuple[PartyId, ...]:
    """The ``degree`` clients next to ``party`` on the ring of permuted clients, half on either side, ascending.

    Args:
        clients: the cohort, ascending.
        degree: even, 2 to n - 1.
        seed: public; whoever can choose it after knowing who is corrupt can surround a client.
        party: one of the clients.
    """
    ring, place = _ring(clients, seed)
    steps = range(1, degree // 2 + 1)
    here = place[party]
    return tuple(sorted(ring[(here + sign * step) % len(ring)] for step in steps for sign in (1, -1)))


@lru_cache(maxsize=8)
def _ring(clients: tuple[PartyId, ...], seed: bytes) -> tuple[tuple[PartyId, ...], dict[PartyId, int]]:
    """The permutation: Fisher-Yates from the last place down, each place by unbiased rejection sampling."""
    ring = list(clients)
    words = _words(seed)
    for last in range(len(ring) - 1, 0, -1):
        chosen = _below(last + 1, words)
        ring[last], ring[chosen] = ring[chosen], ring[last]
    return tuple(ring), {party: place for place, party in enumerate(ring)}


def _words(seed: bytes) -> Iterator[int]:
    """64-bit big-endian words of SHA-256(label, seed, counter)."""
    counter = 0
    while True:
        block = hashlib.sha256(b"analytic-secagg/1 neighbour graph" + seed + counter.to_bytes(8, "big")).digest()
        for start in range(0, 32, 8):
            yield int.from_bytes(block[start : start + 8], "big")
        counter += 1


def _below(bound: int, words: Iterator[int]) -> int:
    limit = 2**64 - 2**64 % bound
    return next(word for word in words if word < limit) % bound
