"""Known-answer tests of the primitives: published vectors, and this library's own for its use of them.

``doctor`` runs them to detect a changed or broken library before any sum is computed with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import numpy as np

from secagg.layout import Layout
from secagg.primitives.agreement import KeyPair
from secagg.primitives.boxes import BoxKey, seal_box
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey
from secagg.primitives.mask_stream import Keystreams, add_masks
from secagg.primitives.sealing import open_sealed
from secagg.primitives.shamir import combine, split
from secagg.ring import PIECE_BYTES, RingVector

_KEY = b"\1" * 32


def _of_alice(*, agreed: bool) -> bytes:
    alice = KeyPair(bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = KeyPair(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    return alice.agree(bob.public, "known answer") if agreed else alice.public


def _opened() -> bytes:
    """Decrypt, which verifies the tag."""
    key, nonce = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2), bytes.fromhex("cafebabefacedbaddecaf888")
    sealed = (
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838"
        "c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b"
    )
    return open_sealed(key, nonce + bytes.fromhex(sealed), bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"))


def _masked() -> bytes:
    layout = Layout.of([("three", 3, 2**20), ("eight", 2, 2**60)])
    vector = RingVector.encode(layout, np.arange(5))
    add_masks(vector, [(_KEY, 1), (b"\2" * 32, -1)], bytes(32))
    return vector.to_bytes()


def _long() -> bytes:
    """Return the hash of a mask over several pieces of a keystream, the last one short."""
    layout = Layout.of([("long", 2 * PIECE_BYTES // 8 + 5, 2**60)])
    vector = RingVector.zeros(layout)
    add_masks(vector, [(_KEY, 1)], bytes(32))
    return hashlib.sha256(vector.to_bytes()).digest()


def _either() -> bytes:
    """The keystream by either cipher mode, whichever this machine takes."""
    by_ctr, by_gcm = (np.zeros(PIECE_BYTES // 8 + 5, dtype="<u8") for _ in range(2))
    for words, is_gcm in ((by_ctr, False), (by_gcm, True)):
        streams = Keystreams([(_KEY, 1)], by_gcm=is_gcm)
        streams.add_to([words[:-5]], is_last=False)
        streams.add_to([words[-5:]], is_last=True)
    return b"\1" if np.array_equal(by_ctr, by_gcm) else b"\0"


def _boxed() -> bytes:
    """Encrypt and decrypt a box, which is randomised."""
    key = BoxKey(_KEY)
    opened = key.open(seal_box(key.public, b"sealed", "known answer"), "known answer")
    return hashlib.sha256(key.public).digest() + opened


def _shared() -> bytes:
    shares = split(_KEY, threshold=2, points=(1, 2, 3), entropy=lambda n: bytes(range(n)))
    return shares[2] + combine({1: shares[1], 3: shares[3]})


_ANSWERS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "X25519 (RFC 7748, 6.1)": (
        lambda: _of_alice(agreed=False),
        "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    ),
    "Ed25519 (RFC 8032, 7.1, test 1)": (
        lambda: IdentityKey(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")).public,
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
    ),
    "AES-256-GCM (McGrew and Viega, test case 16)": (
        _opened,
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
        "b16aedf5aa0de657ba637b39",
    ),
    "keys that are agreed on": (
        lambda: _of_alice(agreed=True),
        "c2cf8a1ca0022e7ea153cb8a00abf46e7dee1ff9a6f663f3e4ee3078416b766e",
    ),
    "keys that are derived": (
        lambda: derive_key(_KEY, "known answer", b"context"),
        "b3efa58ca7bb46028909a5066908d2673bda5684d2fdcf69e55c67261edf0cce",
    ),
    "signatures": (
        lambda: IdentityKey(_KEY).sign("known answer", b"part"),
        "3b7abe7bbfc835e7fc302d823a682a8bb71c24c77421816ad5c0fcbe2cd01f6ee131cde35fb1222b898420dbe109ef00"
        "04664038af6126234bcc388c995e1208",
    ),
    "mask streams": (_masked, "91ddbab2b3c967f90e77350ce265371c3420f0480574cef5a3"),
    "long mask streams": (_long, "212a066abc8f7f61af5e84b37663f7a1c267f2bfd653607d4e854c99217bcca4"),
    "mask streams by CTR and by GCM": (_either, "01"),
    "boxes": (_boxed, "f37b99b2db732a7df55f61fa442606133b1aeea462df9f8225fb5c82674523db7365616c6564"),
    "shares": (
        _shared,
        "00232527292b2d2f31333537393b3d3f3eec9a47f5a350feac5a07b56310be6c41010101010101010101010101010101"
        "0101010101010101010101010101010101",
    ),
}
"""Tests and expected answers in hexadecimal; the last eight are this library's own, from its wire format."""


def wrong_answers() -> tuple[str, ...]:
    """Return the names of the primitives with a wrong answer or none."""
    wrong = []
    for name, (ask, expected) in _ANSWERS.items():
        try:
            right = ask().hex() == expected
        except (ValueError, TypeError):
            right = False
        if not right:
            wrong.append(name)
    return tuple(wrong)
