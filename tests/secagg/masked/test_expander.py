"""The expander: what it is, that its certificate is right, and that no choice of survivors cuts it; a ring is cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from flint import fmpz_mat
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import ConfigurationError
from secagg.masked.assumptions import log2_at_least
from secagg.masked.expander import Expander, eigenvalue_limit, expander, is_certified, least_degree
from secagg.masked.graph import expander_neighbours, fewest_holders

SEED = b"a public seed of some length"
Adjacency = np.ndarray


def adjacency(n: int, degree: int) -> Adjacency:
    graph = expander(n, degree)
    assert graph is not None
    joined = np.zeros((n, n), dtype=np.int64)
    for there in graph.neighbours(np.arange(n)):
        joined[np.flatnonzero(there < n), there[there < n]] += 1
    return joined


def ring(n: int, degree: int) -> Adjacency:
    apart = np.subtract.outer(np.arange(n), np.arange(n)) % n
    return ((apart > 0) & (np.minimum(apart, n - apart) <= degree // 2)).astype(np.int64)


@given(st.integers(6, 150), st.data())
def test_the_graph_is_simple_symmetric_and_regular_but_for_gaps(n: int, data: st.DataObject) -> None:
    degree = 2 * data.draw(st.integers(1, (n - 2) // 2))
    if expander(n, degree) is None:
        with pytest.raises(ConfigurationError, match="no expander of degree"):
            expander_neighbours(tuple(range(1, n + 1)), degree, SEED, 1)
        return
    joined = adjacency(n, degree)
    assert (joined == joined.T).all()
    assert not joined.trace()
    assert joined.max() == 1
    assert least_degree(n, degree) <= joined.sum(axis=0).min()
    assert joined.sum(axis=0).max() == degree or least_degree(n, degree) < degree


def test_neighbours_and_holders_are_those_of_the_permuted_places() -> None:
    clients = tuple(range(3, 63, 2))
    near = {party: set(expander_neighbours(clients, 12, SEED, party)) for party in clients}
    joined = adjacency(len(clients), 12)
    assert sorted(map(len, near.values())) == sorted(joined.sum(axis=0).tolist())
    assert all(party in near[other] for party in clients for other in near[party])
    assert near[3] != set(expander_neighbours(clients, 12, SEED + b"!", 3))
    rng = np.random.default_rng(1)
    for n_survivors in (1, 12, 20, 30):
        alive = {int(party) for party in rng.choice(clients, n_survivors, replace=False)}
        holders = {party: len(near[party] & alive) + 1 for party in alive}
        fewest, whose = fewest_holders(clients, 12, SEED, alive)
        assert holders[whose] == fewest == min(holders.values())


@pytest.mark.parametrize("n", [9, 15, 24, 33, 48, 64])
def test_the_certificate_is_what_exact_integers_say(n: int) -> None:
    """Sylvester: n (L - A) + k J is positive definite if and only if its leading minors are positive."""
    certified = []
    for degree in range(4, n - 1, 2):
        if expander(n, degree) is None or least_degree(n, degree) < degree:
            continue
        limit = eigenvalue_limit(n, degree)
        matrix = n * (limit * np.eye(n, dtype=np.int64) - adjacency(n, degree)) + degree
        minors = (fmpz_mat(matrix[:size, :size].tolist()).det() for size in range(1, n + 1))
        certified.append(is_certified(n, degree))
        assert certified[-1] == all(minor > 0 for minor in minors)
    assert any(certified)


@pytest.mark.parametrize(("n", "degree"), [(50, 12), (101, 20), (211, 30), (400, 60), (1009, 148)])
def test_the_certificate_is_no_looser_than_the_second_eigenvalue(n: int, degree: int) -> None:
    """Places that the last row lacks only lower it."""
    graph = expander(n, degree)
    assert graph is not None
    second = np.linalg.eigvalsh(adjacency(n, degree))[-2]
    whole = Expander(graph.blocks * graph.turns, degree, graph.blocks, graph.turns, graph.moves)
    joined = np.zeros((whole.n, whole.n))
    for there in whole.neighbours(np.arange(whole.n)):
        joined[np.arange(whole.n), there] = 1
    of_whole = np.linalg.eigvalsh(joined)[-2]
    assert second <= of_whole + 1e-9
    assert not graph.is_below(of_whole)
    assert graph.is_below(of_whole + 0.01)
    assert second < eigenvalue_limit(n, degree)


# The theorem, against every choice that a server has on small graphs, and against a search on larger ones


def n_parts(joined: Adjacency, alive: np.ndarray) -> int:
    left, parts = set(np.flatnonzero(alive).tolist()), 0
    while left:
        todo, parts = [left.pop()], parts + 1
        while todo:
            new = left.intersection(np.flatnonzero(joined[todo.pop()]).tolist())
            left -= new
            todo += new
    return parts


def is_cut(joined: Adjacency, survivors: np.ndarray, corrupt: np.ndarray, limit: int) -> bool:
    """Whether the honest survivors fall apart though every survivor keeps ``limit`` neighbours beside corrupt ones.

    That is what clients see to: t - 1 surviving neighbours, of which no honest one has more than t - 1 - limit corrupt.
    """
    honest = survivors & ~corrupt
    allowed = int((joined @ corrupt)[honest].max(initial=0))
    if ((joined @ survivors)[survivors] < limit + allowed).any():
        return False
    return n_parts(joined, honest) > 1


def every_choice(n: int, most_corrupt: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for bits in range(2**n):
        survivors = (bits >> np.arange(n) & 1).astype(bool)
        for count in range(most_corrupt + 1):
            for marked in itertools.combinations(np.flatnonzero(survivors).tolist(), count):
                corrupt = np.zeros(n, dtype=bool)
                corrupt[list(marked)] = True
                yield survivors, corrupt


@pytest.mark.parametrize(("n", "degree"), [(10, 4), (11, 4), (12, 4)])
def test_no_choice_of_survivors_cuts_a_small_graph_and_a_neighbour_less_does(n: int, degree: int) -> None:
    """Up to the second eigenvalue there are cuts; from the first integer above it on there is none."""
    joined = adjacency(n, degree)
    above = int(np.floor(np.linalg.eigvalsh(joined)[-2])) + 1
    choices = list(every_choice(n, 1))
    assert not any(is_cut(joined, *choice, above) for choice in choices)
    assert any(is_cut(joined, *choice, above - 1) for choice in choices)


@pytest.mark.parametrize(("n", "degree", "n_corrupt"), [(11, 4, 3), (12, 6, 4), (13, 6, 5)])
def test_bad_placements_are_as_rare_as_the_bound_says(n: int, degree: int, n_corrupt: int) -> None:
    """Over all placements of the corrupt: how often some honest client has so many of them next to it."""
    joined, most = adjacency(n, degree), []
    for marked in itertools.combinations(range(n), n_corrupt):
        corrupt = np.isin(np.arange(n), marked)
        most.append(int((joined @ corrupt)[~corrupt].max()))
    bounds = log2_at_least(n, n_corrupt, degree)
    for m in range(degree + 2):
        assert np.mean(np.array(most) >= m) <= 2.0 ** bounds[m] + 1e-12
    assert bounds[n_corrupt] < 0, "the bound says something"


def surrounded(joined: Adjacency, limit: int, rng: np.random.Generator) -> bool:
    """A search: a part grows, its surroundings are named dropouts, and who keeps too few neighbours goes as well."""
    n = len(joined)
    part = np.zeros(n, dtype=bool)
    part[rng.integers(n)] = True
    for _ in range(int(rng.integers(limit, n // 2))):
        inside = joined @ part
        inside[part] = -1
        part[rng.choice(np.flatnonzero(inside == inside.max()))] = True
    survivors = part | ~(joined @ part > 0)
    while True:
        lonely = survivors & (joined @ survivors < limit)
        if not lonely.any():
            break
        survivors &= ~lonely
    return is_cut(joined, survivors, np.zeros(n, dtype=bool), limit)


@pytest.mark.parametrize(("make", "is_ever_cut"), [(ring, True), (adjacency, False)])
def test_a_search_cuts_a_ring_and_not_the_expander(make: Callable[[int, int], Adjacency], is_ever_cut: bool) -> None:
    n, degree = 120, 24
    joined, rng = make(n, degree), np.random.default_rng(2)
    assert is_certified(n, degree)
    assert any(surrounded(joined, eigenvalue_limit(n, degree), rng) for _ in range(200)) == is_ever_cut
