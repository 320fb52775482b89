"""Solutions in rational numbers by python-flint: the oracle of certified solves, which shares no code with them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import flint
import numpy as np
from numpy.typing import NDArray

from analytic.solve.digits import Digits


def rational(matrix: NDArray[Any]) -> NDArray[Any]:
    """Every number as the fraction that it is."""
    return np.array([Fraction(x) for x in matrix.ravel().tolist()], dtype=object).reshape(matrix.shape)


def fractions_of(matrix: Digits) -> list[Fraction]:
    """The entries of exact digits, by rows."""
    values, exponent = matrix.integers()
    return [Fraction(value) * Fraction(2) ** exponent for value in values]


def in_flint(matrix: NDArray[Any]) -> Any:
    return flint.fmpq_mat(*matrix.shape, [flint.fmpq(x.numerator, x.denominator) for x in matrix.ravel()])


def pseudo_inverse_times(gram: NDArray[Any], cross: NDArray[Any], ridge: float) -> tuple[NDArray[np.float64], int]:
    """A^+ H for A = G + ridge I by flint, rounded by Python, and the rank of A.

    A^+ H = C M^-1 A_SS M^-1 C^T H for columns S that span A, C = A[:, S] and M = C^T C.
    """
    matrix = rational(gram) + Fraction(ridge) * np.eye(len(gram), dtype=int)
    reduced, rank = in_flint(matrix).rref()
    columns = [next(j for j in range(len(gram)) if reduced[i, j] != 0) for i in range(rank)]
    if not columns:
        return np.zeros(cross.shape), 0
    basis, inner = in_flint(matrix[:, columns]), in_flint(matrix[np.ix_(columns, columns)])
    normal = basis.transpose() * basis
    projected = inner * normal.solve(basis.transpose() * in_flint(rational(cross)))
    entries = (basis * normal.solve(projected)).entries()
    return np.array([int(x.p) / int(x.q) for x in entries]).reshape(cross.shape), rank


def sandwiched(gram: NDArray[Any], cross: NDArray[Any], weights: NDArray[Any], gamma: float) -> NDArray[np.float64]:
    """Omega of A Omega W W^T + gamma Omega = C W^T by flint, all unknowns at once, rounded by Python.

    The nearest multiples of 2^(e - 53), ties to even, with e the least of all |entries| < 2^e.
    """
    exact = rational(weights)
    outer, right = exact @ exact.T, rational(cross) @ exact.T
    system = np.kron(rational(gram), outer) + Fraction(gamma) * np.eye(right.size, dtype=int)
    found = in_flint(system).solve(in_flint(right.reshape(-1, 1))).entries()
    entries = [Fraction(int(x.p), int(x.q)) for x in found]
    largest = max(map(abs, entries))
    exponent = largest.numerator.bit_length() - largest.denominator.bit_length()
    exponent += largest >= Fraction(2) ** exponent
    grid = Fraction(2) ** (exponent - 53)
    return np.array([float(round(x / grid) * grid) for x in entries]).reshape(right.shape)
