"""The neighbour graph: regular, symmetric, of its seed; which one it is: tests/secagg/test_published_vectors.py."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from secagg.masked.graph import harary_neighbours


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
