"""Public-key encryption (boxes): HPKE (RFC 9180) with X-Wing (X25519 and ML-KEM-768) and AES-256-GCM.

The hybrid is secure while one of the two is (draft-connolly-cfrg-xwing-kem, draft-ietf-hpke-pq), also against quantum
computers. Encryption draws its randomness from the operating system; the library accepts no other source.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from secagg.encoding import length_prefixed
from secagg.entropy import Entropy
from secagg.primitives.agreement import BadPublicKeyError, check_public_key
from secagg.primitives.sealing import SealBrokenError

SECRET_BYTES = 32
_LATTICE_SEED_BYTES, _LATTICE_KEY_BYTES, _CURVE_KEY_BYTES = 64, 1184, 32
BOX_KEY_BYTES = _LATTICE_KEY_BYTES + _CURVE_KEY_BYTES
OVERHEAD_BYTES = 1088 + 32 + 16
"""Length of a ciphertext of ML-KEM-768, a public key of X25519 and a tag."""
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


@dataclass(frozen=True, slots=True)
class BoxKey:
    """Encryption key pair of a box's recipient, from 32 secret bytes.

    Args:
        secret: 32 secret bytes; use ``generate``.

    >>> from secagg import os_entropy
    >>> key = BoxKey.generate(os_entropy)
    >>> key.open(seal_box(key.public, b"seed", "example"), "example")
    b'seed'
    """

    secret: bytes = field(repr=False)
    public: bytes = field(init=False)
    _private: MLKEM768X25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seeds = hashlib.shake_256(self.secret).digest(_LATTICE_SEED_BYTES + _CURVE_KEY_BYTES)
        lattice = MLKEM768PrivateKey.from_seed_bytes(seeds[:_LATTICE_SEED_BYTES])
        curve = X25519PrivateKey.from_private_bytes(seeds[_LATTICE_SEED_BYTES:])
        public = lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()
        object.__setattr__(self, "_private", MLKEM768X25519PrivateKey(lattice, curve))
        object.__setattr__(self, "public", public)

    @classmethod
    def generate(cls, entropy: Entropy) -> BoxKey:
        """Generate a fresh key pair."""
        return cls(entropy(SECRET_BYTES))

    def open(self, box: bytes, label: str, *context: bytes) -> bytes:
        """Decrypt a box; inverse of ``seal_box``.

        Raises:
            SealBrokenError: the box is for another key, purpose or context, or was changed.
        """
        try:
            return _SUITE.decrypt(box, self._private, info=_info(label, context))
        except (InvalidTag, ValueError) as error:
            raise SealBrokenError("the box does not open") from error


def seal_box(public: bytes, plaintext: bytes, label: str, *context: bytes) -> bytes:
    """Encrypt to a public key; the box is ``OVERHEAD_BYTES`` longer than the plaintext.

    Args:
        public: public key of the recipient.
        plaintext: bytes to encrypt.
        label: the purpose.
        context: further associated data, not hidden.

    Raises:
        BadPublicKeyError: ``public`` is no key, or of small order.
    """
    return _SUITE.encrypt(plaintext, _key_of(public), info=_info(label, context))


def check_box_key(public: bytes) -> None:
    """Refuse an invalid public encryption key.

    Raises:
        BadPublicKeyError: ``public`` is no key, or its X25519 half has small order.
    """
    _key_of(public)


@lru_cache(maxsize=64)
def _key_of(public: bytes) -> MLKEM768X25519PublicKey:
    if type(public) is not bytes or len(public) != BOX_KEY_BYTES:
        raise BadPublicKeyError(f"a public key that boxes are sealed to has {BOX_KEY_BYTES} bytes")
    try:
        lattice = MLKEM768PublicKey.from_public_bytes(public[:_LATTICE_KEY_BYTES])
    except ValueError as error:
        raise BadPublicKeyError("the ML-KEM-768 half of a public key is none") from error
    check_public_key(public[_LATTICE_KEY_BYTES:])
    return MLKEM768X25519PublicKey(lattice, X25519PublicKey.from_public_bytes(public[_LATTICE_KEY_BYTES:]))


def _info(label: str, context: tuple[bytes, ...]) -> bytes:
    return length_prefixed(b"analytic-secagg/1", label.encode(), *context)
