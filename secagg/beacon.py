"""Graph seeds that a server cannot choose: derived from the operator's random value (the beacon) and the cohort.

A sparse graph is unsafe with probability at most 2^-security_bits, if the corrupt clients were fixed before its seed
was drawn. An adversary that can choose one of g graphs multiplies this probability by at most g (union bound): g graphs
cost log2(g) bits. A server could try to choose:

- session ids, layouts, contexts, aborted sessions: they are not in the seed and do not change the graph;
- the cohort: it is in the seed, and a site that requires a beacon takes part with its whole roster only;
- further graphs of the same beacon (``number`` from 1, after a sum that could not be completed): a site states how many
  it accepts, at log2 of that number in bits;
- the degree, by proposing other assumptions: it is not in the seed, so there is one permutation of the clients, and
  every site accounts for log2 of the number of degrees. A larger threshold makes the event less likely and costs
  nothing.

The operator draws the beacon after all keys of the roster are known, and a new one whenever the roster changes: the
bounds do not hold for clients that are corrupted because of their place in a known graph.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError
from secagg.sessions import PartyId

BEACON_BYTES = 32


def seed_of_beacon(beacon: bytes, clients: tuple[PartyId, ...], *, number: int = 0) -> bytes:
    """Return the 32-byte graph seed of a cohort: SHA-256 of beacon, number and clients.

    Args:
        beacon: 32 random bytes that the operator drew after the roster was fixed.
        clients: the cohort, ascending.
        number: number of the graph of this beacon, from 0. A site accepts only 0 unless its policy allows more.

    Raises:
        ConfigurationError: ``beacon`` has another length, or ``number`` is out of range.

    >>> len(seed_of_beacon(bytes(32), (1, 2, 3)))
    32
    """
    if type(beacon) is not bytes or len(beacon) != BEACON_BYTES:
        raise ConfigurationError(f"a beacon is {BEACON_BYTES} random bytes from the operator; draw it with os.urandom")
    if not 0 <= number < 2**32:
        raise ConfigurationError(f"the graphs of a beacon are numbered from 0 to below 2^32, not {number}")
    cohort = b"".join(party.to_bytes(4, "big") for party in clients)
    statement = length_prefixed(b"analytic-secagg/1 graph of a beacon", beacon, number.to_bytes(4, "big"), cohort)
    return hashlib.sha256(statement).digest()


def grinding_bits(n_clients: int, *, graphs: int = 1) -> float:
    """Return log2 of the number of sparse graphs that a server can choose from, for ``graphs`` of a beacon."""
    if graphs < 1:
        raise ConfigurationError(f"a site accepts at least 1 graph of its beacon, not {graphs}")
    return math.log2(graphs * max(1, (n_clients - 2) // 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnGraph:
    """The random sparse graph of a sum, for the checks of a site's policy.

    Args:
        clients: the cohort, ascending.
        seed: seed of the permutation of the clients.
    """

    clients: tuple[PartyId, ...]
    seed: bytes

    def is_of(self, beacon: bytes, *, graphs: int = 1) -> bool:
        """Return whether it is one of the first ``graphs`` graphs of a beacon."""
        return any(self.seed == seed_of_beacon(beacon, self.clients, number=number) for number in range(graphs))
