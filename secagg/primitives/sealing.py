"""Authenticated encryption of short secrets between two parties: AES-256-GCM (NIST SP 800-38D)."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secagg.entropy import Entropy

KEY_BYTES = 32
NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16


class SealBrokenError(ValueError):
    """The ciphertext is for another key or purpose, or was changed."""


def seal(key: bytes, plaintext: bytes, associated: bytes, *, entropy: Entropy) -> bytes:
    """Encrypt with a random nonce; the result is ``OVERHEAD_BYTES`` longer than the plaintext.

    Args:
        key: 32 bytes, derived for this sender, recipient and session.
        plaintext: bytes to encrypt.
        associated: associated data, authenticated and not hidden.
        entropy: source of the nonce.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(key)}")
    nonce = entropy(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def open_sealed(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """Decrypt; inverse of ``seal``.

    Raises:
        SealBrokenError: the key or associated data differ, or the bytes were changed.
    """
    try:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(key)}")
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise SealBrokenError("the sealed bytes do not open") from error
