"""Bounds on the error of a decrypted sum, for SEAL's way of public-key encryption.

SEAL encrypts zero under the key modulus q p (p is the last, "special" prime), divides by p with rounding and adds the
message: a fresh ciphertext (c_0, c_1) modulo q has

    c_0 + c_1 s = message + (e u + e_0 + e_1 s) / p + tau_0 + tau_1 s,

where u and s are uniformly ternary, each coefficient of e, e_0, e_1 is at most ``MAX_NOISE`` in size (SEAL's centred
binomial reaches 21, its clipped Gaussian of sigma 3.2 reaches 19), and the coefficients of tau_0 and tau_1, the
rounding errors, are at most 1/2.

* (e u + e_0 + e_1 s) / p is bounded in the worst case; p >= 2^39 makes it small.
* tau_0, and under CKKS the rounding of the encoded message to integers, are bounded in the worst case: N / 2 each after
  N additions.
* Under BFV the message is rounded to a discrete Gaussian of width s = ``ROUNDING_WIDTH`` (see ``rounding``), which is
  sub-Gaussian with variance proxy s^2 / (2 pi) up to a factor 1 + 2^-99 (Micciancio and Peikert, "Trapdoors for
  Lattices", EUROCRYPT 2012, Lemma 2.8).
* tau_1: c_1 before the division is an RLWE sample under the fresh secret u, so it is uniform even to one who knows s,
  up to the RLWE advantage that the scheme's secrecy rests on anyway. A uniform tau_1 is sub-Gaussian with variance
  proxy 1/12 a coefficient, so a fixed linear form of the sum of N of them with coefficients a exceeds
  k sqrt(N |a|^2 / 12) with probability at most 2 exp(-k^2 / 2).

``DEVIATIONS`` is k for which the union over 2^40 slots, plus the same for the key, stays below 2^-64.
"""

from __future__ import annotations

import math

FAILURE_BITS = 64
"""A bound fails for a whole sum with probability at most 2^-64 (plus the advantage against RLWE)."""

MAX_SLOTS = 2**40
"""Slots of one sum over which the failure probability is summed up."""

MARGIN = 0.25
"""Largest proven error, in units of the last place of an integer; 1/2 would be wrong."""

MAX_NOISE = 21
ROUNDING_WIDTH = 8
"""s: a BFV coefficient x is rounded to k with weight exp(-pi (k - x)^2 / s^2). Z is smooth at 4.73 but for 2^-100, and
sqrt(2) times that is needed."""

DEVIATIONS = math.sqrt(2 * math.log(2) * (FAILURE_BITS + 2 + math.log2(MAX_SLOTS)))

_TRANSFORM_ERROR = 2.0**-50
"""Relative error of one butterfly with rounded roots, 8 units of 2^-53."""


def bfv_noise(*, degree: int, special_prime: int, n_clients: int) -> float:
    """The largest coefficient of the noise in a sum of ``n_clients`` BFV ciphertexts.

    A coefficient of tau_1 s is a linear form with |a|^2 = |s|^2 <= degree. The message enters as q m / t rounded at
    random, and sums that wrap around t do so exactly.
    """
    rounding = DEVIATIONS * math.sqrt(n_clients * (degree / 12 + ROUNDING_WIDTH**2 / (2 * math.pi)))
    fresh = n_clients * MAX_NOISE * (2 * degree + 1) / special_prime
    return rounding + n_clients + fresh


def bfv_error(*, degree: int, special_prime: int, n_clients: int, modulus: int, plain_modulus: int) -> float:
    """The largest |t noise / q| of a decrypted BFV sum: the distance from the integer before rounding."""
    return bfv_noise(degree=degree, special_prime=special_prime, n_clients=n_clients) * (plain_modulus / modulus)


def ckks_noise(*, degree: int, special_prime: int, n_clients: int) -> float:
    """The largest real part of the noise in a slot of a sum of ``n_clients`` CKKS ciphertexts, before the scale.

    In a slot polynomials are evaluated at a primitive 2n-th root of unity z. Re(tau_1(z) s(z)) is a linear form of
    tau_1 with |a|^2 = |s(z)|^2 n / 2; Re s(z) and Im s(z) are sub-Gaussian with proxy n / 3 each (2/3 for a uniform
    ternary coefficient), so |s(z)|^2 <= 2 k^2 n / 3. What is bounded by 1/2 a coefficient is bounded by n / 2 in a
    slot.
    """
    key = DEVIATIONS * math.sqrt(2 * degree / 3)
    rounding = DEVIATIONS * math.sqrt(n_clients * degree / 24) * key
    fresh = n_clients * MAX_NOISE * (2 * degree * degree + degree) / special_prime
    return rounding + n_clients * degree + fresh


def transform_error(*, degree: int, slot_load: int) -> float:
    """The largest error of float64 Fourier transforms: one to encode each client's slots, one to decode their sum.

    A transform of n = ``degree`` points errs by at most log2(n) eta in the 2-norm (Higham, "Accuracy and Stability of
    Numerical Algorithms", 2nd ed., Theorem 24.2); two more eta pay for scaling and conversion. The 2-norm of all slots
    is at most sqrt(n) times the largest, and the largest error is at most its 2-norm.

    Args:
        degree: n.
        slot_load: clients times the largest absolute slot of one client, which is at least the largest |sum|.
    """
    return 2 * slot_load * math.sqrt(degree) * (math.log2(degree) + 2) * _TRANSFORM_ERROR


def ckks_error(*, degree: int, special_prime: int, n_clients: int, scale: float, slot_load: int) -> float:
    """The largest distance of a decrypted slot from the integer sum."""
    noise = ckks_noise(degree=degree, special_prime=special_prime, n_clients=n_clients)
    return noise / scale + transform_error(degree=degree, slot_load=slot_load)
