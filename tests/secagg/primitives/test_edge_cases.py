"""Keys, signatures and boxes at the edges of their definitions: vectors of Project Wycheproof.

``wycheproof.json`` is a selection of github.com/C2SP/wycheproof (Apache-2.0), numbered as there: secret, public and
shared key (empty: refused) of X25519; key, message, signature and verdict of Ed25519; key, nonce, associated data,
plaintext, box and verdict of AES-256-GCM.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from secagg.primitives.agreement import BadPublicKeyError, KeyPair
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import verifies
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal

VECTORS = json.loads((Path(__file__).parent / "wycheproof.json").read_text())
P = 2**255 - 19


def cases(kind: str) -> Any:
    """One test for each vector of a kind, named by its number there."""
    return pytest.mark.parametrize("case", [pytest.param(case[1:], id=str(case[0])) for case in VECTORS[kind]])


@cases("x25519")
def test_an_agreement_is_the_published_one_or_refused(case: list[str]) -> None:
    secret, public, shared = map(bytes.fromhex, case)
    pair = KeyPair(secret)
    if not shared or int.from_bytes(public, "little") >= P:  # of small order, or written as no other key is
        with pytest.raises(BadPublicKeyError):
            pair.agree(public, "edge case")
    else:
        keys = sorted((pair.public, public))
        assert pair.agree(public, "edge case") == derive_key(shared, "edge case", *keys)


@cases("ed25519")
def test_a_signature_verifies_only_as_published(case: list[Any]) -> None:
    public, message, signature = map(bytes.fromhex, case[:3])
    assert verifies(public, signature, message) == case[3]


@cases("aes_gcm")
def test_a_box_opens_only_as_published(case: list[Any]) -> None:
    key, nonce, associated, plaintext, sealed = map(bytes.fromhex, case[:5])
    if case[5]:
        assert open_sealed(key, nonce + sealed, associated) == plaintext
        assert seal(key, plaintext, associated, entropy=lambda _: nonce) == nonce + sealed
    else:
        with pytest.raises(SealBrokenError):
            open_sealed(key, nonce + sealed, associated)
