"""Noise of each coordinate of a total, and its division among clients."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.dp.discrete_gaussian import TAIL_MASS, discrete_gaussian
from secagg.dp.errors import PrivacyError
from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import InvalidVectorError
from secagg.layout import IntVector, Layout, Segment

WITHHELD = 0
"""Level of coordinates that are not released; every client must leave them at zero."""

LEAST_SIGMA = 1.0
"""Smallest noise scale in lattice units. Sums of finer noise are far from discrete Gaussian."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CoordinateNoise:
    """Independent discrete Gaussian noise with one of a few variances at each coordinate of a vector.

    Args:
        levels: uint8, shape (size of the vector,). Level k > 0 has variance ``variances[k - 1]``; coordinates with
            level 0 are not released.
        variances: exact integers, in squared lattice units.

    Raises:
        PrivacyError: a level has no variance, or the noise is below one lattice unit.

    >>> noise = CoordinateNoise(levels=np.array([1, 1, 0], dtype=np.uint8), variances=(100,))
    >>> noise.size, noise.dimension, int(noise.draw()[2])
    (3, 2, 0)
    """

    levels: NDArray[np.uint8]
    variances: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.levels.dtype != np.uint8 or self.levels.ndim != 1 or not 1 <= len(self.variances) <= 255:
            raise PrivacyError("noise levels are a vector of uint8, with 1 to 255 variances for the levels from 1 on")
        if int(self.levels.max(initial=0)) > len(self.variances):
            raise PrivacyError(
                f"level {int(self.levels.max())} has no variance; {len(self.variances)} variances are given"
            )
        smallest = min(self.variances)
        if smallest < LEAST_SIGMA**2:
            raise PrivacyError(
                f"noise of {math.sqrt(max(smallest, 0)):.3g} lattice units is below {LEAST_SIGMA:g}: the sum of such "
                "shares is no discrete Gaussian. Give rows more fraction bits, or ask for a smaller epsilon"
            )
        self.levels.setflags(write=False)

    @property
    def size(self) -> int:
        """Number of coordinates of the vector."""
        return len(self.levels)

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Number of coordinates of each variance."""
        found = np.bincount(self.levels, minlength=len(self.variances) + 1)[1:]
        return tuple(int(count) for count in found)

    @property
    def dimension(self) -> int:
        """Number of coordinates that are released."""
        return sum(self.counts)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding of levels and variances."""
        variances = (variance.to_bytes(-(-variance.bit_length() // 8), "big") for variance in self.variances)
        return hashlib.sha256(length_prefixed(b"coordinate noise", self.levels.tobytes(), *variances)).digest()

    def draw(self, entropy: Entropy = os_entropy) -> IntVector:
        """Draw one noise vector, int64 of shape (size,); zero at coordinates that are not released."""
        noise = np.zeros(self.size, dtype=np.int64)
        for level, (variance, count) in enumerate(zip(self.variances, self.counts, strict=True), start=1):
            if count:
                noise[self.levels == level] = discrete_gaussian(variance).draw(count, entropy)
        return noise

    def split(self, n_shares: int) -> CoordinateNoise:
        """Return the noise of one of ``n_shares`` shares: variances divided by ``n_shares``, rounded up."""
        return CoordinateNoise(levels=self.levels, variances=tuple(-(-v // n_shares) for v in self.variances))

    def radius(self, place: slice) -> int:
        """Return the largest possible absolute value of the noise in a slice of the vector (certain, by truncation)."""
        present = np.flatnonzero(np.bincount(self.levels[place], minlength=1)[1:])
        return max((discrete_gaussian(self.variances[level]).radius for level in present), default=0)

    def widened(self, layout: Layout, times: int) -> Layout:
        """Return the layout with headroom for ``times`` noise vectors in a total and one in a client's vector.

        Raises:
            PrivacyError: the size of the layout differs from the noise.
            ConfigurationError: a bound exceeds int64.
        """
        if layout.size != self.size:
            raise PrivacyError(f"the noise is for {self.size} coordinates and the layout has {layout.size}")
        return replace(
            layout, segments=tuple(self._with_headroom(segment, place, times) for segment, place in layout.slices())
        )

    def _with_headroom(self, segment: Segment, place: slice, times: int) -> Segment:
        radius, own = self.radius(place), segment.client_bound
        return replace(
            segment, bound=segment.bound + times * radius, client_bound=None if own is None else own + radius
        )

    def check_withheld(self, vector: IntVector) -> None:
        """Refuse a vector that is not zero at coordinates that are not released.

        Raises:
            InvalidVectorError: states the number of coordinates, never their values.
        """
        loud = int(np.count_nonzero(vector[self.levels == WITHHELD]))
        if loud:
            raise InvalidVectorError(
                f"{loud} coordinates get no noise and must be 0 in every vector, since they would be released "
                "as they are; leave them out, or give them a noise level"
            )

    @property
    def tail_mass(self) -> float:
        """Total variation distance of one draw from discrete Gaussians without truncation."""
        return self.dimension * TAIL_MASS


@dataclass(frozen=True, eq=False, kw_only=True)
class DistributedNoise:
    """Distributed noise: each client adds a share, so that no party ever has a total without noise.

    Each share has variance v / h with h = min_noise_shares - colluders: the shares of the honest survivors alone give
    the total at least variance v. Further survivors add more.

    Args:
        total: minimum noise of the total.
        min_noise_shares: minimum number of clients in a released total; the protocol must enforce it.
        colluders: number of these clients whose shares do not count, because they may reveal them.

    Raises:
        PrivacyError: h < 1, or the shares are below one lattice unit.

    >>> total = CoordinateNoise(levels=np.array([1, 1], dtype=np.uint8), variances=(300,))
    >>> DistributedNoise(total=total, min_noise_shares=4, colluders=1).share.variances
    (100,)
    """

    total: CoordinateNoise
    min_noise_shares: int
    colluders: int = 0
    share: CoordinateNoise = field(init=False)

    def __post_init__(self) -> None:
        if self.colluders < 0 or self.honest < 1:
            raise PrivacyError(
                f"at least one honest client must add noise: {self.min_noise_shares} noise shares are the minimum and "
                f"{self.colluders} of them may collude. Require more shares or tolerate fewer colluders"
            )
        if min(self.total.variances) < self.honest * LEAST_SIGMA**2:
            raise PrivacyError(
                f"{self.honest} shares of noise of {math.sqrt(min(self.total.variances)):.3g} lattice units are each "
                f"below {LEAST_SIGMA:g}: their sum is no discrete Gaussian. Give rows more fraction bits, or let fewer "
                "clients share the noise"
            )
        object.__setattr__(self, "share", self.total.split(self.honest))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the canonical encoding: the total's noise, the minimum number of shares and the colluders."""
        counts = (self.min_noise_shares.to_bytes(4, "big"), self.colluders.to_bytes(4, "big"))
        return hashlib.sha256(length_prefixed(b"distributed noise", self.total.digest, *counts)).digest()

    @property
    def honest(self) -> int:
        """h, the number of shares that count."""
        return self.min_noise_shares - self.colluders

    @property
    def log_ratio(self) -> float:
        """Lambda: largest |log| of the ratio of the honest shares' law to discrete Gaussians of their variance.

        The sum of h shares N_Z(0, s^2) is no discrete Gaussian, but its probabilities differ from those of
        N_Z(0, h s^2) by factors within exp(+-5 sum_{k<h} exp(-2 pi^2 s^2 k / (k + 1))) ("The Distributed Discrete
        Gaussian Mechanism", Kairouz, Liu and Steinke, ICML 2021, on convolutions; their tau counts both directions).
        Coordinates are independent, so their exponents add.
        """
        return math.fsum(
            count * convolution_log_ratio(variance, self.honest)
            for variance, count in zip(self.share.variances, self.share.counts, strict=True)
        )

    @property
    def tail_mass(self) -> float:
        """Total variation distance of the honest shares together from discrete Gaussians without truncation."""
        return self.honest * self.share.tail_mass

    def realised(self, survivors: int) -> tuple[int, ...]:
        """Return the variances of a total in which all survivors add their shares."""
        return tuple(survivors * v for v in self.share.variances)


def convolution_log_ratio(variance: float, n_shares: int) -> float:
    """Return 5 sum_{k=1}^{n-1} exp(-2 pi^2 variance k / (k + 1))."""
    exponents: Iterable[float] = (-2 * math.pi**2 * float(variance) * k / (k + 1) for k in range(1, n_shares))
    return 5 * math.fsum(math.exp(exponent) for exponent in exponents)
