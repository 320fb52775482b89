"""What linear equations over unknown vectors and masks give away: exact elimination over the rationals.

An equation is what somebody saw: a sum of unknown vectors, each from a client, and of masks whose seeds nobody told,
with the words that came out. Masks are eliminated; what is left says which combinations of vectors follow. Over the
rationals more follows than over the ring (a multiple of a vector counts as the vector): it errs to the safe side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import lcm
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Vector = tuple[int, int]
"""A client's vector: the client, and which of its vectors."""
Row = Sequence[Any]
"""Rationals, as FLINT has them."""


@dataclass(frozen=True)
class Equation:
    """The sum of these vectors and masks, each so many times, is these words modulo 2^64.

    A mask's name is its words: two masks with the same words are one, whatever protocol drew them.
    """

    vectors: Mapping[Vector, int]
    masks: Mapping[bytes, int]
    words: Words


@dataclass(frozen=True)
class Combination:
    """A combination of vectors alone that follows from equations, cleared of denominators, and its words."""

    vectors: Mapping[Vector, int]
    words: Words

    @property
    def clients(self) -> tuple[int, ...]:
        """Whose vectors are in it."""
        return tuple(sorted({client for client, _ in self.vectors}))


class Span:
    """All combinations of vectors that follow from equations."""

    def __init__(self, equations: Sequence[Equation]) -> None:
        masks = sorted({mask for equation in equations for mask in equation.masks})
        self._equations = equations
        self._vectors = sorted({vector for equation in equations for vector in equation.vectors})
        unknown = [[equation.masks.get(mask, 0) for mask in masks] for equation in equations]
        self._known = list(_vanishing(unknown))

    def combinations(self) -> list[Combination]:
        """A basis, each one with the words that it says, for who knows the vectors to check."""
        return [self._combination(weights) for weights in self._known]

    def of_at_most(self, n_clients: int) -> Combination | None:
        """One that holds vectors of so many clients or fewer, and is not nothing; None if there is none."""
        rows = [[self._count(weights, vector) for vector in self._vectors] for weights in self._known]
        clients = sorted({client for client, _ in self._vectors})
        for chosen in combinations(clients, min(n_clients, len(clients))):
            others = [place for place, (client, _) in enumerate(self._vectors) if client not in chosen]
            for mix in _vanishing([[row[place] for place in others] for row in rows]):
                weights = [
                    sum(m * w[i] for m, w in zip(mix, self._known, strict=True)) for i in range(len(self._equations))
                ]
                found = self._combination(weights)
                if found.vectors:
                    return found
        return None

    def _count(self, weights: Row, vector: Vector) -> Any:
        return sum(
            (
                weight * equation.vectors.get(vector, 0)
                for weight, equation in zip(weights, self._equations, strict=True)
            ),
            start=fmpq(0),
        )

    def _combination(self, weights: Row) -> Combination:
        scale = lcm(*(int(fmpq(weight).q) for weight in weights))
        whole = [int(fmpq(weight * scale).p) for weight in weights]
        words = np.zeros_like(self._equations[0].words)
        for weight, equation in zip(whole, self._equations, strict=True):
            words += equation.words * np.uint64(weight % 2**64)
        counts = {vector: int(self._count(weights, vector) * scale) for vector in self._vectors}
        return Combination({vector: count for vector, count in counts.items() if count}, words)


def _vanishing(rows: Sequence[Row]) -> Iterator[list[Any]]:
    """A basis of the weights that take the rows to nothing: rows are reduced beside a unit matrix that keeps count."""
    if not rows:
        return
    n, width = len(rows), len(rows[0])
    beside = [[*row, *(int(i == j) for j in range(n))] for i, row in enumerate(rows)]
    reduced, _ = fmpq_mat(n, width + n, [entry for row in beside for entry in row]).rref()
    for i in range(n):
        if all(reduced[i, j] == 0 for j in range(width)):
            yield [reduced[i, width + j] for j in range(n)]
