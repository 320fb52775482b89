"""Key agreement: RFC 7748's vectors, symmetry, and every point of small order refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

from slow_curves import x25519

from secagg.entropy import InsecureSeededEntropy
from secagg.primitives.agreement import BadPublicKeyError, KeyPair, check_public_key
from secagg.primitives.derivation import derive_key

P = 2**255 - 19
ALICE = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
BOB = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
ALICE_PUBLIC = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
BOB_PUBLIC = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
SHARED = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"

ORDER_8 = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
SMALL_ORDER = {
    "0, order 4": 0,
    "1, order 1 on the twist's line": 1,
    "order 8": ORDER_8[0],
    "order 8, the other": ORDER_8[1],
    "-1, order 2": P - 1,
    "p, is 0": P,
    "p + 1, is 1": P + 1,
}
secrets = st.binary(min_size=32, max_size=32)


def encodings(u: int) -> list[bytes]:
    """The 32-byte strings that mean this u coordinate: with the ignored top bit clear and set."""
    return [(u + top).to_bytes(32, "little") for top in (0, 2**255)]


def test_published_vectors() -> None:
    """RFC 7748, section 6.1."""
    alice, bob = KeyPair(ALICE), KeyPair(BOB)
    assert (alice.public.hex(), bob.public.hex()) == (ALICE_PUBLIC, BOB_PUBLIC)
    shared = X25519PrivateKey.from_private_bytes(ALICE).exchange(X25519PublicKey.from_public_bytes(bob.public))
    assert shared.hex() == SHARED


def test_keys_are_hkdf_over_the_published_agreement_and_both_public_keys() -> None:
    alice, bob = KeyPair(ALICE), KeyPair(BOB)
    first, second = sorted([alice.public, bob.public])
    expected = derive_key(bytes.fromhex(SHARED), "purpose", first, second, b"context")
    assert alice.agree(bob.public, "purpose", b"context") == expected
    assert bob.agree(alice.public, "purpose", b"context") == expected


def test_purposes_and_contexts_have_keys_of_their_own() -> None:
    a, b, c = (KeyPair(bytes([i]) * 32) for i in (1, 2, 3))
    keys = {
        a.agree(b.public, "x"),
        a.agree(b.public, "y"),
        a.agree(b.public, "x", b""),
        a.agree(b.public, "x", b"session"),
        a.agree(c.public, "x"),
        b.agree(c.public, "x"),
    }
    assert len(keys) == 6


@pytest.mark.parametrize("u", SMALL_ORDER.values(), ids=SMALL_ORDER.keys())
def test_points_of_small_order_are_refused(u: int) -> None:
    """The seven of the canonical list, each also with the bit set that X25519 ignores."""
    for public in encodings(u):
        assert x25519(ALICE, public) == bytes(32)
        with pytest.raises(BadPublicKeyError):
            KeyPair(ALICE).agree(public, "purpose")
        with pytest.raises(BadPublicKeyError):
            check_public_key(public)


@given(secrets)
def test_honest_keys_pass(secret: bytes) -> None:
    check_public_key(KeyPair(secret).public)


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(BadPublicKeyError):
        KeyPair(ALICE).agree(b"\x09" * length, "purpose")
    with pytest.raises(ValueError, match="32"):
        KeyPair(bytes(length))


def test_generated_pairs_use_the_entropy_that_they_are_given() -> None:
    assert KeyPair.generate(InsecureSeededEntropy(1)) == KeyPair(InsecureSeededEntropy(1)(32))
    assert KeyPair.generate(InsecureSeededEntropy(1)) != KeyPair.generate(InsecureSeededEntropy(2))


@given(secrets)
def test_the_secret_never_shows(secret: bytes) -> None:
    pair = KeyPair(secret)
    for text in (repr(pair), str(pair)):
        assert secret.hex() not in text
        assert repr(secret)[2:-1] not in text
    with pytest.raises(BadPublicKeyError) as caught:
        pair.agree(bytes(32), "purpose")
    assert secret.hex() not in repr(caught.value)
