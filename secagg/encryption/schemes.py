"""BFV and CKKS for exact sums, and parameters that are checked to be secure and exact.

Bounds on the error of a decrypted sum follow from SEAL's way of public-key encryption.
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

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from secagg.encryption.digits import DigitPlan
from secagg.encryption.rings import (
    MAX_MODULUS_BITS,
    MAX_PRIME_BITS,
    SPECIAL_PRIME_BITS,
    Ring,
    is_prime,
    largest_prime_below,
)
from secagg.encryption.rounding import ROUNDING_WIDTH, randomise_rounding
from secagg.encryption.seal import Residues, SecretKey, coefficients, residues_of, tenseal
from secagg.entropy import os_entropy
from secagg.errors import ConfigurationError, SumOutOfBoundsError
from secagg.layout import IntVector, Layout

SchemeName = Literal["ckks", "bfv"]

FAILURE_BITS = 64
"""A bound fails for a whole sum with probability at most 2^-64 (plus the advantage against RLWE)."""

MAX_SLOTS = 2**40
"""Number of slots of one sum in the union bound."""

MARGIN = 0.25
"""Largest proven error of a slot; rounding to an integer fails at 1/2."""

MAX_NOISE = 21

DEVIATIONS = math.sqrt(2 * math.log(2) * (FAILURE_BITS + 2 + math.log2(MAX_SLOTS)))

_TRANSFORM_ERROR = 2.0**-50
"""Relative error of one butterfly with rounded roots, 8 units of 2^-53."""


class Scheme(ABC):
    """Interface of an encryption scheme."""

    name: ClassVar[SchemeName]
    confirms_guesses: ClassVar[bool]
    """True if a key holder can confirm a guess of a vector from the noise of the sum (no circuit privacy)."""

    @abstractmethod
    def slots(self, degree: int) -> int:
        """Return the number of integers in one ciphertext."""

    @abstractmethod
    def noise(self, ring: Ring, n_clients: int) -> float:
        """Return the largest noise in a sum of ``n_clients`` ciphertexts."""

    @abstractmethod
    def fit(self, ring: Ring, layout: Layout, n_clients: int, *, masked: bool) -> EncryptionParameters:
        """Return the parameters in a ring that encode a layout in the fewest digits.

        Raises:
            ConfigurationError: there are none.
        """

    def _fitted(self, ring: Ring, plan: DigitPlan, **moduli: int) -> EncryptionParameters:
        return EncryptionParameters(
            scheme=self.name,
            degree=ring.degree,
            prime_bits=ring.prime_bits,
            n_clients=plan.n_clients,
            slot_bound=plan.needed_bound,
            slot_load=plan.needed_load,
            **moduli,
        )

    @abstractmethod
    def error_bound(self, parameters: EncryptionParameters) -> float:
        """Return the largest distance of a decrypted slot from the integer sum."""

    @abstractmethod
    def check(self, parameters: EncryptionParameters) -> None:
        """Refuse a plain modulus or scale with which a sum could wrap around.

        Raises:
            ConfigurationError: the modulus or scale is not valid.
        """

    @abstractmethod
    def explain(self, parameters: EncryptionParameters) -> str:
        """Describe the plain modulus or scale."""

    @abstractmethod
    def encrypt(self, values: IntVector, parameters: EncryptionParameters, context: Any) -> Residues:
        """Encrypt up to ``parameters.slots`` integers with the public key of a TenSEAL context."""

    def decrypt(
        self, residues: Residues, count: int, parameters: EncryptionParameters, key: SecretKey
    ) -> tuple[IntVector, float]:
        """Return the integer sums in the first ``count`` slots, and an upper bound of their error before rounding.

        Raises:
            SumOutOfBoundsError: the error exceeds the proven bound or a sum exceeds its slot: the ciphertext is no sum
                of at most ``n_clients`` honest ciphertexts under this key.
        """
        values, error = self._read(key.vector_of(residues, count), parameters, key)
        bound = parameters.slot_bound
        if values is None or values.max() > bound or values.min() < -bound:
            raise SumOutOfBoundsError(
                f"the sum does not decrypt to integers within {parameters.error_bound:.2g} and the slots' bound: "
                "somebody encrypted under another key or broke the protocol; discard it and start a new session"
            )
        return values, error

    @abstractmethod
    def _read(self, vector: Any, parameters: EncryptionParameters, key: SecretKey) -> tuple[IntVector | None, float]:
        """Decrypt a TenSEAL vector; None where its error exceeds the proven bound."""


class BFV(Scheme):
    """BFV: ``degree`` slots of integers modulo ``plain_modulus``."""

    name, confirms_guesses = "bfv", False

    def slots(self, degree: int) -> int:
        """Return the number of coefficients."""
        return degree

    def noise(self, ring: Ring, n_clients: int) -> float:
        """Return the largest coefficient of the noise.

        A coefficient of tau_1 s is a linear form with |a|^2 = |s|^2 <= degree. The message is q m / t with randomised
        rounding; sums that wrap around t do so exactly.
        """
        rounding = DEVIATIONS * math.sqrt(n_clients * (ring.degree / 12 + ROUNDING_WIDTH**2 / (2 * math.pi)))
        fresh = n_clients * MAX_NOISE * (2 * ring.degree + 1) / ring.special_prime
        return rounding + n_clients + fresh

    def fit(self, ring: Ring, layout: Layout, n_clients: int, *, masked: bool) -> EncryptionParameters:
        """Return the parameters with the largest plain modulus within the margin, to detect exceeded bounds."""
        ceiling = math.floor(ring.modulus * MARGIN / self.noise(ring, n_clients) * (1 - 1e-9))
        t = largest_prime_below(ring.degree, min(ceiling, 1 << MAX_PRIME_BITS))
        if t is None:
            raise ConfigurationError(f"no plain modulus is below {ceiling}; take a larger ring")
        bound = (t - 1) // 2
        plan = DigitPlan(layout=layout, n_clients=n_clients, slot_bound=bound, slot_load=n_clients * t, masked=masked)
        return self._fitted(ring, plan, plain_modulus=t)

    def error_bound(self, parameters: EncryptionParameters) -> float:
        """Return the largest |t noise / q|, the distance from the integer before rounding."""
        return self.noise(parameters, parameters.n_clients) * (parameters.plain_modulus / parameters.modulus)

    def check(self, parameters: EncryptionParameters) -> None:
        """Check that the plain modulus is a suitable prime and exceeds twice every sum."""
        t, degree = parameters.plain_modulus, parameters.degree
        if parameters.scale_bits:
            raise ConfigurationError("BFV has no scale; leave scale_bits at 0")
        if t.bit_length() > MAX_PRIME_BITS or t % (2 * degree) != 1 or not is_prime(t) or t in parameters.all_primes:
            raise ConfigurationError(
                f"the plain modulus must be a prime of at most {MAX_PRIME_BITS} bits, 1 modulo {2 * degree} and "
                f"none of the ciphertext's primes; {t} is not"
            )
        if t <= 2 * parameters.slot_bound:
            raise ConfigurationError(
                f"sums up to {parameters.slot_bound} need a plain modulus above {2 * parameters.slot_bound}, not {t}; "
                "take smaller digits or a larger modulus"
            )

    def explain(self, parameters: EncryptionParameters) -> str:
        """Describe the plain modulus."""
        return f"t of {parameters.plain_modulus.bit_length()} bits"

    def encrypt(self, values: IntVector, parameters: EncryptionParameters, context: Any) -> Residues:
        """Encrypt with randomised rounding of the message, see ``secagg.encryption.rounding``."""
        seal, keys = importlib.import_module("tenseal.sealapi"), context.data
        message, ciphertext = seal.Plaintext(), seal.Ciphertext()
        seal.BatchEncoder(keys.seal_context()).encode(values.tolist(), message)
        seal.Encryptor(keys.seal_context(), keys.public_key()).encrypt(message, ciphertext)
        residues = residues_of(ciphertext, parameters)
        return randomise_rounding(residues, coefficients(message, parameters.degree), parameters, os_entropy)

    def _read(self, vector: Any, parameters: EncryptionParameters, key: SecretKey) -> tuple[IntVector | None, float]:
        """Decrypt; the error follows from the noise budget, the bits up to 1/2. A budget of 0 is a failure."""
        budget = key.context.data.decryptor().invariant_noise_budget(vector.ciphertext()[0])
        error = 2.0 ** (parameters.modulus.bit_length() - budget - 1) / parameters.modulus
        return None if budget < 1 else np.array(vector.decrypt(), dtype=np.int64), error


class CKKS(Scheme):
    """CKKS: ``degree`` / 2 slots of real numbers times 2^``scale_bits``."""

    name, confirms_guesses = "ckks", True

    def slots(self, degree: int) -> int:
        """Return half the number of coefficients: slots are complex."""
        return degree // 2

    def noise(self, ring: Ring, n_clients: int) -> float:
        """Return the largest real part of the noise in a slot, before scaling.

        In a slot polynomials are evaluated at a primitive 2n-th root of unity z. Re(tau_1(z) s(z)) is a linear form of
        tau_1 with |a|^2 = |s(z)|^2 n / 2; Re s(z) and Im s(z) are sub-Gaussian with proxy n / 3 each (2/3 for a uniform
        ternary coefficient), so |s(z)|^2 <= 2 k^2 n / 3. A bound of 1/2 per coefficient is a bound of n / 2 in a
        slot.
        """
        degree = ring.degree
        key = DEVIATIONS * math.sqrt(2 * degree / 3)
        rounding = DEVIATIONS * math.sqrt(n_clients * degree / 24) * key
        fresh = n_clients * MAX_NOISE * (2 * degree * degree + degree) / ring.special_prime
        return rounding + n_clients * degree + fresh

    def fit(self, ring: Ring, layout: Layout, n_clients: int, *, masked: bool) -> EncryptionParameters:
        """Return the widest digits with half of the margin for noise, then the largest scale for them."""
        noise = self.noise(ring, n_clients)
        room = ring.modulus // 4 - math.ceil(noise) - 1
        plan = DigitPlan(
            layout=layout,
            n_clients=n_clients,
            slot_bound=room >> math.ceil(math.log2(2 * noise / MARGIN)),
            slot_load=math.floor(MARGIN / 2 / transform_error(degree=ring.degree, slot_load=1)),
            masked=masked,
        )
        return self._fitted(ring, plan, scale_bits=(room // plan.needed_bound).bit_length() - 1)

    def error_bound(self, parameters: EncryptionParameters) -> float:
        """Return the error of the noise and of float64 transforms."""
        noise = self.noise(parameters, parameters.n_clients) / 2.0**parameters.scale_bits
        return noise + transform_error(degree=parameters.degree, slot_load=parameters.slot_load)

    def check(self, parameters: EncryptionParameters) -> None:
        """Check that sums times the scale stay below the modulus."""
        bound, scale_bits, modulus = parameters.slot_bound, parameters.scale_bits, parameters.modulus
        if parameters.plain_modulus or scale_bits < 1:
            raise ConfigurationError("CKKS has a scale of at least 2^1 and no plain modulus (0)")
        # Half of q would do to decrypt; SEAL's encoder asks for one bit more.
        needed = (bound << scale_bits) + math.ceil(self.noise(parameters, parameters.n_clients))
        if needed >= modulus // 4:
            raise ConfigurationError(
                f"sums up to {bound} at scale 2^{scale_bits} need a modulus of {needed.bit_length() + 2} bits and q "
                f"has {modulus.bit_length()}; take smaller digits or a larger modulus"
            )

    def explain(self, parameters: EncryptionParameters) -> str:
        """Describe the scale."""
        return f"scale 2^{parameters.scale_bits}"

    def encrypt(self, values: IntVector, parameters: EncryptionParameters, context: Any) -> Residues:
        """Encrypt integers. TenSEAL repeats values to fill the slots; repetitions are never decrypted."""
        numbers = values.astype(np.float64).tolist()
        vector = tenseal().ckks_vector(context, numbers, scale=2.0**parameters.scale_bits)
        return residues_of(vector.ciphertext()[0], parameters)

    def _read(self, vector: Any, parameters: EncryptionParameters, key: SecretKey) -> tuple[IntVector | None, float]:
        """Decrypt and measure the error, the distance from the nearest integer."""
        real = np.array(vector.decrypt(), dtype=np.float64)
        rounded = np.rint(real)
        error = float(np.abs(real - rounded).max())
        exact = error <= parameters.error_bound and np.abs(rounded).max() < 2.0**62
        return rounded.astype(np.int64) if exact else None, error


SCHEMES: Mapping[SchemeName, Scheme] = {"bfv": BFV(), "ckks": CKKS()}


def transform_error(*, degree: int, slot_load: int) -> float:
    """Return the largest error of the float64 Fourier transforms that encode each client's slots and decode their sum.

    A transform of n = ``degree`` points errs by at most log2(n) eta in the 2-norm (Higham, "Accuracy and Stability of
    Numerical Algorithms", 2nd ed., Theorem 24.2); two more eta cover scaling and conversion. The 2-norm of all slots
    is at most sqrt(n) times the largest, and the largest error is at most its 2-norm.

    Args:
        degree: n, of the ring's polynomials.
        slot_load: number of clients times the largest |slot| of one client; at least the largest |sum|.
    """
    return 2 * slot_load * math.sqrt(degree) * (math.log2(degree) + 2) * _TRANSFORM_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionParameters(Ring):
    """Parameters of an encryption scheme that are secure (128 bits) and proven exact for their sums.

    Usually created by ``choose_parameters``.

    Args:
        scheme: ``bfv`` or ``ckks``.
        degree: degree n of the ring Z[X] / (X^n + 1).
        prime_bits: sizes in bits of the primes of the ciphertext modulus; multiples of 4.
        n_clients: largest number of ciphertexts in a sum.
        slot_bound: largest |sum| in a slot.
        slot_load: ``n_clients`` times the largest |slot| of one client.
        plain_modulus: t, a prime that is 1 modulo 2n; 0 for CKKS.
        scale_bits: binary logarithm of the scale; 0 for BFV.

    Raises:
        ConfigurationError: less than 128 bits of security, no proof that a decrypted sum is within ``MARGIN`` of the
            integer, or a sum that could wrap around.

    >>> from secagg.encryption import choose_parameters
    >>> parameters = choose_parameters(Layout.of([("counts", 100, 1000)]), 10, scheme="bfv")
    >>> parameters.n_clients, parameters.slots, parameters.error_bound < 0.25
    (10, 4096, True)
    """

    scheme: SchemeName
    n_clients: int
    slot_bound: int
    slot_load: int
    plain_modulus: int = 0
    scale_bits: int = 0

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise ConfigurationError(f"the scheme is 'ckks' or 'bfv', not {self.scheme!r}")
        Ring.__post_init__(self)
        if self.n_clients < 1 or not 1 <= self.slot_bound <= self.slot_load:
            raise ConfigurationError(
                f"needed: n_clients >= 1 and 1 <= slot_bound <= slot_load; came: {self.n_clients}, {self.slot_bound}, "
                f"{self.slot_load}"
            )
        self.rules.check(self)
        if not self.error_bound <= MARGIN:
            raise ConfigurationError(
                f"{self.scheme}: the error of a decrypted sum of {self.n_clients} clients is only proven to be below "
                f"{self.error_bound:.3g}, and exact sums need {MARGIN}; take a larger modulus or smaller digits"
            )

    @property
    def rules(self) -> Scheme:
        """Implementation of the scheme."""
        return SCHEMES[self.scheme]

    @property
    def slots(self) -> int:
        """Number of integers in one ciphertext."""
        return self.rules.slots(self.degree)

    @property
    def error_bound(self) -> float:
        """Proven distance of a decrypted slot from the integer sum, except with probability 2^-``FAILURE_BITS``."""
        return self.rules.error_bound(self)

    def canonical(self) -> bytes:
        """Return the canonical encoding of the parameters, for digests."""
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
        """Describe ring, moduli, digits and proven error in one line."""
        return (
            f"{self.scheme}: degree {self.degree}, q of {sum(self.prime_bits)} bits {list(self.prime_bits)} "
            f"+ special prime of {SPECIAL_PRIME_BITS} (128-bit security allows {MAX_MODULUS_BITS[self.degree]}), "
            f"{self.rules.explain(self)}; slot sums up to {self.slot_bound}; "
            f"proven error {self.error_bound:.2g} < 1/2, but for a probability of 2^-{FAILURE_BITS}"
        )
