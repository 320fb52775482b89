"""Sealed boxes: they open with the right key for the right purpose, and no bit of them is free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.entropy import InsecureSeededEntropy, os_entropy
from secagg.primitives.sealing import NONCE_BYTES, OVERHEAD_BYTES, SealBrokenError, open_sealed, seal

keys = st.binary(min_size=32, max_size=32)
KEY, PLAINTEXT, ASSOCIATED = bytes(range(32)), b"two shares", b"from 1 to 2"


@given(keys, st.binary(max_size=200), st.binary(max_size=60))
def test_what_is_sealed_opens(key: bytes, plaintext: bytes, associated: bytes) -> None:
    sealed = seal(key, plaintext, associated, entropy=os_entropy)
    assert len(sealed) == len(plaintext) + OVERHEAD_BYTES
    assert open_sealed(key, sealed, associated) == plaintext


def test_a_published_vector() -> None:
    """The GCM specification's test case 16 (AES-256, associated data), as our box: nonce, then ciphertext and tag."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308")
    nonce = bytes.fromhex("cafebabefacedbaddecaf888")
    plaintext = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
        "b16aedf5aa0de657ba637b39"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = seal(key, plaintext, associated, entropy=lambda n: nonce[:n])
    assert sealed[:NONCE_BYTES] == nonce
    assert sealed[NONCE_BYTES:].hex() == (
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
        "c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b"
    )
    assert open_sealed(key, sealed, associated) == plaintext


def test_no_bit_is_free() -> None:
    sealed = seal(KEY, PLAINTEXT, ASSOCIATED, entropy=InsecureSeededEntropy(1))
    for bit in range(8 * len(sealed)):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealBrokenError):
            open_sealed(KEY, bytes(changed), ASSOCIATED)
    for bit in range(8 * len(KEY)):
        other = bytearray(KEY)
        other[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealBrokenError):
            open_sealed(bytes(other), sealed, ASSOCIATED)


@given(st.binary(max_size=40))
def test_other_associated_data_does_not_open(associated: bytes) -> None:
    sealed = seal(KEY, PLAINTEXT, ASSOCIATED, entropy=os_entropy)
    if associated != ASSOCIATED:
        with pytest.raises(SealBrokenError):
            open_sealed(KEY, sealed, associated)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_raise_only_the_documented_error(sealed: bytes) -> None:
    with pytest.raises(SealBrokenError) as caught:
        open_sealed(KEY, sealed, ASSOCIATED)
    assert KEY.hex() not in str(caught.value)


@pytest.mark.parametrize("cut", [0, 1, NONCE_BYTES, OVERHEAD_BYTES, OVERHEAD_BYTES + 3])
def test_truncated_boxes_do_not_open(cut: int) -> None:
    sealed = seal(KEY, PLAINTEXT, ASSOCIATED, entropy=os_entropy)
    with pytest.raises(SealBrokenError):
        open_sealed(KEY, sealed[:cut], ASSOCIATED)
    with pytest.raises(SealBrokenError):
        open_sealed(KEY, sealed + b"\0", ASSOCIATED)


def test_nonces_are_fresh() -> None:
    boxes = {seal(KEY, PLAINTEXT, ASSOCIATED, entropy=os_entropy)[:NONCE_BYTES] for _ in range(100)}
    assert len(boxes) == 100


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_only_whole_keys_seal_and_open(size: int) -> None:
    """AES-128 would take 16 bytes: a key cut short must not pass for a weaker one."""
    with pytest.raises(ValueError, match=f"32 bytes, not {size}"):
        seal(bytes(size), PLAINTEXT, ASSOCIATED, entropy=os_entropy)
    sealed = seal(KEY, PLAINTEXT, ASSOCIATED, entropy=os_entropy)
    with pytest.raises(SealBrokenError):
        open_sealed(KEY[:size].ljust(size, b"x"), sealed, ASSOCIATED)
