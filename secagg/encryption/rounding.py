"""Randomised rounding of a BFV message (circuit privacy): the noise of a sum is independent of single vectors.

A BFV ciphertext contains q m / t, which is no integer: SEAL rounds it. The rounding error is a function of the message,
stays in the noise of the sum, and lets a key holder confirm a guessed vector. Here each coefficient is rounded to a
*discrete Gaussian* around q m / t instead. The errors are then Gaussians on cosets of Z. Their sum is, up to a stated
statistical distance, a Gaussian on the coset that the total alone determines (Micciancio and Peikert, "Hardness of
SIS and LWE with Small Parameters", CRYPTO 2013, Theorem 3.3). See ``docs/explanation/circuit-privacy.md``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from secagg.encryption.seal import Residues
from secagg.entropy import Entropy

if TYPE_CHECKING:
    from secagg.encryption.schemes import EncryptionParameters

ROUNDING_WIDTH = 8
"""s: a BFV coefficient x is rounded to k with weight exp(-pi (k - x)^2 / s^2). Z is smooth at 4.73 but for 2^-100, and
sqrt(2) times that is needed."""

REACH = 32
"""Largest distance of a draw from the centre; the mass beyond is below 2^-70."""

_SURE = np.uint64(1 << 53)


def gaussian_rounding(numerators: NDArray[np.int64], modulus: int, entropy: Entropy) -> NDArray[np.int64]:
    """Draw integers k with weight exp(-pi (k - a / modulus)^2 / ``ROUNDING_WIDTH``^2), one for each numerator a.

    Rejection sampling from uniform proposals. Weights are float64 and compared with uniform numbers of at least 53
    significant bits, so that each probability is accurate to a relative 2^-48.

    Args:
        numerators: a, shape (n,), 0 <= a < ``modulus``.
        modulus: t, below 2^62.
        entropy: source of the draws.

    Returns:
        k, shape (n,), int64, from 1 - ``REACH`` to ``REACH``.
    """
    centres = numerators / modulus
    drawn = np.zeros(len(centres), dtype=np.int64)
    left = np.arange(len(centres))
    while len(left):
        # 2 REACH = 64 places: a byte less its two highest bits is one of them.
        places = (np.frombuffer(entropy(len(left)), dtype=np.uint8) & 63).astype(np.int64) + 1 - REACH
        kept = _uniform(len(left), entropy) < np.exp(-math.pi * ((places - centres[left]) / ROUNDING_WIDTH) ** 2)
        drawn[left[kept]] = places[kept]
        left = left[~kept]
    return drawn


def _uniform(count: int, entropy: Entropy) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) with 53 significant bits down to 2^-75."""
    words = np.frombuffer(entropy(8 * count), dtype="<u8")
    numbers = words * 2.0**-64
    small = np.flatnonzero(words < _SURE)
    numbers[small] += np.frombuffer(entropy(8 * len(small)), dtype="<u8") * 2.0**-128
    return numbers


def seal_rounding(
    message: NDArray[np.int64], parameters: EncryptionParameters
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the fractional parts a / t of q m / t, and whether SEAL rounds them up.

    SEAL adds the integer part of (q m + floor((t + 1) / 2)) / t.

    Args:
        message: m, shape (degree,), 0 <= m < t.
        parameters: of BFV.

    Returns:
        The numerators a, 0 <= a < t, and where a + floor((t + 1) / 2) reaches t; both of shape (degree,).
    """
    t, q = parameters.plain_modulus, parameters.modulus
    numerators = (message.astype(object) * (q % t) % t).astype(np.int64)
    return numerators, numerators >= t - (t + 1) // 2


def randomise_rounding(
    residues: Residues, message: NDArray[np.int64], parameters: EncryptionParameters, entropy: Entropy
) -> Residues:
    """Replace SEAL's rounding in a fresh ciphertext by randomised rounding.

    Args:
        residues: SEAL's ciphertext, changed in place.
        message: the coefficients of its plaintext, shape (degree,), 0 <= m < t.
        parameters: parameters of BFV.
        entropy: source of the draws.

    Returns:
        ``residues``.
    """
    numerators, up = seal_rounding(message, parameters)
    change = gaussian_rounding(numerators, parameters.plain_modulus, entropy) - up
    for residue, prime in zip(residues[0], parameters.primes, strict=True):
        residue[:] = (residue.astype(np.int64) + change) % prime
    return residues
