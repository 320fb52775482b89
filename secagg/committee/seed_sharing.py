"""Replicated seeds: which helpers hold which, and how many must speak (Cramer, Damgard, Ishai, TCC 2005).

Of m helpers f may collude with the server. There is one seed for every set of m - f helpers, and all of a set's members
hold it: any f helpers lack the seed of the others, and any f + 1 hold every seed among them.
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
"""Each costs a client a keystream as long as its vector."""


@dataclass(frozen=True, slots=True)
class ReplicatedSharing:
    """The sets of a committee, and the numbers that follow from m and f.

    Args:
        helpers: the committee, ascending.
        corrupt: f, 0 to m - 1.
    """

    helpers: tuple[PartyId, ...]
    corrupt: int

    @property
    def sets(self) -> tuple[tuple[PartyId, ...], ...]:
        """Every set of m - f helpers, in lexicographic order; a seed is known by its set's place in it."""
        return _sets(self.helpers, self.corrupt)

    @property
    def n_seeds(self) -> int:
        """C(m, f)."""
        return comb(len(self.helpers), self.corrupt)

    @property
    def seeds_per_helper(self) -> int:
        """How many of them a helper holds: C(m - 1, f)."""
        return comb(len(self.helpers) - 1, self.corrupt)

    def sets_of(self, helper: PartyId) -> tuple[int, ...]:
        """The places of the sets that a helper is in."""
        return _sets_of(self.helpers, self.corrupt, helper)

    @property
    def quorum(self) -> int:
        """Fewest helpers whose signatures fix a survivor set: two share an honest one, and it signs one set."""
        return (len(self.helpers) + self.corrupt) // 2 + 1

    @property
    def agreement_threshold(self) -> int:
        """How many holders must give the same sum of a seed's masks: of f + 1 one is honest; small sets have fewer."""
        return min(self.corrupt + 1, len(self.helpers) - self.corrupt)

    def needed(self, *, signing: bool) -> int:
        """Fewest helpers with whom a total comes out, whoever they are."""
        vouching = min(2 * self.corrupt + 1, len(self.helpers))
        return max(self.quorum, vouching) if signing else vouching

    def agreed(self, hashes: Mapping[PartyId, bytes]) -> tuple[PartyId, ...]:
        """The holders of one seed that gave the same hash, if they are enough; nobody where no hash has enough."""
        ((most, times),) = Counter(hashes.values()).most_common(1) or [(b"", 0)]
        return tuple(sorted(p for p in hashes if hashes[p] == most)) if times >= self.agreement_threshold else ()

    def assign(self, sets: Mapping[int, Iterable[PartyId]]) -> dict[PartyId, list[int]]:
        """Each set to one of those who can answer for it: whoever was given fewest so far."""
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
    """Which clients are left out of a sum for what helpers say of their seeds, and which helpers are not heard.

    Whom more than ``corrupt`` helpers complain of is left out: one of them is honest. Nobody can tell otherwise whether
    client or helper lies, so a helper is believed about ``most_each`` further clients, and one that names more is put
    aside as if it were away.
    """
    times = Counter(client for of_one in complaints.values() for client in of_one)
    certain = {client for client, helpers in times.items() if helpers > corrupt}
    ignored = frozenset(helper for helper, of_one in complaints.items() if len(set(of_one) - certain) > most_each)
    excluded = {client for helper, of_one in complaints.items() if helper not in ignored for client in of_one}
    return frozenset(certain | excluded), ignored
