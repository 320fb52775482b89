"""TenSEAL: key pairs as contexts, integers in slots to residues and back."""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from secagg.encryption.parameters import EncryptionParameters
from secagg.encryption.residues import Residues
from secagg.encryption.rounding import round_at_random
from secagg.entropy import os_entropy
from secagg.errors import ConfigurationError, SumOutOfBoundsError
from secagg.layout import IntVector


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPair:
    """One key pair, for one session.

    Args:
        public_context: parameters and public key, for clients and server.
        secret_context: the same with the secret key, for the key holder only.
    """

    public_context: bytes = field(repr=False)
    secret_context: bytes = field(repr=False)


def generate_contexts(parameters: EncryptionParameters) -> ContextPair:
    """A fresh key pair. SEAL draws it from the operating system by itself; no ``Entropy`` is used."""
    context = _fresh(parameters)
    _check_parameters(context, parameters)
    keys = {"save_public_key": True, "save_galois_keys": False, "save_relin_keys": False}
    return ContextPair(
        public_context=context.serialize(save_secret_key=False, **keys),
        secret_context=context.serialize(save_secret_key=True, **keys),
    )


def _fresh(parameters: EncryptionParameters) -> Any:
    """A TenSEAL context of these parameters with keys of its own."""
    ts = tenseal()
    context = ts.context(
        ts.SCHEME_TYPE.BFV if parameters.scheme == "bfv" else ts.SCHEME_TYPE.CKKS,
        poly_modulus_degree=parameters.degree,
        plain_modulus=parameters.plain_modulus,
        coeff_mod_bit_sizes=list(parameters.all_prime_bits),
        n_threads=1,
    )
    if parameters.scheme == "ckks":
        context.global_scale = 2.0**parameters.scale_bits
    return context


@lru_cache(maxsize=16)
def _opening(parameters: EncryptionParameters) -> bytes:
    """The bytes with which every context of these parameters begins: TenSEAL's first field, SEAL's parameters."""
    keys = ("public_key", "secret_key", "galois_keys", "relin_keys")
    serialised: bytes = _fresh(parameters).serialize(**{f"save_{key}": False for key in keys})
    assert serialised[0] == 0x0A, "field 1, with a length"
    assert serialised[1] < 0x80, "of one byte"
    return serialised[: 2 + serialised[1]]


@lru_cache(maxsize=4)
def load_public(parameters: EncryptionParameters, data: bytes) -> Any:
    """The TenSEAL context of a public key. Kept for the next client of a simulation.

    Raises:
        ConfigurationError: it holds the secret key, has other parameters, or is no context.
    """
    context = _load(parameters, data)
    if context.is_private():
        raise ConfigurationError(
            "a public context is needed and this one holds the secret key, which only the key holder may have; "
            "hand out ContextPair.public_context, and draw new keys if this one has left the key holder"
        )
    return context


def load_secret(parameters: EncryptionParameters, data: bytes) -> Any:
    """The TenSEAL context of a secret key.

    Raises:
        ConfigurationError: it holds no secret key, has other parameters, or is no context.
    """
    context = _load(parameters, data)
    if not context.is_private():
        raise ConfigurationError(
            "a secret context is needed to decrypt and this one is public; "
            "the key holder keeps ContextPair.secret_context"
        )
    return context


