"""Sparse graphs of clients: a Harary graph or an expander over a permutation drawn from a public seed."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

import numpy as np

from secagg.errors import ConfigurationError
from secagg.masked.expander import Expander, below, expander, words
from secagg.sessions import PartyId


def harary_neighbours(clients: tuple[PartyId, ...], degree: int, seed: bytes, party: PartyId) -> tuple[PartyId, ...]:
    """Return the ``degree`` clients next to ``party`` on the ring of permuted clients, half on either side, ascending.

    Args:
        clients: the cohort, ascending.
        degree: even, 2 to n - 1.
        seed: public seed. An adversary that chooses it knowing the corrupt clients can surround a client.
        party: one of the clients.
    """
    ring, place = _permuted(clients, seed)
    steps = range(1, degree // 2 + 1)
    here = place[party]
    return tuple(sorted(ring[(here + sign * step) % len(ring)] for step in steps for sign in (1, -1)))


def expander_neighbours(clients: tuple[PartyId, ...], degree: int, seed: bytes, party: PartyId) -> tuple[PartyId, ...]:
    """Return the at most ``degree`` neighbours of ``party`` on the expander of permuted clients, ascending.

    Raises:
        ConfigurationError: there is no expander of this degree.
    """
    permuted, place = _permuted(clients, seed)
    there = _expander(len(clients), degree).neighbours(place[party])
    return tuple(sorted(permuted[other] for other in there if other < len(clients)))


def fewest_holders(
    clients: tuple[PartyId, ...], degree: int, seed: bytes, survivors: Collection[PartyId]
) -> tuple[int, PartyId]:
    """Return the smallest number of surviving holders of a survivor's shares (itself included), and that survivor."""
    permuted, place = _permuted(clients, seed)
    survives = np.zeros(len(clients), dtype=np.bool_)
    survives[[place[party] for party in survivors]] = True
    holders = np.where(survives, _expander(len(clients), degree).count(survives) + 1, len(clients))
    fewest = int(np.argmin(holders))
    return int(holders[fewest]), permuted[fewest]


def _expander(n: int, degree: int) -> Expander:
    graph = expander(n, degree)
    if graph is None:
        raise ConfigurationError(
            f"there is no expander of degree {degree} for {n} clients; let MaskedSum.planned choose"
        )
    return graph


@lru_cache(maxsize=8)
def _permuted(clients: tuple[PartyId, ...], seed: bytes) -> tuple[tuple[PartyId, ...], dict[PartyId, int]]:
    """Return the permutation: Fisher-Yates from the last place down, with unbiased rejection sampling."""
    ring = list(clients)
    drawn = words(b"analytic-secagg/1 neighbour graph" + seed)
    for last in range(len(ring) - 1, 0, -1):
        chosen = below(last + 1, drawn)
        ring[last], ring[chosen] = ring[chosen], ring[last]
    return tuple(ring), {party: place for place, party in enumerate(ring)}
