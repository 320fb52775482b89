"""Long-lived identities: Ed25519 signatures (RFC 8032) over labelled, length-prefixed statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy

IDENTITY_BYTES = 32
SIGNATURE_BYTES = 64
_P = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})
"""The y coordinates of the points of small order: RFC 8032 verifies signatures under them that anybody can compute."""


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """Ed25519 signing key of a party; ``public`` is listed in the operator's roster.

    Args:
        secret: 32 secret bytes. ``generate`` draws them; the party stores them where only it can read, and makes the
            same key of them after a restart.

    >>> identity = IdentityKey.generate()
    >>> IdentityKey(identity.secret) == identity
    True
    >>> is_signed(identity.public, identity.sign("example", b"part"), "example", b"part")
    True
    """

    secret: bytes = field(repr=False)
    public: bytes = field(init=False)

    def __post_init__(self) -> None:
        public = Ed25519PrivateKey.from_private_bytes(self.secret).public_key()
        object.__setattr__(self, "public", public.public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def generate(cls, entropy: Entropy = os_entropy) -> IdentityKey:
        """Generate a fresh key."""
        return cls(entropy(32))

    def sign(self, label: str, *parts: bytes) -> bytes:
        """Return the 64-byte signature of a statement with this label."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(statement(label, *parts))


def is_signed(public: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Return whether a signature of a statement with this label is valid."""
    return verifies(public, signature, statement(label, *parts))


def has_small_order(public: bytes) -> bool:
    """Return whether a public key has small order, in any encoding (Chalkias et al., SSR 2020, table 1)."""
    return int.from_bytes(public, "little") % 2**255 % _P in _SMALL


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether a signature of these bytes, from ``statement``, is valid; for many signatures of one statement.

    Signatures under a key of small order are never valid.
    """
    if has_small_order(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(label: str, *parts: bytes) -> bytes:
    """Return the bytes that are signed: the label and the length-prefixed parts."""
    return length_prefixed(b"analytic-secagg/1", label.encode(), *parts)
