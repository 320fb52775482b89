"""From noisy totals to weights: what a Gram matrix with known noise can and cannot say.

All of it is post-processing of what was released: it costs no privacy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.solve import Solution, one_blas_thread


def noise_ridge(sigma_gram: float, n_features: int, *, factor: float = 1.0) -> float:
    """The ridge lambda = factor sigma_G sqrt(2 d), the operator norm of the noise, in the Gram's units.

    A symmetric matrix with variance sigma^2 on and sigma^2 / 2 off the diagonal has its eigenvalues within
    +-sigma sqrt(2 d) (Wigner): below that, directions of the noisy Gram are noise. Known from the noise alone.

    Raises:
        SpecificationError: a scale or factor that is negative or not finite.
    """
    if not (math.isfinite(sigma_gram) and sigma_gram >= 0 and math.isfinite(factor) and factor >= 0):
        raise SpecificationError(f"a noise scale and its factor are finite and >= 0, not {sigma_gram} and {factor}")
    return factor * sigma_gram * math.sqrt(2.0 * n_features)


def solve_noisy(
    gram: FloatMatrix, cross: FloatMatrix, *, sigma_gram: float, factor: float = 1.0, ridge: float = 0.0
) -> Solution:
    """Weights from noisy statistics: W = (G_+ + lambda I)^-1 H.

    The Gram is symmetrised, its negative eigenvalues (no Gram has any) are set to zero, and lambda is
    ``noise_ridge`` plus ``ridge``.

    Args:
        gram: noisy G, shape (d, d).
        cross: noisy H, shape (d, c).
        sigma_gram: standard deviation of the noise on the Gram's diagonal that was *realised*: more survivors than
            promised bring more noise.
        factor: multiple of the noise's operator norm.
        ridge: what the solve would have without noise.

    Raises:
        InvalidRowsError: shapes that disagree, NaN or infinity.
        NotPositiveDefiniteError: neither noise nor ridge, and a Gram without full rank.
    """
    gram, cross = _checked(gram, cross)
    penalty = noise_ridge(sigma_gram, len(gram), factor=factor) + ridge
    with one_blas_thread():
        values, vectors = eigh((gram + gram.T) / 2.0)
        kept = np.maximum(values, 0.0)
        shifted = kept + penalty
        if shifted.min(initial=math.inf) <= 0:
            raise NotPositiveDefiniteError(
                "a Gram without full rank needs a ridge above 0, and without noise none follows from it; set one"
            )
        weights = vectors @ ((vectors.T @ cross) / shifted[:, None])
    return Solution(
        weights=np.ascontiguousarray(weights),
        method="clipped eigenvalues",
        rank=int(np.count_nonzero(values > 0)),
        reciprocal_condition=float(shifted.min() / shifted.max()),
    )


def solve_sufficient_statistics(gram: FloatMatrix, cross: FloatMatrix, *, ridge: float) -> FloatMatrix:
    """Weights of sufficient-statistics perturbation as it is often done: a fixed ridge, whatever the noise.

    (G + ridge I)^-1 H by LU, G noisy and so perhaps indefinite (Vu and Slavkovic 2009; Foulds et al. 2016). It is
    here to be compared with.
    """
    gram, cross = _checked(gram, cross)
    with one_blas_thread():
        weights = np.linalg.solve((gram + gram.T) / 2.0 + ridge * np.eye(len(gram)), cross)
    return np.ascontiguousarray(weights, dtype=np.float64)


def adassp_ridge(smallest_eigenvalue: float, *, sigma_eigenvalue: float, sigma_gram: float, n_features: int) -> float:
    """The ridge of AdaSSP (Wang 2018, Algorithm 2), with failure probability beta = 0.05.

    lambda = max(0, sigma_G sqrt(d log(2 d^2 / beta)) - l), where l = max(0, lambda_min + noise - its tail) is a third
    release of the smallest eigenvalue, which a sum cannot carry: it needs a trusted server. Here to be compared with.

    Args:
        smallest_eigenvalue: the *noisy* smallest eigenvalue of the exact Gram.
        sigma_eigenvalue: the standard deviation of its noise.
        sigma_gram: of the Gram's noise.
        n_features: d.
    """
    beta = 0.05
    lower = max(0.0, smallest_eigenvalue - sigma_eigenvalue * math.sqrt(2.0 * math.log(6.0 / beta)))
    return max(0.0, sigma_gram * math.sqrt(n_features * math.log(2.0 * n_features**2 / beta)) - lower)


def public_preconditioner(public_rows: NDArray[Any], *, exponent: float = 0.25) -> FloatMatrix:
    """P = S^-exponent of public rows' second moment S, shape (d, d): map private rows by it, then clip.

    Noise has the same size in all directions; mapped features have nearly the same size too. P comes from
    public rows only (of the frozen backbone on public images), so it costs nothing. Directions that public rows
    hardly have (below 10^-6 of the largest) are not blown up beyond that.

    Raises:
        InvalidRowsError: no rows, or rows that are not finite.
        SpecificationError: an exponent outside 0 to 1/2.
    """
    if not 0 <= exponent <= 0.5:
        raise SpecificationError(f"the exponent is 0 (nothing) to 1/2 (whitening), not {exponent}")
    rows = np.ascontiguousarray(public_rows, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise InvalidRowsError("a preconditioner needs a matrix of finite public rows, at least one")
    with one_blas_thread():
        values, vectors = eigh(rows.T @ rows / len(rows))
        largest = float(values[-1])
        if largest <= 0:
            raise InvalidRowsError("a preconditioner needs public rows that are not all zero")
        powers = (np.maximum(values, 1e-6 * largest) / largest) ** -exponent
        preconditioner: FloatMatrix = (vectors * powers) @ vectors.T
    return preconditioner


def _checked(gram: FloatMatrix, cross: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    if gram.ndim != 2 or gram.shape != (len(gram), len(gram)) or cross.ndim != 2 or len(cross) != len(gram):
        raise InvalidRowsError(
            f"a solve needs a Gram of shape (d, d) and a cross-correlation of shape (d, c), not {gram.shape} and "
            f"{cross.shape}"
        )
    if not (np.isfinite(gram).all() and np.isfinite(cross).all()):
        raise InvalidRowsError("a solve needs finite numbers; this Gram or cross-correlation holds NaN or infinity")
    return np.ascontiguousarray(gram, dtype=np.float64), np.ascontiguousarray(cross, dtype=np.float64)
