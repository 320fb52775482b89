"""The neighbour graph: regular, symmetric, and a uniform permutation."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from secagg.masked.graph import harary_neighbours

SEED = b"a public seed of some length"


@given(st.integers(5, 60), st.data(), st.binary(min_size=16, max_size=64))
def test_the_graph_is_regular_and_symmetric(n: int, data: st.DataObject, seed: bytes) -> None:
    degree = 2 * data.draw(st.integers(1, (n - 2) // 2))
    clients = tuple(range(3, 3 + 2 * n, 2))
    neighbours = {party: harary_neighbours(clients, degree, seed, party) for party in clients}
    for party, others in neighbours.items():
        assert len(set(others)) == degree
        assert party not in others
        assert list(others) == sorted(others)
        assert all(party in neighbours[other] for other in others)


def test_the_permutation_is_the_specified_one() -> None:
    """Fisher-Yates over SHA-256(label, seed, counter), done again by hand."""
    clients = tuple(range(1, 12))
    stream = b"".join(
        hashlib.sha256(b"analytic-secagg/1 neighbour graph" + SEED + counter.to_bytes(8, "big")).digest()
        for counter in range(20)
    )
    ring, position = list(clients), 0
    for last in range(len(ring) - 1, 0, -1):
        while True:
            word = int.from_bytes(stream[position : position + 8], "big")
            position += 8
            if word < 2**64 - 2**64 % (last + 1):
                break
        chosen = word % (last + 1)
        ring[last], ring[chosen] = ring[chosen], ring[last]
    for place, party in enumerate(ring):
        expected = {ring[(place + step) % len(ring)] for step in (-2, -1, 1, 2)}
        assert set(harary_neighbours(clients, 4, SEED, party)) == expected


def test_another_seed_is_another_graph() -> None:
    clients = tuple(range(1, 101))
    one = [harary_neighbours(clients, 10, SEED, party) for party in clients]
    other = [harary_neighbours(clients, 10, SEED + b"!", party) for party in clients]
    assert one != other