def tenseal() -> Any:
    """The TenSEAL package, imported when it is first needed.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        # TenSEAL's own bindings hand out SEAL's moduli only once those of its second module are registered.
        importlib.import_module("tenseal.sealapi")
        return importlib.import_module("tenseal")
    except ImportError as error:
        raise ConfigurationError(
            "encrypted sums need TenSEAL, which is not installed: pip install 'analytic-secagg[he]'"
        ) from error


def _load(parameters: EncryptionParameters, data: bytes) -> Any:
    most = 64 * parameters.degree * len(parameters.all_prime_bits)
    if not 0 < len(data) <= most:
        raise ConfigurationError(f"a context of these parameters takes 1 to {most} bytes, not {len(data)}")
    # A hundred bytes of others can name a ring for which SEAL builds tables of hundreds of megabytes.
    if not data.startswith(_opening(parameters)):
        raise ConfigurationError(
            "this is no TenSEAL context, or one of other parameters than the session's, or written by another version "
            f"of TenSEAL; the session's are {parameters.scheme}, degree {parameters.degree}, primes of "
            f"{parameters.all_prime_bits} bits, plain modulus {parameters.plain_modulus}: generate it with "
            "generate_contexts(parameters) and the same version on all hosts"
        )
    try:
        context = tenseal().context_from(data, n_threads=1)
    except ConfigurationError:
        raise
    except Exception as error:  # what TenSEAL raises on broken bytes is not documented
        raise ConfigurationError(f"these {len(data)} bytes are no TenSEAL context") from error
    _check_parameters(context, parameters)
    return context


def _check_parameters(context: Any, parameters: EncryptionParameters) -> None:
    found = context.data.seal_context().key_context_data().parms()
    came = (
        found.scheme().name.lower(),
        found.poly_modulus_degree(),
        [prime.value() for prime in found.coeff_modulus()],
        found.plain_modulus().value(),
        context.has_public_key(),
    )
    needed = (
        parameters.scheme,
        parameters.degree,
        [*parameters.primes, parameters.special_prime],
        parameters.plain_modulus,
        True,
    )
    if came != needed:
        raise ConfigurationError(
            f"the context has (scheme, degree, primes, plain modulus, public key) {came}, and the session's parameters "
            f"are {needed}; generate it with generate_contexts(parameters)"
        )


class SlotEncryptor:
    """Encrypts up to ``parameters.slots`` integers at a time with a public key."""

    def __init__(self, parameters: EncryptionParameters, public_context: bytes) -> None:
        self._parameters = parameters
        self._context = load_public(parameters, public_context)

    def encrypt(self, values: IntVector) -> Residues:
        """One ciphertext; under BFV with its message rounded at random, see ``rounding``.

        TenSEAL repeats CKKS' values to fill its slots; repetitions are never decrypted.
        """
        if self._parameters.scheme == "ckks":
            vector = _vector(self._context, self._parameters, values)
            return _residues(vector.ciphertext()[0], self._parameters)
        seal, keys = importlib.import_module("tenseal.sealapi"), self._context.data
        message, ciphertext = seal.Plaintext(), seal.Ciphertext()
        seal.BatchEncoder(keys.seal_context()).encode(values.tolist(), message)
        seal.Encryptor(keys.seal_context(), keys.public_key()).encrypt(message, ciphertext)
        residues = _residues(ciphertext, self._parameters)
        return round_at_random(residues, coefficients(message, self._parameters.degree), self._parameters, os_entropy)


class SlotDecryptor:
    """Decrypts sums with the secret key and checks that they are integers beyond doubt."""

    def __init__(self, parameters: EncryptionParameters, secret_context: bytes) -> None:
        self._parameters = parameters
        self.context = load_secret(parameters, secret_context)
        probe = _vector(self.context, parameters, np.zeros(1, dtype=np.int64))
        self._envelope = _Envelope(probe, parameters)

    def decrypt(self, residues: Residues, count: int) -> tuple[IntVector, float]:
        """The integer sums in the first ``count`` slots, and an upper bound of their error before rounding.

        CKKS shows its error, the distance from the nearest integer. BFV shows its noise budget, the whole bits between
        the error and 1/2; a budget of 0 is a decryption failure.

        Raises:
            SumOutOfBoundsError: the error exceeds the proven bound, or a sum its slot: the ciphertext is no sum of at
                most ``n_clients`` honest ciphertexts under this key.
        """
        vector = self.vector_of(residues, count)
        if self._parameters.scheme == "bfv":
            budget = self.context.data.decryptor().invariant_noise_budget(vector.ciphertext()[0])
            values, refused = np.array(vector.decrypt(), dtype=np.int64), budget < 1
            error = 2.0 ** (self._parameters.modulus.bit_length() - budget - 1) / self._parameters.modulus
        else:
            real = np.array(vector.decrypt(), dtype=np.float64)
            rounded = np.rint(real)
            error = float(np.abs(real - rounded).max())
            refused = not (error <= self._parameters.error_bound and np.abs(rounded).max() < 2.0**62)
            values = np.zeros(count, dtype=np.int64) if refused else rounded.astype(np.int64)
        bound = self._parameters.slot_bound
        if refused or values.max() > bound or values.min() < -bound:
            raise SumOutOfBoundsError(
                f"the sum does not decrypt to integers within {self._parameters.error_bound:.2g} and the slots' bound: "
                "somebody encrypted under another key or broke the protocol; discard it and start a new session"
            )
        return values, error

    def vector_of(self, residues: Residues, count: int) -> Any:
        """TenSEAL's vector of ``count`` slots with these residues."""
        ts = tenseal()
        read = ts.bfv_vector_from if self._parameters.scheme == "bfv" else ts.ckks_vector_from
        return read(self.context, self._envelope.wrap(residues, count))


