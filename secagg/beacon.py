"""Graph seeds that no server can choose: from a random value that the operator pins and the cohort, nothing else.

A sparse graph is safe but for a chance of 2^-security_bits, and only for corrupt clients that were settled before its
seed was drawn. Who may look at several graphs and take one multiplies that chance: among g graphs it is at most
g 2^-security_bits (union bound), so a choice of g costs log2(g) bits. Here is what a server could choose, and what
becomes of it:

- session ids, layouts, contexts, aborted tries: in no seed, so that they change no graph;
- the cohort: in the seed, and a site that demands a beacon takes part with its whole roster only;
- further graphs of the same beacon (``number`` from 1, where the first one got stuck): a site says how many it
  accepts, and pays log2 of that;
- the degree, by proposing other assumptions: it is in no seed, so that there is one permutation of the clients, and
  every site pays log2 of the number of degrees that there are. A threshold above the lowest that a degree needs only
  makes the event smaller, so it costs nothing.

The operator draws the beacon after all keys of the roster have come in, and a new one whenever the roster changes:
clients that are corrupted because of where they stand in a known graph are in no theorem.
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
        beacon: 32 random bytes that the operator drew once the roster was settled.
        clients: the cohort, ascending.
        number: which graph of this beacon; a site accepts 0 alone unless it says otherwise.

    Raises:
        ConfigurationError: no 32 bytes, or no number.
    """
    if type(beacon) is not bytes or len(beacon) != BEACON_BYTES:
        raise ConfigurationError(f"a beacon is {BEACON_BYTES} random bytes from the operator; draw it with os.urandom")
    if not 0 <= number < 2**32:
        raise ConfigurationError(f"the graphs of a beacon are numbered from 0 to below 2^32, not {number}")
    cohort = b"".join(party.to_bytes(4, "big") for party in clients)
    statement = length_prefixed(b"analytic-secagg/1 graph of a beacon", beacon, number.to_bytes(4, "big"), cohort)
    return hashlib.sha256(statement).digest()


def grinding_bits(n_clients: int, *, graphs: int = 1) -> float:
    """Return log2 of how many sparse graphs a server may choose among: ``graphs`` of a beacon, each of any degree."""
    if graphs < 1:
        raise ConfigurationError(f"a site accepts at least 1 graph of its beacon, not {graphs}")
    return math.log2(graphs * max(1, (n_clients - 2) // 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnGraph:
    """The sparse graph that a sum's privacy rests on, as its sites judge it.

    Args:
        clients: the cohort, ascending.
        seed: what its permutation follows from.
    """

    clients: tuple[PartyId, ...]
    seed: bytes

    def is_of(self, beacon: bytes, *, graphs: int = 1) -> bool:
        """Return whether it is one of the first ``graphs`` graphs of a beacon."""
        return any(self.seed == seed_of_beacon(beacon, self.clients, number=number) for number in range(graphs))
