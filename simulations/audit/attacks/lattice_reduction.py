"""Lattice reduction in exact integers: a reduced basis from the inner products of vectors that generate a lattice."""

from __future__ import annotations

from collections.abc import Sequence

Column = list[int]


class ReductionLimitError(ArithmeticError):
    """The reduction took more steps than allowed; the inner products are hardly those of a small lattice."""


def reduce_generators(gram: Sequence[Sequence[int]], *, max_steps: int) -> list[Column]:
    """A reduced basis of the lattice that vectors generate, each basis vector as coefficients of these vectors.

    Lenstra, Lenstra and Lovász (1982) with delta = 3/4, in the integral form of Cohen, *A Course in Computational
    Algebraic Number Theory*, algorithms 2.6.7 and 2.7.2: d_i and lambda_ij are integers, so nothing is ever rounded.
    Generators may depend on each other; they are taken in one by one, and what becomes zero is dropped.

    Args:
        gram: inner products of the generators, symmetric, positive semidefinite.
        max_steps: steps after which to give up.

    Raises:
        ReductionLimitError: that many steps did not do.
    """
    lattice = _Reduction(gram, max_steps)
    for generator in range(len(gram)):
        lattice.take(generator)
    return lattice.columns


class _Reduction:
    """The state: columns H_i, leading determinants d_i (d_0 = 1 stands first) and lambda_ij = d_j mu_ij.

    At most one vector at a time depends on those before it: its place is ``_dependent``, its d that of the one before.
    """

    def __init__(self, gram: Sequence[Sequence[int]], max_steps: int) -> None:
        self._gram = gram
        self._steps_left = max_steps
        self.columns: list[Column] = []
        self._images: list[Column] = []  # gram times each column: an inner product with a generator is one entry
        self._d: list[int] = [1]
        self._lambda: list[list[int]] = []
        self._dependent: int | None = None

    def take(self, generator: int) -> None:
        """Take one more generator in and reduce."""
        self.columns.append([int(place == generator) for place in range(len(self._gram))])
        self._images.append([int(value) for value in self._gram[generator]])
        self._orthogonalise(generator)
        self._reduce_from(len(self.columns) - 1)

    def _orthogonalise(self, generator: int) -> None:
        """The lambdas and the determinant of the newest vector (algorithm 2.6.7, step 2)."""
        k, row = len(self.columns) - 1, list[int]()
        for j in range(k + 1):
            u = self._images[j][generator]
            other = self._lambda[j] if j < k else row
            for i in range(j):
                u = (self._d[i + 1] * u - row[i] * other[i]) // self._d[i]
            row.append(u)
        determinant = row.pop()
        if determinant == 0:
            self._dependent = k
        self._d.append(determinant or self._d[k])
        self._lambda.append(row)

    def _reduce_from(self, k: int) -> None:
        while k < len(self.columns):
            self._steps_left -= 1
            if self._steps_left < 0:
                raise ReductionLimitError("the lattice was not reduced within the steps allowed")
            if self._dependent == 0:
                self._drop_zero()
                k = 0
            elif k and self._must_swap(k):
                self._swap(k)
                k = max(k - 1, 1)
            else:
                for j in range(k - 2, -1, -1):
                    self._subtract_nearest(k, j)
                k += 1

    def _must_swap(self, k: int) -> bool:
        """Lovász's condition; a dependent vector always moves down, and nothing passes it."""
        if self._dependent == k - 1:
            return False
        self._subtract_nearest(k, k - 1)
        d, last = self._d, self._lambda[k][k - 1]
        return self._dependent == k or 4 * (d[k + 1] * d[k - 1] + last * last) < 3 * d[k] * d[k]

    def _subtract_nearest(self, k: int, j: int) -> None:
        """Take the nearest multiple of vector j off vector k (RED)."""
        d, row = self._d[j + 1], self._lambda[k]
        if j == self._dependent or 2 * abs(row[j]) <= d:
            return
        q = (2 * row[j] + d) // (2 * d)
        for vectors in (self.columns, self._images):
            vectors[k] = [a - q * b for a, b in zip(vectors[k], vectors[j], strict=True)]
        row[j] -= q * d
        for i, value in enumerate(self._lambda[j]):
            row[i] -= q * value

    def _swap(self, k: int) -> None:
        """Exchange vectors k and k - 1."""
        lower, upper = self._lambda[k - 1], self._lambda[k]
        last = upper[k - 1]
        self._lambda[k - 1], self._lambda[k] = upper[: k - 1], [*lower, last]
        for vectors in (self.columns, self._images):
            vectors[k - 1], vectors[k] = vectors[k], vectors[k - 1]
        if self._dependent != k:
            self._update_independent(k, last)
        elif last:
            self._update_shortened(k, last)
        else:
            self._dependent = k - 1
            self._d[k] = self._d[k - 1]
            for row in self._lambda[k + 1 :]:
                row[k], row[k - 1] = row[k - 1], 0

    def _update_independent(self, k: int, last: int) -> None:
        """What a swap of two independent vectors changes above them (SWAPI)."""
        d = self._d
        fresh = (d[k - 1] * d[k + 1] + last * last) // d[k]
        for row in self._lambda[k + 1 :]:
            above = row[k]
            row[k] = (d[k + 1] * row[k - 1] - last * above) // d[k]
            row[k - 1] = (fresh * above + last * row[k]) // d[k + 1]
        d[k] = fresh

    def _update_shortened(self, k: int, last: int) -> None:
        """The same where vector k depends on those before: the vector below becomes a part of what it was."""
        d, old = self._d, self._d[k]
        fresh = last * last // old
        for row in self._lambda[k + 1 :]:
            row[k - 1] = last * row[k - 1] // old
            row[k + 1 :] = [value * fresh // old for value in row[k + 1 :]]
        d[k:] = [fresh, fresh, *(value * fresh // old for value in d[k + 2 :])]

    def _drop_zero(self) -> None:
        """Forget the first vector, which is zero."""
        del self.columns[0], self._images[0], self._lambda[0], self._d[1]
        for row in self._lambda:
            del row[0]
        self._dependent = None
