"""Products of whole numbers through BLAS or, for Grams, on a graphics card, each held against one by another way.

A product of integers whose sums stay below 2^53 (2^24 in float32) has one answer in whatever order BLAS adds. That BLAS
finds it is another matter: released kernels multiplied wrongly on some processors, float32 ``syrk`` on Apple's M4 for
one (OpenBLAS issue 5873), and a statistic that is wrong by a kernel is wrong in silence. So A B is accepted if
(A B) r = A (B r) for small random r (Freivalds, 1977), computed by products of matrices with vectors: another kernel,
and a d-th of the work. Both sides are integers modulo P or 2^64, compared with ``==``.

What is left to chance: rows whose entries are all right but one are always found out, unless that one is off by a
multiple of P where sums are taken modulo it. A row of several wrong ones passes for at most one r in
``LARGEST_FACTOR``, and a kernel that is wrong is wrong in many rows of many products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from analytic.errors import WrongProductError
from analytic.gram_device import DEVICE_VARIABLE, device_gram

P = 65_521
"""A prime below 2^16: 1024 products of what is left modulo it and a number of 26 bits add up to less than 2^53."""
LARGEST_FACTOR = 64
CHECKED_ROWS = 1024
CHECKED_ENTRIES = 2**17
"""Entries of a block that are checked at a time: one megabyte, which caches hold."""
CHECKED_STRIP = 2**15
"""Entries of a Gram that are checked at a time; flatter strips hold less of the triangle that is not there."""


class GramSum:
    """The sum of X^T X of blocks of integers, in the upper triangle of a matrix in Fortran order.

    Args:
        width: columns of X.
        dtype: float32 or float64, whose whole numbers the sums must not leave.
        n_exact: the first columns, of which that is so; products among the others are not read and not checked.

    Entries of blocks are below 2^26.
    """

    def __init__(self, width: int, dtype: type[np.float32 | np.float64], n_exact: int | None = None) -> None:
        self.matrix = np.zeros((width, width), dtype=dtype, order="F")
        self._exact = width if n_exact is None else n_exact
        self._expected = np.zeros(self._exact)
        self._on_device = device_gram(width)

    def add(self, block: NDArray[Any]) -> None:
        """Add X^T X of a block of shape (n, width)."""
        if self._on_device is None:
            self.matrix = _add_gram(self.matrix, block)
        else:
            self._on_device.add(block)
        factors = _factors(block.shape[1])
        step = min(CHECKED_ROWS, max(1, CHECKED_ENTRIES // len(factors)))
        for start in range(0, len(block), step):
            rows = block[start : start + step].astype(np.float64, copy=False)
            self._expected += _reduced(whole_product(rows.T, _reduced(whole_product(rows, factors))))[: self._exact]
        self._expected = _reduced(self._expected)

    def check(self) -> None:
        """Hold the sum against the blocks.

        Raises:
            WrongProductError: this machine's BLAS multiplied wrongly.
        """
        if self._on_device is not None:
            self.matrix = self._on_device.matrix().T
        half = self._on_device is None and _syrk_works(self.matrix.dtype == np.float32)
        width, factors = len(self.matrix), _factors(len(self.matrix))
        found = np.zeros(width)
        step = max(1, CHECKED_STRIP // width)
        for start in range(0, self._exact, step):
            place = slice(start, min(start + step, self._exact))
            strip = self.matrix[place, start:].astype(np.float64, copy=False)
            if not half:  # syrk leaves zeros below the diagonal
                strip = np.triu(strip)
            strip = _reduced(strip)
            found[place] += whole_product(strip, factors[start:])
            np.fill_diagonal(strip, 0.0)
            found[start:] += whole_product(strip.T, factors[place])
        if np.mod(found[: self._exact] - self._expected, P).any():
            raise _wrong(f"the Gram of {width} columns in {self.matrix.dtype}")

    def clear(self) -> None:
        """Begin at zero again."""
        self.matrix.fill(0.0)
        self._expected.fill(0.0)
        if self._on_device is not None:
            self._on_device.clear()


def whole_product(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The product of a matrix with a matrix or a vector of whole numbers, by scipy's BLAS, as Grams and factors are.

    NumPy brings a BLAS of its own, with threads of its own. Where both work in turns, the threads of one look for work
    on the cores that the other has work for: a certified solve of 2 048 features on two cores took 1.8 times as long.
    """
    if not left.size or not right.size:
        return left @ right
    matrix, by_rows = _in_fortran_order(left)
    if right.ndim == 1:
        found: NDArray[np.float64] = scipy.linalg.blas.dgemv(1.0, matrix, right, trans=by_rows)
        return found
    beside, beside_by_rows = _in_fortran_order(right)
    found = scipy.linalg.blas.dgemm(1.0, beside, matrix, trans_a=not beside_by_rows, trans_b=not by_rows)
    return found.T  # the product's transpose is what stands in Fortran order


