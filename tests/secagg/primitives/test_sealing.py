"""Sealed boxes: they open with the right key for the right purpose, and no bit of them is free."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.entropy import InsecureSeededEntropy, os_entropy
from secagg.primitives.sealing import NONCE_BYTES, OVERHEAD_BYTES, SealBrokenError, open_sealed, seal, seal_parts

keys = st.binary(min_size=32, max_size=32)
KEY, PLAINTEXT, ASSOCIATED = bytes(range(32)), b"two shares", b"from 1 to 2"


@given(keys, st.binary(max_size=200), st.binary(max_size=60))
def test_what_is_sealed_opens(key: bytes, plaintext: bytes, associated: bytes) -> None:
    sealed = seal(key, plaintext, associated, entropy=os_entropy)
    assert len(sealed) == len(plaintext) + OVERHEAD_BYTES
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


def test_what_is_sealed_in_parts_is_what_is_sealed_whole() -> None:
    """Also where a part is longer than a piece, or empty; so it opens with what opens the other."""
    parts = [b"", bytes(range(256)) * 1025, b"end"]
    sealed = b"".join(seal_parts(bytes(32), parts, b"bound", entropy=InsecureSeededEntropy(1)))
    assert sealed == seal(bytes(32), b"".join(parts), b"bound", entropy=InsecureSeededEntropy(1))
