"""Key derivation: HKDF-SHA256 (RFC 5869) with a label for each purpose."""

from __future__ import annotations

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secagg.encoding import length_prefixed

KEY_BYTES = 32


def derive_key(secret: bytes, label: str, *context: bytes) -> bytes:
    """Derive a 32-byte key for one purpose.

    Args:
        secret: at least 32 bytes with 256 bits of entropy, or a Diffie-Hellman result.
        label: the purpose.
        context: data that the key is bound to, such as the session's configuration digest. Parts are
            length-prefixed, so no two lists of parts collide.
    """
    info = length_prefixed(b"analytic-secagg/1", label.encode(), *context)
    return HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)
