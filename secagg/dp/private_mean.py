"""A private mean of anybody's arrays: clients clip the norm of their update and add a share of Gaussian noise each.

The sum of DP-FedAvg ("Learning Differentially Private Recurrent Language Models", McMahan et al., ICLR 2018) with the
noise of "The Distributed Discrete Gaussian Mechanism" (Kairouz, Liu and Steinke, ICML 2021): nobody ever has the exact
mean. Numbers are truncated toward zero, so no norm grows, in place of their conditional rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from secagg.config import two_thirds
from secagg.dp.accountant import PrivacyGuarantee, Release, calibrate, guarantee
from secagg.dp.errors import PrivacyError
from secagg.dp.noise import CoordinateNoise, DistributedNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.fixed_point import (
    REAL,
    FloatArray,
    Shapes,
    check_description,
    check_total,
    exponent_of,
    size_of,
    take_arrays,
)
from secagg.layout import IntVector, Layout, Segment
from secagg.mean import MeanResult
from secagg.sessions import SumResult

_FACTOR = {"add-remove": 1, "replace-one": 2}
"""Largest change of a sum by one client, in clipped norms."""

_SAFE = 1 - 2.0**-40
"""Target of clipping, so that no float64 rounding of the norm lets a vector beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanPrivacy:
    """Promise of a training with private means to each client.

    Args:
        norm: C, the L2 norm to which a client's whole update is clipped.
        epsilon: of all rounds together.
        delta: the same.
        rounds: how many means are released at most.
        colluders: clients whose shares of noise do not count, since they may tell them.
        adjacency: ``add-remove``: with a client's update, or with zeros in its place; that it took part is public.
            ``replace-one``: with another update in its place, which takes twice the noise.

    Raises:
        PrivacyError: a number is out of range.

    Example:
        >>> MeanPrivacy(norm=1.0, epsilon=8.0, delta=1e-5, rounds=50, colluders=5).adjacency
        'add-remove'
    """

    norm: float
    epsilon: float
    delta: float
    rounds: int
    colluders: int = 0
    adjacency: str = "add-remove"

    def __post_init__(self) -> None:
        if not 0 < self.norm < math.inf:
            raise PrivacyError(f"norm is a number above 0, not {self.norm!r}")
        if self.adjacency not in _FACTOR:
            raise PrivacyError(f"adjacency is one of {', '.join(_FACTOR)}, not {self.adjacency!r}")
        _ = self.rho

    @property
    def rho(self) -> Fraction:
        """Return the largest cost of one round.

        It follows from zCDP. The Gaussian curve would allow a little more, but over millions of numbers its slack for
        rounding to a lattice is more than it gains.
        """
        return calibrate(self.epsilon, self.delta, releases=self.rounds, by_zcdp=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateMeanSpec:
    """The public description of one private mean. Each client counts alike, and no metric or count is released.

    Args:
        shapes: name and shape of each array.
        n_clients: size of the cohort.
        privacy: what is promised.
        entry_bytes: 3 or 4 bytes a number.
        layout: of vectors without noise.
        noise: of the sum; shares count on two thirds of the cohort.
        release: privacy cost of one round.

    Raises:
        ConfigurationError: what does not fit.
        PrivacyError: the noise is too coarse for its promise.

    Example:
        >>> privacy = MeanPrivacy(norm=1.0, epsilon=8.0, delta=1e-5, rounds=50)
        >>> print(PrivateMeanSpec(shapes=(("w", (4810,)),), n_clients=100, privacy=privacy).explain())
        private mean of 4810 numbers in 4 bytes each, 100 clients, norm clipped to 1
          epsilon at most 8 at delta 1e-05 for each client over 50 rounds (add-remove)
          noise of the mean has 3.13 times the norm of a clipped update; less than it from about 313 clients on
    """

    shapes: Shapes
    n_clients: int
    privacy: MeanPrivacy
    entry_bytes: int = 4
    layout: Layout = field(init=False, repr=False, compare=False)
    noise: DistributedNoise = field(init=False, repr=False, compare=False)
    release: Release = field(init=False, repr=False, compare=False)
    _shift: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_description(self.shapes, self.n_clients, entry_bytes=self.entry_bytes, allowed=(3, 4))
        largest = 8 * self.entry_bytes - 1 - exponent_of(self.privacy.norm)
        for shift in range(largest, largest - 8 * self.entry_bytes, -1):
            if self._fits(shift):
                break
        else:
            raise ConfigurationError(
                f"noise for {self.n_clients} clients leaves no step in {self.entry_bytes} bytes: raise entry_bytes"
            )
        reached = self.guarantee.epsilon
        if reached > self.privacy.epsilon:
            raise PrivacyError(
                f"epsilon {self.privacy.epsilon:g} was asked for and {self.privacy.rounds} rounds of this noise cost "
                f"{reached:.4g}: more bytes a number make it finer, fewer clients leave more room"
            )

    def _fits(self, shift: int) -> bool:
        """Whether numbers counted in steps of 2^-shift leave room for everybody's noise; keeps what follows if so."""
        n, size = self.n_clients, sum(size_of(shape) for _, shape in self.shapes)
        most = math.floor(Fraction(self.privacy.norm) * Fraction(2) ** shift)
        moved = _FACTOR[self.privacy.adjacency] * most
        variance = math.ceil(Fraction(moved**2) / (2 * self.privacy.rho))
        if most < 1:
            return False
        total = CoordinateNoise(levels=np.ones(size, dtype=np.uint8), variances=(variance,))
        shares = two_thirds(tuple(range(1, n + 1)))
        noise = DistributedNoise(total=total, min_noise_shares=shares, colluders=self.privacy.colluders)
        layout = Layout((Segment(name="values", size=size, bound=n * most, client_bound=most),))
        if with_headroom(layout, n, noise).segments[0].bound >= 1 << (8 * self.entry_bytes - 1):
            return False
        rho = Fraction(moved**2, 2 * variance)
        release = Release.of("mean", rho, noise, unit="client", adjacency=self.privacy.adjacency)
        for name, value in (("layout", layout), ("noise", noise), ("release", release), ("_shift", shift)):
            object.__setattr__(self, name, value)
        return True

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """Privacy cost of all rounds together, deviations from ideal noise included."""
        return guarantee([self.release] * self.privacy.rounds, self.privacy.delta)

    @property
    def masked_layout(self) -> Layout:
        """The layout of the sum under the noise."""
        return with_headroom(self.layout, self.n_clients, self.noise)

    def noise_norm(self, n_survivors: int | None = None) -> float:
        """Return the expected norm of the mean's noise if no more clients add shares than count, in ``norm``.

        Args:
            n_survivors: clients in the mean; None for all.
        """
        n = self.n_clients if n_survivors is None else n_survivors
        sigma = math.sqrt(self.noise.total.variances[0]) * 2.0**-self._shift
        return sigma * math.sqrt(self.layout.size) / n / self.privacy.norm

    def explain(self) -> str:
        """Return the cost of the mean and how much noise it has, in words and numbers, before the run."""
        promise, ratio = self.privacy, self.noise_norm()
        return "\n".join(
            [
                f"private mean of {self.layout.size} numbers in {self.entry_bytes} bytes each, {self.n_clients} "
                f"clients, norm clipped to {promise.norm:g}",
                f"  epsilon at most {promise.epsilon:g} at delta {promise.delta:g} for each client over "
                f"{promise.rounds} rounds ({promise.adjacency})",
                f"  noise of the mean has {ratio:.3g} times the norm of a clipped update; less than it from about "
                f"{math.ceil(ratio * self.n_clients)} clients on",
            ]
        )

    def vector(self, arrays: Mapping[str, Any], *, before: Mapping[str, Any] | None = None) -> IntVector:
        """Return a client's vector before its noise, which the client of a ``NoisySum`` adds.

        Args:
            arrays: float arrays of the agreed names and shapes: the client's update.
            before: arrays that are subtracted, such as the model before training; None subtracts nothing.

        Raises:
            InvalidVectorError: NaN or infinity, other names, shapes or types; which, by name.
        """
        whole = self._flat(arrays)
        if before is not None:
            with np.errstate(all="ignore"):  # what is not finite is refused below
                whole -= self._flat(before)
        sizes = np.cumsum([size_of(shape) for _, shape in self.shapes])
        for (name, _), part in zip(self.shapes, np.split(whole, sizes[:-1]), strict=True):
            if not np.isfinite(part).all():
                raise InvalidVectorError(f"{name!r}: numbers are NaN or infinite, and no norm can be clipped")
        largest = float(np.abs(whole).max())
        norm = largest * float(np.linalg.norm(whole / largest)) if largest else 0.0
        if norm > self.privacy.norm * _SAFE:
            whole *= self.privacy.norm * _SAFE / norm
        vector: IntVector = np.trunc(np.ldexp(whole, self._shift)).astype(np.int64)
        most = self.layout.segments[0].client_bound
        assert most is not None
        if int(np.dot(vector, vector)) > most**2:
            raise InvalidVectorError("the clipped update is longer than the norm; clip it before, or report this")
        return vector

    def _flat(self, arrays: Mapping[str, Any]) -> FloatArray:
        taken = take_arrays(arrays, self.shapes, [REAL] * len(self.shapes))
        return np.concatenate([array.reshape(-1).astype(np.float64) for array in taken])

    def mean(self, result: SumResult) -> MeanResult:
        """Return the mean that a released total holds.

        Args:
            result: of a ``NoisySum`` over ``layout``.

        Raises:
            InvalidVectorError: a total of another layout.
        """
        check_total(result.total, self.layout)
        n, means, place = len(result.survivors), {}, 0
        for name, shape in self.shapes:
            part = result.total[place : place + size_of(shape)].reshape(shape)
            place += size_of(shape)
            means[name] = np.asarray(np.ldexp(part.astype(np.float64), -self._shift) / n)
        radius = self.noise.share.radius(slice(0, 1))
        bound = (radius + 1) * 2.0**-self._shift
        return MeanResult(
            arrays=means,
            weight=n,
            metrics={},
            clipped={},
            survivors=result.survivors,
            error_bound=dict.fromkeys(means, bound),
        )
