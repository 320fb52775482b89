"""Encrypted ring vectors: encryption by clients, addition by the server, decryption by the key holder.

Ciphertexts are sent as residues modulo the primes of q. A residue takes exactly the bits of its prime, where SEAL would
serialise 64 bits and compress. More important: received bytes never reach SEAL's parser. They are numbers below a prime
or are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import numpy as np

from secagg.encoding import joined
from secagg.encryption.digits import DigitPlan
from secagg.encryption.rings import RINGS
from secagg.encryption.schemes import FAILURE_BITS, MARGIN, MAX_SLOTS, SCHEMES, EncryptionParameters, SchemeName
from secagg.encryption.seal import Residues, SecretKey, load_public
from secagg.errors import ConfigurationError, MalformedMessageError
from secagg.layout import Layout
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.wire import Reader

_FINGERPRINT_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecryptedSum:
    """A decrypted total with its error.

    Args:
        vector: the total modulo 2^(8 wire_bytes).
        error: largest error of a digit before rounding (for BFV an upper bound).
    """

    vector: RingVector
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCipher:
    """Encryption of the vectors of one layout with given parameters.

    Args:
        layout: shape of the vectors.
        parameters: scheme, ring and moduli.
        n_clients: largest number of vectors in a sum; at most ``parameters.n_clients``.
        masked: True if the words are uniform (masked) and not integers within their bounds.

    Raises:
        ConfigurationError: the parameters do not fit an exact sum of this layout and number of clients.
    """

    layout: Layout
    parameters: EncryptionParameters
    n_clients: int
    masked: bool = False
    plan: DigitPlan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parameters = self.parameters
        if self.n_clients > parameters.n_clients:
            raise ConfigurationError(
                f"the parameters carry the exact sum of {parameters.n_clients} clients, not of {self.n_clients}; "
                "choose parameters for this cohort"
            )
        plan = DigitPlan(
            layout=self.layout,
            n_clients=parameters.n_clients,
            slot_bound=parameters.slot_bound,
            slot_load=parameters.slot_load,
            masked=self.masked,
        )
        if plan.n_slots > MAX_SLOTS:
            raise ConfigurationError(f"the failure bound counts {MAX_SLOTS} slots, these vectors take {plan.n_slots}")
        object.__setattr__(self, "plan", plan)

    @property
    def n_ciphertexts(self) -> int:
        """Number of ciphertexts of one vector."""
        return -(-self.plan.n_slots // self.parameters.slots)

    @property
    def upload_bytes(self) -> int:
        """Number of bytes of one encrypted vector."""
        return self.n_ciphertexts * self.parameters.ciphertext_bytes

    @property
    def reveals_carries(self) -> bool:
        """True if the key holder sees sums of digits of unmasked entries, slightly more than the total."""
        return not self.masked and any(digits.count > 1 for digits in self.plan.digits)

    def explain(self) -> str:
        """Describe parameters, sizes and what the key holder learns, in three lines."""
        digits = ", ".join(
            f"{s.name} {digits.count} x {digits.bits} bits"
            for s, digits in zip(self.layout.segments, self.plan.digits, strict=True)
        )
        per_entry = self.upload_bytes / self.layout.size
        seen = "the total and how often its digits carried" if self.reveals_carries else "the total only"
        return (
            f"{self.parameters.explain()}\n  {self.n_ciphertexts} ciphertexts, {self.upload_bytes} bytes a client "
            f"({per_entry:.1f} an entry; plain {self.layout.wire_bytes}); digits: {digits};\n"
            f"  the key holder decrypts {'masked words' if self.masked else seen}"
        )

    def encrypt(self, vector: RingVector, public_context: bytes) -> bytes:
        """Return the ``upload_bytes`` bytes of an encrypted vector; for the errors see ``ciphertexts``."""
        return joined(self.ciphertexts(vector, public_context))

    def ciphertexts(self, vector: RingVector, public_context: bytes) -> Iterator[bytes]:
        """Yield the ciphertexts of a vector one at a time.

        Raises:
            ConfigurationError: ``public_context`` is no public context of these parameters.
            InvalidVectorError: an entry exceeds its bound, unless the words are masked.
        """
        parameters, context = self.parameters, load_public(self.parameters, public_context)
        digits, step = self.plan.split(vector), parameters.slots
        for start in range(0, len(digits), step):
            yield pack(parameters.rules.encrypt(digits[start : start + step], parameters, context), parameters)

    def empty_sum(self) -> CiphertextSum:
        """Return an empty running sum for the server; it needs no key."""
        return CiphertextSum(self.parameters, self.n_ciphertexts)

    def decrypt(self, encrypted_sum: bytes | memoryview, secret_context: bytes) -> DecryptedSum:
        """Decrypt an encrypted sum.

        Raises:
            ConfigurationError: ``secret_context`` is no secret context of these parameters.
            MalformedMessageError: the bytes are no encrypted vector of these parameters.
            SumOutOfBoundsError: the error exceeds the proven bound, or a sum exceeds its slot.
        """
        ciphertexts = read_ciphertexts(encrypted_sum, self.parameters, self.n_ciphertexts)
        key, parameters = SecretKey(self.parameters, secret_context), self.parameters
        left, step, worst = self.plan.n_slots, parameters.slots, 0.0
        sums = []
        for ciphertext in ciphertexts:
            values, error = parameters.rules.decrypt(ciphertext, min(left, step), parameters, key)
            sums.append(values)
            left, worst = left - step, max(worst, error)
        return DecryptedSum(vector=self.plan.join(np.concatenate(sums)), error=worst)


def choose_parameters(
    layout: Layout, n_clients: int, *, scheme: SchemeName | None = None, masked: bool = False
) -> EncryptionParameters:
    """Return the parameters with the smallest upload for which the sum of a layout is proven exact.

    Args:
        layout: shape of the vectors.
        n_clients: size of the largest cohort.
        scheme: ``bfv`` or ``ckks``; None compares both.
        masked: True for masked (uniform) words, False for integers within their bounds.

    Raises:
        ConfigurationError: no parameters fit.

    >>> choose_parameters(Layout.of([("counts", 100, 1000)]), 10, scheme="bfv").degree
    4096
    """
    return best_cipher(layout, n_clients, scheme=scheme, masked=masked).parameters


@lru_cache(maxsize=64)  # a site asks at every message of a run
def best_cipher(
    layout: Layout, n_clients: int, *, scheme: SchemeName | None = None, masked: bool = False
) -> VectorCipher:
    """Return the cipher with the smallest upload among those in which the key holder learns the total only.

    If there is none (sums too wide for one slot), the smallest upload; among equals the smaller ring.

    Raises:
        ConfigurationError: no ring of the table fits.
    """
    schemes = SCHEMES if scheme is None else (scheme,)
    found = [c for name in schemes for c in _candidates(layout, n_clients, name, masked)]
    if not found:
        raise ConfigurationError(
            f"no parameters carry the exact sum of {n_clients} clients in this layout; lower the bounds or the cohort"
        )
    return min(found, key=lambda one: (one.reveals_carries, one.upload_bytes, one.parameters.degree))


def explain_choice(layout: Layout, n_clients: int) -> str:
    """Describe the best parameters of both schemes and the choice between them."""
    best = [best_cipher(layout, n_clients, scheme=name) for name in SCHEMES]
    chosen = best_cipher(layout, n_clients)
    lines = [f"{'chosen' if c == chosen else 'passed over'}: {c.explain()}" for c in best]
    rest = f"errors must be proven below {MARGIN} (rounding fails at 0.5), but for a probability of 2^-{FAILURE_BITS}"
    return "\n".join([*lines, rest])


def _candidates(layout: Layout, n_clients: int, scheme: SchemeName, masked: bool) -> Iterator[VectorCipher]:
    """Yield a cipher for every ring of the table that fits the sum."""
    for ring in RINGS:
        with suppress(ConfigurationError):
            fitting = SCHEMES[scheme].fit(ring, layout, n_clients, masked=masked)
            yield VectorCipher(layout=layout, parameters=fitting, n_clients=n_clients, masked=masked)


def pack(residues: Residues, parameters: EncryptionParameters) -> bytes:
    """Return the wire form of one ciphertext: for each prime the residues of c_0, then of c_1."""
    return b"".join(
        _pack_words(residues[:, place, :].reshape(-1), bits) for place, bits in enumerate(parameters.prime_bits)
    )


def unpack(data: memoryview, parameters: EncryptionParameters) -> Residues:
    """Parse one ciphertext of ``parameters.ciphertext_bytes`` bytes.

    Raises:
        MalformedMessageError: a number is not below its prime.
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
    """A running sum of encrypted vectors, in the memory of one vector, without a key.

    Args:
        parameters: scheme, ring and moduli.
        n_ciphertexts: number of ciphertexts of one vector.
    """

    def __init__(self, parameters: EncryptionParameters, n_ciphertexts: int) -> None:
        self._parameters, self._taken = parameters, set[bytes]()
        self._residues = np.zeros((n_ciphertexts, 2, len(parameters.primes), parameters.degree), dtype=np.uint64)
        self._primes = np.array(parameters.primes, dtype=np.uint64).reshape(1, -1, 1)

    @property
    def count(self) -> int:
        """Number of vectors in the sum."""
        return len(self._taken)

    def add(self, data: bytes | memoryview, *, peer: PartyId | None = None) -> None:
        """Add one encrypted vector; a refused one changes nothing.

        Raises:
            MalformedMessageError: another size, numbers above the modulus, the ciphertexts of an earlier upload (two
                encryptions never coincide), or more vectors than the parameters allow.
        """
        fingerprint = hashlib.sha256(data).digest()
        if fingerprint in self._taken:
            raise MalformedMessageError("these ciphertexts are a copy of an earlier upload and count once", peer=peer)
        if self.count == self._parameters.n_clients:
            raise MalformedMessageError(
                f"the parameters carry {self._parameters.n_clients} vectors and all have come", peer=peer
            )
        try:
            for _ in read_ciphertexts(data, self._parameters, len(self._residues)):
                pass  # all are checked before one is added
        except MalformedMessageError as error:
            raise MalformedMessageError(str(error), peer=peer) from None
        fresh = read_ciphertexts(data, self._parameters, len(self._residues))
        for total, ciphertext in zip(self._residues, fresh, strict=True):
            total += ciphertext
            # Either total - prime, or, if that is below zero, it wraps to a large number and total stays.
            np.minimum(total, total - self._primes, out=total)
        self._taken.add(fingerprint)

    def to_bytes(self) -> bytes:
        """Return the wire form of the sum."""
        return joined(self._packed())

    def to_snapshot(self) -> Iterator[bytes]:
        """Yield the hashes of the sum's uploads and the sum as bytes."""
        yield len(self._taken).to_bytes(4, "big") + b"".join(sorted(self._taken))
        yield from self._packed()

    def _packed(self) -> Iterator[bytes]:
        return (pack(ciphertext, self._parameters) for ciphertext in self._residues)

    def read_snapshot(self, reader: Reader) -> Self:
        """Replace the content of this sum by a snapshot of the same parameters.

        Raises:
            MalformedMessageError: the bytes are no snapshot of such a sum.
        """
        self._taken = {reader.take(_FINGERPRINT_BYTES) for _ in range(reader.number())}
        data = reader.view(len(self._residues) * self._parameters.ciphertext_bytes)
        for place, ciphertext in enumerate(read_ciphertexts(data, self._parameters, len(self._residues))):
            self._residues[place] = ciphertext
        return self


def read_ciphertexts(
    data: bytes | memoryview, parameters: EncryptionParameters, n_ciphertexts: int
) -> Iterator[Residues]:
    """Yield the ciphertexts of one encrypted vector, one at a time.

    Raises:
        MalformedMessageError: the number of bytes differs, or a number is not below its prime.
    """
    size = parameters.ciphertext_bytes
    if len(data) != n_ciphertexts * size:
        raise MalformedMessageError(
            f"an encrypted vector is {n_ciphertexts} ciphertexts of {size} bytes, {n_ciphertexts * size} together, "
            f"and {len(data)} came; check that both sides chose the same parameters"
        )
    view = memoryview(data)
    for place in range(n_ciphertexts):
        yield unpack(view[place * size : (place + 1) * size], parameters)


def _pack_words(words: Residues, bits: int) -> bytes:
    """Return the low bytes of all words, then the remaining half bytes, two per byte."""
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
