"""Parameters of CKKS and BFV for exact sums: an unsafe or inexact combination cannot be constructed.

The primes are found here, by a test of Miller and Rabin that is a proof below 3.3e24: every party must find the same
ones, and thirty lines do it without another library at the heart of a sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from secagg.encryption.noise import FAILURE_BITS, MARGIN, bfv_error, ckks_error, ckks_noise
from secagg.errors import ConfigurationError

Scheme = Literal["ckks", "bfv"]

MAX_MODULUS_BITS = {4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""Most bits of all primes together for 128-bit security by ring degree, ternary secrets, classical attacks.

Source: Albrecht et al., "Homomorphic Encryption Standard", 2018, Table 1; SEAL enforces the same numbers.
"""

SPECIAL_PRIME_BITS = 40
"""The prime that is divided out of a fresh ciphertext; this many bits make what it leaves of the noise negligible."""

MAX_PRIME_BITS = 60

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def seal_primes(degree: int, prime_bits: tuple[int, ...]) -> tuple[int, ...]:
    """The primes of q and then the special prime, as SEAL picks them for these sizes."""
    sizes = (*prime_bits, SPECIAL_PRIME_BITS)
    left = {bits: list(largest_primes(degree, bits, sizes.count(bits))) for bits in set(sizes)}
    return tuple(left[bits].pop(0) for bits in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionParameters:
    """One choice of scheme, ring and moduli, with the largest sum that it carries exactly.

    Args:
        scheme: ``bfv`` (slots are integers modulo ``plain_modulus``, ``degree`` of them a ciphertext) or ``ckks``
            (slots are real numbers times 2^``scale_bits``, ``degree`` / 2 of them).
        degree: n of the ring Z[X] / (X^n + 1).
        prime_bits: sizes of the primes whose product q is the modulus of ciphertexts on the wire; multiples of 4.
        n_clients: most ciphertexts that are added.
        slot_bound: largest |sum| in a slot.
        slot_load: ``n_clients`` times the largest |slot| of one client.
        plain_modulus: t, prime and 1 modulo 2n; 0 for CKKS.
        scale_bits: binary logarithm of the scale; 0 for BFV.

    Raises:
        ConfigurationError: below 128 bits of security, or a decrypted sum is not proven to be within ``MARGIN`` of the
            integer, or a sum may wrap around.
    """

    scheme: Scheme
    degree: int
    prime_bits: tuple[int, ...]
    n_clients: int
    slot_bound: int
    slot_load: int
    plain_modulus: int = 0
    scale_bits: int = 0

    def __post_init__(self) -> None:
        if self.scheme not in ("ckks", "bfv"):
            raise ConfigurationError(f"the scheme is 'ckks' or 'bfv', not {self.scheme!r}")
        self._check_security()
        if self.n_clients < 1 or not 1 <= self.slot_bound <= self.slot_load:
            raise ConfigurationError(
                f"needed: n_clients >= 1 and 1 <= slot_bound <= slot_load; came: {self.n_clients}, {self.slot_bound}, "
                f"{self.slot_load}"
            )
        if self.scheme == "bfv":
            self._check_plain_modulus()
        else:
            self._check_scale()
        if not self.error_bound <= MARGIN:
            raise ConfigurationError(
                f"{self.scheme}: the error of a decrypted sum of {self.n_clients} clients is only proven to be below "
                f"{self.error_bound:.3g}, and exact sums need {MARGIN}; take a larger modulus or smaller digits"
            )

    @property
    def all_prime_bits(self) -> tuple[int, ...]:
        """The sizes with the special prime, in SEAL's order."""
        return (*self.prime_bits, SPECIAL_PRIME_BITS)

    @property
    def primes(self) -> tuple[int, ...]:
        """The primes of q, in SEAL's order: of one size, the smaller first."""
        return self._all_primes()[:-1]

    @property
    def special_prime(self) -> int:
        """P."""
        return self._all_primes()[-1]

    @property
    def modulus(self) -> int:
        """Q."""
        return math.prod(self.primes)

    @property
    def slots(self) -> int:
        """Integers that one ciphertext carries."""
        return self.degree if self.scheme == "bfv" else self.degree // 2

    @property
    def ciphertext_bytes(self) -> int:
        """Bytes of one ciphertext on the wire: 2 n residues modulo each prime."""
        return 2 * self.degree * sum(self.prime_bits) // 8

    @property
    def error_bound(self) -> float:
        """Proven distance of a decrypted slot from the integer sum, but for a probability of 2^-``FAILURE_BITS``."""
        if self.scheme == "bfv":
            return bfv_error(
                degree=self.degree,
                special_prime=self.special_prime,
                n_clients=self.n_clients,
                modulus=self.modulus,
                plain_modulus=self.plain_modulus,
            )
        return ckks_error(
            degree=self.degree,
            special_prime=self.special_prime,
            n_clients=self.n_clients,
            scale=2.0**self.scale_bits,
            slot_load=self.slot_load,
        )

    def canonical(self) -> bytes:
        """One byte string for one choice, for digests."""
        numbers = (
            self.degree,
            *self.prime_bits,
            SPECIAL_PRIME_BITS,
            self.n_clients,
            self.slot_bound,
            self.slot_load,
            self.plain_modulus,
            self.scale_bits,
        )
        return f"{self.scheme} {' '.join(map(str, numbers))}".encode()

    def explain(self) -> str:
        """One line for people: ring, moduli, digits, proven error."""
        inside = (
            f"t of {self.plain_modulus.bit_length()} bits" if self.scheme == "bfv" else f"scale 2^{self.scale_bits}"
        )
        return (
            f"{self.scheme}: degree {self.degree}, q of {sum(self.prime_bits)} bits {list(self.prime_bits)} "
            f"+ special prime of {SPECIAL_PRIME_BITS} (128-bit security allows {MAX_MODULUS_BITS[self.degree]}), "
            f"{inside}; slot sums up to {self.slot_bound}; proven error {self.error_bound:.2g} < 1/2, "
            f"but for a probability of 2^-{FAILURE_BITS}"
        )

    def _all_primes(self) -> tuple[int, ...]:
        return seal_primes(self.degree, self.prime_bits)

    def _check_security(self) -> None:
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

    def _check_plain_modulus(self) -> None:
        t = self.plain_modulus
        if self.scale_bits:
            raise ConfigurationError("BFV has no scale; leave scale_bits at 0")
        if t.bit_length() > MAX_PRIME_BITS or t % (2 * self.degree) != 1 or not is_prime(t) or t in self._all_primes():
            raise ConfigurationError(
                f"the plain modulus must be a prime of at most {MAX_PRIME_BITS} bits, 1 modulo {2 * self.degree} and "
                f"none of the ciphertext's primes; {t} is not"
            )
        if t <= 2 * self.slot_bound:
            raise ConfigurationError(
                f"sums up to {self.slot_bound} need a plain modulus above {2 * self.slot_bound}, not {t}; "
                "take smaller digits or a larger modulus"
            )

    def _check_scale(self) -> None:
        if self.plain_modulus or self.scale_bits < 1:
            raise ConfigurationError("CKKS has a scale of at least 2^1 and no plain modulus (0)")
        noise = ckks_noise(degree=self.degree, special_prime=self.special_prime, n_clients=self.n_clients)
        # Half of q would do to decrypt; SEAL's encoder asks for one bit more.
        room, needed = self.modulus // 4, (self.slot_bound << self.scale_bits) + math.ceil(noise)
        if needed >= room:
            raise ConfigurationError(
                f"sums up to {self.slot_bound} at scale 2^{self.scale_bits} need a modulus of "
                f"{needed.bit_length() + 2} bits and q has {self.modulus.bit_length()}; "
                "take smaller digits or a larger modulus"
            )


@lru_cache(maxsize=256)
def largest_primes(degree: int, bits: int, count: int) -> tuple[int, ...]:
    """The ``count`` largest primes of exactly ``bits`` bits that are 1 modulo 2 ``degree``, ascending.

    This is the order in which SEAL's ``CoeffModulus::Create`` hands out primes of one size.

    Raises:
        ValueError: there are fewer.
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
    """The largest prime less than ``ceiling`` that is 1 modulo 2 ``degree``; None if there is none."""
    step = 2 * degree
    candidates = range((ceiling - 2) // step * step + 1, step, -step)
    return next((candidate for candidate in candidates if is_prime(candidate)), None)


def is_prime(number: int) -> bool:
    """Whether ``number`` < 3.3e24 is prime: Miller-Rabin with the first 12 primes as bases decides it.

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
