"""Guess confirmation by a key holder from the noise of a decrypted sum."""

from __future__ import annotations

import importlib
import math

import flint
import numpy as np
from numpy.typing import NDArray

from secagg.encryption.cipher import VectorCipher, read_ciphertexts
from secagg.encryption.rounding import seal_rounding
from secagg.encryption.schemes import EncryptionParameters
from secagg.encryption.seal import Residues, SecretKey, coefficients
from secagg.layout import IntVector
from secagg.ring import RingVector

Floats = NDArray[np.float64]


class NoiseOfSum:
    """The noise of one encrypted sum, computed with the secret context.

    With BFV it is computed from the secret polynomial; with CKKS it is the distance of a slot from an integer.
    """

    def __init__(self, cipher: VectorCipher, encrypted_sum: bytes | memoryview, secret_context: bytes) -> None:
        self._cipher = cipher
        self._key = SecretKey(cipher.parameters, secret_context)
        noise_of = _bfv_noise if cipher.parameters.scheme == "bfv" else _ckks_noise
        ciphertexts = read_ciphertexts(encrypted_sum, cipher.parameters, cipher.n_ciphertexts)
        self._noise = [noise_of(self._key, cipher.parameters, ciphertext) for ciphertext in ciphertexts]

    def leaning(self, guess: RingVector) -> float:
        """Return the correlation of the noise with the rounding errors of a guessed vector, in standard deviations.

        It is standard normal if the noise is independent of the guess.
        """
        parameters, digits, lean, spread = self._cipher.parameters, self._cipher.plan.split(guess), 0.0, 0.0
        rounding_of, slots = _bfv_rounding if parameters.scheme == "bfv" else _ckks_rounding, parameters.slots
        for place, noise in enumerate(self._noise):
            rounding = rounding_of(self._key, parameters, digits[place * slots : (place + 1) * slots])
            lean += float(rounding @ noise)
            spread += float(rounding @ rounding) * float(noise.var())
        return lean / math.sqrt(spread)


def _ckks_noise(key: SecretKey, parameters: EncryptionParameters, ciphertext: Residues) -> Floats:
    slots = np.array(key.vector_of(ciphertext, parameters.slots).decrypt())
    return np.asarray(slots - np.rint(slots))


def _ckks_rounding(key: SecretKey, parameters: EncryptionParameters, digits: IntVector) -> Floats:
    """Return the rounding errors of encoding and decoding; TenSEAL repeats values to fill all slots."""
    seal, filled = importlib.import_module("tenseal.sealapi"), np.resize(digits, parameters.slots)
    encoder, message = seal.CKKSEncoder(key.context.data.seal_context()), seal.Plaintext()
    encoder.encode(filled.astype(np.float64).tolist(), 2.0**parameters.scale_bits, message)
    return np.asarray(np.array(encoder.decode_double(message)) - filled)


def _bfv_noise(key: SecretKey, parameters: EncryptionParameters, ciphertext: Residues) -> Floats:
    """Return [c_0 + c_1 s - q M / t] modulo q, M being the decrypted coefficients."""
    t, q, degree = parameters.plain_modulus, parameters.modulus, parameters.degree
    scaled = np.zeros_like(ciphertext)
    scaled[1, :, 0] = [q // t % prime for prime in parameters.primes]
    # (0, floor(q / t)) decrypts to the secret polynomial itself, modulo t.
    secret = _decrypted(key, scaled, degree)
    first, second = (flint.fmpz_poly(_lifted(half, parameters)) for half in ciphertext)
    product = second * flint.fmpz_poly([int(s) if s < 2 else -1 for s in secret])
    noise = np.empty(degree)
    for k, total in enumerate(_decrypted(key, ciphertext, degree)):
        away = (t * (int(first[k]) + int(product[k]) - int(product[degree + k])) - q * int(total)) % (q * t)
        noise[k] = (away - q * t if 2 * away > q * t else away) / t
    return noise


def _bfv_rounding(key: SecretKey, parameters: EncryptionParameters, digits: IntVector) -> Floats:
    seal = importlib.import_module("tenseal.sealapi")
    message = seal.Plaintext()
    seal.BatchEncoder(key.context.data.seal_context()).encode(digits.tolist(), message)
    numerators, up = seal_rounding(coefficients(message, parameters.degree), parameters)
    return np.asarray(up - numerators / parameters.plain_modulus)


def _decrypted(key: SecretKey, ciphertext: Residues, degree: int) -> IntVector:
    message = importlib.import_module("tenseal.sealapi").Plaintext()
    key.context.data.decryptor().decrypt(key.vector_of(ciphertext, 1).ciphertext()[0], message)
    return coefficients(message, degree)


def _lifted(residues: NDArray[np.uint64], parameters: EncryptionParameters) -> list[int]:
    """Return the numbers below q with these residues."""
    q, numbers = parameters.modulus, np.zeros(parameters.degree, dtype=object)
    for prime, residue in zip(parameters.primes, residues, strict=True):
        numbers += residue.astype(object) * (q // prime * pow(q // prime, -1, prime))
    return [int(number) for number in numbers % q]
