"""Replicated secret sharing of mask seeds among helpers (Cramer, Damgard and Ishai, TCC 2005).

Of m helpers f may collude with the server. There is one seed for every set of m - f helpers, known to all members of
the set: any f helpers lack the seed of the others, and any f + 1 know every seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb

from secagg.sessions import PartyId

MOST_SEEDS = 256
"""Largest number of seeds; each costs a client a keystream as long as its vector."""


@dataclass(frozen=True, slots=True)
class ReplicatedSharing:
    """The sets of helpers that share a seed, and the thresholds for m helpers, f of them colluding.

    Args:
        helpers: the m helpers, ascending.
        corrupt: f, 0 to m - 1.
    """

    helpers: tuple[PartyId, ...]
    corrupt: int

    @property
    def sets(self) -> tuple[tuple[PartyId, ...], ...]:
        """All sets of m - f helpers, in lexicographic order; a seed is identified by the place of its set."""
        return _sets(self.helpers, self.corrupt)

    @property
    def n_seeds(self) -> int:
        """Number of seeds: C(m, f)."""
        return comb(len(self.helpers), self.corrupt)

    @property
    def seeds_per_helper(self) -> int:
        """Number of seeds of one helper: C(m - 1, f)."""
        return comb(len(self.helpers) - 1, self.corrupt)

    def sets_of(self, helper: PartyId) -> tuple[int, ...]:
        """Return the places of the sets of a helper."""
        return _sets_of(self.helpers, self.corrupt, helper)

    @property
    def quorum(self) -> int:
        """Number of signatures that fix a survivor set: two quorums share an honest helper, which signs one set."""
        return (len(self.helpers) + self.corrupt) // 2 + 1

    @property
    def agreement_threshold(self) -> int:
        """Number of holders that must send the same mask sum: one of f + 1 is honest; smaller sets need all."""
        return min(self.corrupt + 1, len(self.helpers) - self.corrupt)

    def needed(self, *, signing: bool) -> int:
        """Return the number of helpers, whichever they are, with which a total can be released."""
        vouching = min(2 * self.corrupt + 1, len(self.helpers))
        return max(self.quorum, vouching) if signing else vouching

    def agreed(self, hashes: Mapping[PartyId, bytes]) -> tuple[PartyId, ...]:
        """Return the holders of the most frequent hash (majority decoding); empty below the agreement threshold."""
        ((most, times),) = Counter(hashes.values()).most_common(1) or [(b"", 0)]
        return tuple(sorted(p for p in hashes if hashes[p] == most)) if times >= self.agreement_threshold else ()

    def assign(self, sets: Mapping[int, Iterable[PartyId]]) -> dict[PartyId, list[int]]:
        """Assign each set to one of its available holders, the one with the fewest sets so far."""
        given: dict[PartyId, list[int]] = {}
        for place, able in sorted(sets.items()):
            helper = min(able, key=lambda party: (len(given.get(party, ())), party))
            given.setdefault(helper, []).append(place)
        return given


@lru_cache(maxsize=64)
def _sets(helpers: tuple[PartyId, ...], corrupt: int) -> tuple[tuple[PartyId, ...], ...]:
    return tuple(combinations(helpers, len(helpers) - corrupt))


@lru_cache(maxsize=1024)
def _sets_of(helpers: tuple[PartyId, ...], corrupt: int, helper: PartyId) -> tuple[int, ...]:
    return tuple(place for place, members in enumerate(_sets(helpers, corrupt)) if helper in members)


def resolve_complaints(
    complaints: Mapping[PartyId, tuple[PartyId, ...]], *, corrupt: int, most_each: int
) -> tuple[frozenset[PartyId], frozenset[PartyId]]:
    """Return the clients to exclude because of helpers' complaints, and the helpers to ignore.

    A client with complaints from more than ``corrupt`` helpers is excluded, since one of them is honest. Otherwise the
    client or the helper may be malicious: up to ``most_each`` further complaints of a helper are accepted, and a helper
    with more is ignored as if it had dropped out.

    Args:
        complaints: by helper the clients that it complains of.
        corrupt: f, the number of malicious helpers.
        most_each: number of uncertain complaints accepted from each helper.
    """
    times = Counter(client for of_one in complaints.values() for client in of_one)
    certain = {client for client, helpers in times.items() if helpers > corrupt}
    ignored = frozenset(helper for helper, of_one in complaints.items() if len(set(of_one) - certain) > most_each)
    excluded = {client for helper, of_one in complaints.items() if helper not in ignored for client in of_one}
    return frozenset(certain | excluded), ignored
