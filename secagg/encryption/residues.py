"""Ciphertexts as residues modulo the primes of q: packed for the wire, checked, and added.

SEAL would serialise 64 bits a residue and compress; here a residue takes exactly the bits of its prime. More
important: bytes of others never reach SEAL's parser. They become numbers below a prime, or are refused.
"""

from __future__ import annotations

import hashlib
from typing import Self

import numpy as np
from numpy.typing import NDArray

from secagg.encryption.parameters import EncryptionParameters
from secagg.errors import MalformedMessageError
from secagg.sessions import PartyId
from secagg.wire import Reader

_FINGERPRINT_BYTES = 32
Residues = NDArray[np.uint64]
"""One ciphertext (c_0, c_1): shape (2, primes of q, degree), as in SEAL's memory."""


def pack(residues: Residues, parameters: EncryptionParameters) -> bytes:
    """The wire form of one ciphertext: for each prime the residues of c_0, then of c_1."""
    return b"".join(
        _pack_words(residues[:, place, :].reshape(-1), bits) for place, bits in enumerate(parameters.prime_bits)
    )


def unpack(data: memoryview, parameters: EncryptionParameters) -> Residues:
    """One ciphertext of ``parameters.ciphertext_bytes`` bytes.

    Raises:
        MalformedMessageError: a number is no residue of its prime.
    """
    residues = np.empty((2, len(parameters.primes), parameters.degree), dtype=np.uint64)
    start = 0
    for place, (bits, prime) in enumerate(zip(parameters.prime_bits, parameters.primes, strict=True)):
        stop = start + 2 * parameters.degree * bits // 8
        words = _unpack_words(data[start:stop], bits)
        if words.max() >= prime:
            raise MalformedMessageError("the ciphertext has numbers beyond its modulus: of other parameters, or broken")
        residues[:, place, :] = words.reshape(2, parameters.degree)
        start = stop
    return residues


class CiphertextSum:
    """The running sum of encrypted vectors, in the memory of one. It needs no key.

    Args:
        parameters: scheme, ring and moduli.
        n_ciphertexts: ciphertexts of one vector.
    """

    def __init__(self, parameters: EncryptionParameters, n_ciphertexts: int) -> None:
        self._parameters, self._taken = parameters, set[bytes]()
        self._residues = np.zeros((n_ciphertexts, 2, len(parameters.primes), parameters.degree), dtype=np.uint64)
        self._primes = np.array(parameters.primes, dtype=np.uint64).reshape(1, -1, 1)

    @property
    def count(self) -> int:
        """Vectors in the sum."""
        return len(self._taken)

    def add(self, data: bytes | memoryview, *, peer: PartyId | None = None) -> None:
        """Add one encrypted vector; a refused one changes nothing.

        Raises:
            MalformedMessageError: another size, numbers beyond the modulus, the very ciphertexts of an earlier upload
                (two encryptions never coincide), or more vectors than the parameters carry.
        """
        fingerprint = hashlib.sha256(data).digest()
        if fingerprint in self._taken:
            raise MalformedMessageError("these ciphertexts are a copy of an earlier upload and count once", peer=peer)
        if self.count == self._parameters.n_clients:
            raise MalformedMessageError(
                f"the parameters carry {self._parameters.n_clients} vectors and all have come", peer=peer
            )
        try:
            fresh = read_ciphertexts(data, self._parameters, len(self._residues))
        except MalformedMessageError as error:
            raise MalformedMessageError(str(error), peer=peer) from None
        for total, ciphertext in zip(self._residues, fresh, strict=True):
            total += ciphertext
            # Either total - prime, or, if that is below zero, it wraps to a large number and total stays.
            np.minimum(total, total - self._primes, out=total)
        self._taken.add(fingerprint)

    def to_bytes(self) -> bytes:
        """The wire form of the sum."""
        return b"".join(pack(ciphertext, self._parameters) for ciphertext in self._residues)

    def to_snapshot(self) -> bytes:
        """The sum with what it remembers of its uploads, for ``read_snapshot``."""
        return len(self._taken).to_bytes(4, "big") + b"".join(sorted(self._taken)) + self.to_bytes()

    def read_snapshot(self, reader: Reader) -> Self:
        """Take over what ``to_snapshot`` gave for the same parameters, in place of what this sum holds.

        Raises:
            MalformedMessageError: no snapshot of such a sum.
        """
        self._taken = {reader.take(_FINGERPRINT_BYTES) for _ in range(reader.number())}
        data = reader.take(len(self._residues) * self._parameters.ciphertext_bytes)
        self._residues[:] = read_ciphertexts(data, self._parameters, len(self._residues))
        return self


def read_ciphertexts(data: bytes | memoryview, parameters: EncryptionParameters, n_ciphertexts: int) -> list[Residues]:
    """The ciphertexts of one encrypted vector.

    Raises:
        MalformedMessageError: another number of bytes, or numbers beyond the modulus.
    """
    size = parameters.ciphertext_bytes
    if len(data) != n_ciphertexts * size:
        raise MalformedMessageError(
            f"an encrypted vector is {n_ciphertexts} ciphertexts of {size} bytes, {n_ciphertexts * size} together, "
            f"and {len(data)} came; check that both sides chose the same parameters"
        )
    view = memoryview(data)
    return [unpack(view[place * size : (place + 1) * size], parameters) for place in range(n_ciphertexts)]


def _pack_words(words: Residues, bits: int) -> bytes:
    """Whole low bytes of every word, then, where half a byte is left, those of two words a byte."""
    whole = bits // 8
    low = words.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :whole].tobytes()
    if bits % 8 == 0:
        return low
    high = (words >> np.uint64(8 * whole)).astype(np.uint8)
    return low + (high[0::2] | (high[1::2] << 4)).tobytes()


def _unpack_words(data: memoryview, bits: int) -> Residues:
    whole = bits // 8
    count = len(data) * 8 // bits
    padded = np.zeros((count, 8), dtype=np.uint8)
    padded[:, :whole] = np.frombuffer(data[: count * whole], dtype=np.uint8).reshape(count, whole)
    words: Residues = padded.view("<u8").reshape(-1).astype(np.uint64)
    if bits % 8:
        halves = np.frombuffer(data[count * whole :], dtype=np.uint8)
        high = np.stack((halves & 15, halves >> 4), axis=1).reshape(-1).astype(np.uint64)
        words |= high << np.uint64(8 * whole)
    return words