class _Envelope:
    """TenSEAL's serialised form of one vector around residues; every field but the residues is our own."""

    def __init__(self, probe: Any, parameters: EncryptionParameters) -> None:
        serialised: bytes = probe.serialize()
        start = serialised.index(b"\x5e\xa1\x10")
        self._seal_version = serialised[start + 3 : start + 5]
        ciphertext = probe.ciphertext()[0]
        self._scale = struct.pack("<d", 2.0**parameters.scale_bits) if parameters.scheme == "ckks" else b""
        self._head = (
            struct.pack("<4Q", *ciphertext.parms_id())
            + bytes([ciphertext.is_ntt_form()])
            + struct.pack("<3Q", 2, parameters.degree, len(parameters.primes))
            + struct.pack("<dQ", ciphertext.scale, 1)
        )

    def wrap(self, residues: Residues, count: int) -> bytes:
        """A protobuf message: sizes = 1, ciphertexts = 2, scale = 3."""
        data = struct.pack("<Q", residues.size) + residues.astype("<u8").tobytes()
        ciphertext = self._seal_object(self._head + self._seal_object(data))
        sizes = _varint(count)
        message = b"\x0a" + _varint(len(sizes)) + sizes + b"\x12" + _varint(len(ciphertext)) + ciphertext
        return message + (b"\x19" + self._scale if self._scale else b"")

    def _seal_object(self, body: bytes) -> bytes:
        """SEAL's header (magic, header size, version, no compression, two zeros, total size) and what it announces."""
        return b"\x5e\xa1\x10" + self._seal_version + b"\x00\x00\x00" + struct.pack("<Q", 16 + len(body)) + body


def _vector(context: Any, parameters: EncryptionParameters, values: IntVector) -> Any:
    ts = tenseal()
    if parameters.scheme == "bfv":
        return ts.bfv_vector(context, values.tolist())
    return ts.ckks_vector(context, values.astype(np.float64).tolist(), scale=2.0**parameters.scale_bits)


def coefficients(message: Any, degree: int) -> IntVector:
    """The coefficients of a plaintext polynomial of SEAL, shape (``degree``,); it leaves out zeros at the end."""
    count = message.coeff_count()
    numbers = np.zeros(degree, dtype=np.int64)
    numbers[:count] = np.fromiter(map(message.data, range(count)), dtype=np.int64, count=count)
    return numbers


def _residues(ciphertext: Any, parameters: EncryptionParameters) -> Residues:
    shape = (2, len(parameters.primes), parameters.degree)
    assert (ciphertext.size(), ciphertext.coeff_modulus_size(), ciphertext.poly_modulus_degree()) == shape
    count = 2 * len(parameters.primes) * parameters.degree
    return np.fromiter(map(ciphertext.__getitem__, range(count)), dtype=np.uint64, count=count).reshape(shape)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
