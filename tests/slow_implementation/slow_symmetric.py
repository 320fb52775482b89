"""HKDF from HMAC, CTR and GCM from single AES blocks (the one thing that is not computed here)."""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from slow_bytes import PROTOCOL, length_prefixed, need, number


def hkdf(secret: bytes, *, salt: bytes = b"", info: bytes, n_bytes: int) -> bytes:
    """RFC 5869, with SHA-256."""
    pseudorandom_key = hmac.digest(salt or bytes(32), secret, hashlib.sha256)
    output, block, counter = b"", b"", 1
    while len(output) < n_bytes:
        block = hmac.digest(pseudorandom_key, block + info + bytes([counter]), hashlib.sha256)
        output, counter = output + block, counter + 1
    return output[:n_bytes]


def derive_key(secret: bytes, label: str, *context: bytes) -> bytes:
    return hkdf(secret, info=length_prefixed(PROTOCOL, label.encode(), *context), n_bytes=32)


def aes_block(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - one block, the bare permutation
    return encryptor.update(block) + encryptor.finalize()


def ctr_keystream(key: bytes, n_bytes: int, counter: int = 0) -> bytes:
    """NIST SP 800-38A, section 6.5: the whole block counts."""
    blocks = (aes_block(key, number((counter + i) % 2**128, 16)) for i in range(-(-n_bytes // 16)))
    return b"".join(blocks)[:n_bytes]


def _multiply(x: int, y: int) -> int:
    """NIST SP 800-38D, section 6.3: the product in GF(2^128), its bits numbered from the left."""
    product = 0
    for bit in reversed(range(128)):
        if x >> bit & 1:
            product ^= y
        y = y >> 1 ^ (0xE1 << 120 if y & 1 else 0)
    return product


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 16)


def _gcm(key: bytes, nonce: bytes, text: bytes, associated: bytes, *, encrypt: bool) -> tuple[bytes, bytes]:
    """NIST SP 800-38D, section 7, for nonces of 12 bytes: the other text, and the tag."""
    first = int.from_bytes(nonce + number(1), "big")
    other = bytes(a ^ b for a, b in zip(text, ctr_keystream(key, len(text), first + 1), strict=True))
    cipher_text = other if encrypt else text
    hashed = _padded(associated) + _padded(cipher_text) + number(8 * len(associated), 8) + number(8 * len(text), 8)
    hash_key, ghash = int.from_bytes(aes_block(key, bytes(16)), "big"), 0
    for start in range(0, len(hashed), 16):
        ghash = _multiply(ghash ^ int.from_bytes(hashed[start : start + 16], "big"), hash_key)
    tag = ghash ^ int.from_bytes(aes_block(key, number(first, 16)), "big")
    return other, number(tag, 16)


def seal(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    cipher_text, tag = _gcm(key, nonce, plaintext, associated, encrypt=True)
    return nonce + cipher_text + tag


def open_sealed(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    nonce, cipher_text, tag = sealed[:12], sealed[12:-16], sealed[-16:]
    plaintext, right_tag = _gcm(key, nonce, cipher_text, associated, encrypt=False)
    need(tag == right_tag, "the sealed bytes do not open")
    return plaintext