def _in_fortran_order(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
    """A matrix, or its transpose and True, as BLAS reads it without a copy (of one in neither order it makes one)."""
    return (matrix.T, True) if matrix.flags.c_contiguous else (matrix, False)


def digit_product(plane: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The product of digits of which as many as a row has, |x| <= 2^(b - 1), add up to at most 2^53; b is 17 or more.

    Raises:
        WrongProductError: this machine's BLAS multiplied wrongly.
    """
    product = whole_product(plane, right)
    factors = _factors(right.shape[1])
    expected = whole_product(plane, _reduced(whole_product(right, factors)))
    if np.mod(whole_product(_reduced(product), factors) - expected, P).any():
        raise _wrong(f"a product of shapes {plane.shape} and {right.shape}")
    return product


def check_product(left: NDArray[np.int64], right: NDArray[np.int64], product: NDArray[np.int64]) -> None:
    """Hold a product of integers that was computed through floats against the same modulo 2^64.

    Raises:
        WrongProductError: this machine's BLAS multiplied wrongly.
    """
    factors = _factors(right.shape[1]).astype(np.int64)
    if not np.array_equal(product @ factors, left @ (right @ factors)):
        raise _wrong(f"a product of shapes {left.shape} and {right.shape}")


def _reduced(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers below 2^16 in size that are congruent to these modulo P, several times as fast as ``np.mod``.

    Values are whole and at most 2^53 in size, so quotients are below 2^37 + 1. Reciprocal and product round once each
    and put a quotient wrong by less than 2^-15. So its whole part is right or, where the value is within 2 of a
    multiple of P, perhaps one off: what is left is at most P + 2 in size. The multiple of P that is taken off is within
    2 of the value or smaller, at most 2^53 (which is no multiple of P less 1 or 2), and exact.
    """
    quotients = values * (1.0 / P)
    np.trunc(quotients, out=quotients)
    np.multiply(quotients, P, out=quotients)
    return np.subtract(values, quotients, out=quotients)


@lru_cache(maxsize=64)
def _factors(n: int) -> NDArray[np.float64]:
    factors = np.random.default_rng(n).integers(1, LARGEST_FACTOR, size=n, endpoint=True).astype(np.float64)
    factors.flags.writeable = False
    return factors


def _add_gram(total: NDArray[Any], block: NDArray[Any]) -> NDArray[Any]:
    single = total.dtype == np.float32
    if _syrk_works(single):
        added: NDArray[Any] = _syrk(single)(1.0, block.T, beta=1.0, c=total, overwrite_c=True)
    else:
        multiply = scipy.linalg.blas.sgemm if single else scipy.linalg.blas.dgemm
        added = multiply(1.0, block.T, block.T, trans_b=True, beta=1.0, c=total, overwrite_c=True)
    return added


def _syrk(single: bool) -> Callable[..., NDArray[Any]]:
    found: Callable[..., NDArray[Any]] = scipy.linalg.blas.ssyrk if single else scipy.linalg.blas.dsyrk
    return found


@lru_cache(maxsize=2)
def _syrk_works(single: bool) -> bool:
    """Whether ``syrk`` is right for one block here; where it is not, twice the work goes to ``gemm``."""
    block = np.random.default_rng(0).integers(0, 2, size=(96, 200)).astype(np.float32 if single else np.float64)
    found = _syrk(single)(1.0, block.T)
    whole = block.astype(np.int64)
    return np.array_equal(np.triu(found), np.triu(whole.T @ whole))


def _wrong(what: str) -> WrongProductError:
    libraries = ", ".join(
        f"{one['internal_api']} {one['version']} for {one.get('architecture', 'an unnamed processor')}"
        for one in threadpool_info()
        if one["user_api"] == "blas"
    )
    return WrongProductError(
        f"{what} came out wrong: the BLAS of this machine ({libraries or 'unnamed'}) multiplies whole numbers wrongly. "
        "Nothing that it computed can be trusted; other releases of numpy and scipy may be right, or another kernel of "
        f"OpenBLAS (the environment variable OPENBLAS_CORETYPE). Where {DEVICE_VARIABLE} names a device, "
        "which computes Grams then, unset it first"
    )
