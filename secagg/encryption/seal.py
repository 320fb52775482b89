"""Interface to TenSEAL: key pairs as contexts, and conversion of ciphertexts to residues and back."""

from __future__ import annotations

import importlib
import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ConfigurationError
from secagg.layout import IntVector

if TYPE_CHECKING:
    from secagg.encryption.schemes import EncryptionParameters

Residues = NDArray[np.uint64]
"""One ciphertext (c_0, c_1): shape (2, number of primes, degree), as in SEAL's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPair:
    """Key pair of one session, as serialised TenSEAL contexts.

    Args:
        public_context: parameters and public key, for clients and server.
        secret_context: the same with the secret key, for the key holder only.
    """

    public_context: bytes = field(repr=False)
    secret_context: bytes = field(repr=False)


def generate_contexts(parameters: EncryptionParameters) -> ContextPair:
    """Generate a key pair for one session. SEAL draws it from the operating system.

    Raises:
        ConfigurationError: TenSEAL is not installed.
    """
    context = _fresh(parameters)
    _check_parameters(context, parameters)
    keys = {"save_public_key": True, "save_galois_keys": False, "save_relin_keys": False}
    return ContextPair(
        public_context=context.serialize(save_secret_key=False, **keys),
        secret_context=context.serialize(save_secret_key=True, **keys),
    )


def _fresh(parameters: EncryptionParameters) -> Any:
    """Return a TenSEAL context of these parameters with new keys."""
    ts = tenseal()
    context = ts.context(
        getattr(ts.SCHEME_TYPE, parameters.scheme.upper()),
        poly_modulus_degree=parameters.degree,
        plain_modulus=parameters.plain_modulus,
        coeff_mod_bit_sizes=list(parameters.all_prime_bits),
        n_threads=1,
    )
    if parameters.scale_bits:
        context.global_scale = 2.0**parameters.scale_bits
    return context


@lru_cache(maxsize=16)
def _opening(parameters: EncryptionParameters) -> bytes:
    """Return the first bytes of every context of these parameters: TenSEAL's first field, SEAL's parameters."""
    keys = ("public_key", "secret_key", "galois_keys", "relin_keys")
    serialised: bytes = _fresh(parameters).serialize(**{f"save_{key}": False for key in keys})
    assert serialised[0] == 0x0A, "field 1, with a length"
    assert serialised[1] < 0x80, "of one byte"
    return serialised[: 2 + serialised[1]]


@lru_cache(maxsize=4)
def load_public(parameters: EncryptionParameters, data: bytes) -> Any:
    """Parse a public TenSEAL context (cached for simulations with many clients).

    Raises:
        ConfigurationError: the context contains the secret key, has other parameters, or is invalid.
    """
    context = _load(parameters, data)
    if context.is_private():
        raise ConfigurationError(
            "a public context is needed and this one holds the secret key, which only the key holder may have; "
            "hand out ContextPair.public_context, and draw new keys if this one has left the key holder"
        )
    return context


def load_secret(parameters: EncryptionParameters, data: bytes) -> Any:
    """Parse a secret TenSEAL context.

    Raises:
        ConfigurationError: the context has no secret key, has other parameters, or is invalid.
    """
    context = _load(parameters, data)
    if not context.is_private():
        raise ConfigurationError(
            "a secret context is needed to decrypt and this one is public; "
            "the key holder keeps ContextPair.secret_context"
        )
    return context


def tenseal() -> Any:
    """Import and return the TenSEAL package.

    Raises:
        ConfigurationError: TenSEAL is not installed.
    """
    try:
        # TenSEAL's own bindings hand out SEAL's moduli only once those of its second module are registered.
        importlib.import_module("tenseal.sealapi")
        return importlib.import_module("tenseal")
    except ImportError as error:
        raise ConfigurationError("encrypted sums need TenSEAL, which is not installed: pip install '.[he]'") from error


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


class SecretKey:
    """A secret context, and TenSEAL's serialisation of residues; all other fields are generated here."""

    def __init__(self, parameters: EncryptionParameters, secret_context: bytes) -> None:
        ts = tenseal()
        self.context = load_secret(parameters, secret_context)
        self._scale = struct.pack("<d", 2.0**parameters.scale_bits) if parameters.scale_bits else b""
        self._read = getattr(ts, f"{parameters.scheme}_vector_from")
        options = {"scale": 2.0**parameters.scale_bits} if parameters.scale_bits else {}
        probe = getattr(ts, f"{parameters.scheme}_vector")(self.context, [0], **options)
        serialised: bytes = probe.serialize()
        start = serialised.index(b"\x5e\xa1\x10")
        self._seal_version = serialised[start + 3 : start + 5]
        ciphertext = probe.ciphertext()[0]
        self._head = (
            struct.pack("<4Q", *ciphertext.parms_id())
            + bytes([ciphertext.is_ntt_form()])
            + struct.pack("<3Q", 2, parameters.degree, len(parameters.primes))
            + struct.pack("<dQ", ciphertext.scale, 1)
        )

    def vector_of(self, residues: Residues, count: int) -> Any:
        """Return TenSEAL's vector of ``count`` slots: a protobuf of sizes, ciphertexts and scale."""
        data = struct.pack("<Q", residues.size) + residues.astype("<u8").tobytes()
        ciphertext = self._seal_object(self._head + self._seal_object(data))
        sizes = _varint(count)
        message = b"\x0a" + _varint(len(sizes)) + sizes + b"\x12" + _varint(len(ciphertext)) + ciphertext
        return self._read(self.context, message + (b"\x19" + self._scale if self._scale else b""))

    def _seal_object(self, body: bytes) -> bytes:
        """Return SEAL's header (magic, header size, version, no compression, two zeros, total size) and the body."""
        return b"\x5e\xa1\x10" + self._seal_version + b"\x00\x00\x00" + struct.pack("<Q", 16 + len(body)) + body


def coefficients(message: Any, degree: int) -> IntVector:
    """Return the coefficients of a plaintext polynomial of SEAL, shape (``degree``,), with its omitted zeros."""
    count = message.coeff_count()
    numbers = np.zeros(degree, dtype=np.int64)
    numbers[:count] = np.fromiter(map(message.data, range(count)), dtype=np.int64, count=count)
    return numbers


def residues_of(ciphertext: Any, parameters: EncryptionParameters) -> Residues:
    """Return the residues of SEAL's ciphertext, in memory order."""
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
