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


def test_what_is_pinned_is_what_the_slow_implementation_says() -> None:
    assert wrong_answers() == ()
    assert pinned("keys that are derived") == derive_key(KEY, "known answer", b"context")
    assert pinned("signatures") == ed25519_sign(KEY, statement("known answer", b"part"))
    size = 2 * PIECE_BYTES // 8 + 5
    key = derive_key(KEY, "mask stream", bytes(32), b"long", size.to_bytes(8, "big") + b"\x08")
    assert pinned("long mask streams") == hashlib.sha256(ctr_keystream(key, 8 * size)).digest()
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
