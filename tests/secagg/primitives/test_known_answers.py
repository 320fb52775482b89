"""Known answers: the pinned ones are the slow implementation's, and a changed primitive is named."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

import slow_shamir
from slow_bytes import statement
from slow_curves import ed25519_sign
from slow_symmetric import ctr_keystream, derive_key

from secagg.primitives import known_answers
from secagg.primitives.known_answers import _ANSWERS, wrong_answers
from secagg.ring import PIECE_BYTES

KEY = b"\1" * 32


def pinned(name: str) -> bytes:
    return bytes.fromhex(_ANSWERS[name][1])


def two_short_masks() -> bytes:
    """Of entries of 3 and of 8 bytes, whose words begin with the first and with the second block."""
    one, two = (ctr_keystream(derive_key(seed, "mask stream", bytes(32)), 32, counter=2) for seed in (KEY, b"\2" * 32))
    places = [(0, 4, 3), (4, 8, 3), (8, 12, 3), (16, 24, 8), (24, 32, 8)]
    found = [
        (entry + int.from_bytes(one[start:stop], "little") - int.from_bytes(two[start:stop], "little"), width)
        for entry, (start, stop, width) in enumerate(places)
    ]
    return b"".join((value % 256**width).to_bytes(width, "little") for value, width in found)


def test_what_is_pinned_is_what_the_slow_implementation_says() -> None:
    assert wrong_answers() == ()
    assert pinned("keys that are derived") == derive_key(KEY, "known answer", b"context")
    assert pinned("signatures") == ed25519_sign(KEY, statement("known answer", b"part"))
    key = derive_key(KEY, "mask stream", bytes(32))
    assert pinned("long mask streams") == hashlib.sha256(ctr_keystream(key, 2 * PIECE_BYTES + 40, counter=2)).digest()
    assert pinned("mask streams") == two_short_masks()
    assert pinned("shares") == slow_shamir.split(KEY, 2, (1, 2, 3), lambda n: bytes(range(n)))[2] + KEY


@pytest.mark.parametrize(
    ("name", "changed", "named"),
    [
        ("derive_key", lambda *parts: derive_key(parts[0], parts[1]), {"keys that are derived"}),
        ("seal_box", lambda public, text, *info: text, {"boxes"}),
        ("add_masks", lambda vector, masks, digest: None, {"mask streams", "long mask streams"}),
        ("combine", lambda shares: bytes(32), {"shares"}),
    ],
)
def test_a_changed_primitive_is_named(
    name: str, changed: object, named: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_answers, name, changed)
    assert set(wrong_answers()) == named
