"""Who is whose neighbour: section 6 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from slow_bytes import PROTOCOL, number, sha256


def neighbours(clients: Sequence[int], degree: int, seed: bytes, party: int, *, signed: bool = False) -> list[int]:
    """Ascending. Degree 0 stands for the complete graph; where messages are signed a sparse graph is an expander."""
    if degree == 0:
        return [other for other in clients if other != party]
    ring = permuted(clients, seed)
    here = ring.index(party)
    if signed:
        return sorted(ring[there] for there in expander(len(ring), degree)[here])
    steps = range(1, degree // 2 + 1)
    return sorted([ring[(here + step) % len(ring)] for step in steps] + [ring[here - step] for step in steps])


def permuted(clients: Sequence[int], seed: bytes) -> list[int]:
    """Fisher and Yates, from the last place down to the second."""
    ring, words = list(clients), _words(seed)
    for last in reversed(range(1, len(ring))):
        choices = last + 1
        chosen = _below(choices, words)
        ring[last], ring[chosen] = ring[chosen], ring[last]
    return ring


@lru_cache(maxsize=4)
def expander(n: int, degree: int) -> list[set[int]]:
    """The places next to each place: edge by edge."""
    most = max(3, min(64, n // 8))
    least_gap = min(-n % b for b in range(max(3, most // 2), most + 1))
    columns = max(b for b in range(max(3, most // 2), most + 1) if -n % b == least_gap)
    rows, words = (n + least_gap) // columns, _words(number(n) + number(degree), b" expander")
    shifts = (columns - 1) // 2
    once_more = _different(degree // 2 % shifts, shifts, words)
    near: list[set[int]] = [set() for _ in range(rows * columns)]
    for s in range(1, shifts + 1):
        n_moves = degree // 2 // shifts + (s - 1 in once_more)
        for column in range(columns):
            for turn in _different(n_moves, rows, words):
                for row in range(rows):
                    here = row * columns + column
                    there = (row + turn) % rows * columns + (column + s) % columns
                    assert there not in near[here], "no edge comes twice"
                    near[here].add(there)
                    near[there].add(here)
    return [{there for there in places if there < n} for places in near[:n]]


def _different(count: int, choices: int, words: Iterator[int]) -> list[int]:
    chosen: list[int] = []
    while len(chosen) < count:
        number_ = _below(choices, words)
        if number_ not in chosen:
            chosen.append(number_)
    return chosen


def _below(choices: int, words: Iterator[int]) -> int:
    word = next(words)
    while word >= 2**64 - 2**64 % choices:
        word = next(words)
    return word % choices


def _words(seed: bytes, label: bytes = b" neighbour graph") -> Iterator[int]:
    counter = 0
    while True:
        block = sha256(PROTOCOL + label + seed + number(counter, 8))
        yield from (int.from_bytes(block[start : start + 8], "big") for start in (0, 8, 16, 24))
        counter += 1
