"""Rings of encrypted sums: a table of degrees and primes with 128 bits of security.

The primes are computed with a Miller-Rabin test that is deterministic below 3.3e24, so that every party finds the same
ones without another library.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from secagg.errors import ConfigurationError

MAX_MODULUS_BITS = {4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""Largest total size of all primes, in bits, for 128-bit security by ring degree (ternary secrets, classical attacks).

Source: Albrecht et al., "Homomorphic Encryption Standard", 2018, Table 1; SEAL enforces the same numbers.
"""

SPECIAL_PRIME_BITS = 40
"""Size of the prime that is divided out of a fresh ciphertext; the remaining noise then is negligible."""

MAX_PRIME_BITS = 60

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """The ring Z[X] / (X^n + 1) and the modulus q of ciphertexts.

    Args:
        degree: n, of the ring's polynomials.
        prime_bits: sizes in bits of the primes whose product q is the modulus of ciphertexts; multiples of 4.

    Raises:
        ConfigurationError: less than 128 bits of security, or sizes out of range.
    """

    degree: int
    prime_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        allowed = MAX_MODULUS_BITS.get(self.degree)
        if allowed is None:
            raise ConfigurationError(f"the ring degree is one of {sorted(MAX_MODULUS_BITS)}, not {self.degree}")
        if not self.prime_bits or any(b % 4 or not 28 <= b <= MAX_PRIME_BITS for b in self.prime_bits):
            raise ConfigurationError(f"primes have 28 to {MAX_PRIME_BITS} bits, in steps of 4; came: {self.prime_bits}")
        if sum(self.all_prime_bits) > allowed:
            raise ConfigurationError(
                f"degree {self.degree} is 128-bit secure up to {allowed} bits of modulus and these are "
                f"{sum(self.all_prime_bits)} with the special prime; take a larger degree or smaller primes"
            )

    @property
    def all_prime_bits(self) -> tuple[int, ...]:
        """Sizes of all primes with the special prime, in SEAL's order."""
        return (*self.prime_bits, SPECIAL_PRIME_BITS)

    @property
    def all_primes(self) -> tuple[int, ...]:
        """The primes of q and then the special prime, as SEAL picks them for these sizes."""
        sizes = self.all_prime_bits
        left = {bits: list(largest_primes(self.degree, bits, sizes.count(bits))) for bits in set(sizes)}
        return tuple(left[bits].pop(0) for bits in sizes)

    @property
    def primes(self) -> tuple[int, ...]:
        """The primes of q, in SEAL's order: of one size, the smaller first."""
        return self.all_primes[:-1]

    @property
    def special_prime(self) -> int:
        """The prime p that is divided out of a fresh ciphertext."""
        return self.all_primes[-1]

    @property
    def modulus(self) -> int:
        """The modulus q of ciphertexts on the wire."""
        return math.prod(self.primes)

    @property
    def ciphertext_bytes(self) -> int:
        """Number of bytes of one ciphertext on the wire: 2 n residues modulo each prime."""
        return 2 * self.degree * sum(self.prime_bits) // 8


def _row(degree: int, *prime_bits: int) -> Ring:
    return Ring(degree=degree, prime_bits=prime_bits)


RINGS = (
    _row(4096, 32),
    _row(4096, 36),
    _row(4096, 40),
    _row(4096, 44),
    _row(4096, 48),
    _row(4096, 52),
    _row(4096, 56),
    _row(4096, 60),
    _row(4096, 32, 32),
    _row(4096, 36, 32),
    _row(8192, 36, 36),
    _row(8192, 40, 36),
    _row(8192, 40, 40),
    _row(8192, 44, 40),
    _row(8192, 44, 44),
    _row(8192, 48, 44),
    _row(8192, 48, 48),
    _row(8192, 52, 48),
)
"""All rings for encrypted sums: each modulus of 32 to 100 bits, in the smallest secure degree.

A larger degree with the same modulus takes more bytes per ciphertext and has more noise. A modulus above 100 bits has
no use with a plain modulus of 60 bits or a float of 53 (``tests/secagg/he/test_parameters.py`` searches all of them).
"""


@lru_cache(maxsize=256)
def largest_primes(degree: int, bits: int, count: int) -> tuple[int, ...]:
    """Return the ``count`` largest primes of exactly ``bits`` bits that are 1 modulo 2 ``degree``, ascending.

    This is the order of SEAL's ``CoeffModulus::Create`` for primes of one size.

    Raises:
        ValueError: there are fewer such primes.
    """
    step = 2 * degree
    found: list[int] = []
    candidate = ((1 << bits) - 1) // step * step + 1
    while len(found) < count and candidate >= 1 << (bits - 1):
        if candidate < 1 << bits and is_prime(candidate):
            found.append(candidate)
        candidate -= step
    if len(found) < count:
        raise ValueError(f"there are fewer than {count} primes of {bits} bits that are 1 modulo {step}")
    return tuple(reversed(found))


def largest_prime_below(degree: int, ceiling: int) -> int | None:
    """Return the largest prime below ``ceiling`` that is 1 modulo 2 ``degree``; None if there is none."""
    step = 2 * degree
    candidates = range((ceiling - 2) // step * step + 1, step, -step)
    return next((candidate for candidate in candidates if is_prime(candidate)), None)


def is_prime(number: int) -> bool:
    """Return whether a number below 3.3e24 is prime, by Miller-Rabin with the first 12 primes as bases.

    Source: Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", Math. Comp. 86, 2017, Theorem 1.1.
    """
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, witness, odd, twos) for witness in _WITNESSES)


def _passes(number: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
