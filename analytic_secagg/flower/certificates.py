"""Node keys for a trial on loopback."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat


def node_key_pair() -> tuple[bytes, bytes]:
    """A SuperNode's key in OpenSSH form, secret and public, as ``ssh-keygen -t ecdsa -b 384`` makes them."""
    key = ec.generate_private_key(ec.SECP384R1())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return secret, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
