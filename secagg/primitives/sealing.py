"""Authenticated encryption of short secrets between two parties: AES-256-GCM (NIST SP 800-38D)."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secagg.entropy import Entropy

KEY_BYTES = 32
NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16


class SealBrokenError(ValueError):
    """The ciphertext was not made with this key for this purpose, or was changed on the way."""


def seal(key: bytes, plaintext: bytes, associated: bytes, *, entropy: Entropy) -> bytes:
    """Nonce and ciphertext, ``OVERHEAD_BYTES`` longer than the plaintext; the nonce is drawn at random.

    Args:
        key: 32 bytes, derived for this sender, recipient and session.
        plaintext: what only the holder of the key may read.
        associated: what the ciphertext is bound to and does not hide.
        entropy: where the nonce comes from.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(key)}")
    nonce = entropy(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def open_sealed(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """The plaintext.

    Raises:
        SealBrokenError: another key, other associated data, or changed bytes.
    """
    try:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(key)}")
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise SealBrokenError("the sealed bytes do not open") from error
