"""From noisy totals to weights: what a Gram matrix with known noise can and cannot say.

All of it is post-processing of what was released: it costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError, NotPositiveDefiniteError, SpecificationError
from analytic.row_format import FloatMatrix
from analytic.solve.certified import one_blas_thread
from analytic.solve.minimum_norm import Solution


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisySolver:
    """A solver that knows how much noise a total Gram holds; public, and part of a learner's configuration.

    Args:
        sigma: standard deviation on the Gram's diagonal in lattice units, if just the promised shares are in it; 0 for
            an exact total.
        shares: how many shares make ``sigma``; None when the server adds the noise, whoever survives.
        factor: multiple of the noise's operator norm R in the ridge.

    Raises:
        SpecificationError: a scale or factor that is negative or not finite, or less than one share.
    """

    sigma: float = 0.0
    shares: int | None = None
    factor: float = 0.35

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0) or (self.shares is not None and self.shares < 1):
            raise SpecificationError(
                f"noise has a finite scale >= 0 and comes in at least one share, not {self.sigma} and {self.shares}"
            )
        _ = noise_ridge(self.sigma, 1, factor=self.factor)

    def realised(self, survivors: int, *, fraction_bits: int = 0) -> float:
        """The standard deviation in a total of so many survivors: each adds its share, needed or not.

        Args:
            survivors: clients in the total.
            fraction_bits: f of the rows' lattice, for a value in the Gram's own units; 0 for lattice units.
        """
        sigma = self.sigma if self.shares is None else self.sigma * math.sqrt(survivors / self.shares)
        return math.ldexp(sigma, -2 * fraction_bits)

    def solve(
        self, gram: FloatMatrix, cross: FloatMatrix, *, survivors: int, fraction_bits: int, ridge: float
    ) -> Solution:
        """Weights from noisy statistics: W = (G_s + lambda I)^-1 H.

        The Gram is symmetrised and its eigenvalues are ``shrunk``; lambda is ``factor`` R plus ``ridge``.

        Args:
            gram: noisy G, shape (d, d).
            cross: noisy H, shape (d, c).
            survivors: clients in the total: more than promised bring more noise.
            fraction_bits: f of the rows' lattice.
            ridge: what the solve would have without noise.

        Raises:
            InvalidRowsError: shapes that disagree, NaN or infinity.
            NotPositiveDefiniteError: neither noise nor ridge, and a Gram without full rank.
        """
        gram, cross = _checked(gram, cross)
        sigma = self.realised(survivors, fraction_bits=fraction_bits)
        radius = noise_ridge(sigma, len(gram))
        penalty = noise_ridge(sigma, len(gram), factor=self.factor) + ridge
        with one_blas_thread():
            values, vectors = scipy.linalg.eigh((gram + gram.T) / 2.0)
            shifted = shrunk(values, radius) + penalty
            if shifted.min(initial=math.inf) <= 0:
                raise NotPositiveDefiniteError(
                    "a Gram without full rank needs a ridge above 0, and without noise none follows from it; set one"
                )
            weights = vectors @ ((vectors.T @ cross) / shifted[:, None])
        return Solution(
            weights=np.ascontiguousarray(weights),
            method="shrunk eigenvalues",
            rank=int(np.count_nonzero(values > radius)),
            reciprocal_condition=float(shifted.min() / shifted.max()),
        )

    def cleaned(self, gram: FloatMatrix, *, survivors: int, fraction_bits: int) -> FloatMatrix:
        """A noisy Gram with its eigenvalues shrunk (``shrunk``) and the noise's own ridge added to them."""
        sigma = self.realised(survivors, fraction_bits=fraction_bits)
        with one_blas_thread():
            values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
            lifted = shrunk(values, noise_ridge(sigma, len(gram))) + noise_ridge(sigma, len(gram), factor=self.factor)
            cleaned = (vectors * lifted) @ vectors.T
        symmetric: FloatMatrix = (cleaned + cleaned.T) / 2.0
        return symmetric


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


def shrunk(values: NDArray[np.float64], radius: float) -> NDArray[np.float64]:
    """Estimate the eigenvalues of a Gram before noise, whose own eigenvalues are within +-R.

    An eigenvalue l of the exact Gram above R / 2 stands in the noisy one near l + R^2 / (4 l), outside the noise's bulk
    (Benaych-Georges and Nadakuditi, Advances in Mathematics 2011, of spiked Wigner matrices); so w > R comes from
    (w + sqrt(w^2 - R^2)) / 2. Of one within the bulk nothing is known but that it was at most R / 2: that is taken, so
    that no direction counts for more than the noise lets it. Without noise, negative ones become zero.

    Args:
        values: eigenvalues of the noisy Gram.
        radius: R, ``noise_ridge``.
    """
    outside = np.sqrt(np.maximum(np.square(values) - radius**2, 0.0))
    return np.where(values > radius, (values + outside) / 2.0, radius / 2.0)


def noise_drowns(*, n_rows: int, row_norm: float, sigma_gram: float, n_features: int) -> bool:
    """Whether the noise's operator norm exceeds the *mean* eigenvalue n B^2 / d of the exact Gram.

    A public rule, so it costs nothing: beyond it most directions of a layer's Gram are noise, and a deeper model
    (each further layer divides the budget once more) is expected to do worse than T = 0.
    """
    return noise_ridge(sigma_gram, n_features) > n_rows * row_norm**2 / n_features


def _checked(gram: FloatMatrix, cross: FloatMatrix) -> tuple[FloatMatrix, FloatMatrix]:
    if gram.ndim != 2 or gram.shape != (len(gram), len(gram)) or cross.ndim != 2 or len(cross) != len(gram):
        raise InvalidRowsError(
            f"a solve needs a Gram of shape (d, d) and a cross-correlation of shape (d, c), not {gram.shape} and "
            f"{cross.shape}"
        )
    if not (np.isfinite(gram).all() and np.isfinite(cross).all()):
        raise InvalidRowsError("a solve needs finite numbers; this Gram or cross-correlation holds NaN or infinity")
    return np.ascontiguousarray(gram, dtype=np.float64), np.ascontiguousarray(cross, dtype=np.float64)
