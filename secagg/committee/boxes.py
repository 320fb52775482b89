"""Boxes: what a client seals to a helper's long-lived key, from a fresh key of its own."""

from __future__ import annotations

from secagg.entropy import Entropy
from secagg.primitives.agreement import PUBLIC_KEY_BYTES, BadPublicKeyError, KeyPair
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal

_LABEL = "committee box"


def seal_box(public: bytes, plaintext: bytes, binding: bytes, *, entropy: Entropy) -> bytes:
    """A box that opens with the secret of ``public`` and for ``binding`` alone."""
    ephemeral = KeyPair.generate(entropy)
    key = ephemeral.agree(public, _LABEL, binding)
    return ephemeral.public + seal(key, plaintext, binding, entropy=entropy)


def open_box(keys: KeyPair, box: bytes, binding: bytes) -> bytes:
    """What ``seal_box`` put in.

    Raises:
        SealBrokenError: it was made for another key or purpose, or changed.
    """
    try:
        key = keys.agree(box[:PUBLIC_KEY_BYTES], _LABEL, binding)
    except BadPublicKeyError as error:
        raise SealBrokenError("the box was made with a key of small order") from error
    return open_sealed(key, box[PUBLIC_KEY_BYTES:], binding)
