"""Authenticated encryption of shares between two parties, and of stored records: AES-256-GCM (NIST SP 800-38D)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from secagg.entropy import Entropy

KEY_BYTES = 32
NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16
_PIECE_BYTES = 1 << 18


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


def seal_parts(
    key: bytes, parts: Iterable[bytes | memoryview], associated: bytes, *, entropy: Entropy
) -> Iterator[bytes]:
    """Yield what ``seal`` returns for these parts in a row, a piece at a time: for long plaintexts."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a sealing key has {KEY_BYTES} bytes, not {len(key)}")
    nonce = entropy(NONCE_BYTES)
    stream = Cipher(algorithms.AES(key), modes.GCM(nonce)).encryptor()
    stream.authenticate_additional_data(associated)
    yield nonce
    for part in parts:
        for start in range(0, len(part), _PIECE_BYTES):
            yield stream.update(memoryview(part)[start : start + _PIECE_BYTES])
    yield stream.finalize() + stream.tag


def open_sealed(key: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
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
