"""Exact and fast sampling of integer noise from the discrete Gaussian distribution.

In N_Z(0, v) the integer x has a probability proportional to exp(-x^2 / 2v) (Canonne, Kamath and Steinke 2020). The
sampler is a rejection from a staircase: blocks of 2^k integers under a step that is never below the target. One secret
64-bit word selects a block and a height below its step, a second one the place in the block and the sign; the proposal
is accepted if the height is below the target there. Floating point decides only if the answer is clear with a margin;
otherwise (about one draw in 10^10) the height is drawn to more bits and compared with correctly rounded decimals. The
distribution is exact except for its tail: it is truncated at 14 standard deviations, which changes it by less than
``TAIL_MASS`` in total variation.

Not constant time: the duration of a draw depends on rejected random bits, not on accepted ones.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg.dp.errors import PrivacyError
from secagg.entropy import Entropy, os_entropy
from secagg.layout import IntVector

TAIL_SIGMAS = 14
"""Truncation, in standard deviations. It makes bounds of noisy sums certain."""

TAIL_MASS = 2 * math.exp(-(TAIL_SIGMAS**2) / 2)
"""Mass beyond the truncation: P(|X| >= m) <= 2 exp(-m^2 / 2v), since the distribution is sub-Gaussian (CKS 2020).
This, 5.5e-43 per draw, is the total variation distance between the target and the drawn distribution."""

MAX_VARIANCE = 1 << 112
"""Largest variance for which 14 standard deviations fit an int64."""

_BLOCKS_A_SIGMA = 64
_HEIGHT_BITS = 62
_MARGIN = 2.0**-36
"""Margin above float64 rounding errors, for any exp() accurate to 2^16 units in the last place."""

_WORD_BYTES = 8
_AT_ONCE = 1 << 12


class DiscreteGaussian:
    """The discrete Gaussian distribution N_Z(0, variance), truncated at 14 standard deviations.

    Args:
        variance: v, an exact rational above 0 and at most 2^112. (The actual variance is at most v and, from v = 1 on,
            v up to a relative 10^-6.)

    Raises:
        PrivacyError: ``variance`` is out of range.

    >>> noise = DiscreteGaussian(100)
    >>> noise.draw(3).dtype, noise.radius
    (dtype('int64'), 140)
    """

    def __init__(self, variance: int | Fraction) -> None:
        if not isinstance(variance, int | Fraction) or not 0 < variance <= MAX_VARIANCE:
            raise PrivacyError("the variance of integer noise must be an exact number above 0 and at most 2^112")
        self.variance = Fraction(variance)
        self.radius = math.isqrt(math.floor(TAIL_SIGMAS**2 * self.variance))
        sigma = math.sqrt(self.variance)
        self._block_bits = max(0, math.floor(math.log2(sigma / _BLOCKS_A_SIGMA)))
        edges = np.ldexp(np.arange((self.radius >> self._block_bits) + 1, dtype=np.float64), self._block_bits)
        law = np.exp(-(edges**2) / (2.0 * float(self.variance)))
        self._scale = math.floor(2.0**_HEIGHT_BITS / float(law.sum()) * (1.0 - 2.0**-20))
        steps = np.ceil(self._scale * law * (1.0 + _MARGIN)).astype(np.uint64) + np.uint64(1)
        self._ends = np.cumsum(steps, dtype=np.uint64)
        self._starts = self._ends - steps

    def draw(self, n: int, entropy: Entropy = os_entropy) -> IntVector:
        """Draw ``n`` independent integers, int64 of shape (n,), none larger than ``radius`` in absolute value."""
        drawn = np.empty(n, dtype=np.int64)
        filled = 0
        while filled < n:
            missing = n - filled
            found = self._proposals(min(_AT_ONCE, missing + missing // 16 + 8), entropy)[:missing]
            drawn[filled : filled + len(found)] = found
            filled += len(found)
        return drawn

    def _proposals(self, n: int, entropy: Entropy) -> IntVector:
        """Return the accepted ones of ``n`` proposals, in order."""
        words = np.frombuffer(entropy(2 * n * _WORD_BYTES), dtype="<u8").reshape(2, n)
        points = words[0] >> np.uint64(64 - _HEIGHT_BITS)
        under = points < self._ends[-1]
        points, places = points[under], words[1][under]
        blocks = np.searchsorted(self._ends, points, side="right")
        heights = points - self._starts[blocks]
        sign = (places & np.uint64(1)).astype(np.int64)
        inside = ((places >> np.uint64(1)) & np.uint64((1 << self._block_bits) - 1)).astype(np.int64)
        values = ((blocks << self._block_bits) + inside) ^ -sign  # x or -1 - x: zero has no second way to come up
        standing: IntVector = values[self._stand(values, heights, entropy)]
        return standing

    def _stand(self, values: IntVector, heights: NDArray[np.uint64], entropy: Entropy) -> NDArray[np.bool_]:
        law = self._scale * np.exp(-(values.astype(np.float64) ** 2) / (2.0 * float(self.variance)))
        heights_up = heights.astype(np.float64)
        stand: NDArray[np.bool_] = heights_up + 1.0 <= law * (1.0 - _MARGIN)
        for index in np.flatnonzero(~stand & (heights_up < law * (1.0 + _MARGIN))):
            stand[index] = self._lies_below(int(values[index]), int(heights[index]), entropy)
        stand &= (values <= self.radius) & (values >= -self.radius)
        return stand

    def _lies_below(self, value: int, height: int, entropy: Entropy) -> bool:
        """Return whether ``height`` plus a uniform fraction is below scale exp(-value^2 / 2v)."""
        exponent = Fraction(value * value) / (2 * self.variance)
        bits = 0
        while True:
            low, high = _scaled_exp(exponent, self._scale << bits)
            if height + 1 <= low:
                return True
            if height >= high:
                return False
            height = height << 64 | int.from_bytes(entropy(8), "little")
            bits += 64


@lru_cache(maxsize=64)
def discrete_gaussian(variance: int | Fraction) -> DiscreteGaussian:
    """Return the distribution of this variance (cached)."""
    return DiscreteGaussian(variance)


def _scaled_exp(exponent: Fraction, scale: int) -> tuple[int, int]:
    """Return integers low <= scale exp(-exponent) <= high, at most two apart; exponent is 0 to some hundreds.

    Every operation is the context's own: operators, unary minus among them, round to the calling thread's precision.
    """
    digits = len(str(scale)) + 20
    context = Context(prec=digits)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = context.multiply(context.exp(ratio.copy_negate()), Decimal(scale))
    # Each of the three operations is correctly rounded; the first error, relative 10^-digits, grows by the exponent.
    slack = context.multiply(value, Decimal(1).scaleb(6 - digits, context))
    return math.floor(context.subtract(value, slack)), math.ceil(context.add(value, slack))
