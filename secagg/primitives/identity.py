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


def verifies(public: bytes, signature: bytes, said: bytes) -> bool:
    """Whether the holder of ``public`` signed these bytes, which ``statement`` made; for many signatures on one."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
    except (InvalidSignature, ValueError):
        return False
    return True


def statement(label: str, *parts: bytes) -> bytes:
    """What is signed: a statement of one kind, its parts length-prefixed."""
    return length_prefixed(b"analytic-secagg/1", label.encode(), *parts)
