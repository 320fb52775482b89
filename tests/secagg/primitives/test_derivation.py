"""Key derivation: RFC 5869's vectors, an independent HKDF, and labels that keep purposes apart."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from secagg.primitives.derivation import KEY_BYTES, derive_key

RFC_5869 = [  # appendix A, test cases 1 to 3: SHA-256
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]


def hkdf(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, section 2, from HMAC alone."""
    key = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    output, block = b"", b""
    for counter in range(1, -(-length // 32) + 1):
        block = hmac.new(key, block + info + bytes([counter]), hashlib.sha256).digest()
        output += block
    return output[:length]


def expected_info(*parts: bytes) -> bytes:
    """The info string, spelled out: version, label and context, each after its length in eight bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in (b"analytic-secagg/1", *parts))


@pytest.mark.parametrize(("secret", "salt", "info", "output"), RFC_5869, ids=["A.1", "A.2", "A.3"])
def test_published_vectors(secret: str, salt: str, info: str, output: str) -> None:
    """Both what we derive with and what we check it with agree with the standard."""
    key, salt_, info_, expected = (bytes.fromhex(text) for text in (secret, salt, info, output))
    theirs = HKDF(algorithm=hashes.SHA256(), length=len(expected), salt=salt_ or None, info=info_)
    assert theirs.derive(key) == expected
    assert hkdf(key, salt_, info_, len(expected)) == expected


@given(st.binary(min_size=32, max_size=64), st.text(max_size=20), st.lists(st.binary(max_size=40), max_size=4))
def test_keys_are_hkdf_over_length_prefixed_parts(secret: bytes, label: str, context: list[bytes]) -> None:
    expected = hkdf(secret, b"", expected_info(label.encode(), *context), KEY_BYTES)
    assert derive_key(secret, label, *context) == expected
    assert len(expected) == KEY_BYTES == 32


parts = st.lists(st.binary(max_size=6), max_size=4)


@given(parts, parts)
def test_other_contexts_give_other_keys(one: list[bytes], other: list[bytes]) -> None:
    secret = bytes(32)
    assert (derive_key(secret, "label", *one) == derive_key(secret, "label", *other)) == (one == other)


def test_bytes_cannot_move_between_parts() -> None:
    keys = {derive_key(bytes(32), label, *context) for label, *context in [
        ("ab", b"c"), ("a", b"bc"), ("abc",), ("abc", b""), ("", b"abc"), ("a", b"b", b"c"), ("a", b"", b"bc"),
    ]}  # fmt: skip
    assert len(keys) == 7
