"""Sandwiched least squares: the transform that best lowers residuals through a classifier."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, svd

from analytic.errors import NotPositiveDefiniteError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.solve import one_blas_thread, singular_below

FloatVector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ResidualBlock:
    """One block's transform and how well its total determined it.

    Args:
        transform: Omega_{t+1}, shape (d_F, d_Phi), float64, read-only.
        rank: numerical rank of F_t^T F_t.
        reciprocal_condition: its smallest over its largest eigenvalue.
        digest: SHA-256 of the transform's bytes.
    """

    transform: FloatMatrix
    rank: int
    reciprocal_condition: float
    digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.transform.setflags(write=False)
        object.__setattr__(self, "digest", hashlib.sha256(self.transform.tobytes()).digest())


def sandwiched_least_squares(
    gram: FloatMatrix, cross: FloatMatrix, weights: FloatMatrix, *, gamma: float = 0.0
) -> ResidualBlock:
    """The transform that best explains residuals through a classifier.

    Omega minimises |R - F Omega W|^2 + gamma |Omega|^2 (DeepAFL, Lemma 2 and eq. 8, with the element-wise
    *division* that eq. 17, 23 and 46 print as a product). Only the c columns of U that belong to W W^T's range
    matter. With F^T F = V L V^T and the thin decomposition W = U S P^T (so W^T W = P S^2 P^T),

        Omega = V [(V^T F^T R P S) / (gamma + diag(L) (x) diag(S)^2)] U^T.

    When gamma is 0, directions whose eigenvalue is zero to working precision carry nothing (minimum norm).

    Args:
        gram: F^T F, shape (d_F, d_F).
        cross: F^T R, shape (d_F, c).
        weights: W, shape (d_Phi, c).
        gamma: penalty >= 0.

    Raises:
        SpecificationError: a gamma that is negative or not finite.
        NotPositiveDefiniteError: the Gram has an eigenvalue clearly below zero that gamma does not outweigh.
    """
    if not (math.isfinite(gamma) and gamma >= 0):
        raise SpecificationError(f"gamma must be a finite number >= 0, not {gamma}")
    # one memory order for the same numbers: LAPACK may round differently for another
    gram, cross, weights = (np.ascontiguousarray(matrix) for matrix in (gram, cross, weights))
    with one_blas_thread():
        values, vectors = eigh(gram)
        left, strengths, right = svd(weights, full_matrices=False)
        kept = _clear_of_zero(values)
        denominators = gamma + np.outer(np.where(kept, values, 0.0), strengths**2)
        if denominators.min() < 0:
            raise NotPositiveDefiniteError(
                f"F^T F must be positive semidefinite; its smallest eigenvalue is {values[0]:.3g} where the largest is "
                f"{values[-1]:.3g}, and gamma {gamma:g} does not outweigh it. A Gram of rows never has that: check the "
                "total, or use a larger gamma for a noisy one"
            )
        usable = denominators > 0 if gamma else np.outer(kept, _clear_of_zero(strengths**2))
        rotated = (vectors.T @ cross @ right.T) * strengths
        scaled = np.divide(rotated, denominators, out=np.zeros_like(rotated), where=usable)
        transform = vectors @ scaled @ left.T
    largest = float(np.abs(values).max())
    return ResidualBlock(
        transform=np.ascontiguousarray(transform),
        rank=int(np.count_nonzero(kept)),
        reciprocal_condition=max(0.0, float(values[0])) / largest if largest else 0.0,
    )


def _clear_of_zero(values: FloatVector) -> NDArray[np.bool_]:
    """Eigenvalues that are not zero to working precision: the rule of ``solve_ridge``."""
    magnitude = np.abs(values)
    clear: NDArray[np.bool_] = magnitude > singular_below(len(values)) * magnitude.max()
    return clear
