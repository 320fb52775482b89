"""Integers in slots to residues and back, through TenSEAL."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from secagg.errors import SumOutOfBoundsError
from secagg.he.contexts import load_public, load_secret, tenseal
from secagg.he.parameters import EncryptionParameters
from secagg.he.residues import Residues
from secagg.layout import IntVector


class SlotEncryptor:
    """Encrypts up to ``parameters.slots`` integers at a time with a public key."""

    def __init__(self, parameters: EncryptionParameters, public_context: bytes) -> None:
        self._parameters = parameters
        self._context = load_public(parameters, public_context)

    def encrypt(self, values: IntVector) -> Residues:
        """One ciphertext. TenSEAL repeats the values to fill its slots; repetitions are never decrypted."""
        return _residues(_vector(self._context, self._parameters, values), self._parameters)


class SlotDecryptor:
    """Decrypts sums with the secret key and checks that they are integers beyond doubt."""

    def __init__(self, parameters: EncryptionParameters, secret_context: bytes) -> None:
        self._parameters = parameters
        self._context = load_secret(parameters, secret_context)
        probe = _vector(self._context, parameters, np.zeros(1, dtype=np.int64))
        self._envelope = _Envelope(probe, parameters)

    def decrypt(self, residues: Residues, count: int) -> tuple[IntVector, float]:
        """The integer sums in the first ``count`` slots, and an upper bound of their error before rounding.

        CKKS shows its error, the distance from the nearest integer. BFV shows its noise budget, the whole bits between
        the error and 1/2; a budget of 0 is a decryption failure.

        Raises:
            SumOutOfBoundsError: the error exceeds the proven bound, or a sum its slot: the ciphertext is no sum of at
                most ``n_clients`` honest ciphertexts under this key.
        """
        ts = tenseal()
        data = self._envelope.wrap(residues, count)
        if self._parameters.scheme == "bfv":
            vector = ts.bfv_vector_from(self._context, data)
            budget = self._context.data.decryptor().invariant_noise_budget(vector.ciphertext()[0])
            values, refused = np.array(vector.decrypt(), dtype=np.int64), budget < 1
            error = 2.0 ** (self._parameters.modulus.bit_length() - budget - 1) / self._parameters.modulus
        else:
            real = np.array(ts.ckks_vector_from(self._context, data).decrypt(), dtype=np.float64)
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


def _residues(vector: Any, parameters: EncryptionParameters) -> Residues:
    ciphertext = vector.ciphertext()[0]
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
