"""Expander graphs on any number of places, with a proven bound on the second eigenvalue.

*Construction.* n places are laid out in ``turns`` rows of ``blocks``, place = row blocks + column, the last row perhaps
short. A move (s, v) joins column i of row x to column i + s of row x + v_i, all cyclic, and each is drawn once for each
number of places and degree. With s from 1 to (blocks - 1) // 2 and other turns v_i in each move of one s no edge comes
twice, so all have ``degree`` neighbours, except those with a neighbour beyond the end of the last row.

*Proof.* Shifting all rows is a symmetry, so the whole layout's eigenvalues are those of one Hermitian matrix of
``blocks`` x ``blocks`` for each of the ``turns`` characters of the rows: A_j = sum over moves and columns of exp(2 pi i
j v_i / turns) at (i, i + s), and its adjoint. That all but the first (the degree, with the eigenvector of ones) lie
below a limit is proved by Cholesky factors of limit - A_j, with degree / blocks added to all entries at j = 0, where
the ones live: a factor that floating point finds belongs to a matrix close by. Leaving out the places that the last row
lacks takes rows and columns away, and raises no eigenvalue's place (Cauchy). The law is Rump's (BIT 2006, "Verification
of positive definiteness"): where a Cholesky factorisation of M runs through in double precision, M is above -(b + 2) u
trace(M), u = 2^-53, here eight times that for complex numbers. In addition the entries are wrong by at most 2^5 u for
each move. All of that is below 2^-15 for degrees up to 2^20 and blocks up to 64, and ``SPARE`` is more.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

SPARE = 2.0**-10
Places = TypeVar("Places", int, NDArray[np.int64])
AT_ONCE = 256
"""Number of characters in memory at a time: 16 MB of matrices."""


def words(label: bytes) -> Iterator[int]:
    """Yield 64-bit big-endian words of SHA-256(label, counter)."""
    counter = 0
    while True:
        block = hashlib.sha256(label + counter.to_bytes(8, "big")).digest()
        for start in range(0, 32, 8):
            yield int.from_bytes(block[start : start + 8], "big")
        counter += 1


def below(bound: int, drawn: Iterator[int]) -> int:
    """Return an unbiased number below the bound, by rejection sampling."""
    limit = 2**64 - 2**64 % bound
    return next(word for word in drawn if word < limit) % bound


def eigenvalue_limit(n: int, degree: int) -> int:
    """Return the limit of the second eigenvalue: 2.1 sqrt(k (n - k) / n), rounded up; random graphs have about 2."""
    return math.isqrt(441 * degree * (n - degree) // (100 * n)) + 1


def blocks_of(n: int) -> int:
    """Return the number of columns for n places: the fewest gaps in the last row, then the most columns."""
    most = max(3, min(64, n // 8))
    return min(range(max(3, most // 2), most + 1), key=lambda blocks: (-n % blocks, -blocks))


def least_degree(n: int, degree: int) -> int:
    """Return the smallest possible number of neighbours: one less for each gap."""
    return degree - -n % blocks_of(n)


@dataclass(frozen=True, slots=True, eq=False)
class Expander:
    """The graph on places 0 .. n - 1; ``moves`` holds (s, v) with v of shape (blocks,)."""

    n: int
    degree: int
    blocks: int
    turns: int
    moves: tuple[tuple[int, NDArray[np.int64]], ...]

    def neighbours(self, places: Places) -> Iterator[Places]:
        """Yield the neighbours of one or many places; n or above for a gap in the last row."""
        row, column = divmod(places, self.blocks)
        for shift, turn in self.moves:
            yield (row + turn[column]) % self.turns * self.blocks + (column + shift) % self.blocks
            before = (column - shift) % self.blocks
            yield (row - turn[before]) % self.turns * self.blocks + before

    def count(self, marked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number of marked neighbours of each place."""
        at = np.append(marked, np.zeros(self.blocks * self.turns - self.n, dtype=np.bool_))
        counts = np.zeros(self.n, dtype=np.int64)
        for there in self.neighbours(np.arange(self.n)):
            counts += at[there]
        return counts

    def is_below(self, limit: float) -> bool:
        """Return whether the second largest eigenvalue is proven to be below a limit."""
        try:
            for first in range(0, self.turns // 2 + 1, AT_ONCE):
                characters = np.arange(first, min(first + AT_ONCE, self.turns // 2 + 1))
                np.linalg.cholesky((limit - SPARE) * np.eye(self.blocks) - self._matrices(characters))
        except np.linalg.LinAlgError:
            return False
        return True

    def _matrices(self, characters: NDArray[np.int64]) -> NDArray[np.complex128]:
        """Return A_j, for j = 0 without its largest eigenvalue; j and turns - j have the same eigenvalues."""
        matrices = np.zeros((len(characters), self.blocks, self.blocks), dtype=np.complex128)
        column = np.arange(self.blocks)
        for shift, turn in self.moves:
            angles = np.outer(characters, turn) % self.turns * (2 * np.pi / self.turns)
            matrices[:, column, (column + shift) % self.blocks] += np.exp(1j * angles)
        matrices += matrices.conj().transpose(0, 2, 1)
        matrices[characters == 0] -= self.degree / self.blocks
        return matrices


@lru_cache(maxsize=8)
def expander(n: int, degree: int) -> Expander | None:
    """Return the graph of n places and this degree; None if the layout does not fit.

    It is computed from integers and SHA-256 only, so it is the same on every machine.
    """
    blocks = blocks_of(n)
    turns, shifts = -(-n // blocks), (blocks - 1) // 2
    each, left = divmod(degree // 2, shifts)
    if each + bool(left) > turns or least_degree(n, degree) < 1:
        return None
    drawn = words(b"analytic-secagg/1 expander" + n.to_bytes(4, "big") + degree.to_bytes(4, "big"))
    once_more = _distinct(left, shifts, drawn)
    moves: list[tuple[int, NDArray[np.int64]]] = []
    for shift in range(shifts):
        n_moves = each + (shift in once_more)
        turned = [_distinct(n_moves, turns, drawn) for _ in range(blocks)]
        moves += [(shift + 1, np.array(turn)) for turn in zip(*turned, strict=True)]
    return Expander(n, degree, blocks, turns, tuple(moves))


def _distinct(count: int, bound: int, drawn: Iterator[int]) -> list[int]:
    """Draw ``count`` different numbers below the bound."""
    chosen: dict[int, None] = {}
    while len(chosen) < count:
        chosen[below(bound, drawn)] = None
    return list(chosen)


@lru_cache(maxsize=256)
def is_certified(n: int, degree: int) -> bool:
    """Return whether the graph exists and its second eigenvalue is proven to be below ``eigenvalue_limit``."""
    graph = expander(n, degree)
    return graph is not None and graph.is_below(eigenvalue_limit(n, degree))
