"""The discrete Gaussian in Python integers, as Canonne, Kamath and Steinke publish it: slow, and the tests' oracle.

"The Discrete Gaussian for Differential Privacy", NeurIPS 2020, Algorithms 1 to 3. Every coin has an exact rational
probability; nothing is rounded or cut.
"""

from __future__ import annotations

import math
from fractions import Fraction

from secagg.dp.errors import PrivacyError
from secagg.entropy import Entropy, os_entropy


def sample_discrete_gaussian(variance: int | Fraction, entropy: Entropy = os_entropy) -> int:
    """One draw of N_Z(0, variance) (Algorithm 3): a discrete Laplace draw that stands with the right probability."""
    if variance <= 0:
        raise PrivacyError(f"the variance of integer noise must be above 0, not {variance}")
    exact = Fraction(variance)
    scale = math.isqrt(math.floor(exact)) + 1
    while True:
        value = sample_discrete_laplace(scale, entropy)
        if bernoulli_exp((abs(value) - exact / scale) ** 2 / (2 * exact), entropy):
            return value


def sample_discrete_laplace(scale: int, entropy: Entropy = os_entropy) -> int:
    """One integer x with probability proportional to exp(-|x| / scale) (Algorithm 2)."""
    while True:
        remainder = uniform_below(scale, entropy)
        if not bernoulli_exp(Fraction(remainder, scale), entropy):
            continue
        quotient = 0
        while bernoulli_exp(Fraction(1), entropy):
            quotient += 1
        size = remainder + scale * quotient
        negative = uniform_below(2, entropy) == 1
        if not (negative and size == 0):
            return -size if negative else size


def bernoulli_exp(exponent: Fraction, entropy: Entropy = os_entropy) -> bool:
    """True with probability exp(-exponent), exponent >= 0 (Algorithm 1)."""
    while exponent > 1:
        if not bernoulli_exp(Fraction(1), entropy):
            return False
        exponent -= 1
    k = 1
    while bernoulli(exponent / k, entropy):
        k += 1
    return k % 2 == 1


def bernoulli(probability: Fraction, entropy: Entropy = os_entropy) -> bool:
    """True with an exact rational probability."""
    return uniform_below(probability.denominator, entropy) < probability.numerator


def uniform_below(limit: int, entropy: Entropy = os_entropy) -> int:
    """A uniform integer of 0 to limit - 1, by rejection."""
    n_bits = (limit - 1).bit_length()
    n_bytes = -(-n_bits // 8)
    while True:
        drawn = int.from_bytes(entropy(n_bytes), "little") >> (8 * n_bytes - n_bits)
        if drawn < limit:
            return drawn
