"""Boxes: they open for one key, purpose and context, and a second implementation opens them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

from slow_bytes import Refused, length_prefixed
from slow_hpke import box_key, open_box

from secagg.primitives.agreement import BadPublicKeyError
from secagg.primitives.boxes import BOX_KEY_BYTES, OVERHEAD_BYTES, BoxKey, check_box_key, seal_box
from secagg.primitives.sealing import SealBrokenError

OWN, OTHER = BoxKey(bytes(range(32))), BoxKey(bytes(32))
TEXT = b"seeds" * 20
BOX = seal_box(OWN.public, TEXT, "purpose", b"one", b"two")


def test_a_box_opens_for_its_key_purpose_and_context_alone() -> None:
    assert OWN.open(BOX, "purpose", b"one", b"two") == TEXT
    assert len(BOX) == len(TEXT) + OVERHEAD_BYTES
    for key, label, context in (
        (OTHER, "purpose", (b"one", b"two")),
        (OWN, "another", (b"one", b"two")),
        (OWN, "purpose", (b"onet", b"wo")),
    ):
        with pytest.raises(SealBrokenError):
            key.open(BOX, label, *context)


@pytest.mark.parametrize("place", [0, 500, 1087, 1088, 1119, 1120, len(BOX) - 1])
def test_a_box_of_which_either_half_was_changed_does_not_open(place: int) -> None:
    """The lattice's ciphertext, the curve's key, or what is sealed."""
    changed = BOX[:place] + bytes([BOX[place] ^ 1]) + BOX[place + 1 :]
    with pytest.raises(SealBrokenError):
        OWN.open(changed, "purpose", b"one", b"two")
    with pytest.raises(SealBrokenError):
        OWN.open(BOX[:place], "purpose", b"one", b"two")


def test_whoever_has_one_half_of_the_secret_opens_nothing() -> None:
    """A key made of the true curve half and another lattice half, and the other way round."""
    for mixed in (OTHER.public[:1184] + OWN.public[1184:], OWN.public[:1184] + OTHER.public[1184:]):
        box = seal_box(mixed, TEXT, "purpose")
        for key in (OWN, OTHER):
            with pytest.raises(SealBrokenError):
                key.open(box, "purpose")


def test_no_two_boxes_are_alike_and_no_secret_is_printed() -> None:
    assert seal_box(OWN.public, TEXT, "purpose") != seal_box(OWN.public, TEXT, "purpose")
    assert len(OWN.public) == BOX_KEY_BYTES
    assert OWN.secret.hex() not in repr(OWN)
    assert repr(OWN.secret) not in repr(OWN)


@pytest.mark.parametrize(
    "public", [b"short", OWN.public + b"x", OWN.public[:1184] + bytes(32), b"\xff" * 1184 + OWN.public[1184:]]
)
def test_what_is_no_key_or_has_small_order_is_refused(public: bytes) -> None:
    with pytest.raises(BadPublicKeyError):
        check_box_key(public)


def test_a_second_implementation_opens_them_and_has_the_same_keys() -> None:
    info = length_prefixed(b"analytic-secagg/1", b"purpose", b"one", b"two")
    assert box_key(OWN.secret) == OWN.public
    assert open_box(OWN.secret, BOX, info) == TEXT
    with pytest.raises(Refused):
        open_box(OTHER.secret, BOX, info)
    with pytest.raises(Refused):
        open_box(OWN.secret, bytes([BOX[0] ^ 1]) + BOX[1:], info)
