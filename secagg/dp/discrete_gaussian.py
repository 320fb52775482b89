"""Integer noise of the discrete Gaussian law, drawn exactly and fast.

N_Z(0, v) gives the integer x a probability proportional to exp(-x^2 / 2v) (Canonne, Kamath and Steinke 2020). The
sampler is a rejection from a staircase: blocks of 2^k integers under a step that is never below the law. One
secret 64-bit word picks a block and a height below its step, a second one the place in the block and the sign;
the draw stands if the height lies below the law there. Floating point only ever answers that question where the
answer is clear with a margin; where it is not (about one draw in 10^10) the height is drawn to more bits and
compared with correctly rounded decimals until it is. So the law of what comes out is exact, but for its end:
beyond 14 standard deviations there is nothing, which changes it by less than ``TAIL_MASS`` in total variation.

Not constant time: how long a draw takes depends on random bits that are then thrown away, not on what stays.
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
"""No draw lies further out. It makes bounds of noisy sums certain instead of likely."""

TAIL_MASS = 2 * math.exp(-(TAIL_SIGMAS**2) / 2)
"""The law's mass beyond: P(|X| >= m) <= 2 exp(-m^2 / 2v), since the discrete law is sub-Gaussian (CKS 2020).
This, 5.5e-43 a draw, is the whole distance in total variation between the law and what is drawn."""

MAX_VARIANCE = 1 << 112
"""Up to here 14 standard deviations and a block's place fit an int64."""

_BLOCKS_A_SIGMA = 64
_HEIGHT_BITS = 62
_MARGIN = 2.0**-36
"""More than float64 rounding and any exp() that is wrong by less than 2^16 units in the last place can do."""

_WORD_BYTES = 8
_AT_ONCE = 1 << 12


class DiscreteGaussian:
    """The law N_Z(0, variance), cut at 14 standard deviations.

    Args:
        variance: v, an exact rational > 0 and at most 2^112. (The variance of the law itself is at most v and, from
            v = 1 on, v up to a relative 10^-6.)

    Raises:
        PrivacyError: a variance out of range.
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
        """``n`` independent draws, int64, none larger than ``radius``."""
        drawn = np.empty(n, dtype=np.int64)
        filled = 0
        while filled < n:
            missing = n - filled
            found = self._proposals(min(_AT_ONCE, missing + missing // 16 + 8), entropy)[:missing]
            drawn[filled : filled + len(found)] = found
            filled += len(found)
        return drawn

    def _proposals(self, n: int, entropy: Entropy) -> IntVector:
        """Those of ``n`` proposals that stand, in the order in which they were made."""
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
        """Whether ``height`` plus a uniform fraction, drawn as far as needed, is below scale exp(-value^2 / 2v)."""
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
    """The law of this variance; its tables are made once."""
    return DiscreteGaussian(variance)


def _scaled_exp(exponent: Fraction, scale: int) -> tuple[int, int]:
    """Integers low <= scale exp(-exponent) <= high, at most two apart; exponent is 0 to some hundreds.

    Every operation is the context's own: operators, unary minus among them, round to the calling thread's precision.
    """
    digits = len(str(scale)) + 20
    context = Context(prec=digits)
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = context.multiply(context.exp(ratio.copy_negate()), Decimal(scale))
    # Each of the three operations is correctly rounded; the first error, relative 10^-digits, grows by the exponent.
    slack = context.multiply(value, Decimal(1).scaleb(6 - digits, context))
    return math.floor(context.subtract(value, slack)), math.ceil(context.add(value, slack))
