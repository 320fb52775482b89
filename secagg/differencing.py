"""What several totals give away together: the fewest clients whose vectors stay in anything that they combine to.

A total over S gives sum over i in S of x_i. Who has the totals over S_1, ..., S_m of the same vectors has every
combination c_1 T_1 + ... + c_m T_m, real coefficients included, and in it the vectors of the clients whose coefficient,
the sum of c_j over the totals that hold them, is not zero. Clients that are in the same totals have the same
coefficient. ``docs/explanation/differencing.md`` argues that nothing else need be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import combinations

import flint

Vectors = Collection[Hashable]
"""The vectors that a total holds, by whatever tells them apart: their clients, or clients and rows."""

Group = tuple[int, ...]
"""For each total, 1 if it holds the clients of this group and 0 if not."""

MOST_COMBINATIONS = 5000
"""How many combinations are looked at: a second's work. Few totals with few dropouts have far fewer."""


def min_difference_size(
    earlier: Sequence[Vectors], new: Vectors, *, owner: Callable[[Hashable], Hashable] = lambda vector: vector
) -> int | None:
    """Return the fewest clients that stay in what a further total lets anybody work out; None if that is nothing.

    Exact over all real combinations in which the new total has a part: the fewest are left where a coefficient is zero
    for as many clients as can be, and such a combination is fixed, up to a factor, by r - 1 independent groups of
    clients in which it vanishes, r being the number of independent totals.

    Args:
        earlier: the vectors in each total that was released.
        new: those in the total that is asked for.
        owner: the client whose vector one is; several may be one client's, of different rows, and hide only it.

    Returns:
        None if the new total's vectors follow from the earlier ones' (they are the same, say); 0 where there are
        more than ``MOST_COMBINATIONS`` to look at, since then nobody is known to be hidden.
    """
    totals = [*_entangled(earlier, frozenset(new)), frozenset(new)]
    alike: dict[Group, set[Hashable]] = {}
    for vector in frozenset[Hashable]().union(*totals):
        alike.setdefault(tuple(int(vector in total) for total in totals), set()).add(owner(vector))
    kept = _independent(list(alike))
    if kept[-1:] != [len(totals) - 1]:
        return None
    clients: dict[Group, set[Hashable]] = {}
    for group, owners in alike.items():
        clients.setdefault(tuple(group[place] for place in kept), set()).update(owners)
    if math.comb(len(clients), len(kept) - 1) > MOST_COMBINATIONS:
        return 0
    fewest = len(set(map(owner, new)))
    for vanishing in combinations(sorted(clients), len(kept) - 1):
        coefficients = _orthogonal(vanishing, len(kept))
        if coefficients is not None and coefficients[-1]:
            left = (owners for group, owners in clients.items() if _times(coefficients, group))
            fewest = min(fewest, len(set[Hashable]().union(*left)))
    return fewest


def _entangled(earlier: Sequence[Vectors], new: frozenset[Hashable]) -> list[frozenset[Hashable]]:
    """The totals that share a vector with the new one, or with one that does, and so on: no other says more of it."""
    apart, entangled, reached = [frozenset(total) for total in earlier], list[frozenset[Hashable]](), new
    while near := [total for total in apart if not reached.isdisjoint(total)]:
        entangled += near
        apart = [total for total in apart if reached.isdisjoint(total)]
        reached = reached.union(*near)
    return entangled


def _independent(groups: Sequence[Group]) -> list[int]:
    """Which totals do not follow from those before them: the pivots among the columns of the groups."""
    reduced, _, rank = flint.fmpz_mat([list(group) for group in groups]).rref()
    return [next(total for total in range(reduced.ncols()) if reduced[row, total]) for row in range(rank)]


def _orthogonal(groups: Sequence[Group], size: int) -> list[int] | None:
    """The vector, up to a factor, that is orthogonal to ``size - 1`` others; None where these are dependent."""
    vectors, how_many = flint.fmpz_mat(size - 1, size, [entry for group in groups for entry in group]).nullspace()
    return [int(vectors[row, 0]) for row in range(size)] if how_many == 1 else None


def _times(coefficients: Sequence[int], group: Group) -> int:
    return sum(c for c, is_in in zip(coefficients, group, strict=True) if is_in)
