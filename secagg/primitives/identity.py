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
"""The y of the eight points of small order: for such a key RFC 8032 verifies signatures that anybody can make."""


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """A party's signing key from its 32 secret bytes; ``public`` is what the operator's roster lists."""

    secret: bytes = field(repr=False)
    public: bytes = field(init=False)

    def __post_init__(self) -> None:
        public = Ed25519PrivateKey.from_private_bytes(self.secret).public_key()
        object.__setattr__(self, "public", public.public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def generate(cls, entropy: Entropy = os_entropy) -> IdentityKey:
        """A fresh identity."""
        return cls(entropy(32))

    def sign(self, label: str, *parts: bytes) -> bytes:
        """A 64-byte signature over a statement of one kind."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(statement(label, *parts))


def is_signed(public: bytes, signature: bytes, label: str, *parts: bytes) -> bool:
    """Whether the holder of ``public`` signed this statement of this kind."""
    return verifies(public, signature, statement(label, *parts))


def has_small_order(public: bytes) -> bool:
    """Whether a public key is a point of small order, in any of its encodings (Chalkias et al., SSR 2020, table 1)."""
    return int.from_bytes(public, "little") % 2**255 % _P in _SMALL


def verifies(public: bytes, signature: bytes, said: bytes) -> bool:
    """Whether the holder of ``public`` signed these bytes, which ``statement`` made; for many signatures on one.

    A key of small order has no holder: nothing is signed with it.
    """
    if has_small_order(public):
        return False
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(label: str, *parts: bytes) -> bytes:
    """What is signed: a statement of one kind, its parts length-prefixed."""
    return length_prefixed(b"analytic-secagg/1", label.encode(), *parts)
