"""Key agreement: X25519 (RFC 7748) followed by HKDF."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from secagg.entropy import Entropy
from secagg.primitives.derivation import derive_key

PUBLIC_KEY_BYTES = 32
SECRET_KEY_BYTES = 32
_P = 2**255 - 19


class BadPublicKeyError(ValueError):
    """The public key is invalid or of small order: every agreement with it has a known result."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An X25519 key pair from its 32 secret bytes."""

    secret: bytes = field(repr=False)
    public: bytes = field(init=False)
    _private: X25519PrivateKey = field(init=False, repr=False, compare=False)
    _shared: dict[bytes, bytes] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        private = X25519PrivateKey.from_private_bytes(self.secret)
        object.__setattr__(self, "_private", private)
        object.__setattr__(self, "public", private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    @classmethod
    def generate(cls, entropy: Entropy) -> KeyPair:
        """Generate a fresh key pair."""
        return cls(entropy(SECRET_KEY_BYTES))

    def agree(self, peer_public: bytes, label: str, *context: bytes) -> bytes:
        """Return the 32-byte key of both sides for one purpose, bound to both public keys and the context.

        Raises:
            BadPublicKeyError: the peer's key has small order.
        """
        first, second = sorted((self.public, peer_public))
        return derive_key(self._exchange(peer_public), label, first, second, *context)

    def _exchange(self, peer_public: bytes) -> bytes:
        """Return the Diffie-Hellman result (cached by peer); HKDF is applied for each use."""
        if len(peer_public) == PUBLIC_KEY_BYTES and int.from_bytes(peer_public, "little") >= _P:
            raise BadPublicKeyError("the peer's X25519 key is not below 2^255 - 19, so other bytes are the same key")
        if peer_public not in self._shared:
            try:
                self._shared[peer_public] = self._private.exchange(X25519PublicKey.from_public_bytes(peer_public))
            except ValueError as error:
                raise BadPublicKeyError("the peer's X25519 key has small order or is no key") from error
        return self._shared[peer_public]


def check_public_key(public: bytes) -> None:
    """Refuse a public key of small order.

    Raises:
        BadPublicKeyError: it has small order. Every X25519 scalar is a multiple of 8, so any scalar reveals it.
    """
    KeyPair(bytes(SECRET_KEY_BYTES)).agree(public, "order check")
