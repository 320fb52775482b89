"""Differencing attacks: the fewest clients that remain in any linear combination of several totals.

A total over S is the sum of x_i over i in S. An adversary with the totals over S_1, ..., S_m of the same vectors can
compute every combination c_1 T_1 + ... + c_m T_m with real coefficients. It contains the vectors of the clients whose
coefficient, the sum of c_j over the totals with that client, is not zero. Clients in the same totals have the same
coefficient. ``docs/explanation/differencing.md`` shows that no other computation needs to be considered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import combinations

import flint

Vectors = Collection[Hashable]
"""Identifiers of the vectors in a total: clients, or clients and data sets."""

Group = tuple[int, ...]
"""For each total, 1 if it contains the clients of this group and 0 if not."""

MOST_COMBINATIONS = 5000
"""Largest number of combinations that are examined, about one second of work."""


def min_difference_size(
    earlier: Sequence[Vectors], new: Vectors, *, owner: Callable[[Hashable], Hashable] = lambda vector: vector
) -> int | None:
    """Return the fewest clients that remain in any combination with a new total; None if it reveals nothing new.

    Exact over all real combinations with a non-zero coefficient of the new total. The minimum is reached where the
    coefficient vanishes for as many clients as possible; up to a factor, such a combination is determined by r - 1
    independent groups of clients in which it vanishes, r being the number of independent totals.

    Args:
        earlier: the vectors in each released total.
        new: the vectors in the requested total.
        owner: maps a vector to its client; several vectors may belong to one client and hide only that client.

    Returns:
        None if the new total is a combination of the earlier ones; 0 if more than ``MOST_COMBINATIONS`` would have to
        be examined, since then no minimum is known.
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
    """Return the totals connected to the new one by shared vectors; no other total reveals more about it."""
    apart, entangled, reached = [frozenset(total) for total in earlier], list[frozenset[Hashable]](), new
    while near := [total for total in apart if not reached.isdisjoint(total)]:
        entangled += near
        apart = [total for total in apart if reached.isdisjoint(total)]
        reached = reached.union(*near)
    return entangled


def _independent(groups: Sequence[Group]) -> list[int]:
    """Return the totals that are linearly independent of the preceding ones: the pivots of the group matrix."""
    reduced, _, rank = flint.fmpz_mat([list(group) for group in groups]).rref()
    return [next(total for total in range(reduced.ncols()) if reduced[row, total]) for row in range(rank)]


def _orthogonal(groups: Sequence[Group], size: int) -> list[int] | None:
    """Return the vector, up to a factor, that is orthogonal to ``size - 1`` others; None if these are dependent."""
    vectors, how_many = flint.fmpz_mat(size - 1, size, [entry for group in groups for entry in group]).nullspace()
    return [int(vectors[row, 0]) for row in range(size)] if how_many == 1 else None


def _times(coefficients: Sequence[int], group: Group) -> int:
    return sum(c for c, is_in in zip(coefficients, group, strict=True) if is_in)
